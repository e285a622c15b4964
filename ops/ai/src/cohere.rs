//! Processors that use Cohere (version 2 of its API).

pub mod command;
pub mod embed;
pub mod rerank;

use anabranch_ops_http::client::Retries;
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::parameters::{Argument, Parameters};
use anabranch_record::text::Str;

use crate::service::{Address, Requests};

/// Parameters for address, key and retries.
#[derive(Parameters)]
struct Api {
    /// Key of the API.
    #[parameter(secret)]
    api_key: Argument<Str>,
    /// Address of the API, without its version.
    #[parameter(name = "baseURL", default = "https://api.cohere.com", aliases = ["base_url"])]
    base_url: Argument<Str>,
    #[parameter(flatten)]
    backoff: Retries,
    #[parameter(flatten)]
    requests: Requests,
}

impl Api {
    /// Returns the address of the API, with `path` appended.
    fn address(&self, path: &str) -> Result<Address, Diagnostics> {
        let base = (&self.base_url, self.base_url.as_str());
        Address::new(base, path, Some(&self.api_key), self.backoff.retry(), &self.requests)
    }
}
