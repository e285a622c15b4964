//! Every stable error code with its meaning and remedy.

use std::fmt::Write as _;
use std::sync::LazyLock;

use anabranch_record::code::Code;

use super::{Page, cell};

/// All codes that crates of this build declare, in the order of their names.
pub static ALL: LazyLock<Vec<Code>> = LazyLock::new(|| {
    let mut all: Vec<Code> = [
        anabranch_record::codes::ALL,
        anabranch_template::codes::ALL,
        anabranch_plugin::codes::ALL,
        anabranch_graph::codes::ALL,
        anabranch_process::codes::ALL,
        anabranch_settings::codes::ALL,
        anabranch_service::codes::ALL,
        anabranch_api::codes::ALL,
        anabranch_trial::codes::ALL,
        crate::codes::ALL,
    ]
    .concat();
    all.extend(anabranch_registry::codes());
    all.sort_unstable();
    all
});

/// Returns the code with a name.
pub fn explain(name: &str) -> Option<Code> {
    ALL.iter().find(|code| code.name() == name).copied()
}

/// Builds the index of all codes.
pub fn page() -> Page {
    let mut text = String::from(
        "<!-- Written by `anabranch docs write`. -->\n\n# Errors\n\nEvery error has a stable code; messages may change. \
         Codes with a dot appear in the output of commands (`--json`), in findings in files, and in the API as `reason`. \
         Codes without a dot give the reason why a record failed or a run ended: in dead letters, in the log, in the \
         status of a pipeline.\n",
    );
    for (title, of_commands) in [("Commands, files, API", true), ("Records and runs", false)] {
        let _ = write!(text, "\n## {title}\n\n| code | meaning | remedy |\n| --- | --- | --- |\n");
        for code in ALL.iter().filter(|code| code.is_of_commands() == of_commands) {
            let _ = writeln!(text, "| `{code}` | {} | {} |", cell(code.meaning()), cell(code.remedy()));
        }
    }
    Page { path: "docs/errors.md".to_owned(), text }
}
