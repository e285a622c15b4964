//! Refreshes the values that come from files.

use anabranch_plugin::settings::Settings;
use anabranch_plugin::written::Written;

use super::load::{Variables, value_of};
use super::{ConnectorConfig, PipelineConfig, ProcessorConfig};

/// Prefix of a reference to a file.
const FILE: &str = "${file:";

/// A file that a value comes from cannot be read, or is empty.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{written} no longer has a value: the file cannot be read")]
pub struct UnreadableFile {
    /// The value as written in the pipeline file.
    pub written: String,
}

impl PipelineConfig {
    /// Returns the pipeline with the current contents of files (`${file:PATH}`); `None` if no value has changed.
    /// Environment variables are fixed for the lifetime of the process and are not read again.
    ///
    /// # Errors
    /// The file of a value cannot be read.
    pub fn read_again(&self, variables: &dyn Variables) -> Result<Option<PipelineConfig>, UnreadableFile> {
        let mut config = self.clone();
        let mut changed = false;
        for value in config.values_mut().filter(|value| is_of_file(value)) {
            let unreadable = || UnreadableFile { written: value.written().to_string() };
            let now = value_of(value.written(), variables).ok_or_else(unreadable)?;
            if now.value() != value.value() {
                *value = now.at(value.span());
                changed = true;
            }
        }
        Ok(changed.then_some(config))
    }

    /// Returns `true` if a value comes from a file.
    pub fn has_values_of_files(&self) -> bool {
        let of_settings = |settings: &Settings| settings.entries.iter().any(|setting| is_of_file(&setting.value));
        let of_processor = |processor: &ProcessorConfig| {
            of_settings(&processor.settings) || processor.condition.as_ref().is_some_and(is_of_file)
        };
        let of_connector = |connector: &ConnectorConfig| {
            of_settings(&connector.settings)
                || connector.condition.as_ref().is_some_and(is_of_file)
                || connector.processors.iter().any(of_processor)
        };
        self.connectors.iter().any(of_connector)
            || self.processors.iter().any(of_processor)
            || self.unmatched.as_ref().is_some_and(is_of_file)
            || self.placement.as_ref().is_some_and(is_of_file)
            || of_settings(&self.dead_letter_queue.settings)
    }

    /// Returns all values of settings, and the conditions.
    fn values_mut(&mut self) -> impl Iterator<Item = &mut Written> {
        let connectors = self.connectors.iter_mut().flat_map(|connector| {
            of_settings(&mut connector.settings)
                .chain(&mut connector.condition)
                .chain(connector.processors.iter_mut().flat_map(of_processor))
        });
        let processors = self.processors.iter_mut().flat_map(of_processor);
        let words = self.unmatched.iter_mut().chain(&mut self.placement);
        connectors.chain(processors).chain(words).chain(of_settings(&mut self.dead_letter_queue.settings))
    }
}

fn is_of_file(value: &Written) -> bool {
    value.written().contains(FILE)
}

fn of_settings(settings: &mut Settings) -> impl Iterator<Item = &mut Written> {
    settings.entries.iter_mut().map(|setting| &mut setting.value)
}

fn of_processor(processor: &mut ProcessorConfig) -> impl Iterator<Item = &mut Written> {
    of_settings(&mut processor.settings).chain(&mut processor.condition)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use anabranch_plugin::diagnostic::Files;

    use super::*;
    use crate::load;

    /// A file that may be replaced.
    struct Vault(RefCell<Option<&'static str>>);

    impl Variables for Vault {
        fn variable(&self, name: &str) -> Option<String> {
            (name == "HOST").then(|| "h".to_owned())
        }

        fn file(&self, _: &str) -> Result<String, String> {
            self.0.borrow().map(str::to_owned).ok_or_else(|| "no such file".to_owned())
        }
    }

    #[test]
    fn values_of_files_are_read_again() {
        let text = r#"
version: "2.2"
pipelines:
  - id: p
    connectors:
      - id: in
        type: source
        plugin: x
        settings: { url: "pg://u:${file:/run/secret}@${HOST}/", plain: "a $${file:x}" }
        processors:
          - { id: s, plugin: y, settings: { token: "${file:/run/secret}" } }
      - { id: out, type: destination, plugin: x, settings: { path: out } }
"#;
        let vault = Vault(RefCell::new(Some("first\n")));
        let mut files = Files::new();
        files.add("p.yaml", text.to_owned());
        let mut loaded = load(&files, &vault);
        let config = loaded.pipelines.pop().unwrap_or_else(|| panic!("{:?}", loaded.diagnostics));
        assert!(config.has_values_of_files());
        assert_eq!(config.read_again(&vault), Ok(None));
        vault.0.replace(Some("second\n"));
        let again = config.read_again(&vault).unwrap().unwrap();
        let settings = &again.connectors[0].settings;
        assert_eq!(*settings.get("url").unwrap().value.value(), *"pg://u:second@h/");
        assert_eq!(*settings.get("plain").unwrap().value.value(), *"a ${file:x}");
        let token = &again.connectors[0].processors[0].settings.get("token").unwrap().value;
        assert_eq!((&**token.value(), &**token.written()), ("second", "${file:/run/secret}"));
        assert!(token.substituted().any(|secret| *secret == *"second"), "it is masked as the first was");
        let place = |config: &PipelineConfig| config.connectors[0].settings.get("url").unwrap().value.span();
        assert_eq!(place(&again), place(&config));
        vault.0.replace(None);
        let unreadable = config.read_again(&vault).unwrap_err();
        assert!(unreadable.written.contains("${file:/run/secret}"), "{unreadable}");
    }
}
