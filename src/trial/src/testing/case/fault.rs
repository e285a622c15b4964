//! Reads the injected faults of a test.

use anabranch_config::yaml::Node;
use anabranch_plugin::diagnostic::{Diagnostic, Spanned};
use anabranch_record::fault::FaultClass;

use super::{FaultKind, FaultSpec, Reader};
use crate::codes;
use crate::testing::fields::{Fields, boolean, duration, invalid, number, text};
use crate::testing::input::scalar_text;

const FAULT: &[&str] = &[
    "at",
    "source",
    "record",
    "records",
    "fail",
    "message",
    "delay",
    "hang",
    "panic",
    "down",
    "partial-write",
    "crash",
    "times",
];

impl Reader<'_> {
    pub(super) fn fault(&mut self, node: &Node) -> Option<FaultSpec> {
        let mut fields = Fields::of(node, "a fault", self.findings)?;
        let head = fields.head();
        let at = fields.take("at").and_then(|entry| text(entry, self.findings));
        let source = fields.take("source").and_then(|entry| text(entry, self.findings));
        let mut records = Vec::new();
        if let Some(entry) = fields.take("record") {
            records.extend(number(&entry.value, "`record`", self.findings).map(|number| number.value));
        }
        if let Some(entry) = fields.take("records") {
            let numbers = self.list(entry, |reader, node| number(node, "a record", reader.findings));
            records.extend(numbers.iter().map(|number| number.value));
        }
        let times = fields.take("times").and_then(|entry| {
            if matches!(scalar_text(&entry.value).as_deref(), Some("always")) {
                return Some(None);
            }
            number(&entry.value, "`times`", self.findings).map(|times| Some(times.value))
        });
        let message = fields.take("message").and_then(|entry| text(entry, self.findings));
        let mut kinds = Vec::new();
        if let Some(word) = fields.take("fail").and_then(|entry| text(entry, self.findings)) {
            let class = match &*word.value {
                "record" => Some(FaultClass::Record),
                "transient" => Some(FaultClass::Transient),
                "fatal" => Some(FaultClass::Fatal),
                _ => {
                    self.findings.push(invalid(word.span, "`fail` must be record, transient or fatal"));
                    None
                }
            };
            let said = message.as_ref().map_or("injected by the test", |message| &*message.value).to_owned();
            kinds.extend(class.map(|class| Spanned::new(FaultKind::Fail(class, said), word.span)));
        } else if let Some(message) = &message {
            self.findings.push(invalid(message.span, "`message` is allowed only with `fail`"));
        }
        for name in ["delay", "down"] {
            if let Some(entry) = fields.take(name)
                && let Some(time) = duration(entry, self.findings)
            {
                let kind = if name == "delay" { FaultKind::Delay(time) } else { FaultKind::Down(time) };
                kinds.push(Spanned::new(kind, entry.key_span));
            }
        }
        for (name, kind) in [("hang", FaultKind::Hang), ("panic", FaultKind::Panic), ("crash", FaultKind::Crash)] {
            if let Some(entry) = fields.take(name)
                && boolean(entry, self.findings)?
            {
                kinds.push(Spanned::new(kind, entry.key_span));
            }
        }
        if let Some(entry) = fields.take("partial-write")
            && let Some(rows) = number(&entry.value, "`partial-write`", self.findings)
        {
            kinds.push(Spanned::new(FaultKind::Partial(rows.value), entry.key_span));
        }
        fields.finish(FAULT, self.findings);
        let Some(at) = at else {
            let finding = Diagnostic::error(
                codes::TEST_FIELD_REQUIRED,
                "a fault needs a place: set `at` to the id of a processor or connector",
            );
            self.findings.push(finding.with_span(head));
            return None;
        };
        let [kind] = kinds.as_slice() else {
            let known = "fail, delay, hang, panic, down, partial-write, crash";
            self.findings.push(invalid(head, format!("a fault must have exactly one of {known}")));
            return None;
        };
        let once = matches!(
            kind.value,
            FaultKind::Fail(FaultClass::Transient, _) | FaultKind::Partial(_) | FaultKind::Crash | FaultKind::Panic
        );
        let times = times.unwrap_or(if once { Some(1) } else { None });
        Some(FaultSpec { span: head, at, source, records, kind: kind.clone(), times })
    }
}
