//! Processors that use OpenAI or a compatible service.

pub mod embeddings;
pub mod textgen;

use std::time::Duration;

use anabranch_ops_http::client::Retry;
use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::backoff::Backoff;
use anabranch_plugin::specification::{Parameter, ParameterKind, Validation};

use crate::service::count;

/// Returns the parameters for address, key and retries.
fn parameters() -> Vec<Parameter> {
    use ParameterKind::{Float, Int, Text};
    let number = |name, description, default| {
        Parameter::new(name, Int, description).default_value(default).validate(Validation::GreaterThan(-1.0))
    };
    vec![
        Parameter::new("api_key", Text, "Key of the API.").required().secret(),
        Parameter::new("base_url", Text, "Address of the API, up to the version.")
            .default_value("https://api.openai.com/v1")
            .alias("baseURL"),
        number("max_retries", "Maximum number of retries after 408, 429, 5xx or no answer.", "3"),
        number("initial_backoff", "Delay before the first retry, in milliseconds.", "1000"),
        number("max_backoff", "Maximum delay in milliseconds, unless the service asks for more.", "30000"),
        Parameter::new("backoff_factor", Float, "Growth factor of the delay between attempts.")
            .default_value("2.0")
            .validate(Validation::GreaterThan(0.0)),
    ]
}

fn retry(arguments: &Arguments) -> Retry {
    let millis = |name| Duration::from_millis(arguments.int(name).and_then(|n| u64::try_from(n).ok()).unwrap_or(0));
    Retry {
        count: count(arguments, "max_retries"),
        delays: Backoff {
            first: millis("initial_backoff"),
            longest: millis("max_backoff"),
            factor: arguments.float("backoff_factor").unwrap_or(1.0),
        },
    }
}
