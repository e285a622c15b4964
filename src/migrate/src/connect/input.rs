//! Reading configurations of connectors and workers.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// A connector of Kafka Connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectorConfig {
    /// Its name; the name of the file if it has none.
    pub name: String,
    /// Its settings.
    pub settings: BTreeMap<String, String>,
    /// Names of settings whose values are not texts, numbers or booleans.
    pub unreadable: Vec<String>,
}

impl ConnectorConfig {
    /// Returns the class; empty if it is missing.
    pub fn class(&self) -> &str {
        self.settings.get("connector.class").map_or("", |class| class.trim())
    }
}

/// The settings of the workers that ran the connectors; empty if they are not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Worker {
    /// The settings by name.
    pub settings: BTreeMap<String, String>,
}

/// A file that does not contain connectors.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum InputError {
    /// The text is not JSON.
    #[error("not valid JSON, at line {line}, column {column}")]
    Json {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
    },
    /// The JSON has no connector at this place.
    #[error(
        "there is no connector at {place}: a connector is an object with \"connector.class\", or with \"name\" and \"config\""
    )]
    NoConnector {
        /// JSON pointer; `/` is the whole document.
        place: String,
    },
}

/// Reads the connectors of a file: an object with the settings, an object with `name` and `config`, the answer of
/// `GET /connectors?expand=info`, a list of these, or a properties file.
///
/// # Errors
/// The text is neither, or the JSON is not valid. The error contains no value of the file.
pub fn read(file: &str, text: &str) -> Result<Vec<ConnectorConfig>, InputError> {
    let stem = stem(file);
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if !text.trim_start().starts_with(['{', '[']) {
        let mut settings = properties(text);
        if settings.contains_key("connector.class") {
            let name = settings.remove("name").filter(|name| !name.is_empty()).unwrap_or(stem);
            return Ok(vec![ConnectorConfig { name, settings, unreadable: Vec::new() }]);
        }
    }
    let value: Value =
        serde_json::from_str(text).map_err(|error| InputError::Json { line: error.line(), column: error.column() })?;
    let mut found = Vec::new();
    collect(&value, "", &stem, &mut found)?;
    Ok(found)
}

/// Reads the properties file of a worker.
pub fn read_worker(text: &str) -> Worker {
    Worker { settings: properties(text.strip_prefix('\u{feff}').unwrap_or(text)) }
}

/// Returns the name of a file without its directory and ending.
fn stem(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.rsplit_once('.').map_or(name, |(stem, _)| stem).to_owned()
}

fn collect(value: &Value, place: &str, name: &str, found: &mut Vec<ConnectorConfig>) -> Result<(), InputError> {
    let nothing =
        || InputError::NoConnector { place: if place.is_empty() { "/".to_owned() } else { place.to_owned() } };
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let name = if items.len() == 1 { name.to_owned() } else { format!("{name}-{}", index + 1) };
                collect(item, &format!("{place}/{index}"), &name, found)?;
            }
            Ok(())
        }
        Value::Object(fields) => {
            if fields.contains_key("connector.class") {
                found.push(connector(fields, name));
                return Ok(());
            }
            if let Some(Value::Object(config)) = fields.get("config") {
                let name = fields.get("name").and_then(Value::as_str).unwrap_or(name);
                if !config.contains_key("connector.class") {
                    return Err(InputError::NoConnector { place: format!("{place}/config") });
                }
                found.push(connector(config, name));
                return Ok(());
            }
            let expanded = |inner: &Value| matches!(inner.get("info"), Some(Value::Object(_)));
            if fields.is_empty() || !fields.values().all(expanded) {
                return Err(nothing());
            }
            for (name, inner) in fields {
                let pointer = name.replace('~', "~0").replace('/', "~1");
                collect(&inner["info"], &format!("{place}/{pointer}/info"), name, found)?;
            }
            Ok(())
        }
        _ => Err(nothing()),
    }
}

