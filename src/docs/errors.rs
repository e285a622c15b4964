//! Every stable error code with its meaning and remedy.

mod records;
mod service;

use std::fmt::Write as _;

use super::{Page, cell};

/// An error code, which is stable and which programs can compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The code: `pipeline.not_found`, `field_missing`.
    pub code: &'static str,
    /// Meaning.
    pub meaning: &'static str,
    /// Remedy.
    pub advice: &'static str,
}

const fn entry(code: &'static str, meaning: &'static str, advice: &'static str) -> Entry {
    Entry { code, meaning, advice }
}

/// All entries: those of commands, files and the API, and those of records and runs.
pub static ALL: std::sync::LazyLock<Vec<Entry>> =
    std::sync::LazyLock::new(|| service::CODES.iter().chain(records::CODES).copied().collect());

/// Returns the entry of a code.
pub fn explain(code: &str) -> Option<Entry> {
    ALL.iter().find(|entry| entry.code == code).copied()
}

/// Builds the index of all codes.
pub fn page() -> Page {
    let mut text = String::from(
        "<!-- Written by `anabranch docs write`. -->\n\n# Errors\n\nEvery error has a stable code; messages may change. \
         Codes with a dot appear in the output of commands (`--json`), in findings in files, and in the API as `reason`. \
         Codes without a dot give the reason why a record failed or a run ended: in dead letters, in the log, in the \
         status of a pipeline.\n",
    );
    for (title, codes) in [("Commands, files, API", service::CODES), ("Records and runs", records::CODES)] {
        let _ = write!(text, "\n## {title}\n\n| code | meaning | remedy |\n| --- | --- | --- |\n");
        for Entry { code, meaning, advice } in codes {
            let _ = writeln!(text, "| `{code}` | {} | {} |", cell(meaning), cell(advice));
        }
    }
    Page { path: "docs/errors.md".to_owned(), text }
}
