//! Settings of traces.

use anabranch_plugin::diagnostic::Diagnostic;
use anabranch_plugin::trace::Share;
use http::Uri;

use super::{Checking, Layers};
use crate::codes;
use crate::declaration::SettingKey;
use crate::resolved::Source;
use crate::traces::TraceSettings;
use crate::traces::{headers, pairs, parse_share};

/// Path at which collectors receive spans.
const PATH: &str = "/v1/traces";
/// The variable whose value is a complete URL.
const WHOLE: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
/// The attribute with the name of the service.
const SERVICE: &str = "service.name";

const LEFT_OUT: &str = "this program was built without support for it (feature `traces`)";

impl Layers<'_> {
    /// Returns the reason why a standard variable cannot be used, or is not meant for this program.
    pub(super) fn unfit(&self, key: &SettingKey, variable: &str, value: &str) -> Option<String> {
        let said = |name: &str| Some(self.in_environment(name)?.to_str()?.trim().to_ascii_lowercase());
        match key.name {
            "traces.endpoint" if !cfg!(feature = "traces") => Some(LEFT_OUT.to_owned()),
            "traces.endpoint" if said("OTEL_SDK_DISABLED").as_deref() == Some("true") => {
                Some("OTEL_SDK_DISABLED is true".to_owned())
            }
            "traces.endpoint" if said("OTEL_TRACES_EXPORTER").is_some_and(|exporter| exporter != "otlp") => {
                Some("OTEL_TRACES_EXPORTER names an exporter other than otlp".to_owned())
            }
            "traces.endpoint" => {
                let names = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
                let protocol = names.iter().find_map(|name| Some((name, said(name)?)));
                match protocol.filter(|(_, protocol)| protocol != "http/protobuf") {
                    Some((name, protocol)) => {
                        Some(format!("{name} is {protocol}, but only http/protobuf is supported; set traces.endpoint"))
                    }
                    None => unusable(value).map(str::to_owned),
                }
            }
            "traces.sample" if said("OTEL_TRACES_SAMPLER").is_some_and(|name| !name.ends_with("traceidratio")) => {
                Some(format!("{variable} is not the share of the sampler that OTEL_TRACES_SAMPLER names"))
            }
            "traces.headers" => headers(value).err().map(str::to_owned),
            "traces.attributes" => pairs(value).err().map(str::to_owned),
            _ => None,
        }
    }
}

impl Checking<'_> {
    /// Warns of settings of traces if tracing is off.
    pub(super) fn check_idle_traces(&mut self) {
        let traces = !self.text("traces.endpoint").is_empty();
        // A variable that other programs read too may not be meant for this program.
        let idle = self.resolved.iter().find(|entry| {
            !traces
                && entry.key.name.starts_with("traces.")
                && entry.source != Source::Default
                && entry.standard.is_none()
                && entry.text.as_ref().is_some_and(|text| !text.is_empty())
        });
        if let Some(entry) = idle {
            let message = format!("{} has no effect: traces.endpoint is not set", entry.key.name);
            let hint = "set traces.endpoint, or remove this setting".to_owned();
            self.report(entry, Diagnostic::warning(codes::SERVICE_NO_EFFECT, message), Some(hint));
        }
    }

    pub(super) fn check_traces(&mut self) {
        let endpoint = self.text("traces.endpoint");
        let problems = [
            ("traces.endpoint", (!cfg!(feature = "traces") && !endpoint.is_empty()).then_some(LEFT_OUT)),
            ("traces.endpoint", unusable(endpoint).filter(|_| !endpoint.is_empty())),
            ("traces.headers", headers(self.text("traces.headers")).err()),
            ("traces.attributes", pairs(self.text("traces.attributes")).err()),
        ];
        for (name, problem) in problems {
            if let Some(problem) = problem {
                let finding = Diagnostic::error(codes::SERVICE_INVALID_VALUE, format!("{name}: {problem}"));
                self.report(self.entry(name), finding, None);
            }
        }
    }

    pub(super) fn traces(&self) -> Option<TraceSettings> {
        let endpoint = Some(self.text("traces.endpoint")).filter(|endpoint| !endpoint.is_empty())?;
        let is_whole = self.entry("traces.endpoint").standard == Some(WHOLE);
        let bare = endpoint.trim_end_matches('/');
        let mut attributes = pairs(self.text("traces.attributes")).unwrap_or_default();
        let named = attributes.iter().position(|(name, _)| name == SERVICE).map(|at| attributes.swap_remove(at).1);
        let service = match self.entry("traces.service-name").source {
            Source::Default => named,
            Source::File | Source::Environment | Source::Flag => None,
        };
        Some(TraceSettings {
            endpoint: if is_whole || bare.ends_with(PATH) { endpoint.to_owned() } else { format!("{bare}{PATH}") },
            share: parse_share(self.text("traces.sample")).unwrap_or(Share::NONE),
            headers: headers(self.text("traces.headers")).unwrap_or_default(),
            credential: self.credential("traces.headers"),
            service: service.unwrap_or_else(|| self.text("traces.service-name").to_owned()),
            attributes,
        })
    }
}

