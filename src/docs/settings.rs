//! The page on the settings of the service.

use std::fmt::Write as _;

use anabranch_settings::declaration::{KEYS, SECTIONS};

use super::{Page, cell};

/// Builds the page with all settings by section.
pub fn page() -> Page {
    let mut text = String::from(
        "<!-- Written by `anabranch docs write`. -->\n\n# Settings\n\nA flag (`--db.path`) takes precedence over a variable \
         (`ANABRANCH_DB_PATH`), which takes precedence over `anabranch.yaml`. `anabranch init` writes that file with an \
         explanation of every setting; `anabranch config` prints the effective values and their origin. In the file, \
         `${NAME}`, `${NAME:-default}` and `${file:PATH}` are replaced by environment variables and contents of files, as \
         in pipelines.\n",
    );
    for (section, title) in SECTIONS {
        let keys: Vec<_> = KEYS.iter().filter(|key| key.section() == *section && !key.has_no_effect()).collect();
        if keys.is_empty() {
            continue;
        }
        let _ = write!(text, "\n## {title}\n\n| setting | type | default | meaning |\n| --- | --- | --- | --- |\n");
        for key in keys {
            let default = key.default.filter(|default| !default.is_empty());
            let default = default.map(|default| format!("`{}`", cell(default))).unwrap_or_default();
            let secret = if key.secret { "; secret" } else { "" };
            let kind = cell(&key.kind.describe());
            let standard: Vec<String> = key.standard.iter().map(|name| format!("`{name}`")).collect();
            let standard = match &standard[..] {
                [] => String::new(),
                names => format!(" If it is not set, the value comes from {}.", names.join(", ")),
            };
            let _ = writeln!(text, "| `{}` | {kind}{secret} | {default} | {}{standard} |", key.name, cell(key.comment));
        }
    }
    Page { path: "docs/settings.md".to_owned(), text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_section_has_settings() {
        let text = page().text;
        for section in text.split("\n## ").skip(1) {
            assert!(section.lines().any(|line| line.starts_with("| `")), "{section}");
        }
    }
}
