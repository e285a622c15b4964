//! `split`: splits a list into one record per element.

use std::sync::Arc;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{Flow, Kinds, Texts, Type};
use anabranch_plugin::kind;
use anabranch_plugin::operator::{
    Decision, Fan, InlineOperator, OperatorContext, OperatorKind, Pieces, Rows, Signature,
};
use anabranch_plugin::parameters::{Argument, Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::Record;
use anabranch_record::access::Access;
use anabranch_record::fault::Fault;
use anabranch_record::metadata::key;
use anabranch_record::reference::{Part, Reference, Target};
use anabranch_record::text::Str;
use anabranch_record::value::Value;

use crate::codes;
use crate::ordinal::ordinal;

/// Returns the `split` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    kind::inline::<Split>()
}

#[derive(Parameters)]
struct Settings {
    /// The field with the list, within .Key or a side of the payload: .Payload.After.items.
    #[parameter(within = [".Key", ".Payload"])]
    field: Argument<Reference>,
}

#[derive(Clone)]
struct Split {
    field: Reference,
}

impl InlineOperator for Split {
    type Parameters = Settings;

    fn specification() -> Specification {
        Specification::builtin("split", "Splits a list into one record per element.")
            .describe(
                "Replaces a record with one record for every element of the list in a field. Each is a copy of the \
                 original, with the element in the field and its index, from 0, in the metadata `split.index`. An \
                 empty list drops the record. The source gets an acknowledgement when all pieces are acknowledged.\n\n\
                 Needs `--preview.pipeline-arch-v2`.",
            )
            .with_all(shared::processor())
    }

    fn configure(Settings { field }: Settings) -> Result<Self, Diagnostics> {
        if !matches!(field.target(), Target::Field(..)) {
            return Err(field
                .invalid(format_args!("{} is raw data or a map, not a list that can be split", *field))
                .with_hint("name the field that contains the list, for example .Payload.After.items")
                .into());
        }
        Ok(Split { field: field.into_value() })
    }

    fn signature(&self) -> Signature {
        let index = vec![Str::from_static("Metadata"), key::SPLIT_INDEX];
        let writes = match self.field.access() {
            Access::These(mut paths) => {
                paths.push(index);
                Access::These(paths)
            }
            Access::Everything => Access::Everything,
        };
        Signature::new().fan(Fan::Many).reads(self.field.access()).writes(writes).needs_arch_v2(true)
    }

    fn flow(&self, flow: &mut Flow) {
        // An empty list drops the record.
        flow.may_fail();
        flow.need(codes::FLOW_NOT_A_LIST, "field", &self.field, (Kinds::LIST, "a list"), false);
        flow.set("field", &self.field, Type::any());
        flow.record.metadata.insert_one_of(key::SPLIT_INDEX, Texts::UpTo(u64::MAX));
    }

    fn process(&mut self, rows: &mut Rows<'_>, _: &OperatorContext) {
        rows.for_each(|record| self.split(record));
    }
}

impl Split {
    /// Splits a record. Costs O(elements · fields of the maps around the list). For many elements, that cost arises
    /// when their records are built.
    fn split(&self, record: &Record) -> Result<Decision, Fault> {
        let items = match self.field.get(record)? {
            Some(Part::Value(Value::List(items))) => items.clone(),
            found => return Err(self.not_a_list(found)),
        };
        if items.is_empty() {
            return Ok(Decision::Filter);
        }
        // Every piece copies the map around the field, so remove the list from it first.
        let mut rest = record.clone();
        self.field.set(&mut rest, Value::Null)?;
        if items.len() <= Pieces::FEW {
            let pieces = items.iter().enumerate().map(|(i, item)| piece(&self.field, &rest, item, i));
            return Ok(Decision::Split(pieces.collect()));
        }
        let field = self.field.clone();
        Ok(Decision::Pieces(Pieces::new(items.len(), move |i| piece(&field, &rest, &items[i], i))))
    }

    #[cold]
    fn not_a_list(&self, found: Option<Part<'_>>) -> Fault {
        let found = found.map_or("missing", |part| part.type_name());
        Fault::record(codes::SPLIT_NOT_A_LIST, format!("field {:?} is not a list, it is {found}", self.field.as_str()))
    }
}

