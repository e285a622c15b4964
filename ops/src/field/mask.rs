//! `field.mask`: hides a part of a value.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{Flow, Kinds, Type};
use anabranch_plugin::kind;
use anabranch_plugin::operator::{Decision, InlineOperator, OperatorContext, OperatorKind, Rows, Signature};
use anabranch_plugin::parameters::{Argument, Choice, Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::reference::Reference;
use anabranch_record::value::Value;

use super::scalar_text::scalar_text;
use crate::codes;

/// Returns the `field.mask` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    kind::inline::<Mask>()
}

/// What the values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Masked {
    Text,
    Email,
    Ip,
}

impl Choice for Masked {
    const CHOICES: &'static [(&'static str, Self)] =
        &[("text", Masked::Text), ("email", Masked::Email), ("ip", Masked::Ip)];
}

/// What stands for a value that is hidden as a whole.
const HIDDEN: &str = "***";

#[derive(Parameters)]
struct Settings {
    /// The field to mask, such as .Payload.After.card.
    #[parameter(within = [".Key", ".Payload"])]
    field: Argument<Reference>,
    /// What the values are: text (each hidden character becomes a star), email (the first character and the domain stay), or
    /// ip (the last 8 bits of an IPv4 address and the last 80 bits of an IPv6 address become 0).
    #[parameter(default = "text")]
    kind: Argument<Masked>,
    /// Number of characters at the beginning of a text that stay.
    #[parameter(default = 0)]
    keep_first: usize,
    /// Number of characters at the end of a text that stay.
    #[parameter(default = 0)]
    keep_last: usize,
}

#[derive(Clone)]
struct Mask {
    field: Reference,
    kind: Masked,
    keep_first: usize,
    keep_last: usize,
}

impl InlineOperator for Mask {
    type Parameters = Settings;

    fn specification() -> Specification {
        Specification::builtin("field.mask", "Hides a part of a value.")
            .describe(
                "Replaces a value with a text that shows only a part of it. Numbers, booleans and times count as texts. A text \
                 that is not longer than what may stay is hidden as a whole, and so is a value that is not an e-mail or IP \
                 address with `kind: email` or `kind: ip`. A field that is missing or null stays as it is; a list or a map \
                 fails the record.",
            )
            .with_all(shared::processor())
    }

    fn configure(settings: Settings) -> Result<Self, Diagnostics> {
        let Settings { field, kind, keep_first, keep_last } = settings;
        if *kind != Masked::Text && keep_first + keep_last > 0 {
            return Err(kind.invalid("keepFirst and keepLast apply to kind: text only").into());
        }
        Ok(Mask { field: field.one_side()?, kind: *kind, keep_first, keep_last })
    }

    fn signature(&self) -> Signature {
        Signature::new().reads(self.field.access()).writes(self.field.access())
    }

    fn flow(&self, flow: &mut Flow) {
        let wanted = Kinds::ANY.without(Kinds::LIST | Kinds::MAP);
        flow.need(codes::FLOW_NOT_A_TEXT, "field", &self.field, (wanted, "a single value"), true);
        flow.replace("field", &self.field, Type::of(Kinds::TEXT));
    }

    fn process(&mut self, rows: &mut Rows<'_>, _: &OperatorContext) {
        rows.for_each(|record| {
            if let Some(bytes) = scalar_text(&self.field, record, ("mask", codes::MASK_UNEXPECTED_TYPE))? {
                let masked = match std::str::from_utf8(&bytes) {
                    Ok("") => String::new(),
                    Ok(text) => self.masked(text),
                    Err(_) => HIDDEN.to_owned(),
                };
                self.field.set(record, Value::from(masked))?;
            }
            Ok(Decision::Keep)
        });
    }
}

