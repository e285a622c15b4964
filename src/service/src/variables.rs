//! Inputs of pipeline files: variables of the process, files with values, and scripts.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anabranch_config::Variables;
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::secret::MASKED_FROM;
use anabranch_plugin::written::{Content, Written};
use anabranch_process::files::{UnreadableText, read_text};
use anabranch_record::text::Str;

/// Returns the value of a setting as written in a file, with the environment of this process; `None` if a variable in
/// it is not set.
pub fn value_of(written: &str) -> Option<Written> {
    anabranch_config::value_of(&written.into(), &Environment::default())
}

/// Variables of the process, and files named by `${file:PATH}`.
#[derive(Default)]
pub(crate) struct Environment {
    /// The values that were substituted, each with its text in the file.
    given: RefCell<BTreeMap<String, String>>,
    /// The scripts that were read.
    pub(crate) scripts: RefCell<Vec<Script>>,
}

/// Maximum bytes of a file with a value.
pub(crate) const MAX_VALUE_FILE: u64 = 1 << 20;

impl Environment {
    fn give(&self, value: String, written: String) -> String {
        let text = value.trim();
        if text.len() >= MASKED_FROM {
            // Messages quote values with escapes.
            let quoted = format!("{text:?}");
            let mut given = self.given.borrow_mut();
            given.insert(quoted[1..quoted.len() - 1].to_owned(), written.clone());
            given.insert(text.to_owned(), written);
        }
        value
    }

    /// Replaces substituted values in findings with `${NAME}`: a value may be a credential, and its name says more
    /// about the file.
    pub(crate) fn hide(&self, findings: &mut Diagnostics) {
        let given = self.given.borrow();
        // The longest first: one value may be the beginning of another.
        let mut given: Vec<(&str, &str)> = given.iter().map(|(v, w)| (v.as_str(), w.as_str())).collect();
        given.sort_by_key(|(value, _)| Reverse(value.len()));
        let hide = |text: &mut String| {
            for (value, written) in &given {
                if text.contains(value) {
                    *text = text.replace(value, written);
                }
            }
        };
        for finding in &mut findings.0 {
            hide(&mut finding.message);
            finding.hint.iter_mut().for_each(hide);
            finding.label.iter_mut().chain(&mut finding.related).for_each(|label| hide(&mut label.text));
        }
    }
}

/// Maximum bytes of a script.
const MAX_SCRIPT: u64 = 4 << 20;

/// A script that a pipeline file names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// Name of the pipeline file.
    pub pipeline_file: String,
    /// Path and content.
    pub content: Content,
}

/// Returns the path of a script: relative to the pipeline file that names it or, if it does not exist there, to the
/// working directory.
pub fn script_path(path: &str, pipeline_file: &str) -> PathBuf {
    let beside = Path::new(pipeline_file).parent().map(|directory| directory.join(path));
    beside.filter(|beside| beside.exists()).unwrap_or_else(|| PathBuf::from(path))
}

/// Reads the script that a pipeline file names.
pub fn read_script(path: &str, pipeline_file: &str) -> Content {
    let found = script_path(path, pipeline_file);
    let read = read_text(&found, MAX_SCRIPT);
    let hint = read.as_ref().err().and_then(|error| match error {
        UnreadableText::Missing => Some(
            "a relative path is resolved against the directory of the pipeline file, then against the working \
             directory",
        ),
        UnreadableText::NotText { .. } => Some("save the script as UTF-8, for example with `iconv -f latin1 -t utf-8`"),
        UnreadableText::NotAFile | UnreadableText::TooLarge { .. } | UnreadableText::System(_) => None,
    });
    let text = read.map(Str::from).map_err(|error| error.to_string().into());
    Content { path: found.display().to_string().into(), text, hint: hint.map(Str::from_static) }
}

impl Variables for Environment {
    fn script(&self, path: &str, pipeline_file: &str) -> Content {
        let content = read_script(path, pipeline_file);
        self.scripts.borrow_mut().push(Script { pipeline_file: pipeline_file.to_owned(), content: content.clone() });
        content
    }

    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok().map(|value| self.give(value, format!("${{{name}}}")))
    }

    fn file(&self, path: &str) -> Result<String, String> {
        let text = read_text(Path::new(path), MAX_VALUE_FILE).map_err(|error| error.to_string())?;
        Ok(self.give(text, format!("${{file:{path}}}")))
    }
}
