//! The configuration of a tap: a JSON object from settings.

use std::collections::BTreeMap;
use std::fmt;

use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics};
use anabranch_plugin::parameters::{Argument, Parameters};
use anabranch_plugin::secret::{MASKED_FROM, names_a_credential};
use anabranch_record::text::Str;
use serde_json::{Map, Value};

/// The settings `config.*`, beside the setting `config`.
#[derive(Parameters)]
pub(crate) struct ConfigMembers {
    /// Member of the configuration, such as `config.host`. A dot separates the names of nested objects. Numbers, true, false,
    /// null, and JSON in brackets are passed on as JSON. Other values are texts, and so are the values of variables. A member
    /// whose name is that of a credential, such as `config.password`, is secret.
    #[parameter(name = "config")]
    pub(crate) members: BTreeMap<Str, Argument<Str>>,
}

/// The configuration. `Debug` does not show it, because it contains credentials.
#[derive(Clone, PartialEq)]
pub(crate) struct TapConfig {
    value: Map<String, Value>,
    secrets: Vec<Str>,
}

impl fmt::Debug for TapConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TapConfig(***)")
    }
}

impl TapConfig {
    /// Creates it from the JSON text of the setting `config` and the settings `config.*`, which count if both have a value.
    ///
    /// # Errors
    /// The text is not a JSON object; two settings exclude each other.
    pub(crate) fn new(
        text: &Argument<Option<Str>>,
        members: &BTreeMap<Str, Argument<Str>>,
    ) -> Result<TapConfig, Diagnostics> {
        let mut findings = Diagnostics::new();
        let mut value = Map::new();
        let mut secrets = Vec::new();
        if let Some(given) = &**text {
            match serde_json::from_str::<Value>(given) {
                Ok(Value::Object(object)) => {
                    value = object;
                    let whole = given.trim();
                    secrets.extend(text.secrets().filter(|secret| secret.trim() != whole));
                }
                Ok(_) => {
                    findings.push(text.invalid("the text is not a JSON object").with_hint("write `{\"name\": value}`"));
                }
                // The message of the parser may quote the text.
                Err(error) => findings.push(text.invalid(format_args!(
                    "the text is not valid JSON (line {}, column {})",
                    error.line(),
                    error.column()
                ))),
            }
        }
        for (name, member) in members {
            secrets.extend(member.secrets());
            let inserted = match json_of(member) {
                Ok(json) => insert(&mut value, name, json),
                Err(finding) => {
                    findings.push(*finding);
                    continue;
                }
            };
            if let Err(other) = inserted {
                findings.push(member.invalid(format_args!("config.{other} has a value that is not an object")));
            }
        }
        credentials(&value, &mut secrets);
        match findings.has_errors() {
            true => Err(findings),
            false => Ok(TapConfig { value, secrets }),
        }
    }

    /// Returns the JSON text, for the tap only.
    pub(crate) fn text(&self) -> String {
        // A map with texts as keys is always valid JSON.
        serde_json::to_string(&self.value).unwrap_or_default()
    }

    /// Returns the texts of credentials.
    pub(crate) fn secrets(&self) -> &[Str] {
        &self.secrets
    }
}

/// Adds the texts of members whose names are those of credentials.
fn credentials(object: &Map<String, Value>, secrets: &mut Vec<Str>) {
    for (name, value) in object {
        match value {
            Value::Object(object) => credentials(object, secrets),
            Value::String(text) if names_a_credential(name) && text.len() >= MASKED_FROM => {
                secrets.push(text.as_str().into());
            }
            _ => {}
        }
    }
}

/// Returns the value of a setting: JSON if it is written in the file and is not a bare word, otherwise a text.
///
/// # Errors
/// The text begins with a bracket, as JSON does, and is not JSON.
fn json_of(member: &Argument<Str>) -> Result<Value, Box<Diagnostic>> {
    let text = member.text().as_str();
    if !member.is_constant() {
        return Ok(Value::String(text.to_owned()));
    }
    match serde_json::from_str(text) {
        Ok(value) => Ok(value),
        Err(error) if text.trim_start().starts_with(['[', '{']) => {
            let what = format!("the text is not valid JSON (line {}, column {})", error.line(), error.column());
            let hint = "correct the JSON, or write a text with double quotes inside single quotes: '\"[text\"'";
            Err(Box::new(member.invalid(what).with_hint(hint)))
        }
        Err(_) => Ok(Value::String(text.to_owned())),
    }
}

