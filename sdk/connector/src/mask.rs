//! `mask`: a processor that masks all but the last characters of a text.

use std::sync::Arc;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::kind;
use anabranch_plugin::operator::{Decision, InlineOperator, OperatorContext, OperatorKind, Rows, Signature};
use anabranch_plugin::parameters::{Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::Record;
use anabranch_record::fault::Fault;
use anabranch_record::reference::{Part, Reference};
use anabranch_record::value::Value;

use crate::codes;

/// Returns the `mask` processor, to be registered.
pub fn kind() -> Arc<dyn OperatorKind> {
    kind::inline::<Mask>()
}

#[derive(Clone, Parameters)]
pub struct Settings {
    /// The field to mask, such as .Payload.After.card.
    #[parameter(within = [".Payload.Before", ".Payload.After"])]
    field: Reference,
    /// Number of characters at the end that stay readable.
    #[parameter(default = 4)]
    visible: usize,
}

#[derive(Clone)]
struct Mask(Settings);

impl InlineOperator for Mask {
    type Parameters = Settings;

    fn specification() -> Specification {
        Specification::new("mask", env!("CARGO_PKG_VERSION"), "Masks all but the last characters of a text.")
            .with_all(shared::processor())
    }

    fn configure(settings: Settings) -> Result<Self, Diagnostics> {
        Ok(Mask(settings))
    }

    fn signature(&self) -> Signature {
        let field = self.0.field.access();
        Signature::new().reads(field.clone()).writes(field)
    }

    fn process(&mut self, rows: &mut Rows<'_>, _: &OperatorContext) {
        rows.for_each(|record| {
            self.mask(record)?;
            Ok(Decision::Keep)
        });
    }
}

impl Mask {
    fn mask(&self, record: &mut Record) -> Result<(), Fault> {
        let Settings { field, visible } = &self.0;
        let text = match field.get(record)? {
            None => return Ok(()),
            Some(Part::Value(Value::Text(text))) => text,
            Some(other) => {
                let what = format!("cannot mask {}: expected a text, found {}", field.as_str(), other.type_name());
                return Err(Fault::record(codes::MASK_NOT_A_TEXT, what));
            }
        };
        let hidden = text.chars().count().saturating_sub(*visible);
        let masked: String = text.chars().enumerate().map(|(at, c)| if at < hidden { '*' } else { c }).collect();
        field.set(record, Value::from(masked))
    }
}

#[cfg(test)]
mod tests {
    use anabranch_plugin::testing::configured::{process, processor};
    use anabranch_record::json::write_data;

    use super::*;

    /// Returns the payload of a processed record, or the message of its dead letter.
    fn masked(settings: &[(&str, &str)]) -> Result<String, String> {
        let record = br#"{"operation":"create","payload":{"after":{"amount":7,"card":"4111111111111234"}}}"#;
        let record = Record::from_json(record).unwrap();
        let processor = processor(&kind(), settings).unwrap();
        let after = process(&processor, &record).map_err(|fault| fault.message())?;
        let mut text = Vec::new();
        write_data(&after[0].payload.after, &mut text).unwrap();
        Ok(String::from_utf8(text).unwrap())
    }

    #[test]
    fn the_end_stays_readable() {
        let settings = [("field", ".Payload.After.card")];
        assert_eq!(masked(&settings).unwrap(), r#"{"amount":7,"card":"************1234"}"#);
        let settings = [("field", ".Payload.After.card"), ("visible", "0")];
        assert_eq!(masked(&settings).unwrap(), r#"{"amount":7,"card":"****************"}"#);
    }

    #[test]
    fn a_number_fails() {
        let error = masked(&[("field", ".Payload.After.amount")]).unwrap_err();
        assert_eq!(error, "cannot mask .Payload.After.amount: expected a text, found integer");
    }

    #[test]
    fn mistakes_in_settings_are_reported() {
        let settings = [("feild", ".Payload.After.card"), ("visible", "four")];
        let findings = processor(&kind(), &settings).err().unwrap();
        assert_eq!(findings, ["mask has no parameter \"feild\"", "visible: \"four\" is not an integer"]);
    }
}
