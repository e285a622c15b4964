//! Every stable code, what it means, and what to do.

mod records;
mod service;

use std::fmt::Write as _;

use super::{Page, cell};

/// A code that programs may compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// As it is told: `pipeline.not_found`, `field_missing`.
    pub code: &'static str,
    /// What it means.
    pub meaning: &'static str,
    /// What to do.
    pub advice: &'static str,
}

const fn entry(code: &'static str, meaning: &'static str, advice: &'static str) -> Entry {
    Entry { code, meaning, advice }
}

/// All of them: those of commands, files and the API, and those of records and runs.
pub static ALL: std::sync::LazyLock<Vec<Entry>> =
    std::sync::LazyLock::new(|| service::CODES.iter().chain(records::CODES).copied().collect());

/// The entry of a code.
pub fn explain(code: &str) -> Option<Entry> {
    ALL.iter().find(|entry| entry.code == code).copied()
}

/// The index.
pub fn page() -> Page {
    let mut text = String::from(
        "<!-- Written by `anabranch docs write`. -->\n\n# Errors\n\nEvery error has a code that stays the same; messages \
         may change. Codes with a dot are told by commands (`--json`), by findings in files, and by the API as `reason`. \
         Codes without one say why a record failed or a run ended: in dead letters, in the log, in the status of a \
         pipeline.\n",
    );
    for (title, codes) in [("Commands, files, API", service::CODES), ("Records and runs", records::CODES)] {
        let _ = write!(text, "\n## {title}\n\n| code | meaning | what to do |\n| --- | --- | --- |\n");
        for Entry { code, meaning, advice } in codes {
            let _ = writeln!(text, "| `{code}` | {} | {} |", cell(meaning), cell(advice));
        }
    }
    Page { path: "docs/errors.md".to_owned(), text }
}
