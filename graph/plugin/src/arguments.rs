//! Settings of a plugin, checked against its specification: typed, with defaults.

mod template;
mod typed;
mod units;
mod unknown;

use std::collections::{BTreeMap, BTreeSet};

use anabranch_record::near::slip;
use anabranch_record::text::Str;

pub(crate) use template::invalid_template;
pub use template::not_compiled;
pub use typed::Typed;
pub(crate) use typed::{Checked, type_check};
pub use units::{parse_bool, parse_bytes, parse_duration};
use unknown::{not_given, unknown, unnamed};

use crate::codes;
use crate::diagnostic::{Diagnostic, Diagnostics, Span};
use crate::secret::MASKED_FROM;
use crate::secret::{passwords, without_literals, without_passwords, written_credentials};
use crate::settings::Settings;
use crate::specification::{ParameterKind, Specification};
use crate::written::Written;

/// The values of a plugin's parameters. Only [`Arguments::parse`] creates it, so every value has passed the
/// type check and the validations of its parameter.
#[derive(Clone, Debug, Default)]
pub struct Arguments {
    values: BTreeMap<Str, Checked>,
    /// Settings with a blank value, with the places of their names; `values` may contain their defaults.
    blank: BTreeMap<Str, Span>,
    span: Span,
}

impl Arguments {
    /// Checks settings and adds defaults.
    ///
    /// # Errors
    /// All unknown, missing or ill-typed settings, with their places; paths are relative to the settings (`/field`).
    pub fn parse(specification: &Specification, settings: &Settings) -> Result<Arguments, Diagnostics> {
        let mut arguments = Arguments { values: BTreeMap::new(), blank: BTreeMap::new(), span: settings.span };
        let mut findings = Diagnostics::new();
        let mut given: BTreeMap<Str, Span> = BTreeMap::new();
        let mut ill_typed: BTreeSet<Str> = BTreeSet::new();
        let mut free: Option<Vec<&str>> = None;
        // If a misspelt setting stands for a required one, the required one is not also reported as missing.
        let mut meant: BTreeSet<&str> = BTreeSet::new();
        for setting in &settings.entries {
            let name = setting.name.value.trim();
            if name.is_empty() && !setting.value.value().trim().is_empty() {
                let (finding, parameter) = unnamed(specification, &setting.value);
                findings.push(finding);
                meant.extend(parameter);
                continue;
            }
            let Some(parameter) = specification.parameter(name) else {
                let free = free.get_or_insert_with(|| not_given(specification, settings));
                let finding = unknown(specification, name, setting.name.span).with_path(pointer(name));
                meant.extend(slip(name, free.iter().copied()));
                findings.push(finding.with_slip(setting.name.span, name, free.iter().copied()));
                continue;
            };
            let name: Str = if parameter.name.contains('*') { name.into() } else { parameter.name.clone() };
            if let Some(first) = given.insert(name.clone(), setting.name.span) {
                findings.push(
                    Diagnostic::error(
                        codes::SETTINGS_DUPLICATE,
                        format!("{name:?} is set twice under different names"),
                    )
                    .with_span(setting.name.span)
                    .with_related(first, "first set here")
                    .with_path(pointer(&setting.name.value)),
                );
                continue;
            }
            let is_blank = setting.value.value().trim().is_empty();
            if is_blank && !(parameter.blank && setting.value.is_given()) {
                arguments.blank.insert(name, setting.name.span);
                continue;
            }
            match type_check(parameter, &name, setting.value.clone()) {
                Ok(argument) => {
                    arguments.values.insert(name, argument);
                }
                Err(found) => {
                    findings.0.extend(found.into_iter().map(|d| d.with_path(pointer(&setting.name.value))));
                    ill_typed.insert(name);
                }
            }
        }
        for parameter in &specification.parameters {
            let name = &parameter.name;
            if name.contains('*') || arguments.values.contains_key(name) || ill_typed.contains(name) {
                continue;
            }
            let empty = given.get(name).copied();
            if let Some(default) = &parameter.default {
                let default = Written::new(default.clone(), default.clone(), empty.unwrap_or(settings.span));
                match type_check(parameter, &parameter.name, default) {
                    Ok(argument) => {
                        arguments.values.insert(parameter.name.clone(), Checked { is_default: true, ..argument });
                    }
                    Err(found) => findings.0.extend(found.into_iter().map(|d| d.with_path(pointer(&parameter.name)))),
                }
            } else if parameter.is_required() && !meant.contains(name.as_str()) {
                let blank = settings.entries.iter().find(|setting| {
                    setting.name.span == empty.unwrap_or_default() && setting.value.is_given() && empty.is_some()
                });
                let mut message = format!("{:?} is required by {}", parameter.name, specification.name);
                let hint = match blank {
                    Some(setting) if setting.value.written().contains("${") => {
                        message.push_str(", and the variable in its value is empty");
                        "set the variable, or write `${NAME:-default}`".to_owned()
                    }
                    Some(_) => {
                        message.push_str(", and its value is empty");
                        format!("{}: {}", parameter.name, parameter.description)
                    }
                    None => format!("{}: {}", parameter.name, parameter.description),
                };
                findings.push(
                    Diagnostic::error(codes::SETTINGS_REQUIRED, message)
                        .with_span(empty.unwrap_or(settings.span))
                        .with_hint(hint)
                        .with_path(pointer(&parameter.name)),
                );
            }
        }
        if findings.has_errors() { Err(findings) } else { Ok(arguments) }
    }

