//! Random records for property tests. Tests of other crates include this file, since it needs a library that only tests
//! have.

use std::sync::Arc;

use anabranch_record::metadata::Metadata;
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Operation, Position, Record};
use bytes::Bytes;
use chrono::DateTime;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

/// Short keys from a small set, so that paths often match fields.
pub(crate) fn key() -> impl Strategy<Value = Str> {
    prop_oneof![4 => "[abc]", 1 => any::<String>()].prop_map(Str::from)
}

/// Values that JSON can represent.
pub(crate) fn json_value() -> impl Strategy<Value = Value> {
    let finite = any::<f64>().prop_filter("JSON has finite numbers", |v| v.is_finite());
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        finite.prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    nested(leaf.boxed())
}

/// Values of every type.
pub(crate) fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        4 => json_value(),
        1 => vec(any::<u8>(), 0..20).prop_map(|b| Value::Bytes(Arc::from(b))),
        1 => (any::<i32>(), 0..1_999_999_999u32)
            .prop_filter_map("a time", |(s, n)| DateTime::from_timestamp(i64::from(s) * 3000, n))
            .prop_map(Value::Time),
        1 => any::<f64>().prop_map(Value::from),
    ];
    nested(leaf.boxed())
}

fn nested(leaf: BoxedStrategy<Value>) -> impl Strategy<Value = Value> {
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![vec(inner.clone(), 0..4).prop_map(Value::from), object(inner).prop_map(Value::from)]
    })
}

fn object(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Object> {
    btree_map(key(), value, 0..4).prop_map(|entries| entries.into_iter().collect())
}

fn data(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Data> {
    prop_oneof![
        1 => Just(Data::Absent),
        1 => vec(any::<u8>(), 0..40).prop_map(|b| Data::Raw(Bytes::from(b))),
        3 => object(value).prop_map(Data::from),
    ]
}

/// Records with the given values.
pub(crate) fn record_of<S: Strategy<Value = Value> + Clone>(value: S) -> impl Strategy<Value = Record> {
    (
        vec(any::<u8>(), 0..12),
        0..4usize,
        btree_map(key(), any::<String>(), 0..4),
        data(value.clone()),
        data(value.clone()),
        data(value),
    )
        .prop_map(|(position, operation, metadata, key, before, after)| {
            let mut record = Record::create(Position(position.into()), key, after);
            record.operation = Operation::ALL[operation];
            record.metadata = metadata.into_iter().collect::<Metadata>();
            record.payload.before = before;
            record
        })
}
