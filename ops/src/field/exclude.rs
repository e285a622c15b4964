//! `field.exclude`: removes fields.

use std::ops::Range;
use std::sync::Arc;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{ConfigLocation, Flow};
use anabranch_plugin::kind;
use anabranch_plugin::operator::{Decision, InlineOperator, OperatorKind, Rows, Signature};
use anabranch_plugin::parameters::{Argument, Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::access::Access;
use anabranch_record::reference::{Reference, Target};
use anabranch_record::text::Str;

use super::items::Item;

const FIELDS: &str = "fields";

/// Returns the `field.exclude` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    kind::inline::<Exclude>()
}

#[derive(Parameters)]
struct Settings {
    /// The fields to remove, separated by commas: .Payload.After.password,.Metadata.token.
    #[parameter(name = FIELDS, required)]
    fields: Argument<Vec<Str>>,
}

#[derive(Clone)]
struct Exclude {
    /// The fields, each with its byte range in the setting.
    fields: Arc<[(Reference, Range<usize>)]>,
}

fn paths(field: &Reference) -> Vec<Vec<Str>> {
    match field.access() {
        Access::These(paths) => paths,
        Access::Everything => Vec::new(),
    }
}

impl InlineOperator for Exclude {
    type Parameters = Settings;

    fn specification() -> Specification {
        Specification::builtin("field.exclude", "Removes fields.")
        .describe(
            "Removes fields and metadata entries. `.Key`, `.Payload`, `.Payload.Before` and `.Payload.After` become \
             absent, `.Metadata` becomes empty. Missing fields are ignored. `.Position` and `.Operation` cannot be \
             removed.",
        )
        .with_all(shared::processor())
    }

    fn configure(settings: Settings) -> Result<Self, Diagnostics> {
        let (mut fields, mut findings) = (Vec::new(), Diagnostics::new());
        for item in Item::whole(&settings.fields).split(b',') {
            if item.text.is_empty() {
                findings.push(item.finding("an item is empty").with_hint("remove the comma"));
                continue;
            }
            match item.reference() {
                Ok(field) if matches!(field.target(), Target::Record | Target::Position | Target::Operation) => {
                    findings.push(item.finding(&format!("{field} cannot be removed")));
                }
                Ok(field) => fields.push((field, item.range())),
                Err(found) => findings.extend(found),
            }
        }
        if findings.has_errors() {
            return Err(findings);
        }
        // If a map and a field in it are both listed, the map is enough. So no removal depends on another.
        let goes_with = |i: usize, field: &Reference| {
            let path = paths(field).concat();
            fields.iter().enumerate().any(|(other, (outer, _))| {
                let outer = paths(outer).concat();
                other != i && path.starts_with(&outer) && (outer.len() < path.len() || other < i)
            })
        };
        let fields = fields.iter().enumerate().filter(|(i, (field, _))| !goes_with(*i, field));
        Ok(Exclude { fields: fields.map(|(_, field)| field.clone()).collect() })
    }

    fn signature(&self) -> Signature {
        let writes = Access::These(self.fields.iter().flat_map(|(field, _)| paths(field)).collect());
        Signature { reads: Access::NOTHING, writes, ..Signature::inline() }
    }

    fn flow(&self, flow: &mut Flow) {
        for (field, range) in self.fields.iter() {
            flow.delete(ConfigLocation::within(FIELDS, range.clone()), field);
        }
    }

