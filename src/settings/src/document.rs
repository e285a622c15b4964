//! The configuration file that `init` writes.

use std::fmt::Write as _;

use crate::declaration::{KEYS, SECTIONS};

/// Returns the text of the file: every setting, commented out, with its default, type and meaning. The file changes
/// nothing until a line is uncommented.
pub fn document() -> String {
    let mut text = String::from(
        "# Configuration of Anabranch.\n\
         #\n\
         # Every line below shows a default; remove the `#` in front of a setting to change it.\n\
         # A flag (--db.path) takes precedence over a variable (ANABRANCH_DB_PATH), then over this file.\n\
         # Paths are relative to the directory of this file.\n",
    );
    for (section, title) in SECTIONS {
        let _ = write!(text, "\n# ---- {title} ----\n");
        for key in KEYS.iter().filter(|key| key.section() == *section) {
            let _ = write!(text, "\n# {}\n# Type: {}.", key.meaning(), key.kind.describe());
            if !key.standard.is_empty() {
                let _ = write!(text, " If it is not set, the value comes from {}.", key.standard.join(", "));
            }
            let value = match key.default {
                Some("") => " \"\"".to_owned(),
                Some(value) => format!(" {value}"),
                None => String::new(),
            };
            let _ = write!(text, "\n# {}:{value}\n", key.name);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use anabranch_plugin::diagnostic::FileId;

    use super::*;
    use crate::declaration::find;

    #[test]
    fn every_setting_can_be_uncommented() {
        let text = document();
        let uncommented: String = text
            .lines()
            .filter_map(|line| line.strip_prefix("# "))
            .filter(|line| line.split_once(':').is_some_and(|(name, _)| find(name).is_some()))
            .map(|line| format!("{line}\n"))
            .collect();
        let (entries, findings) = crate::file::read(FileId(0), &uncommented, &crate::file::tests::Nothing);
        assert!(findings.is_empty(), "{findings:?}");
        for key in KEYS.iter().filter(|k| k.name != "config.path") {
            let entry = entries.iter().find(|e| e.key.name == key.name);
            assert_eq!(entry.map(|e| e.text.as_str()), key.default, "{}", key.name);
        }
    }
}