    fn typed(&self, name: &str) -> Option<&Typed> {
        self.values.get(name).map(|a| &a.typed)
    }

    /// Returns the value of a parameter and its text; `None` if the specification declares it with another kind, as a
    /// program may.
    pub(crate) fn of_kind(&self, name: &str, kind: ParameterKind) -> Option<(&Typed, &Str)> {
        let found = self.values.get(name).filter(|found| found.typed.is_of(kind));
        found.map(|found| (&found.typed, found.written.value()))
    }

    /// Returns the names of all values, in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Str> {
        self.values.keys()
    }

    /// Returns the text of a parameter in the file, or `default`, and whether it is a credential. A blank setting has the
    /// place of its name, and an absent one that of the settings.
    pub(crate) fn origin(&self, name: &str, default: Option<&'static str>) -> (Written, bool) {
        let text = Str::from_static(default.unwrap_or_default());
        let span = self.blank.get(name).copied().unwrap_or(self.span);
        let absent = || (Written::new(text.clone(), text, span), false);
        self.values.get(name).map_or_else(absent, |a| (a.written.clone(), a.secret))
    }

    /// Returns `true` if the file contains the setting, even if its value is blank.
    pub(crate) fn is_given(&self, name: &str) -> bool {
        self.blank.contains_key(name) || self.values.get(name).is_some_and(|a| !a.is_default)
    }

    /// Returns `true` if the parameter has a value, set or by default.
    pub fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// Returns `true` if the parameter has a value other than `false` and zero.
    pub fn is_on(&self, name: &str) -> bool {
        match self.typed(name) {
            None | Some(Typed::Bool(false) | Typed::Int(0) | Typed::Bytes(0)) => false,
            Some(Typed::Float(value)) => *value != 0.0,
            Some(Typed::Duration(value)) => !value.is_zero(),
            Some(_) => true,
        }
    }

    /// Returns the text of a parameter of any kind.
    pub fn text(&self, name: &str) -> Option<&Str> {
        self.values.get(name).map(|a| a.written.value())
    }

    /// Returns the values in the file, without defaults, in name order: for plugins that apply defaults themselves. A
    /// blank setting is a blank text.
    pub fn given(&self) -> impl Iterator<Item = (&Str, Written)> {
        let blank = self.blank.iter().map(|(name, span)| (name, Written::new("", "", *span)));
        let given = self.values.iter().filter(|(_, argument)| !argument.is_default);
        let mut all: Vec<_> = given.map(|(name, argument)| (name, argument.written.clone())).chain(blank).collect();
        all.sort_by_key(|(name, _)| *name);
        all.into_iter()
    }

    /// Returns the text in the file, for display: `${NAME}` is not replaced, and the literal parts of credentials and all
    /// passwords ([`passwords`](crate::secret::passwords)) are masked.
    pub fn shown(&self, name: &str) -> Option<Str> {
        self.values.get(name).map(|a| {
            let written = a.written.written();
            let shown = if a.secret { without_literals(written) } else { without_passwords(written) };
            if *shown == **written { written.clone() } else { shown.into_owned().into() }
        })
    }

    /// Returns the names and display texts of all values, in name order.
    pub fn iter_shown(&self) -> impl Iterator<Item = (&Str, Str)> {
        self.values.keys().filter_map(|name| Some((name, self.shown(name)?)))
    }

    /// Returns the texts of at least [`MASKED_FROM`] bytes that must be masked in logs, faults and dead letters: values
    /// of variables, complete credentials, passwords in URLs.
    pub fn secrets(&self) -> impl Iterator<Item = Str> {
        self.values.values().flat_map(|a| secrets_of(&a.written, a.secret))
    }

    /// Returns the place of the value; for a default the place of the settings.
    pub(crate) fn span(&self, name: &str) -> Span {
        self.values.get(name).map_or(self.span, |a| a.written.span())
    }
}

