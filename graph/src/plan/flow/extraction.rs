//! Schema inference settings of a source whose data has no structure.

use anabranch_plugin::arguments::parse_bool;
use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics};
use anabranch_plugin::flow::RecordShape;
use anabranch_record::reference::Side;

use crate::codes;
use crate::plan::graph::Node;

/// Warns if a source is configured to infer a schema of data that is never structured. O(settings).
pub(super) fn unused(node: &Node, shape: &RecordShape) -> Diagnostics {
    let mut findings = Diagnostics::new();
    let settings: [(&str, &str, &[Side]); 2] = [
        ("sdk.schema.extract.key.enabled", "the key", &[Side::Key]),
        ("sdk.schema.extract.payload.enabled", "the payload", &[Side::Before, Side::After]),
    ];
    for given in &node.settings {
        let Some((name, what, sides)) = settings.iter().find(|(name, ..)| *given.name == **name) else { continue };
        let is_on = parse_bool(given.value.value().trim()) == Some(true);
        if !is_on || sides.iter().any(|side| !shape.side(*side).has_no_fields()) {
            continue;
        }
        let message = format!("{name} has no effect: {what} is raw data, for which no schema is inferred");
        findings.push(
            Diagnostic::warning(codes::SETTINGS_UNUSED, message)
                .with_span(given.span)
                .with_path(format!("{}/settings/{name}", node.path))
                .with_hint("remove it; avro.encode infers a schema from data that json.decode has decoded"),
        );
    }
    findings
}
