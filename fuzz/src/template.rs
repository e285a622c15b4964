//! Any text is a valid template or is refused, and any template renders or fails.

use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Position, Record};
use anabranch_template::{Allowance, MissingKey, Template};

use super::text;

/// Lower limits than usual: instrumented code takes twenty times as long, so that a template at its limits would look
/// like one without limits.
const ALLOWANCE: Allowance = Allowance { bytes: 4 << 20, steps: 300_000 };

pub(crate) fn check(input: &[u8]) {
    let text = text(input);
    let fields: Object =
        [("a", Value::Int(1)), ("b", Value::from("text")), ("c", Value::from(vec![Value::Float(1.5), Value::Null]))]
            .into_iter()
            .collect();
    let structured = Record::create(Position::copy_from(b"1"), Data::text("key"), fields.into());
    for missing in [MissingKey::NoValue, MissingKey::Error] {
        if let Ok(template) = Template::parse(text, missing) {
            for record in [&structured, &Record::default()] {
                let mut out = String::from("before");
                if template.render_within(record, &mut out, ALLOWANCE).is_err() {
                    assert_eq!(out, "before");
                }
            }
        }
    }
}