impl Mask {
    fn masked(&self, text: &str) -> String {
        match self.kind {
            Masked::Text => {
                let count = text.chars().count();
                let shows = self.keep_first.saturating_add(self.keep_last) < count;
                let (first, last) = if shows { (self.keep_first, count - self.keep_last) } else { (0, count) };
                let shown = |(at, char)| if at < first || at >= last { char } else { '*' };
                text.chars().enumerate().map(shown).collect()
            }
            Masked::Email => match text.rsplit_once('@') {
                Some((local, domain)) if !domain.is_empty() && !text.contains(char::is_whitespace) => {
                    let first = local.chars().next();
                    first.map_or_else(|| HIDDEN.to_owned(), |first| format!("{first}{HIDDEN}@{domain}"))
                }
                _ => HIDDEN.to_owned(),
            },
            Masked::Ip => match text.parse::<IpAddr>() {
                Ok(address) => network(address.to_canonical()).to_string(),
                Err(_) => HIDDEN.to_owned(),
            },
        }
    }
}

/// Returns the first 24 bits of an IPv4 address, or the first 48 of an IPv6 address, followed by zeros.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() & (u32::MAX << 8)).into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 80)).into(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{self, findings, outcome};

    fn mask(settings: &[(&str, &str)], value: &str) -> Result<String, String> {
        let settings: Vec<_> = [("field", ".Key.a")].iter().chain(settings).copied().collect();
        outcome(&kind(), &settings, &format!(r#"{{"operation":"create","key":{{"a":{value}}}}}"#)).map(|record| {
            let record: serde_json::Value = serde_json::from_str(&record).unwrap();
            record["key"]["a"].to_string()
        })
    }

    #[test]
    fn a_part_of_a_text_stays() {
        let kept = |first, last, value| mask(&[("keepFirst", first), ("keepLast", last)], value).unwrap();
        assert_eq!(kept("0", "4", "\"1234567890\""), "\"******7890\"");
        assert_eq!(kept("1", "1", "\"äöü\""), "\"ä*ü\"");
        assert_eq!(kept("2", "2", "\"abcd\""), "\"****\"", "nothing stays of a short text");
        assert_eq!(kept("0", "2", "12345"), "\"***45\"");
        assert_eq!(kept("0", "0", "\"\""), "\"\"");
        assert_eq!(kept("0", "0", "null"), "null");
    }

    #[test]
    fn addresses_lose_what_identifies_a_person() {
        for (kind, value, expected) in [
            ("email", "ada@example.org", "a***@example.org"),
            ("email", "@example.org", "***"),
            ("email", "ada", "***"),
            ("email", "call ada@example.org", "***"),
            ("ip", "203.0.113.77", "203.0.113.0"),
            ("ip", "::ffff:203.0.113.77", "203.0.113.0"),
            ("ip", "2001:db8:1:2:3:4:5:6", "2001:db8:1::"),
            ("ip", "localhost", "***"),
        ] {
            assert_eq!(mask(&[("kind", kind)], &format!("{value:?}")), Ok(format!("{expected:?}")), "{value}");
        }
    }

    #[test]
    fn lists_and_maps_fail() {
        let said = mask(&[], "[1]").unwrap_err();
        assert_eq!(said, "mask_unexpected_type: cannot mask .Key.a: it is a list, not a text or a number");
        testing::failed_rows_stay(&kind(), &[("field", ".Payload.After.a")]);
        let found = findings(&kind(), &[("field", ".Key"), ("kind", "ip"), ("keepLast", "2")]).join("; ");
        assert!(found.contains("apply to kind: text only"), "{found}");
    }

    #[test]
    fn shapes_are_large_enough() {
        for field in [".Payload.After.a", ".Payload.After", ".Key.a.b"] {
            for kind_of_values in ["text", "email", "ip"] {
                testing::shapes_are_large_enough(&kind(), &[("field", field), ("kind", kind_of_values)]);
            }
        }
    }

    proptest! {
        #[test]
        fn no_more_stays_than_is_allowed(text in "[a-z]{0,20}", first in 0usize..5, last in 0usize..5) {
            let (first, last) = (first.to_string(), last.to_string());
            let masked = mask(&[("keepFirst", &first), ("keepLast", &last)], &format!("{text:?}")).unwrap();
            let shown = masked.chars().filter(char::is_ascii_lowercase).count();
            let allowed = first.parse::<usize>().unwrap() + last.parse::<usize>().unwrap();
            prop_assert!(shown == allowed && allowed < text.len() || shown == 0, "{masked}");
            prop_assert_eq!(masked.len(), text.len() + 2);
        }
    }
}