/// Returns the reason why a URL is not usable for a collector.
fn unusable(url: &str) -> Option<&'static str> {
    let Ok(uri) = url.parse::<Uri>() else {
        return Some("it is not the URL of a server (for example http://localhost:4318)");
    };
    let Some(authority) = uri.authority().filter(|_| matches!(uri.scheme_str(), Some("http" | "https"))) else {
        return Some("it is not the URL of a server (for example http://localhost:4318)");
    };
    if authority.as_str().contains('@') || uri.query().is_some() {
        // The URL appears in messages, so it must not contain credentials.
        return Some("the URL must not contain a password or a query; put credentials into traces.headers");
    }
    None
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::layers::SettingsFindings;
    use crate::settings::Settings;

    fn resolve(
        flags: &[(&'static str, &str)],
        env: &[(&str, &str)],
    ) -> Result<(Settings, SettingsFindings), SettingsFindings> {
        let flags: Vec<_> = flags.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let environment: Vec<_> =
            env.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))).collect();
        Layers { flags: &flags, environment: &environment }.resolve()
    }

    fn messages(refused: &SettingsFindings) -> Vec<String> {
        refused.findings.iter().map(|finding| finding.message.clone()).collect()
    }

    fn traces(flags: &[(&'static str, &str)], env: &[(&str, &str)]) -> Option<TraceSettings> {
        resolve(flags, env).unwrap_or_else(|refused| panic!("{:?}", messages(&refused))).0.traces
    }

    #[test]
    fn nothing_is_traced_unless_somebody_says_where_to() {
        assert!(traces(&[("traces.sample", "1")], &[("OTEL_SERVICE_NAME", "x")]).is_none());
    }

    #[test]
    #[cfg(feature = "traces")]
    fn the_path_is_added_where_it_is_missing() {
        for (given, url) in [
            ("http://c:4318", "http://c:4318/v1/traces"),
            ("https://c/otlp/", "https://c/otlp/v1/traces"),
            ("http://c/v1/traces", "http://c/v1/traces"),
        ] {
            assert_eq!(traces(&[("traces.endpoint", given)], &[]).unwrap().endpoint, url);
            assert_eq!(traces(&[], &[("OTEL_EXPORTER_OTLP_ENDPOINT", given)]).unwrap().endpoint, url);
        }
        let whole =
            [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a"), ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://b/in")];
        assert_eq!(traces(&[], &whole).unwrap().endpoint, "http://b/in");
        assert_eq!(traces(&[("traces.endpoint", "http://c")], &whole).unwrap().endpoint, "http://c/v1/traces");
    }

    #[test]
    #[cfg(feature = "traces")]
    fn variables_of_opentelemetry_count_where_nothing_else_does() {
        let env = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20hunter2, x-team = a"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=orders,region=eu%2C1"),
            ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
        ];
        let found = traces(&[], &env).unwrap();
        let headers = [("authorization", "Bearer hunter2"), ("x-team", "a")];
        assert_eq!(found.headers, headers.map(|(name, value)| (name.to_owned(), value.into())));
        assert_eq!((found.share.as_f64(), found.service.as_str()), (0.25, "orders"));
        assert_eq!(found.attributes, [("region".to_owned(), "eu,1".to_owned())]);
        assert!(!format!("{found:?}").contains("hunter2"));
        let flags = [("traces.sample", "1/2"), ("traces.service-name", "flows"), ("traces.headers", "")];
        let found = traces(&flags, &env).unwrap();
        assert_eq!((found.share.as_f64(), found.service.as_str(), found.headers.len()), (0.5, "flows", 0));
    }

    #[test]
    #[cfg(feature = "traces")]
    fn variables_that_are_not_meant_for_it_are_warned_of() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4317");
        for (env, warning) in [
            (("OTEL_SDK_DISABLED", "true"), "OTEL_SDK_DISABLED is true"),
            (("OTEL_TRACES_EXPORTER", "none"), "OTEL_TRACES_EXPORTER names an exporter other than otlp"),
            (
                ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
                "OTEL_EXPORTER_OTLP_PROTOCOL is grpc, but only http/protobuf is supported; set traces.endpoint",
            ),
        ] {
            let (settings, found) = resolve(&[], &[endpoint, env]).unwrap();
            assert!(settings.traces.is_none());
            let expected = format!("the variable OTEL_EXPORTER_OTLP_ENDPOINT is ignored: {warning}");
            assert_eq!(messages(&found), [expected]);
        }
        let env = [("OTEL_TRACES_SAMPLER", "jaeger_remote"), ("OTEL_TRACES_SAMPLER_ARG", "endpoint=http://x")];
        let (settings, found) = resolve(&[], &env).unwrap();
        let sample = settings.resolved.iter().find(|entry| entry.key.name == "traces.sample").unwrap();
        assert_eq!((sample.text.as_deref(), sample.source), (Some("0.01"), Source::Default));
        assert_eq!(found.findings.iter().count(), 1);
    }

    #[test]
    fn what_is_wrong_is_said_without_the_value() {
        for (name, value) in [
            ("traces.endpoint", "collector:4318"),
            ("traces.endpoint", "ftp://c"),
            ("traces.endpoint", "http://user:hunter2@c"),
            ("traces.endpoint", "http://c?token=hunter2"),
            ("traces.headers", "hunter2"),
            ("traces.headers", "hun ter2=x"),
            ("traces.headers", "x=hunter2%0a"),
            ("traces.attributes", "=hunter2"),
        ] {
            let refused = resolve(&[(name, value)], &[]).unwrap_err();
            let message = messages(&refused).join("\n");
            assert!(message.starts_with(name) && !message.contains("hunter2"), "{message}");
        }
        let refused = resolve(&[("traces.sample", "5")], &[]).unwrap_err();
        assert_eq!(messages(&refused), ["traces.sample: \"5\" is not a share from 0 to 1 (for example 0.01 or 1/100)"]);
    }
}
