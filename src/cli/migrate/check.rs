//! The check of generated files: they are compiled like those of a service.

use anabranch_config::{PipelineConfig, Variables, load};
use anabranch_graph::codes;
use anabranch_graph::plan::{CompileOptions, compile};
use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics, Files, Span};
use anabranch_plugin::registry::Registry;
use anabranch_record::code::Code;

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

/// Findings that the report on the plugins of a pipeline contains, too.
const REPORTED: [Code; 5] = [
    codes::PLAN_PLUGIN_LEFT_OUT,
    codes::PLAN_PLUGIN_NOT_INSTALLED,
    codes::PLAN_UNKNOWN_PLUGIN,
    codes::PLAN_WRONG_ROLE,
    codes::PLAN_WRONG_VERSION,
];

/// Compiles the pipelines of these files, and returns the findings, without those about missing plugins. The values of
/// settings are masked in the lines that the findings show: they may be credentials that the migration did not recognize.
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
    // A finding about the invented value of a variable would say nothing about the real one.
    let has_variable = |finding: &Diagnostic| {
        let span = finding.label.as_ref().map(|label| label.span);
        let text = span.and_then(|span| texts.get(span.file)?.text.get(span.start as usize..span.end as usize));
        text.is_some_and(|text| text.contains("${"))
    };
    findings.0.retain(|finding| !REPORTED.contains(&finding.code) && !has_variable(finding));
    let invalid = loaded.invalid.iter().filter_map(|pipeline| pipeline.sound_parts.as_deref());
    let values: Vec<Span> = loaded.pipelines.iter().chain(invalid).flat_map(values).collect();
    (texts, findings.hiding(&values))
}

/// Returns the places of the values of all settings of a pipeline.
fn values(pipeline: &PipelineConfig) -> Vec<Span> {
    let of_connectors = pipeline.connectors.iter().flat_map(|connector| {
        connector.processors.iter().map(|processor| &processor.settings).chain([&connector.settings])
    });
    let of_processors = pipeline.processors.iter().map(|processor| &processor.settings);
    of_connectors
        .chain(of_processors)
        .chain([&pipeline.dead_letter_queue.settings])
        .flat_map(|settings| &settings.entries)
        .map(|setting| setting.value.span())
        .collect()
}
