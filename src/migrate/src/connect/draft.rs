//! A pipeline while its connector is read.

use std::collections::{BTreeMap, BTreeSet};

use anabranch_plugin::secret::{names_a_credential, passwords};

use super::input::{ConnectorConfig, Worker};
use crate::document::{DeadLetters, Part, Pipeline};
use crate::report::{Job, Line, MigratedPipeline, Outcome};
use crate::setting_text::SettingText;
use crate::variables::{Variables, is_name};

/// The settings of a connector that are not converted yet, and the report on the others.
pub(super) struct Draft<'a> {
    name: String,
    class: String,
    /// Id of the pipeline.
    id: String,
    left: BTreeMap<String, String>,
    worker: &'a Worker,
    variables: &'a mut Variables,
    lines: Vec<Line>,
    processors: Vec<Part>,
    dead_letters: Option<DeadLetters>,
}

impl<'a> Draft<'a> {
    /// Begins with the settings of a connector. The id of its pipeline is added to `ids`.
    pub(super) fn new(
        connector: &ConnectorConfig,
        worker: &'a Worker,
        variables: &'a mut Variables,
        ids: &mut BTreeSet<String>,
    ) -> Self {
        let id = unique(&id_from(&connector.name), |id| ids.contains(id));
        ids.insert(id.clone());
        let mut draft = Draft {
            name: connector.name.clone(),
            class: connector.class().to_owned(),
            id,
            left: connector.settings.clone(),
            worker,
            variables,
            lines: Vec::new(),
            processors: Vec::new(),
            dead_letters: None,
        };
        for name in &connector.unreadable {
            draft.left_out(name, "the value is a list or an object; Kafka Connect has only texts here");
        }
        // Transformations may have blank values on purpose.
        let is_blank = |name: &String, value: &String| value.trim().is_empty() && !name.starts_with("transforms.");
        let blank: Vec<String> = connector
            .settings
            .iter()
            .filter(|(name, value)| is_blank(name, value))
            .map(|(name, _)| name.clone())
            .collect();
        for name in blank {
            draft.left.remove(&name);
            draft.left_out(&name, "it is blank, which counts as missing");
        }
        draft
    }

