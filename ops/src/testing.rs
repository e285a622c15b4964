//! Runs a processor on one record, for tests of processors.

use std::sync::Arc;

use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{Flow, Keys, Operations, RecordShape, Shape, Type, Uses};
use anabranch_plugin::operator::{Configured, Decision, OperatorKind, Signature};
use anabranch_plugin::settings::Settings;
use anabranch_plugin::testing::configured::Opened;
pub(crate) use anabranch_plugin::testing::host;
pub(crate) use anabranch_plugin::testing::json::{record, text};
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Operation, Position, Record};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

fn configure(kind: &Arc<dyn OperatorKind>, settings: &[(&str, &str)]) -> Result<Configured, Diagnostics> {
    Arguments::parse(kind.specification(), &Settings::from_pairs(settings.iter().copied()))
        .and_then(|arguments| kind.configure(&arguments))
}

/// Returns the messages of the findings about settings.
pub(crate) fn findings(kind: &Arc<dyn OperatorKind>, settings: &[(&str, &str)]) -> Vec<String> {
    configure(kind, settings).err().into_iter().flatten().map(|d| d.message).collect()
}

/// Returns the signature for valid settings.
pub(crate) fn signature(kind: &Arc<dyn OperatorKind>, settings: &[(&str, &str)]) -> Signature {
    configure(kind, settings).unwrap().signature()
}

/// Processes `record`; returns the record afterwards and the decision.
pub(crate) fn process(kind: &Arc<dyn OperatorKind>, settings: &[(&str, &str)], record: &Record) -> (Record, Decision) {
    run(&configure(kind, settings).unwrap(), record)
}

fn run(configured: &Configured, record: &Record) -> (Record, Decision) {
    let mut records = vec![record.clone()];
    let mut decisions = Opened::new(configured, host()).unwrap().process(&mut records, None);
    assert!(decisions.len() <= 1);
    (records.remove(0), decisions.pop().map_or(Decision::Keep, |(_, decision)| decision))
}

/// Returns the JSON text of the processed record, or the code and message of its fault.
pub(crate) fn outcome(kind: &Arc<dyn OperatorKind>, settings: &[(&str, &str)], json: &str) -> Result<String, String> {
    let before = record(json);
    match process(kind, settings, &before) {
        (after, Decision::Keep) => Ok(text(&after)),
        (after, Decision::Fail(fault)) => {
            assert_eq!(after, before, "a failed row changed");
            Err(format!("{}: {}", fault.code(), fault.message()))
        }
        (_, other) => panic!("{other:?}"),
    }
}

/// Processes a record with this text as `.Payload.After`, which is the field of the processor. Returns the JSON text of
/// what it became, or the code and message of its fault.
pub(crate) fn of_text(kind: &Arc<dyn OperatorKind>, settings: &[(&str, &str)], text: &str) -> Result<String, String> {
    let mut before = record(r#"{"operation":"create"}"#);
    before.payload.after = Data::text(text);
    let settings: Vec<_> = [("field", ".Payload.After")].iter().chain(settings).copied().collect();
    match process(kind, &settings, &before) {
        (after, Decision::Keep) => {
            let mut out = Vec::new();
            anabranch_record::json::write_data(&after.payload.after, &mut out).unwrap();
            Ok(String::from_utf8(out).unwrap())
        }
        (after, Decision::Fail(fault)) => {
            assert_eq!(after, before, "a failed row changed");
            Err(format!("{}: {}", fault.code(), fault.message()))
        }
        (_, other) => panic!("{other:?}"),
    }
}

/// Checks that a failed record is unchanged, that pieces keep its position, and that no record makes the processor
/// panic.
pub(crate) fn failed_rows_stay(kind: &Arc<dyn OperatorKind>, settings: &[(&str, &str)]) {
    let configured = configure(kind, settings).unwrap();
    TestRunner::default()
        .run(&records(), |record| {
            let (after, decision) = run(&configured, &record);
            match decision {
                Decision::Fail(_) => prop_assert_eq!(format!("{after:?}"), format!("{record:?}")),
                decision @ (Decision::Split(_) | Decision::Pieces(_)) => {
                    prop_assert!(decision.into_records().iter().all(|piece| piece.position() == record.position()));
                }
                Decision::Keep | Decision::Filter => prop_assert_eq!(after.position(), record.position()),
            }
            Ok(())
        })
        .unwrap();
}

/// Checks that static inference is sound. The processor's outputs for two records must match the shape it infers for
/// records like either. If it infers that every record fails, both must fail.
pub(crate) fn shapes_are_large_enough(kind: &Arc<dyn OperatorKind>, settings: &[(&str, &str)]) {
    let configured = configure(kind, settings).unwrap();
    TestRunner::default()
        .run(&(records(), records()), |(one, other)| {
            let mut flow = Flow::new(shape(&one).join(&shape(&other)));
            configured.flow(&mut flow);
            // A record shows neither the content hints about texts nor what earlier steps used.
            flow.record.forget_contents();
            flow.record.uses = Uses::default();
            for record in [one, other] {
                let (after, decision) = run(&configured, &record);
                match decision {
                    Decision::Keep => {
                        prop_assert!(!flow.fails(), "{record:?}");
                        let both = flow.record.join(&shape(&after));
                        prop_assert_eq!(&both, &flow.record, "{:?} became {:?}", record, after);
                    }
                    _ => prop_assert!(matches!(decision, Decision::Fail(_))),
                }
            }
            Ok(())
        })
        .unwrap();
}

/// Returns the exact shape of one record.
fn shape(record: &Record) -> RecordShape {
    let data = |data: &Data| match data {
        Data::Absent => Shape::ABSENT,
        Data::Raw(_) => Shape::RAW,
        Data::Structured(object) => Shape::structured(Type::of_value(&Value::Map(object.clone())).fields),
    };
    RecordShape {
        operations: Operations::only(record.operation),
        metadata: Keys::of(record.metadata.iter().map(|(key, _)| key.clone())),
        key: data(&record.key),
        before: data(&record.payload.before),
        after: data(&record.payload.after),
        pieces: None,
        uses: Uses::default(),
    }
}

/// Generates records of all kinds.
pub(crate) fn records() -> impl Strategy<Value = Record> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-c\"\\[\\]{}:,0-9]{0,6}".prop_map(Value::from),
        prop::sample::select(vec!["{\"a\":1}", "[1,2]", "\"x\"", "null"]).prop_map(Value::from),
        vec(any::<u8>(), 0..4).prop_map(|b| Value::Bytes(Arc::from(b))),
    ];
    let value = leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![vec(inner.clone(), 0..4).prop_map(Value::from), object(inner.boxed()).prop_map(Value::from)]
    });
    let data = prop_oneof![
        1 => Just(Data::Absent),
        1 => "[a-c\"\\[\\]{}:,0-9]{0,6}".prop_map(Data::text),
        1 => prop::sample::select(vec!["{\"a\":1}", "[1,2]", "\"x\"", "null", ""]).prop_map(Data::text),
        4 => object(value.boxed()).prop_map(Data::from),
    ];
    (vec(any::<u8>(), 0..8), 0..4usize, data.clone(), data.clone(), data).prop_map(
        |(position, operation, key, before, after)| {
            let mut record = Record::create(Position(position.into()), key, after);
            record.operation = Operation::ALL[operation];
            record.payload.before = before;
            record.metadata.insert("a", "1");
            record
        },
    )
}

fn object(value: BoxedStrategy<Value>) -> impl Strategy<Value = Object> {
    btree_map("[abc]", value, 0..4).prop_map(|entries| entries.into_iter().map(|(k, v)| (Str::from(k), v)).collect())
}