fn connector(fields: &Map<String, Value>, name: &str) -> ConnectorConfig {
    let mut connector = ConnectorConfig { name: name.to_owned(), settings: BTreeMap::new(), unreadable: Vec::new() };
    for (key, value) in fields {
        match value {
            Value::Null => {}
            Value::String(text) => drop(connector.settings.insert(key.clone(), text.clone())),
            Value::Bool(_) | Value::Number(_) => drop(connector.settings.insert(key.clone(), value.to_string())),
            Value::Array(_) | Value::Object(_) => connector.unreadable.push(key.clone()),
        }
    }
    if let Some(own) = connector.settings.remove("name").filter(|own| !own.trim().is_empty()) {
        connector.name = own;
    }
    connector
}

/// Reads a Java properties file: `name=value`, `name: value`, comments with `#` and `!`, and lines that end with a
/// backslash.
fn properties(text: &str) -> BTreeMap<String, String> {
    let mut settings = BTreeMap::new();
    let mut pending = String::new();
    for line in text.lines() {
        let line = line.trim_start();
        if pending.is_empty() && line.starts_with(['#', '!']) {
            continue;
        }
        let continues = line.chars().rev().take_while(|c| *c == '\\').count() % 2 == 1;
        if continues {
            pending.push_str(&line[..line.len() - 1]);
            continue;
        }
        pending.push_str(line);
        take_property(&std::mem::take(&mut pending), &mut settings);
    }
    take_property(&pending, &mut settings);
    settings
}

fn take_property(line: &str, settings: &mut BTreeMap<String, String>) {
    let (mut name, mut value, mut in_value) = (String::new(), String::new(), false);
    let mut characters = line.chars().peekable();
    while let Some(c) = characters.next() {
        let part = if in_value { &mut value } else { &mut name };
        match c {
            '\\' => match characters.next() {
                Some('n') => part.push('\n'),
                Some('t') => part.push('\t'),
                Some('r') => part.push('\r'),
                Some('u') => {
                    let digits: String = characters.by_ref().take(4).collect();
                    part.extend(u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32));
                }
                Some(other) => part.push(other),
                None => {}
            },
            '=' | ':' if !in_value => in_value = true,
            c => part.push(c),
        }
    }
    let name = name.trim();
    if !name.is_empty() {
        settings.insert(name.to_owned(), value.trim().to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_connector_is_read() {
        let bare = r#"{"connector.class": "C", "tasks.max": 2, "flag": true, "none": null, "odd": {}}"#;
        let named = r#"{"name": "n", "config": {"connector.class": "C"}}"#;
        let expanded =
            r#"{"n": {"info": {"name": "n", "config": {"connector.class": "C"}, "tasks": []}, "status": {}}}"#;
        let names = |text: &str| -> Vec<String> {
            read("dir/file.json", text).unwrap().into_iter().map(|connector| connector.name).collect()
        };
        assert_eq!(names(bare), ["file"]);
        assert_eq!(names(named), ["n"]);
        assert_eq!(names(expanded), ["n"]);
        assert_eq!(names(&format!("[{bare}, {named}, [{expanded}]]")), ["file-1", "n", "n"]);
        assert_eq!(names("# a comment\nname = p\nconnector.class: C\\\n  D\n"), ["p"]);
        let read = read("f", bare).unwrap().remove(0);
        assert_eq!(read.settings["tasks.max"], "2");
        assert_eq!(read.settings["flag"], "true");
        assert_eq!(read.unreadable, ["odd"]);
    }

    #[test]
    fn other_files_are_refused_without_their_values() {
        let error = read("f", "{\"password\": \"hunter2\"").unwrap_err();
        assert_eq!(error, InputError::Json { line: 1, column: 22 });
        for (text, place) in [("{}", "/"), ("[{\"a\": 1}]", "/0"), ("{\"config\": {}}", "/config"), ("[3]", "/0")] {
            assert_eq!(read("f", text), Err(InputError::NoConnector { place: place.to_owned() }), "{text}");
        }
    }

    #[test]
    fn properties_are_read_as_java_reads_them() {
        let worker = read_worker("a=1\n! no\nb : x=y\nc=\\u00e9\\n\nlong=a,\\\n   b\n\nlast=z");
        let shown: Vec<(&str, &str)> = worker.settings.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(shown, [("a", "1"), ("b", "x=y"), ("c", "é"), ("last", "z"), ("long", "a,b")]);
    }
}
