//! `field.rename`: renames fields.

use std::ops::Range;
use std::sync::Arc;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{Flow, Kinds, Place, PossibleValues, Type};
use anabranch_plugin::kind;
use anabranch_plugin::operator::{Decision, InlineOperator, OperatorContext, OperatorKind, Rows, Signature};
use anabranch_plugin::parameters::{Argument, Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::Record;
use anabranch_record::access::Access;
use anabranch_record::fault::Fault;
use anabranch_record::metadata::own_key;
use anabranch_record::reference::{Reference, Target};
use anabranch_record::text::Str;
use anabranch_record::value::Value;

use super::items::Item;
use crate::codes;

const MAPPING: &str = "mapping";

/// Returns the `field.rename` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    kind::inline::<Rename>()
}

#[derive(Parameters)]
struct Settings {
    /// Fields with their new names, separated by commas: .Payload.After.name:fullname,.Metadata.a:b.
    #[parameter(name = MAPPING, required)]
    mapping: Argument<Vec<Str>>,
}

fn renaming(item: Item<'_>) -> Result<Renaming, Diagnostics> {
    let parts = item.split(b':');
    let [field, name] = parts[..] else {
        let message = match (item.text, parts.len()) {
            ("", _) => "an item is empty",
            (_, 1) => "a new name is missing",
            _ => "an item has more than one colon",
        };
        return Err(item.finding(message).with_hint("write each item as .Payload.After.name:newname").into());
    };
    if name.text.is_empty() {
        return Err(item.finding("a new name is missing").with_hint("write it after the colon").into());
    }
    let reference = field.reference()?;
    if name.text.starts_with('.') {
        let finding = name.finding("a new name is a plain name, not a reference");
        return Err(match Reference::parse(name.text).map(|new| new.target().clone()) {
            Ok(Target::Entry(last)) => finding.with_hint(format!("did you mean {last}?")),
            Ok(Target::Field(_, path)) => finding.with_hint(format!("did you mean {}?", path.last())),
            _ => finding,
        }
        .into());
    }
    let mut new_name = Str::from(name.text);
    if let (Target::Entry(_), Some(own)) = (reference.target(), own_key(&new_name)) {
        // Pipeline files of other products use their own names for metadata.
        new_name = own;
    }
    match reference.sibling(&new_name) {
        Some(new) => Ok(Renaming { field: reference, name: new_name, new, range: field.range() }),
        None => Err(field
            .finding(&format!("{reference} cannot be renamed"))
            .with_hint("name a field of structured data or a metadata entry, for example .Payload.After.name")
            .into()),
    }
}

#[derive(Clone)]
struct Rename {
    renamings: Arc<[Renaming]>,
    /// True if no renaming touches a field that another one touches. Then all can be checked before the first is
    /// applied.
    independent: bool,
}

struct Renaming {
    field: Reference,
    name: Str,
    new: Reference,
    /// Byte range of the field in the setting.
    range: Range<usize>,
}

impl InlineOperator for Rename {
    type Parameters = Settings;

    fn specification() -> Specification {
        Specification::builtin("field.rename", "Renames fields.")
            .describe(
                "Renames fields and metadata entries within their map, one after the other. If a record already has a \
                 field with the new name, it fails. If the old field is missing, the new field is created as null (a \
                 metadata entry: empty), unless it exists already or the map is missing too.",
            )
            .with_all(shared::processor())
    }

    fn configure(settings: Settings) -> Result<Self, Diagnostics> {
        let (mut renamings, mut findings) = (Vec::new(), Diagnostics::new());
        for item in Item::whole(&settings.mapping).split(b',') {
            match renaming(item) {
                Ok(renaming) => renamings.push(renaming),
                Err(found) => findings.extend(found),
            }
        }
        if findings.has_errors() {
            return Err(findings);
        }
        let independent = renamings.iter().enumerate().all(|(i, renaming)| {
            let earlier = renamings[..i].iter().flat_map(Renaming::touched);
            earlier.into_iter().all(|earlier| renaming.touched().iter().all(|access| !access.overlaps(&earlier)))
        });
        Ok(Rename { renamings: renamings.into(), independent })
    }

    fn signature(&self) -> Signature {
        let paths = self.renamings.iter().flat_map(Renaming::touched).flat_map(|access| match access {
            Access::These(paths) => paths,
            Access::Everything => Vec::new(),
        });
        let access = Access::These(paths.collect());
        Signature::new().reads(access.clone()).writes(access)
    }

