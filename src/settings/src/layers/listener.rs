//! Settings of the HTTP listener.

use std::net::IpAddr;

use anabranch_ops_tls::Identity;
use anabranch_plugin::diagnostic::Diagnostic;

use super::Checking;
use crate::codes;
use crate::listener::{ApiSettings, Compatibility, ServedSchemas, UNSENDABLE, is_sendable};
use crate::resolved::Source;

/// Schemes that an HTTP address can have.
const SECURE: &str = "https://";
const PLAIN: &str = "http://";

impl Checking<'_> {
    pub(super) fn check_listener(&mut self) {
        let refuse = |what: &str| Diagnostic::error(codes::SERVICE_INVALID_VALUE, what.to_owned());
        let serves = self.bool("schema-registry.serve");
        if serves && !cfg!(feature = "avro") {
            let what = "schema-registry.serve: this program was built without support for it (feature `avro`)";
            self.report(self.entry("schema-registry.serve"), refuse(what), None);
        } else if serves && self.text("schema-registry.type") != "builtin" {
            let what =
                "schema-registry.serve needs the built-in schema registry, but schema-registry.type is not builtin";
            self.report(self.entry("schema-registry.serve"), refuse(what), None);
        } else if serves && !self.bool("api.enabled") {
            let what = "schema-registry.serve needs the HTTP API, but api.enabled is false";
            self.report(self.entry("schema-registry.serve"), refuse(what), None);
        }
        let api = self.api();
        if api.token.as_ref().is_some_and(|token| !is_sendable(token)) {
            let what = format!("api.http.token: the token contains {UNSENDABLE}");
            self.report(self.entry("api.http.token"), refuse(&what), None);
        }
        if api.token.is_some() && api.token_file.is_some() {
            let what = "api.http.token and api.http.token-file are both set: set only one of them";
            self.report(self.entry("api.http.token-file"), refuse(what), None);
        }
        if self.text("api.http.tls.cert").is_empty() != self.text("api.http.tls.key").is_empty() {
            let what = "set both api.http.tls.cert and api.http.tls.key, or neither";
            self.report(self.entry("api.http.tls.cert"), refuse(what), None);
        }
        if self.text("api.http.address").starts_with(PLAIN) && (api.identity.is_some() || api.authorities.is_some()) {
            let what = "api.http.address begins with http://, which means without TLS, but api.http.tls is set";
            self.report(self.entry("api.http.address"), refuse(what), None);
        }
        // Other addresses have been refused already.
        let address = self.text("api.http.address");
        let is_address = address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let open = is_address && api.token.is_none() && api.token_file.is_none() && !api.is_local();
        if self.bool("api.enabled") && open && !self.bool("api.http.allow-unauthenticated") {
            let what = format!("api.http.address: other machines can reach {}, but no token is set", api.shown());
            let hint = "set a token with api.http.token-file or ANABRANCH_API_HTTP_TOKEN. To let everyone who reaches \
                        the address do everything, set api.http.allow-unauthenticated";
            self.report(self.entry("api.http.address"), refuse(&what), Some(hint.to_owned()));
        }
        if api.origins.iter().any(|origin| **origin == *"*") && !api.is_local() {
            let what = "api.http.cors.allowed-origins: * is allowed only if the address serves only this machine";
            self.report(self.entry("api.http.cors.allowed-origins"), refuse(what), None);
        }
    }

    pub(super) fn api(&self) -> ApiSettings {
        let given = |name: &str| Some(self.text(name)).filter(|text| !text.is_empty());
        let address = self.text("api.http.address");
        let (secure, address) = match address.strip_prefix(SECURE) {
            Some(address) => (true, address),
            None => (false, address.strip_prefix(PLAIN).unwrap_or(address)),
        };
        let (host, port) = address.rsplit_once(':').unwrap_or_default();
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
            identity: given("api.http.tls.cert")
                .zip(given("api.http.tls.key"))
                .map(|_| Identity { certificates: self.path("api.http.tls.cert"), key: self.path("api.http.tls.key") }),
            authorities: given("api.http.tls.ca").map(|_| self.path("api.http.tls.ca")),
            secure,
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
            // An unspecified address is one to listen on, for example in a container, and does not name a service.
            named: matches!(self.entry("api.http.address").source, Source::Environment | Source::Flag)
                && !host.is_empty()
                && !host.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified()),
        }
    }
}
