//! Processors that use Cohere (version 2 of its API).

pub mod command;
pub mod embed;
pub mod rerank;

use anabranch_plugin::specification::{Parameter, ParameterKind, Validation};
use anabranch_record::text::Str;

use crate::service::{backoff_parameters, request_parameters};

/// Returns the parameters for address, key and retries.
fn parameters() -> Vec<Parameter> {
    let mut parameters = vec![
        Parameter::new("apiKey", ParameterKind::Text, "Key of the API.").required().secret(),
        Parameter::new("baseURL", ParameterKind::Text, "Address of the API, without its version.")
            .default_value("https://api.cohere.com")
            .alias("base_url"),
    ];
    parameters.extend(backoff_parameters("0"));
    parameters.extend(request_parameters());
    parameters
}

/// Returns a parameter for a part of the record; the default is the payload.
fn place(name: &'static str, description: &'static str) -> Parameter {
    let roots = [".Metadata", ".Key", ".Payload"].into_iter().map(Str::from_static).collect();
    Parameter::new(name, ParameterKind::Reference, description)
        .default_value(".Payload.After")
        .validate(Validation::Within(roots))
}