/// Sets a member by its path. Fails with the name of a member on the path that is not an object.
fn insert<'n>(object: &mut Map<String, Value>, path: &'n str, value: Value) -> Result<(), &'n str> {
    let Some((first, rest)) = path.split_once('.') else {
        if object.get(path).is_some_and(Value::is_object) && !value.is_object() {
            return Err(path);
        }
        object.insert(path.to_owned(), value);
        return Ok(());
    };
    match object.entry(first.to_owned()).or_insert_with(|| Value::Object(Map::new())) {
        Value::Object(inner) => insert(inner, rest, value).map_err(|_| path),
        _ => Err(first),
    }
}

#[cfg(test)]
mod tests {
    use anabranch_plugin::arguments::Arguments;
    use anabranch_plugin::diagnostic::Span;
    use anabranch_plugin::diagnostic::Spanned;
    use anabranch_plugin::parameters::declared;
    use anabranch_plugin::settings::{Setting, Settings};
    use anabranch_plugin::specification::Specification;
    use anabranch_plugin::written::Written;
    use serde_json::json;

    use super::*;

    #[derive(Parameters)]
    struct Text {
        /// Text.
        #[parameter(secret)]
        config: Argument<Option<Str>>,
    }

    fn config(pairs: &[(&str, &str, &str)]) -> Result<TapConfig, Vec<String>> {
        let entries = pairs.iter().map(|(name, value, written)| Setting {
            name: Spanned::new((*name).into(), Span::default()),
            value: Written::new(*value, *written, Span::default()),
        });
        let settings = Settings { entries: entries.collect(), span: Span::default() };
        let specification = Specification::builtin("x", "").with_all(declared::<(Text, ConfigMembers)>());
        let (text, members): (Text, ConfigMembers) =
            Arguments::parse(&specification, &settings).unwrap().read().unwrap();
        TapConfig::new(&text.config, &members.members)
            .map_err(|findings| findings.into_iter().map(|finding| finding.message).collect())
    }

    fn same(name: &'static str, value: &'static str) -> (&'static str, &'static str, &'static str) {
        (name, value, value)
    }

    #[test]
    fn settings_become_typed_members_and_variables_stay_texts() {
        let found = config(&[
            same("config", r#"{"host": "db", "nested": {"a": 1}}"#),
            same("config.port", "5432"),
            same("config.ssl", "false"),
            same("config.tables", r#"["a", "b"]"#),
            same("config.user", "app"),
            same("config.nested.b", "2"),
            ("config.password", "0123456", "${PASSWORD}"),
        ])
        .unwrap();
        let expected = json!({
            "host": "db", "nested": {"a": 1, "b": 2}, "port": 5432, "ssl": false, "tables": ["a", "b"], "user": "app",
            "password": "0123456"
        });
        assert_eq!(serde_json::from_str::<Value>(&found.text()).unwrap(), expected);
        assert!(found.secrets().contains(&"0123456".into()), "{:?}", found.secrets());
        assert!(!format!("{found:?}").contains("0123456"));
    }

    #[test]
    fn errors_do_not_quote_the_configuration() {
        let messages = config(&[same("config", r#"{"password": "hunter22" x}"#)]).unwrap_err();
        assert_eq!(messages, ["config: the text is not valid JSON (line 1, column 25)"]);
        assert_eq!(config(&[same("config", "[1]")]).unwrap_err(), ["config: the text is not a JSON object"]);
        let both = config(&[same("config.a", "1"), same("config.a.b", "2")]).unwrap_err();
        assert_eq!(both, ["config.a.b: config.a has a value that is not an object"]);
        let cut = config(&[same("config.a", "[1"), same("config.b", "a[1"), same("config.c", "'[1'")]).unwrap_err();
        assert_eq!(cut, ["config.a: the text is not valid JSON (line 1, column 2)"]);
    }

    #[test]
    fn a_credential_in_a_text_with_variables_is_masked() {
        let written = r#"{"host": "${HOST}", "password": "hunter22"}"#;
        let value = r#"{"host": "database", "password": "hunter22"}"#;
        for found in [config(&[("config", value, written)]), config(&[same("config", value)])] {
            assert!(found.unwrap().secrets().contains(&"hunter22".into()));
        }
    }
}