    fn process(&mut self, rows: &mut Rows<'_>) {
        let fields = &self.fields;
        rows.for_each(|record| {
            if fields.len() > 1 {
                fields.iter().try_for_each(|(field, _)| field.get(record).map(drop))?;
            }
            for (field, _) in fields.iter() {
                field.delete(record)?;
            }
            Ok(Decision::Keep)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, findings, outcome};

    const SAMPLE: &str = r#"{"position":"Nw==","operation":"update","metadata":{"a":"1","b,c":"2"},"key":{"k":1},"payload":{"before":"eA==","after":{"a":7,"in":{"x":[1],"y":null}}}}"#;

    fn exclude(fields: &str) -> Result<String, String> {
        outcome(&kind(), &[("fields", fields)], SAMPLE)
    }

    #[test]
    fn fields_are_removed() {
        for (fields, old, new) in [
            (".Payload.After.a", r#"{"a":7,"#, "{"),
            (".Payload.After.in.x", r#""x":[1],"#, ""),
            (".Payload.After.in.y", r#","y":null"#, ""),
            (".Payload.After.in, .Payload.After.in.x\n", r#","in":{"x":[1],"y":null}"#, ""),
            (".Metadata", r#"{"a":"1","b,c":"2"}"#, "{}"),
            (".Metadata[\"b,c\"],.Metadata.a", r#"{"a":"1","b,c":"2"}"#, "{}"),
            (".Key", r#"{"k":1}"#, "null"),
            (".Payload.Before", r#""eA==""#, "null"),
            (
                ".Payload",
                r#"{"before":"eA==","after":{"a":7,"in":{"x":[1],"y":null}}}"#,
                r#"{"before":null,"after":null}"#,
            ),
            // Raw data has no fields, but goes with what it is.
            (".Payload.Before.x,.Payload.Before", r#""eA==""#, "null"),
        ] {
            assert!(SAMPLE.contains(old), "{old}");
            assert_eq!(exclude(fields), Ok(SAMPLE.replace(old, new)), "{fields}");
        }
    }

    #[test]
    fn nothing_is_created_on_the_way() {
        for fields in
            [".Payload.After.no", ".Payload.After.no.way", ".Payload.After.in.y.z", ".Metadata.no", ".Key.no.way"]
        {
            assert_eq!(exclude(fields), Ok(SAMPLE.to_owned()), "{fields}");
        }
        let absent =
            r#"{"position":"","operation":"delete","metadata":{},"key":null,"payload":{"before":null,"after":null}}"#;
        assert_eq!(
            outcome(&kind(), &[("fields", ".Key.a.b,.Payload.After.a,.Payload")], absent),
            Ok(absent.to_owned())
        );
    }

    #[test]
    fn what_has_no_fields_fails() {
        for (fields, place, found) in [
            (".Payload.After.a.b", ".Payload.After.a", "integer"),
            (".Metadata.a,.Payload.Before.a", ".Payload.Before", "raw data"),
            (".Key,.Payload.After.in.x.y", ".Payload.After.in.x", "list"),
        ] {
            let failing = fields.rsplit(',').next().unwrap();
            let message =
                format!("reference_unresolved: cannot resolve reference {failing}: {place} is {found}, not a map");
            assert_eq!(exclude(fields), Err(message));
        }
    }

    #[test]
    fn what_can_never_be_removed_is_found_early() {
        let told = |fields: &str| findings(&kind(), &[("fields", fields)]);
        for fixed in [".Position", ".Operation", "."] {
            assert_eq!(told(fixed), [format!("fields: {fixed} cannot be removed")]);
        }
        assert_eq!(told(".Key,"), ["fields: an item is empty"]);
        assert_eq!(told("a,.Position").len(), 2);
        assert_eq!(findings(&kind(), &[]), ["\"fields\" is required by field.exclude"]);
    }

    #[test]
    fn the_compiler_knows_what_it_touches() {
        let signature = testing::signature(&kind(), &[("fields", ".Payload.After.a,.Key.b")]);
        let touches = |text: &str| signature.writes.overlaps(&Reference::parse(text).unwrap().access());
        assert!(touches(".Payload.After.a.x") && touches(".Key"));
        assert!(!touches(".Payload.After.b") && !touches(".Metadata"));
    }

    #[test]
    fn failed_rows_stay_and_shapes_are_large_enough() {
        for fields in
            [".Key.a", ".Payload.After.a.b,.Payload.Before.c,.Metadata.a", ".Metadata,.Payload.After.a.b.c,.Key"]
        {
            testing::failed_rows_stay(&kind(), &[("fields", fields)]);
            testing::shapes_are_large_enough(&kind(), &[("fields", fields)]);
        }
    }
}
