//! Lowers the conditions of destinations.

use anabranch_config::PipelineConfig;
use anabranch_plugin::diagnostic::Diagnostic;
use anabranch_plugin::registry::Role;
use anabranch_plugin::written::Written;
use anabranch_record::near::did_you_mean;
use anabranch_record::text::Str;

use super::Resolver;
use crate::codes;
use crate::plan::graph::{Node, NodeKind, RouteNode, RouteRule};
use crate::plan::stage::Unmatched;

/// What the field `unmatched` says.
enum Policy {
    Word(Unmatched),
    /// The connector with this index receives the records.
    Connector(usize),
}

impl Resolver<'_> {
    /// Returns the node that routes records to destinations; `None` if every destination receives every record.
    pub(super) fn route(&mut self, config: &PipelineConfig) -> Option<Node> {
        let policy = config.unmatched.as_ref().and_then(|written| self.unmatched(config, written));
        let is_destination = |index: &usize| config.connectors[*index].role.value == Role::Destination;
        let mut rules = Vec::new();
        let (mut span, mut sound) = (None, true);
        for index in (0..config.connectors.len()).filter(is_destination) {
            let connector = &config.connectors[index];
            let path = format!("/connectors/{index}");
            let guard = match &connector.condition {
                Some(written) => {
                    span.get_or_insert(written.span());
                    let guard = self.condition(&path, written);
                    sound &= guard.is_some();
                    guard
                }
                None => None,
            };
            let otherwise = matches!(policy, Some(Policy::Connector(named)) if named == index);
            let path = Str::from(format!("{path}/condition"));
            rules.push(RouteRule { destination: connector.id.value.clone(), guard, otherwise, path });
        }
        // What was said of it is not said again.
        let written = config.unmatched.as_ref().filter(|_| policy.is_some());
        let Some(span) = span else {
            if let Some(written) = written {
                self.note(written, "no destination has a condition: every destination receives every record");
            }
            return None;
        };
        if !sound {
            return None;
        }
        if let (Some(all), Some(written)) = (rules.iter().find(|rule| rule.takes_all()), written) {
            let what = format!("{:?} has no condition: it receives every record", all.destination);
            self.note(written, &what);
        }
        let covers = |a: &RouteRule, b: &RouteRule| match (&a.guard, &b.guard) {
            (Some(a), Some(b)) => a.condition.holds_where_not(&b.condition),
            _ => false,
        };
        let all_match = rules.iter().any(RouteRule::takes_all)
            || rules
                .iter()
                .any(|rule| rule.guard.as_ref().is_some_and(|guard| guard.condition.settled() == Some(true)))
            || rules.iter().enumerate().any(|(at, a)| rules[..at].iter().any(|b| covers(a, b)));
        if config.unmatched.is_none() && !all_match {
            self.findings.push(
                Diagnostic::warning(
                    codes::PLAN_UNMATCHED_DROPPED,
                    "records that fulfil the condition of no destination are dropped",
                )
                .with_span(span)
                .with_path("/unmatched")
                .with_hint(
                    "write `unmatched: drop` in the pipeline if this is meant, or `dead-letter`, `fail`, or the id of a \
                     destination that receives them",
                ),
            );
        }
        let unmatched = match policy {
            Some(Policy::Word(word)) => word,
            Some(Policy::Connector(_)) | None => Unmatched::Drop,
        };
        let kind = NodeKind::Route(RouteNode { rules, unmatched });
        Some(Node { id: RouteNode::NODE.into(), kind, settings: Vec::new(), span, path: Str::default() })
    }

    fn unmatched(&mut self, config: &PipelineConfig, written: &Written) -> Option<Policy> {
        let named = |id: &str| config.connectors.iter().position(|connector| *connector.id.value == *id);
        let text = written.value().trim();
        let word = match text {
            "drop" => Some(Unmatched::Drop),
            "dead-letter" => Some(Unmatched::DeadLetter),
            "fail" => Some(Unmatched::Fail),
            _ => None,
        };
        let found = named(text).filter(|index| config.connectors[*index].role.value == Role::Destination);
        match (found, word) {
            // A connector of this name is more than a word.
            (Some(index), _) => return Some(Policy::Connector(index)),
            (None, Some(word)) => return Some(Policy::Word(word)),
            (None, None) => {}
        }
        let shown = if written.is_substituted() { "its value" } else { text };
        let (message, hint) = match named(text) {
            Some(_) => (format!("unmatched: {shown:?} is a source, which receives no records"), None),
            None => {
                let destinations = config.connectors.iter().filter(|c| c.role.value == Role::Destination);
                let words = destinations.map(|c| c.id.value.as_str()).chain(["drop", "dead-letter", "fail"]);
                (format!("unmatched: there is no destination {shown:?}"), did_you_mean(text, words))
            }
        };
        let finding =
            Diagnostic::error(codes::PLAN_UNMATCHED_UNKNOWN, message).with_span(written.span()).with_path("/unmatched");
        self.findings.push(match hint {
            Some(near) => finding.with_hint(format!("did you mean {near:?}?")),
            None => finding.with_hint("write drop, dead-letter, fail, or the id of a destination of the pipeline"),
        });
        None
    }

    /// Reports that `unmatched` has no effect.
    fn note(&mut self, written: &Written, why: &str) {
        self.findings.push(
            Diagnostic::warning(codes::PLAN_UNMATCHED_UNUSED, format!("unmatched has no effect: {why}"))
                .with_span(written.span())
                .with_path("/unmatched")
                .with_hint("remove it, or add a `condition` to the destination"),
        );
    }
}
