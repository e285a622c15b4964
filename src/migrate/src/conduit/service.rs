//! `conduit.yaml`.

use std::fmt::Write as _;

use anabranch_settings::declaration::{REPLACED, SettingType, find};
use serde_json::Value;

use super::credentials::{Declared, holds_a_credential};
use super::line;
use crate::document::scalar;
use crate::report::{Line, Outcome};
use crate::setting_text::SettingText;

/// The settings of the service.
#[derive(Default)]
pub(super) struct ServiceSettings {
    pub(super) text: String,
    pub(super) lines: Vec<Line>,
    /// Names of the variables that replace credentials, and what to set.
    pub(super) secrets: Vec<(String, String)>,
}

/// Settings of Conduit without a counterpart, and what to do.
const WITHOUT: &[(&str, &str)] = &[
    ("api.grpc.", "there is no gRPC API: use the HTTP API"),
    ("dev.cpuprofile", "`/debug/pprof` is not served: use `perf`"),
    ("dev.memprofile", "`/debug/pprof` is not served: use `heaptrack`"),
    ("dev.blockprofile", "the metrics show which stage waits"),
];

pub(super) fn migrate(text: Option<&str>) -> ServiceSettings {
    let mut service =
        ServiceSettings { text: "# Migrated from conduit.yaml.\n".to_owned(), ..ServiceSettings::default() };
    let Some(text) = text else { return service };
    match serde_saphyr::from_str::<Value>(text) {
        Ok(value) => service.walk("", &value),
        Err(_) => service.lines.push(Line {
            blocks: true,
            ..line("conduit.yaml", Outcome::NotCarried, "", "the file is not valid YAML: correct it, and migrate again")
        }),
    }
    service.lines.sort_by(|a, b| (a.outcome, &a.setting).cmp(&(b.outcome, &b.setting)));
    service
}

impl ServiceSettings {
    fn walk(&mut self, name: &str, value: &Value) {
        match value {
            Value::Null => {}
            Value::Object(fields) => {
                for (key, value) in fields {
                    let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
                    self.walk(&name, value);
                }
            }
            Value::Array(items) => {
                let texts: Vec<String> = items.iter().map(text_of).collect();
                self.take(name, &texts.join(","));
            }
            value => self.take(name, &text_of(value)),
        }
    }

    fn take(&mut self, name: &str, value: &str) {
        if name == "db.type" {
            return self.database(value);
        }
        if let Some((_, instead)) = REPLACED.iter().find(|(old, _)| *old == name) {
            // The file of the other store must not be opened as a store of this one.
            let note = format!("the stores of Conduit are not read; {instead} has its default");
            self.lines.push(line(name, Outcome::NotCarried, "", note));
            return;
        }
        let key = find(name).filter(|key| key.name != "config.path" && !key.has_no_effect());
        let Some(key) = key else {
            let note = WITHOUT.iter().find(|(prefix, _)| name.starts_with(prefix)).map(|(_, note)| *note);
            self.lines.push(line(name, Outcome::NotCarried, "", note.unwrap_or("this setting has no counterpart")));
            return;
        };
        let declared = if key.secret { Declared::Secret } else { Declared::Plain };
        if holds_a_credential(declared, name, value) {
            let variable = key.variable();
            self.lines.push(line(name, Outcome::Carried, &format!("the variable {variable}"), ""));
            self.secrets.push((variable, format!("the value of {name} in conduit.yaml")));
            return;
        }
        let words: &[&str] = match key.kind {
            SettingType::Choice(words) => words,
            SettingType::Bool => &["true", "false"],
            _ => &[],
        };
        if !words.is_empty() && !words.contains(&value) {
            let note = format!("the value must be one of {}", words.join(", "));
            self.lines.push(line(name, Outcome::NotCarried, "", note));
            return;
        }
        // Variables are written in the same way.
        let value = SettingText::literal(value).as_str().replace("$${", "${");
        let shown = match key.kind {
            SettingType::Bool => value.clone(),
            _ => scalar(&value),
        };
        let _ = writeln!(self.text, "{name}: {shown}");
        let is_local = ["127.", "localhost:", "[::1]:"].iter().any(|host| value.starts_with(host));
        self.lines.push(match name == "api.http.address" && !is_local {
            true => {
                line(name, Outcome::Changed, name, "other machines can reach this address, so set api.http.token-file")
            }
            false => line(name, Outcome::Carried, name, ""),
        });
    }

    fn database(&mut self, value: &str) {
        match value {
            "badger" | "sqlite" => {
                let note = "the state is in the embedded store, in db.path. It is empty: the sources begin as at their first start";
                self.lines.push(line("db.type", Outcome::Changed, "db.type", note));
            }
            "inmemory" | "postgres" => {
                let _ = writeln!(self.text, "db.type: {value}");
                let note = match value {
                    "postgres" => {
                        "the tables of Conduit are not read. The store is empty: the sources begin as at their first start"
                    }
                    _ => "",
                };
                let outcome = if note.is_empty() { Outcome::Carried } else { Outcome::Changed };
                self.lines.push(line("db.type", outcome, "db.type", note));
            }
            _ => self.lines.push(line("db.type", Outcome::NotCarried, "", "this kind of store is not known")),
        }
    }
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        value => value.to_string(),
    }
}