    fn flow(&self, flow: &mut Flow) {
        for (i, Renaming { field, name, new, range }) in self.renamings.iter().enumerate() {
            let place = || Place::within(MAPPING, range.clone());
            // A missing field is created as null under the new name. So the new name is always taken afterwards, unless
            // a later renaming frees it again.
            let taken_by = self.renamings[..i].iter().rposition(|earlier| earlier.new == *new && earlier.field != *new);
            let freed = |taker: usize| self.renamings[taker + 1..i].iter().any(|between| between.field == *new);
            let twice = field != new && taken_by.is_some_and(|taker| !freed(taker));
            let (old, taken) = (flow.peek(field), flow.peek(new));
            flow.rename(place(), field, name);
            let there = |found: &PossibleValues| !found.is_missing() && !found.missing;
            if field != new && there(&old) && there(&taken) {
                let message = format!("every record fails here: the field {new} already exists");
                let since = Some((taken.ty.since, "exists since here".to_owned()));
                flow.fail(
                    codes::FLOW_NAME_TAKEN,
                    place(),
                    message,
                    since,
                    Some("remove it first, or choose another name".into()),
                );
            } else if twice {
                let message =
                    format!("two fields of this mapping get the name {new}: every record that has {field} fails");
                let hint = "choose another name for one of them; to copy the field that exists, use `field.set` with a \
                            condition";
                flow.warn(codes::FLOW_NAME_TAKEN, place(), message, None, Some(hint.into()));
            } else if field != new && !old.is_missing() && there(&taken) {
                let message = format!("every record that has {field} fails here: the field {new} already exists");
                let since = Some((taken.ty.since, "exists since here".to_owned()));
                let hint = "remove it first, or choose another name";
                flow.warn(codes::FLOW_NAME_TAKEN, place(), message, since, Some(hint.into()));
            }
            match new.target() {
                _ if !old.missing => {}
                Target::Entry(_) => flow.set(place(), new, Type::of(Kinds::TEXT)),
                _ => flow.allow(new, &Type::of(Kinds::NULL)),
            }
        }
    }

    fn process(&mut self, rows: &mut Rows<'_>, _: &OperatorContext) {
        match &self.renamings[..] {
            // A single renaming that fails changes nothing.
            [only] => rows.for_each(|record| only.apply(record).map(|()| Decision::Keep)),
            all if self.independent => rows.for_each(|record| {
                all.iter().try_for_each(|renaming| renaming.field.can_rename(record, &renaming.name).map(drop))?;
                all.iter().try_for_each(|renaming| renaming.apply(record))?;
                Ok(Decision::Keep)
            }),
            all => rows.for_each(|record| {
                let before = record.clone();
                all.iter().try_for_each(|renaming| renaming.apply(record)).inspect_err(|_| *record = before)?;
                Ok(Decision::Keep)
            }),
        }
    }
}

impl Renaming {
    fn touched(&self) -> [Access; 2] {
        [self.field.access(), self.new.access()]
    }

    /// Renames the field. Costs O(parts of the reference · log fields + fields of the map).
    fn apply(&self, record: &mut Record) -> Result<(), Fault> {
        if self.field.rename(record, &self.name)? || !self.field.has_parent(record)? || self.new.get(record)?.is_some()
        {
            return Ok(());
        }
        let nothing = if self.is_entry() { Value::Text(Str::default()) } else { Value::Null };
        self.new.set(record, nothing)
    }