/// Returns the texts of a value of at least [`MASKED_FROM`] bytes that must be masked.
pub(crate) fn secrets_of(written: &Written, is_secret: bool) -> Vec<Str> {
    let whole = is_secret.then(|| written.value().clone());
    let value = written.value().as_str();
    let inside = passwords(value).filter_map(|at| value.get(at)).map(Str::from);
    let literal = written_credentials(written.written(), is_secret).map(Str::from);
    let all = written.substituted().cloned().chain(whole).chain(inside).chain(literal);
    all.filter(|text| text.len() >= MASKED_FROM).collect()
}

/// Returns the JSON pointer of a setting, relative to the settings.
pub(crate) fn pointer(name: &str) -> String {
    format!("/{}", name.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::specification::{Parameter, Validation};

    fn specification() -> Specification {
        Specification::builtin("demo", "For tests.")
            .with(
                Parameter::new("count", ParameterKind::Int, "How many.")
                    .required()
                    .validate(Validation::GreaterThan(0.0)),
            )
            .with(Parameter::new("mode", ParameterKind::Text, "How.").default_value("fast").one_of(&["fast", "slow"]))
            .with(Parameter::new("token", ParameterKind::Text, "Key.").secret())
            .with(Parameter::new("options.*", ParameterKind::Text, "Types.").one_of(&["int", "string"]))
    }

    #[test]
    fn a_required_setting_that_is_wrong_is_not_missing_too() {
        assert_eq!(messages(&[("count", "many")]), ["count: \"many\" is not an integer"]);
    }

    fn messages(pairs: &[(&str, &str)]) -> Vec<String> {
        match Arguments::parse(&specification(), &Settings::from_pairs(pairs.iter().copied())) {
            Ok(_) => Vec::new(),
            Err(findings) => findings.into_iter().map(|d| d.message).collect(),
        }
    }

    #[test]
    fn defaults_are_filled_in() {
        let arguments = Arguments::parse(
            &specification(),
            &Settings::from_pairs([("count", " 3 "), ("mode", " "), ("options.id", "int")]),
        )
        .unwrap();
        assert!(matches!(arguments.typed("count"), Some(Typed::Int(3))));
        assert_eq!(arguments.text("mode").unwrap(), &"fast");
        assert_eq!(arguments.names().map(Str::as_str).collect::<Vec<_>>(), ["count", "mode", "options.id"]);
        assert!(!arguments.has("token"));
    }

    #[test]
    fn what_is_given_is_told_from_defaults() {
        let settings = Settings::from_pairs([("token", " "), ("count", "3"), ("options.id", "int")]);
        let arguments = Arguments::parse(&specification(), &settings).unwrap();
        let given: Vec<(String, String)> =
            arguments.given().map(|(name, text)| (name.to_string(), text.value().to_string())).collect();
        let expected = [("count", "3"), ("options.id", "int"), ("token", "")];
        assert_eq!(given, expected.map(|(name, text)| (name.to_owned(), text.to_owned())));
    }

    #[test]
    fn every_problem_is_found() {
        assert_eq!(
            messages(&[("mode", "quick"), ("cuont", "1"), ("options.id", "uuid")]),
            [
                "mode: \"quick\" is not one of fast, slow",
                "demo has no parameter \"cuont\"",
                "options.id: \"uuid\" is not one of int, string",
            ],
            "what is misspelt is not missing too"
        );
        assert_eq!(messages(&[("mode", "slow")]), ["\"count\" is required by demo"]);
        assert_eq!(messages(&[("count", "0")]), ["count: \"0\" must be at least 1"]);
        assert_eq!(messages(&[("count", "x")]), ["count: \"x\" is not an integer"]);
    }

    #[test]
    fn what_stands_beside_the_plugin_is_sent_there() {
        let settings = Settings::from_pairs([("count", "1"), ("workers", "2")]);
        let found = Arguments::parse(&specification(), &settings).unwrap_err();
        let hint = found.iter().find_map(|finding| finding.hint.clone()).unwrap();
        assert_eq!(hint, "write \"workers\" next to \"plugin\", not in \"settings\"");
    }

    #[test]
    fn credentials_are_not_shown() {
        let arguments =
            Arguments::parse(&specification(), &Settings::from_pairs([("count", "1"), ("token", "hunter22")])).unwrap();
        assert_eq!(arguments.shown("token").as_deref(), Some("***"));
        assert!(!format!("{:?}", arguments.iter_shown().collect::<Vec<_>>()).contains("hunter22"));
        assert_eq!(arguments.secrets().collect::<Vec<_>>(), ["hunter22"]);
    }

    #[test]
    fn credentials_that_are_partly_literal_are_not_shown() {
        let specification = specification()
            .with(Parameter::new("url", ParameterKind::Text, "Where."))
            .with(Parameter::new("headers.*", ParameterKind::Text, "Headers."))
            .with(Parameter::new("config.*", ParameterKind::Text, "Members."))
            .with(Parameter::new("environment.*", ParameterKind::Text, "Variables."));
        for (name, written, value, shown) in [
            ("token", "Bearer ${T:-hunter33}", "Bearer of-the-variable", "Bearer ${T:-***}"),
            ("token", "Bearer ${T:-hunter33}", "Bearer hunter33", "Bearer ${T:-***}"),
            ("token", "${T}", "of-the-variable", "${T}"),
            (
                "url",
                "http://me:${T:-hunter33}@host/?a=${A:-b}",
                "http://me:x@host/?a=b",
                "http://me:${T:-***}@host/?a=${A:-b}",
            ),
            ("url", "http://host/?api_key=hunter33", "http://host/?api_key=hunter33", "http://host/?api_key=***"),
            ("headers.X-Auth-Token", "hunter33", "hunter33", "***"),
            ("headers.X-Auth-Token", "${T:-hunter33}", "of-the-variable", "${T:-***}"),
            ("headers.X-Trace", "${T:-hunter33}", "of-the-variable", "${T:-hunter33}"),
            ("token", "${T}, hunter33", "of-the-variable, hunter33", "${T}, ***"),
            ("token", "hunter33${T}", "hunter33of-the-variable", "***${T}"),
            ("url", "x --token=hunter33", "x --token=hunter33", "x --token=***"),
            ("url", "{\"password\": \"hunter33\"}", "{\"password\": \"hunter33\"}", "{\"password\": \"***\"}"),
            ("config.a.private_key", "hunter33", "hunter33", "***"),
            ("config.token_url", "hunter33", "hunter33", "hunter33"),
            ("environment.API_TOKEN", "hunter33", "hunter33", "***"),
        ] {
            let mut settings = Settings::from_pairs([("count", "1"), (name, "")]);
            settings.entries[1].value = Written::new(value, written, Span::default());
            let arguments = Arguments::parse(&specification, &settings).unwrap();
            assert_eq!(arguments.shown(name).as_deref(), Some(shown), "{name}: {written}");
            let masked = arguments.secrets().any(|secret| secret.contains("hunter33"));
            assert_eq!(masked, shown.contains("***"), "{name}: {written}");
        }
    }
}
