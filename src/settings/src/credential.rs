//! Credentials among the settings, which can be replaced while the service runs.

use std::path::Path;

use anabranch_config::{Variables, value_of};

use anabranch_process::files;

/// Maximum size of a file with a credential, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// A setting that holds a credential. If the configuration file reads it from another file (`${file:PATH}`),
/// [`Credential::now`] reads that file again. `Debug` does not show the value.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential {
    text: String,
    /// The text in the configuration file, if it contains variables.
    written: Option<String>,
}

/// Variables and files of the process.
struct ProcessEnvironment;

impl Variables for ProcessEnvironment {
    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn file(&self, path: &str) -> Result<String, String> {
        files::read_text(Path::new(path), MAX_BYTES).map_err(|error| error.to_string())
    }
}

impl Credential {
    pub(super) fn new(text: impl Into<String>, written: Option<String>) -> Self {
        Credential { text: text.into(), written }
    }

    /// Returns the credential that a text with variables (`${NAME}`, `${file:PATH}`) stands for; `None` if one of them has no
    /// value.
    pub fn of_text(written: &str) -> Option<Credential> {
        let text = value_of(&written.into(), &ProcessEnvironment)?;
        Some(Credential::new(text.value().trim(), Some(written.to_owned())))
    }

    /// Returns the value at the start of the service.
    pub fn at_start(&self) -> &str {
        &self.text
    }

    /// Returns `true` if the value comes from a file, which can be replaced.
    pub fn is_in_file(&self) -> bool {
        self.written.as_deref().is_some_and(|written| written.contains("${file:"))
    }

    /// Returns the current value. If a file cannot be read, returns the value at the start. Blocks on the files.
    pub fn now(&self) -> String {
        let written = self.written.as_deref().filter(|_| self.is_in_file());
        let value = written.and_then(|written| value_of(&written.into(), &ProcessEnvironment));
        value.map_or_else(|| self.text.clone(), |value| value.value().trim().to_owned())
    }
}

impl From<String> for Credential {
    fn from(text: String) -> Self {
        Credential { text, written: None }
    }
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credential")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_a_credential_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("password");
        std::fs::write(&file, "first\n").unwrap();
        let written = format!("u:${{file:{}}}@h", file.display());
        let credential = Credential::new("u:first@h", Some(written));
        assert_eq!(credential.now(), "u:first@h");
        std::fs::write(&file, "second\n").unwrap();
        assert_eq!((credential.now().as_str(), credential.at_start()), ("u:second@h", "u:first@h"));
        std::fs::remove_file(&file).unwrap();
        assert_eq!(credential.now(), "u:first@h");
        assert_eq!(Credential::from("plain".to_owned()).now(), "plain");
        assert!(!format!("{credential:?}").contains("first"));
    }
}