    fn is_entry(&self) -> bool {
        matches!(self.new.target(), Target::Entry(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, findings, outcome};

    const SAMPLE: &str = r#"{"position":"","operation":"create","metadata":{"a":"1","b":"2"},"key":"aw==","payload":{"before":null,"after":{"id":7,"in":{"x":[1],"y":null},"a:b":"c"}}}"#;

    fn rename(mapping: &str) -> Result<String, String> {
        outcome(&kind(), &[("mapping", mapping)], SAMPLE)
    }

    #[test]
    fn the_value_goes_under_the_new_name() {
        for (mapping, old, new) in [
            (
                ".Payload.After.id:number",
                r#"{"id":7,"in":{"x":[1],"y":null},"a:b":"c"}"#,
                r#"{"a:b":"c","in":{"x":[1],"y":null},"number":7}"#,
            ),
            (
                " .Payload.After.in.x : z ",
                r#"{"id":7,"in":{"x":[1],"y":null},"a:b":"c"}"#,
                r#"{"a:b":"c","id":7,"in":{"y":null,"z":[1]}}"#,
            ),
            (".Metadata.a:c", r#"{"a":"1","b":"2"}"#, r#"{"b":"2","c":"1"}"#),
            (".Metadata.a:x.y z", r#"{"a":"1","b":"2"}"#, r#"{"b":"2","x.y z":"1"}"#),
            (
                ".Payload.After[\"a:b\"]:ab",
                r#"{"id":7,"in":{"x":[1],"y":null},"a:b":"c"}"#,
                r#"{"ab":"c","id":7,"in":{"x":[1],"y":null}}"#,
            ),
            // One after the other: a swap.
            (".Metadata.a:t,.Metadata.b:a,.Metadata.t:b", r#"{"a":"1","b":"2"}"#, r#"{"a":"2","b":"1"}"#),
            (
                ".Payload.After.id:k,\n.Metadata.a:c\n",
                r#"{"a":"1","b":"2"},"key":"aw==","payload":{"before":null,"after":{"id":7,"in":{"x":[1],"y":null},"a:b":"c"}"#,
                r#"{"b":"2","c":"1"},"key":"aw==","payload":{"before":null,"after":{"a:b":"c","in":{"x":[1],"y":null},"k":7}"#,
            ),
        ] {
            let expected = testing::text(&testing::record(&SAMPLE.replace(old, new)));
            assert_ne!(expected, testing::text(&testing::record(SAMPLE)), "{mapping}");
            assert_eq!(rename(mapping), Ok(expected), "{mapping}");
        }
    }

    #[test]
    fn a_missing_field_leaves_a_null() {
        let after = |text: &str| Ok(testing::text(&testing::record(&SAMPLE.replace(r#""id":7"#, text))));
        assert_eq!(rename(".Payload.After.no:n"), after(r#""id":7,"n":null"#));
        assert_eq!(
            rename(".Payload.After.in.no:n").unwrap(),
            testing::text(&testing::record(SAMPLE)).replace(r#""x":[1]"#, r#""n":null,"x":[1]"#)
        );
        assert_eq!(
            rename(".Metadata.no:n").unwrap(),
            testing::text(&testing::record(SAMPLE)).replace(r#""b":"2""#, r#""b":"2","n":"""#)
        );
        // No parent is created, and existing fields stay.
        for stays in [".Payload.After.no.way:n", ".Payload.Before.id:n", ".Payload.After.no:id", ".Payload.After.id:id"]
        {
            assert_eq!(rename(stays), after(r#""id":7"#), "{stays}");
        }
    }

    #[test]
    fn what_cannot_be_renamed_fails() {
        for (mapping, message) in [
            (
                ".Payload.After.id:in",
                "reference_exists: cannot rename .Payload.After.id to \"in\": field already exists",
            ),
            (".Metadata.a:b", "reference_exists: cannot rename .Metadata.a to \"b\": field already exists"),
            (
                ".Metadata.a:c,.Metadata.b:c",
                "reference_exists: cannot rename .Metadata.b to \"c\": field already exists",
            ),
            (
                ".Metadata.a:c,.Payload.After.id:in",
                "reference_exists: cannot rename .Payload.After.id to \"in\": field already exists",
            ),
            (
                ".Payload.After.id.x:b",
                "reference_unresolved: cannot resolve reference .Payload.After.id.x: .Payload.After.id is integer, not a map",
            ),
            (
                ".Metadata.a:c,.Key.x:b",
                "reference_unresolved: cannot resolve reference .Key.x: .Key is raw data, not a map",
            ),
        ] {
            assert_eq!(rename(mapping), Err(message.to_owned()), "{mapping}");
        }
    }

    #[test]
    fn what_can_never_work_is_found_early() {
        let told = |mapping: &str| findings(&kind(), &[("mapping", mapping)]);
        for fixed in
            [".Metadata", ".Payload", ".Payload.Before", ".Payload.After", ".Position", ".Key", ".Operation", "."]
        {
            assert_eq!(told(&format!("{fixed}:x")), [format!("mapping: {fixed} cannot be renamed")]);
        }
        assert_eq!(told(".Key.a"), ["mapping: a new name is missing"]);
        assert_eq!(told(".Key.a:"), ["mapping: a new name is missing"]);
        assert_eq!(told(".Key.a:b:c"), ["mapping: an item has more than one colon"]);
        assert_eq!(told(".Key.a:.Key.b"), ["mapping: a new name is a plain name, not a reference"]);
        assert_eq!(told("Key.a:b"), ["mapping: invalid reference \"Key.a\": a reference starts with a dot"]);
        assert_eq!(told(".Key.a:b,"), ["mapping: an item is empty"]);
        assert_eq!(told(".Key.a,.Key:b,x:y").len(), 3);
        assert_eq!(findings(&kind(), &[]), ["\"mapping\" is required by field.rename"]);
    }

    #[test]
    fn the_compiler_knows_what_it_touches() {
        let signature = testing::signature(&kind(), &[("mapping", ".Payload.After.a:b")]);
        let touches = |text: &str| signature.writes.overlaps(&Reference::parse(text).unwrap().access());
        assert!(touches(".Payload.After.a.x") && touches(".Payload.After.b") && touches(".Payload"));
        assert!(!touches(".Payload.After.c") && !touches(".Key"));
        assert_eq!(signature.reads, signature.writes);
    }

    #[test]
    fn failed_rows_stay_and_shapes_are_large_enough() {
        for mapping in [
            ".Key.a:b",
            ".Payload.After.a:b,.Payload.Before.a.b:c,.Metadata.a:z",
            ".Payload.After.a:x,.Payload.After.x:b,.Payload.After.c:a,.Metadata.q:r",
        ] {
            testing::failed_rows_stay(&kind(), &[("mapping", mapping)]);
            testing::shapes_are_large_enough(&kind(), &[("mapping", mapping)]);
        }
    }
}
