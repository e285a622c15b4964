//! Any text is a valid pipeline file, or is refused with findings that can be printed.

use anabranch_config::load;
use anabranch_plugin::diagnostic::Files;

use super::{OneVariable, text};

pub(crate) fn check(input: &[u8]) {
    let text = text(input);
    let mut files = Files::new();
    files.add("fuzz.yaml", text);
    let loaded = load(&files, &OneVariable);
    let printed = loaded.diagnostics.render(&files, Default::default());
    assert_eq!(printed.is_empty(), loaded.diagnostics.is_empty());
    assert!(
        !loaded.diagnostics.has_errors()
            || loaded.pipelines.is_empty()
            || !loaded.invalid.is_empty()
            || !loaded.broken.is_empty()
    );
}
