//! Settings with which a connector was last active. They decide whether a plugin is notified of its creation or of
//! changed settings.
//!
//! Values from variables are not stored. For them, the text in the file is stored together with a salted hash, which
//! shows changes.

use std::collections::{BTreeMap, HashMap};

use anabranch_plugin::written::Written;
use anabranch_record::text::{Str, hexadecimal};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

/// Settings for a plugin, in name order.
pub(crate) type GivenSettings = [(Str, Written)];

/// Settings as they are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Active {
    plugin: String,
    salt: String,
    settings: BTreeMap<String, StoredConfiguration>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum StoredConfiguration {
    Value(String),
    /// The text in the file, and the hash of the value that the plugin received.
    Variable {
        written: String,
        sum: String,
    },
}

/// Notification of a plugin before it is opened.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ConnectorChange {
    Created,
    /// The previous settings. A changed value from a variable is replaced with the current one.
    Updated(HashMap<String, String>),
    None,
}

impl Active {
    /// Returns the plugin that received the settings.
    pub(crate) fn plugin(&self) -> &str {
        &self.plugin
    }

    pub(crate) fn of(plugin: &str, given: &GivenSettings, salt: &str) -> Active {
        let kept = |(name, text): &(Str, Written)| (name.to_string(), StoredConfiguration::of(text, salt));
        Active { plugin: plugin.to_owned(), salt: salt.to_owned(), settings: given.iter().map(kept).collect() }
    }

    /// Returns the notification for a plugin. `last` are the stored settings.
    pub(crate) fn change(last: Option<&Active>, plugin: &str, given: &GivenSettings) -> ConnectorChange {
        match last {
            Some(last) if last.plugin == plugin => match Active::of(plugin, given, &last.salt) == *last {
                true => ConnectorChange::None,
                false => ConnectorChange::Updated(last.values(|name, _| {
                    given.iter().find(|(given, _)| *given == *name).map(|(_, text)| text.value().to_string())
                })),
            },
            _ => ConnectorChange::Created,
        }
    }

    /// Returns the known settings. `present` supplies the current values from variables, by the name of the setting and
    /// its text in the file.
    pub(crate) fn values(&self, present: impl Fn(&str, &str) -> Option<String>) -> HashMap<String, String> {
        self.settings
            .iter()
            .filter_map(|(name, kept)| match kept {
                StoredConfiguration::Value(value) => Some((name.clone(), value.clone())),
                StoredConfiguration::Variable { written, .. } => Some((name.clone(), present(name, written)?)),
            })
            .collect()
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let settings: Map<String, Value> = self
            .settings
            .iter()
            .map(|(name, kept)| {
                let kept = match kept {
                    StoredConfiguration::Value(value) => json!({ "value": value }),
                    StoredConfiguration::Variable { written, sum } => json!({ "written": written, "sum": sum }),
                };
                (name.clone(), kept)
            })
            .collect();
        json!({ "plugin": self.plugin, "salt": self.salt, "settings": settings }).to_string().into_bytes()
    }

    /// Decodes stored settings; returns `None` if they are invalid, which counts as not stored.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Active> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        let text = |value: &Value, name: &str| Some(value.get(name)?.as_str()?.to_owned());
        let kept = |value: &Value| match text(value, "value") {
            Some(value) => Some(StoredConfiguration::Value(value)),
            None => Some(StoredConfiguration::Variable { written: text(value, "written")?, sum: text(value, "sum")? }),
        };
        let settings = value.get("settings")?.as_object()?.iter();
        let settings = settings.map(|(name, value)| Some((name.clone(), kept(value)?))).collect::<Option<_>>()?;
        Some(Active { plugin: text(&value, "plugin")?, salt: text(&value, "salt")?, settings })
    }
}

impl StoredConfiguration {
    fn of(text: &Written, salt: &str) -> StoredConfiguration {
        if !text.is_substituted() {
            return StoredConfiguration::Value(text.value().to_string());
        }
        let sum = Sha256::new().chain_update(salt).chain_update([0]).chain_update(text.value().as_bytes()).finalize();
        StoredConfiguration::Variable { written: text.written().to_string(), sum: hexadecimal(&sum) }
    }
}

#[cfg(test)]
mod tests {
    use anabranch_plugin::diagnostic::Span;

    use super::*;

    fn given(pairs: &[(&str, &str, &str)]) -> Vec<(Str, Written)> {
        pairs
            .iter()
            .map(|(name, value, written)| ((*name).into(), Written::new(*value, *written, Span::default())))
            .collect()
    }

    #[test]
    fn a_plugin_is_told_of_what_is_new() {
        let first = given(&[("password", "hunter22", "${PASSWORD}"), ("path", "a", "a")]);
        assert_eq!(Active::change(None, "file", &first), ConnectorChange::Created);
        let stored = Active::of("file", &first, "salt").encode();
        assert!(!String::from_utf8_lossy(&stored).contains("hunter22"));
        let last = Active::decode(&stored);
        assert_eq!(Active::change(last.as_ref(), "file", &first), ConnectorChange::None);
        assert_eq!(Active::change(last.as_ref(), "other", &first), ConnectorChange::Created);
        let other = given(&[("password", "hunter23", "${PASSWORD}"), ("path", "a", "a")]);
        let before = |pairs: &[(&str, &str)]| {
            ConnectorChange::Updated(pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
        };
        assert_eq!(Active::change(last.as_ref(), "file", &other), before(&[("password", "hunter23"), ("path", "a")]));
        let moved = given(&[("path", "b", "b")]);
        assert_eq!(Active::change(last.as_ref(), "file", &moved), before(&[("path", "a")]));
    }

    #[test]
    fn what_is_not_ours_is_nothing() {
        for bytes in ["", "{}", "[]", r#"{"plugin":"a","salt":"b","settings":{"x":1}}"#] {
            assert_eq!(Active::decode(bytes.as_bytes()), None, "{bytes}");
        }
    }
}
