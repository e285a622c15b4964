//! Settings of the HTTP listener.

use anabranch_graph::diagnostic::Diagnostic;

use super::{Checking, Source};
use crate::settings::{ApiSettings, Compatibility, ServedSchemas};

impl Checking<'_> {
    pub(super) fn check_listener(&mut self) {
        let refuse = |what: &str| Diagnostic::error("service.invalid_value", what.to_owned());
        let serves = self.bool("schema-registry.serve");
        if serves && !cfg!(feature = "avro") {
            let what = "schema-registry.serve: this program was built without it (feature `avro`)";
            self.report(self.entry("schema-registry.serve"), refuse(what), None);
        } else if serves && self.text("schema-registry.type") != "builtin" {
            let what = "schema-registry.serve is for the built-in schema registry, and schema-registry.type is another";
            self.report(self.entry("schema-registry.serve"), refuse(what), None);
        } else if serves && !self.bool("api.enabled") {
            let what = "schema-registry.serve needs the HTTP API, and api.enabled is false";
            self.report(self.entry("schema-registry.serve"), refuse(what), None);
        }
        let api = self.api();
        if api.token.is_some() && api.token_file.is_some() {
            let what = "api.http.token and api.http.token-file are both given: only one can count";
            self.report(self.entry("api.http.token-file"), refuse(what), None);
        }
        let open = api.token.is_none() && api.token_file.is_none() && !api.is_local();
        if self.bool("api.enabled") && open && !self.bool("api.http.allow-unauthenticated") {
            let what =
                format!("api.http.address: {} can be reached from other machines, and no token is set", api.shown());
            let hint = "give a token with api.http.token-file or ANABRANCH_API_HTTP_TOKEN; without one, whoever reaches \
                        the address may do everything: api.http.allow-unauthenticated allows that";
            self.report(self.entry("api.http.address"), refuse(&what), Some(hint.to_owned()));
        }
        if api.origins.iter().any(|origin| **origin == *"*") && !api.is_local() {
            let what = "api.http.cors.allowed-origins: * is allowed only where nobody but this machine is served";
            self.report(self.entry("api.http.cors.allowed-origins"), refuse(what), None);
        }
    }

    pub(super) fn api(&self) -> ApiSettings {
        let given = |name: &str| Some(self.text(name)).filter(|text| !text.is_empty());
        let (host, port) = self.text("api.http.address").rsplit_once(':').unwrap_or_default();
        let host = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        let level = self.text("schema-registry.compatibility");
        let compatibility = Compatibility::ALL.into_iter().find(|known| known.as_str().eq_ignore_ascii_case(level));
        let served = ServedSchemas { compatibility: compatibility.unwrap_or(Compatibility::None) };
        let asks = |name: &&str| self.entry(name).source != Source::Default;
        ApiSettings {
            host: host.to_owned(),
            port: port.parse().unwrap_or_default(),
            token: given("api.http.token").map(Into::into),
            token_file: given("api.http.token-file").map(|_| self.path("api.http.token-file")),
            open_metrics: self.bool("api.http.open-metrics"),
            origins: self
                .text("api.http.cors.allowed-origins")
                .split(',')
                .map(str::trim)
                .filter(|origin| !origin.is_empty())
                .map(Into::into)
                .collect(),
            schemas: self.bool("schema-registry.serve").then_some(served),
            page: self.bool("api.http.ui.enabled"),
            asked: ["api.enabled", "api.http.address", "schema-registry.serve"].iter().any(asks),
        }
    }
}
