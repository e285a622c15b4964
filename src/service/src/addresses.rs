//! Addresses of connectors and processors in the API: the ids that lead to them, joined with `:`.

use std::collections::HashMap;

use anabranch_config::{PipelineConfig, ProcessorConfig};
use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics, Span, Spanned};
use anabranch_record::text::Str;

use crate::codes;

/// Returns the addresses of the connectors and processors of a pipeline, with their places.
fn of(config: &PipelineConfig) -> Vec<(&'static str, String, Span)> {
    let processor = |parent: &str, it: &ProcessorConfig| ("processor", format!("{parent}:{}", it.id.value), it.id.span);
    let pipeline = config.id.value.as_str();
    let mut all: Vec<_> = config.processors.iter().map(|it| processor(pipeline, it)).collect();
    for connector in &config.connectors {
        let Spanned { value: id, span }: &Spanned<Str> = &connector.id;
        let address = format!("{pipeline}:{id}");
        all.extend(connector.processors.iter().map(|it| processor(&address, it)));
        all.push(("connector", address, *span));
    }
    all
}

/// Reports connectors and processors with the address of another one, which the API cannot reach: a `:` in an id is
/// like the one between two ids. Returns the pipelines with findings by index, in order. O(connectors and processors).
pub(crate) fn shared(pipelines: &[&PipelineConfig]) -> Vec<(usize, Diagnostics)> {
    let mut first: HashMap<(&str, String), (&str, Span)> = HashMap::new();
    let mut all = Vec::new();
    for (index, config) in pipelines.iter().enumerate() {
        let mut findings = Diagnostics::new();
        for (what, address, span) in of(config) {
            let id = config.id.value.as_str();
            match first.get(&(what, address.clone())) {
                Some((other, place)) => {
                    let message = format!(
                        "the API cannot reach this {what}: {address} is the address of a {what} of {other:?} too"
                    );
                    let finding = Diagnostic::warning(codes::PLAN_ADDRESS_SHARED, message);
                    let finding = finding.with_span(span).with_related(*place, "the same address");
                    findings.push(finding.with_hint("leave the `:` out of the ids"));
                }
                None => _ = first.insert((what, address), (id, span)),
            }
        }
        if !findings.is_empty() {
            all.push((index, findings));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use crate::pipelines::of_text;

    fn findings(pipelines: &[(&str, &str)]) -> Vec<(String, u32)> {
        let items: String = pipelines
            .iter()
            .map(|(id, connector)| {
                format!(
                    "  - id: '{id}'\n    connectors:\n      - {{ id: '{connector}', type: source, plugin: file, settings: {{ path: in.txt }} }}\n      \
                     - {{ id: out, type: destination, plugin: drop }}\n"
                )
            })
            .collect();
        let pipelines = of_text(&format!("version: 2.2\npipelines:\n{items}"));
        let found = pipelines.findings.iter().filter(|finding| finding.code.name() == "plan.address_shared");
        found.map(|it| (it.message.to_string(), it.label.as_ref().unwrap().span.start)).collect()
    }

    #[test]
    fn two_connectors_with_one_address_are_told() {
        let [(text, at)] = &findings(&[("a", "b:in"), ("a:b", "in")])[..] else { panic!("one finding is expected") };
        assert_eq!(text, "the API cannot reach this connector: a:b:in is the address of a connector of \"a\" too");
        assert!(*at > 150, "the place is that of the second one: {at}");
        assert_eq!(findings(&[("a", "b:in"), ("a:b", "on"), ("b", "in")]), []);
    }
}
