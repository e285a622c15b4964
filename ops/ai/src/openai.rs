//! Processors that use OpenAI or a compatible service.

pub mod embeddings;
pub mod textgen;

use std::time::Duration;

use anabranch_ops_http::client::Retry;
use anabranch_plugin::backoff::Backoff;
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::parameters::{Argument, Parameters};
use anabranch_record::text::Str;

use crate::service::{Address, Requests};

/// Parameters for address, key and retries.
#[derive(Parameters)]
#[parameter(rename_all = "snake_case")]
struct Api {
    /// Key of the API.
    #[parameter(secret)]
    api_key: Argument<Str>,
    /// Address of the API, up to the version.
    #[parameter(default = "https://api.openai.com/v1", aliases = ["baseURL"])]
    base_url: Argument<Str>,
    /// Maximum number of retries after 408, 429, 5xx or no answer.
    #[parameter(default = 3, greater_than = -1)]
    max_retries: u64,
    /// Delay before the first retry, in milliseconds.
    #[parameter(default = 1000, greater_than = -1)]
    initial_backoff: u64,
    /// Maximum delay in milliseconds, unless the service asks for more.
    #[parameter(default = 30000, greater_than = -1)]
    max_backoff: u64,
    /// Growth factor of the delay between attempts.
    #[parameter(default = "2.0", greater_than = 0)]
    backoff_factor: f64,
}

impl Api {
    /// Returns the address of the API, with `path` appended.
    fn address(&self, path: &str, requests: &Requests) -> Result<Address, Diagnostics> {
        let delays = Backoff {
            first: Duration::from_millis(self.initial_backoff),
            longest: Duration::from_millis(self.max_backoff),
            factor: self.backoff_factor,
        };
        let retry = Retry::new(self.max_retries, delays);
        Address::new((&self.base_url, &self.base_url), path, Some(&self.api_key), retry, requests)
    }
}