    /// Name of the connector.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Id of the pipeline.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Takes the value of a setting; a blank one counts as missing. The caller reports what becomes of it.
    pub(super) fn take(&mut self, setting: &str) -> Option<String> {
        self.left.remove(setting).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    /// Takes the value of the first of these settings that is given, with its name.
    pub(super) fn take_any(&mut self, settings: &[&'static str]) -> Option<(&'static str, String)> {
        settings.iter().find_map(|setting| Some((*setting, self.take(setting)?)))
    }

    /// Takes all settings with a prefix, with their names after it.
    pub(super) fn take_prefixed(&mut self, prefix: &str) -> BTreeMap<String, String> {
        let names: Vec<String> = self.left.keys().filter(|name| name.starts_with(prefix)).cloned().collect();
        let taken = names.into_iter().filter_map(|name| self.left.remove(&name).map(|value| (name, value)));
        taken.map(|(name, value)| (name[prefix.len()..].to_owned(), value)).collect()
    }

    /// Returns the value of a setting without taking it.
    pub(super) fn peek(&self, setting: &str) -> Option<&str> {
        self.left.get(setting).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    /// Returns `true` if a setting that is not taken has this value.
    pub(super) fn has_value(&self, value: &str) -> bool {
        self.left.values().any(|other| other.trim() == value)
    }

    /// Returns a setting of the worker.
    pub(super) fn of_worker(&self, setting: &str) -> Option<String> {
        self.worker.settings.get(setting).filter(|value| !value.is_empty()).cloned()
    }

    /// Returns `true` if the settings of the worker are known.
    pub(super) fn has_worker(&self) -> bool {
        !self.worker.settings.is_empty()
    }

    fn line(&mut self, setting: &str, outcome: Outcome, to: &str, note: &str, blocks: bool) {
        self.lines.push(Line {
            setting: setting.to_owned(),
            outcome,
            to: to.to_owned(),
            note: note.to_owned(),
            blocks,
        });
    }

    /// Reports that the pipeline does the same.
    pub(super) fn carried(&mut self, setting: &str, to: &str) {
        self.line(setting, Outcome::Carried, to, "", false);
    }

    /// Reports that the pipeline does something similar.
    pub(super) fn changed(&mut self, setting: &str, to: &str, note: &str) {
        self.line(setting, Outcome::Changed, to, note, false);
    }

    /// Reports that the pipeline does not do it, and can run without it.
    pub(super) fn left_out(&mut self, setting: &str, note: &str) {
        self.line(setting, Outcome::NotCarried, "", note, false);
    }

    /// Reports that the pipeline does not do it, and must not run before the user has done something about it.
    pub(super) fn blocked(&mut self, setting: &str, note: &str) {
        self.line(setting, Outcome::NotCarried, "", note, true);
    }

    /// Reports that the pipeline does something that the user has to check before it runs.
    pub(super) fn unsure(&mut self, setting: &str, to: &str, note: &str) {
        self.line(setting, Outcome::Changed, to, note, true);
    }

    /// Takes a setting if it is given, and reports it as left out.
    pub(super) fn leave_out(&mut self, settings: &[&str], note: &str) {
        for setting in settings {
            if self.left.remove(*setting).is_some() {
                self.left_out(setting, note);
            }
        }
    }

    /// Takes a setting that must have this value; reports it as carried, or as blocked with the note.
    pub(super) fn expect(&mut self, setting: &str, values: &[&str], note: &str) {
        if let Some(value) = self.take(setting) {
            match values.iter().any(|expected| value.eq_ignore_ascii_case(expected)) {
                true => self.carried(setting, ""),
                false => self.blocked(setting, note),
            }
        }
    }

    /// Returns `true` if the report has a line on the setting.
    pub(super) fn is_reported(&self, setting: &str) -> bool {
        self.lines.iter().any(|line| line.setting == setting)
    }

    /// Returns a value that becomes a part of a template. A reference to a configuration provider cannot be a part of it.
    pub(super) fn plain(&mut self, setting: &str, value: String) -> String {
        let is_provided = |rest: &str| rest.split_once('}').is_some_and(|(inner, _)| inner.contains(':'));
        if value.split("${").skip(1).any(is_provided) {
            self.blocked(setting, "the value comes from a provider: write it into the template by hand");
            return "PROVIDED".to_owned();
        }
        value
    }

    /// Returns a value as a pipeline file has it: references to configuration providers become variables.
    pub(super) fn text(&mut self, setting: &str, value: &str) -> SettingText {
        let mut text = SettingText::default();
        let mut rest = value;
        while let Some((before, after)) = rest.split_once("${") {
            let Some((inner, behind)) = after.split_once('}') else { break };
            let Some((provider, path_and_key)) = inner.split_once(':') else {
                text.push(&SettingText::literal(&format!("{before}${{{inner}}}")));
                rest = behind;
                continue;
            };
            if before.ends_with('$') {
                self.blocked(
                    setting,
                    "a dollar sign before a variable cannot be written: make it a part of the variable",
                );
            }
            text.push(&SettingText::literal(before.trim_end_matches('$')));
            text.push(&self.provided(setting, provider, path_and_key));
            rest = behind;
        }
        text.push(&SettingText::literal(rest));
        text
    }

    /// Returns the value that a configuration provider gives.
    fn provided(&mut self, setting: &str, provider: &str, path_and_key: &str) -> SettingText {
        let (path, key) = path_and_key.rsplit_once(':').unwrap_or(("", path_and_key));
        match provider {
            "env" if is_name(key) => {
                let meaning = format!("as in the environment of the workers ({setting} of {})", self.name);
                SettingText::variable(&self.variables.name(&format!("env {key}"), key, meaning))
            }
            "directory" if path.starts_with('/') && !key.contains('/') => {
                SettingText::content_of(&format!("{path}/{key}"))
            }
            _ => {
                let origin = format!("{provider} {path_and_key}");
                let of = if path.is_empty() { String::new() } else { format!(" in {path}") };
                let meaning =
                    format!("the value of {key}{of}, from the provider `{provider}` ({setting} of {})", self.name);
                let wanted = format!("{}_{key}", self.id);
                SettingText::variable(&self.variables.name(&origin, &wanted, meaning))
            }
        }
    }

    /// Returns a credential: a literal becomes a variable.
    pub(super) fn secret(&mut self, setting: &str, value: &str, meaning: &str) -> SettingText {
        let text = self.text(setting, value);
        let is_whole = value.starts_with("${") && value.find('}') == Some(value.len() - 1);
        if is_whole && text.is_variable() {
            return text;
        }
        let origin = format!("secret {} {setting}", self.id);
        let wanted = format!("{}_{setting}", self.id);
        let meaning = format!("{meaning} ({setting} of {})", self.name);
        SettingText::variable(&self.variables.name(&origin, &wanted, meaning))
    }

    /// Returns a value that the source does not contain.
    pub(super) fn unknown(&mut self, name: &str, meaning: &str) -> SettingText {
        SettingText::variable(&self.variables.name(&format!("unknown {name}"), name, meaning))
    }

    /// Takes a setting, and gives it to a plugin under another name, unchanged.
    pub(super) fn pass(&mut self, setting: &'static str, part: &mut Part, name: &'static str) {
        if let Some(value) = self.take(setting) {
            let value = match names_a_credential(setting) || passwords(&value).next().is_some() {
                true => self.secret(setting, &value, "the credential"),
                false => self.text(setting, &value),
            };
            part.set(name, value);
            self.carried(setting, &format!("{}.{name}", part.id));
        }
    }

    /// Adds a processor. Its id becomes unique.
    pub(super) fn add(&mut self, mut part: Part) -> String {
        part.id = unique(&id_from(&part.id), |id| self.processors.iter().any(|other| other.id == id));
        let id = part.id.clone();
        self.processors.push(part);
        id
    }

    /// Sets the dead-letter queue.
    pub(super) fn set_dead_letters(&mut self, letters: DeadLetters) {
        self.dead_letters = Some(letters);
    }

    /// Reports why the connector has no pipeline.
    pub(super) fn refuse(mut self, setting: &str, note: &str) -> Job {
        self.left.remove(setting);
        self.blocked(setting, note);
        let left = std::mem::take(&mut self.left);
        for setting in left.keys() {
            self.left_out(setting, "the connector has no pipeline");
        }
        Job { name: self.name, kind: self.class, pipeline: None, lines: sorted(self.lines) }
    }

    /// Returns the job whose pipeline passes the records of this source through the processors to this destination.
    pub(super) fn finish(mut self, source: Part, destination: Part) -> Job {
        if self.left.remove("connector.class").is_some() {
            self.carried("connector.class", "");
        }
        self.leave_out(&["tasks.max"], "one pipeline handles all partitions; in a cluster, its nodes share them");
        self.leave_out(&["tasks.max.enforce"], "pipelines have no tasks");
        self.leave_out(
            &["config.action.reload"],
            "a changed variable takes effect when the service restarts; a value from `${file:…}` sooner",
        );
        let left = std::mem::take(&mut self.left);
        for setting in left.keys() {
            self.blocked(setting, "this setting is not known to `migrate`: look it up, and set what corresponds to it");
        }
        for line in &mut self.lines {
            let is_part = |part: &Part, id: &str, setting: &str| {
                part.id == id && (setting.is_empty() || part.settings.iter().any(|(name, _)| *name == setting))
            };
            // A place that is no phrase is a part of the pipeline, and a setting of it.
            let (id, setting) = line.to.split_once('.').unwrap_or((&line.to, ""));
            let is_place =
                [&source, &destination].into_iter().chain(&self.processors).any(|part| is_part(part, id, setting));
            let is_other = line.to.contains(' ') || ["processors", "dead-letter-queue"].contains(&id);
            if !is_place && !is_other {
                line.to.clear();
            }
        }
        let lines = sorted(self.lines);
        let is_blocked = lines.iter().any(|line| line.blocks);
        let mut comment = vec![format!("Migrated from the Kafka Connect connector {}.", self.name)];
        if is_blocked {
            comment.push("The pipeline is stopped. Before you remove `status: stopped`:".to_owned());
            comment.extend(
                lines.iter().filter(|line| line.blocks).map(|line| format!("* {}: {}", line.setting, line.note)),
            );
        }
        let pipeline = Pipeline {
            id: self.id.clone(),
            description: String::new(),
            comment,
            is_stopped: is_blocked,
            source,
            destination,
            processors: self.processors,
            dead_letters: self.dead_letters,
        };
        let pipeline = MigratedPipeline { id: self.id, text: pipeline.text() };
        Job { name: self.name, kind: self.class, pipeline: Some(pipeline), lines }
    }
}

fn sorted(mut lines: Vec<Line>) -> Vec<Line> {
    lines.sort_by(|a, b| (a.outcome, &a.setting).cmp(&(b.outcome, &b.setting)));
    lines.dedup();
    lines
}

/// Returns an id that resembles a name: letters, digits, `-` and `_`. Without dots, because `NAME.test.yaml` is a test.
pub(super) fn id_from(name: &str) -> String {
    let id: String =
        name.chars().take(100).map(|c| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '-' }).collect();
    let id = id.trim_matches('-');
    if id.is_empty() { "connector".to_owned() } else { id.to_owned() }
}

/// Returns the id, with a number if it is taken.
fn unique(id: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let numbered = (2..).map(|number| format!("{id}-{number}"));
    std::iter::once(id.to_owned()).chain(numbered).find(|id| !is_taken(id)).unwrap_or_default()
}