/// Builds the record of one element. `rest` has a placeholder field in place of the list, so that setting the field
/// succeeds.
fn piece(field: &Reference, rest: &Record, item: &Value, i: usize) -> Record {
    let mut piece = rest.clone();
    let set = field.set(&mut piece, item.clone());
    debug_assert!(set.is_ok(), "{set:?}");
    piece.metadata.insert(key::SPLIT_INDEX, ordinal(i));
    piece
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, findings, process, record, text};

    fn split(field: &str, before: &str) -> Result<Vec<String>, String> {
        let sample = record(before);
        let (after, decision) = process(&kind(), &[("field", field)], &sample);
        match decision {
            decision @ (Decision::Split(_) | Decision::Pieces(_)) => {
                Ok(decision.into_records().iter().map(text).collect())
            }
            Decision::Filter => Ok(Vec::new()),
            Decision::Fail(fault) => {
                assert_eq!(after, sample);
                Err(format!("{}: {}", fault.code(), fault.message()))
            }
            Decision::Keep => panic!("kept"),
        }
    }

    #[test]
    fn each_element_becomes_a_record() {
        let sample = r#"{"position":"Nw==","operation":"update","metadata":{"a":"b"},"key":"YQ==","payload":{"before":null,"after":{"id":7,"in":{"items":[1,{"x":[2]},"t"]}}}}"#;
        let piece = |i: usize, item: &str| {
            sample
                .replace(r#"{"a":"b"}"#, &format!(r#"{{"a":"b","split.index":"{i}"}}"#))
                .replace(r#"[1,{"x":[2]},"t"]"#, item)
        };
        assert_eq!(
            split(".Payload.After.in.items", sample),
            Ok(vec![piece(0, "1"), piece(1, r#"{"x":[2]}"#), piece(2, "\"t\"")])
        );
    }

    #[test]
    fn the_elements_of_a_long_list_become_records_when_there_is_room() {
        let sample = record(&format!(r#"{{"operation":"create","key":{{"l":[{}0]}}}}"#, "0,".repeat(99_999)));
        let (_, decision) = process(&kind(), &[("field", ".Key.l")], &sample);
        let Decision::Pieces(pieces) = decision else { panic!("all were made at once") };
        assert_eq!(pieces.len(), 100_000);
        let last = text(&pieces.make(99_999));
        assert!(last.contains(r#""split.index":"99999""#) && last.contains(r#""key":{"l":0}"#), "{last}");
    }

    #[test]
    fn an_empty_list_drops_the_record() {
        assert_eq!(split(".Key.l", r#"{"operation":"create","key":{"l":[]}}"#), Ok(Vec::new()));
    }

    #[test]
    fn what_is_no_list_fails() {
        for (field, message) in [
            (".Key.t", "split_not_a_list: field \".Key.t\" is not a list, it is text"),
            (".Key.n", "split_not_a_list: field \".Key.n\" is not a list, it is null"),
            (".Key.no.way", "split_not_a_list: field \".Key.no.way\" is not a list, it is missing"),
            (
                ".Payload.After.x",
                "reference_unresolved: cannot resolve reference .Payload.After.x: .Payload.After is raw data, not a map",
            ),
        ] {
            let sample = r#"{"operation":"create","key":{"t":"a,b","n":null},"payload":{"after":"WzFd"}}"#;
            assert_eq!(split(field, sample), Err(message.to_owned()));
        }
        assert_eq!(
            findings(&kind(), &[("field", ".Payload.After")]),
            ["field: .Payload.After is raw data or a map, not a list that can be split"]
        );
        assert_eq!(
            findings(&kind(), &[("field", ".Metadata.x")]),
            ["field: \".Metadata.x\" must refer to .Key, .Payload"]
        );
    }

    #[test]
    fn a_second_split_numbers_anew() {
        let sample = r#"{"operation":"create","metadata":{"split.index":"5"},"key":{"l":[[1,2]]}}"#;
        let pieces = split(".Key.l", sample).unwrap();
        assert!(pieces[0].contains(r#""split.index":"0""#) && pieces[0].contains(r#""l":[1,2]"#));
    }

    #[test]
    fn the_compiler_knows_what_it_touches() {
        let signature = testing::signature(&kind(), &[("field", ".Key.l")]);
        assert_eq!((signature.fan, signature.needs_arch_v2), (Fan::Many, true));
        let index = Access::These(vec![vec!["Metadata".into(), "split.index".into()]]);
        assert!(signature.writes.overlaps(&index) && !signature.reads.overlaps(&index));
    }

    #[test]
    fn a_failed_row_stays_as_it_was() {
        for field in [".Key.a", ".Payload.After.a", ".Payload.Before.a.b"] {
            testing::failed_rows_stay(&kind(), &[("field", field)]);
        }
    }
}
