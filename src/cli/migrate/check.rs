//! The check of generated files: they are compiled like those of a service.

use anabranch_config::{Variables, load};
use anabranch_graph::plan::{CompileOptions, compile};
use anabranch_plugin::diagnostic::{Diagnostics, Files};
use anabranch_plugin::registry::Registry;

/// Gives every variable a value of the kind that its name suggests. The user sets the real ones later.
struct LikelyValues;

impl Variables for LikelyValues {
    fn variable(&self, name: &str) -> Option<String> {
        let value = match name {
            name if name.ends_with("_URL") => "postgresql://user:password@localhost:5432/database",
            name if name.contains("SERVERS") => "localhost:9092",
            _ => "value",
        };
        Some(value.to_owned())
    }

    fn file(&self, _: &str) -> Result<String, String> {
        Ok("value".to_owned())
    }
}

/// Compiles the pipelines of these files, and returns the findings.
pub(super) fn check<'f>(
    files: impl Iterator<Item = (&'f str, &'f str)>,
    registry: &Registry,
    options: &CompileOptions,
) -> (Files, Diagnostics) {
    let mut texts = Files::new();
    for (name, text) in files {
        texts.add(name, text);
    }
    let loaded = load(&texts, &LikelyValues);
    let mut findings = loaded.diagnostics;
    for pipeline in &loaded.pipelines {
        findings.extend(compile(pipeline, registry, options).map_or_else(|wrong| wrong, |good| good.warnings));
    }
    (texts, findings)
}
