#![no_main]
//! Any text is a pipeline file or is refused with findings that can be printed.

use anabranch_graph::config::{Variables, load};
use anabranch_graph::diagnostic::Files;
use libfuzzer_sys::fuzz_target;

struct Unset;
impl Variables for Unset {
    fn variable(&self, name: &str) -> Option<String> {
        (name == "SET").then(|| "value".to_owned())
    }
    fn file(&self, _path: &str) -> Result<String, String> {
        Err("no files here".to_owned())
    }
}

fuzz_target!(|text: &str| {
    let mut files = Files::new();
    files.add("fuzz.yaml", text);
    let loaded = load(&files, &Unset);
    let printed = loaded.diagnostics.render(&files, Default::default());
    assert_eq!(printed.is_empty(), loaded.diagnostics.is_empty());
    assert!(!loaded.diagnostics.has_errors() || loaded.pipelines.is_empty() || !loaded.invalid.is_empty() || !loaded.broken.is_empty());
});
