//! Every stable error code with its meaning and remedy.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::LazyLock;

use anabranch_record::code::Code;

use super::{Page, cell};
use crate::renamed;

/// All codes that crates of this build declare, in the order of their names.
pub static ALL: LazyLock<Vec<Code>> = LazyLock::new(|| {
    let mut all: Vec<Code> = [
        anabranch_record::codes::ALL,
        anabranch_template::codes::ALL,
        anabranch_plugin::codes::ALL,
        anabranch_config::codes::ALL,
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

/// Returns the code with a name, or the one that replaced it.
pub fn explain(name: &str) -> Option<Code> {
    ALL.iter().find(|code| code.name() == name).copied().or_else(|| renamed::replaced(name))
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
    text.push_str(
        "\n## Replaced codes\n\nSome commands used other codes before. For one minor version, the error in the JSON \
         output of a command has the old code as `oldCode`.\n\n| old code | code |\n| --- | --- |\n",
    );
    let replaced: BTreeMap<&str, Code> = renamed::ALL.iter().map(|renamed| (renamed.old, renamed.code)).collect();
    for (old, code) in replaced {
        let _ = writeln!(text, "| `{old}` | `{code}` |");
    }
    Page { path: "docs/errors.md".to_owned(), text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_code_is_in_no_other_use_and_is_explained() {
        for renamed in renamed::ALL {
            assert!(ALL.iter().all(|code| code.name() != renamed.old), "{}", renamed.old);
            assert!(ALL.contains(&renamed.code), "{}", renamed.code);
            assert!(explain(renamed.old).is_some());
        }
    }
}
