//! CPU time per record of a program of five assignments (W18), in the processor `vrl` and in the language's library alone:
//! `cargo bench -p anabranch-bench --bench mapping`.
//!
//! The library alone gets values that it can use as they are, and leaves its results to nobody.

#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]
#![allow(missing_docs, reason = "the entry point that divan makes")]

use std::sync::Arc;

use anabranch_plugin::operator::Decision;
use anabranch_plugin::registry::Registry;
use anabranch_plugin::testing::configured::{Opened, processor};
use anabranch_plugin::testing::{host, position};
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Record};
use divan::Bencher;
use divan::counter::ItemsCount;
use vrl::compiler::runtime::Runtime;
use vrl::compiler::{TargetValue, TimeZone};
use vrl::value::{ObjectMap, Secrets, Value as ProgramValue};

/// The allocator of the service.
#[global_allocator]
static ALLOCATOR: anabranch_allocator::Allocator = anabranch_allocator::Allocator;

/// Number of records of a call.
const ROWS: usize = 1024;

/// The program of `workloads/w18.yaml`.
const PROGRAM: &str = r#"
.name = upcase(string!(.name))
.double = int!(.score) * 2
.place = string!(.city) + ", " + string!(.name)
.known = !is_null(.id)
%metadata.checked = "1"
"#;

const NAME: &str = "Ada Lovelace";
const CITY: &str = "London";

fn main() {
    anabranch_allocator::settle();
    divan::main();
}

#[divan::bench]
fn ours(bencher: Bencher<'_, '_>) {
    let mut registry = Registry::new();
    anabranch_ops_vrl::register(&mut registry);
    let configured = processor(registry.operator("vrl").unwrap(), &[("program", PROGRAM)]).unwrap();
    let mut opened = Opened::new(&configured, host()).unwrap();
    let make = |row: u64| {
        let fields = [
            ("active", Value::Bool(true)),
            ("city", Value::from(CITY)),
            ("id", Value::Int(row.cast_signed())),
            ("name", Value::from(NAME)),
            ("score", Value::Int(7)),
        ];
        Record::create(position(row), Data::Absent, Data::Structured(Arc::new(Object::from_iter(fields))))
    };
    bencher.counter(ItemsCount::new(ROWS)).with_inputs(|| (0..ROWS as u64).map(make).collect()).bench_local_values(
        |mut records: Vec<Record>| {
            let decisions = opened.process(&mut records, None);
            assert!(!decisions.iter().any(|(_, decision)| matches!(decision, Decision::Fail(_))));
            (records, decisions)
        },
    );
}

#[divan::bench]
fn bare(bencher: Bencher<'_, '_>) {
    let program = vrl::compiler::compile(PROGRAM, &vrl::stdlib::all()).unwrap().program;
    let mut runtime = Runtime::default();
    let zone = TimeZone::default();
    let make = |row: i64| {
        let fields = [
            ("active", ProgramValue::Boolean(true)),
            ("city", ProgramValue::from(CITY)),
            ("id", ProgramValue::Integer(row)),
            ("name", ProgramValue::from(NAME)),
            ("score", ProgramValue::Integer(7)),
        ];
        let value = ProgramValue::Object(fields.into_iter().map(|(name, value)| (name.into(), value)).collect());
        TargetValue { value, metadata: ProgramValue::Object(ObjectMap::new()), secrets: Secrets::new() }
    };
    bencher.counter(ItemsCount::new(ROWS)).with_inputs(|| (0..ROWS as i64).map(make).collect()).bench_local_values(
        |mut targets: Vec<TargetValue>| {
            for target in &mut targets {
                runtime.resolve(target, &program, &zone).unwrap();
                runtime.clear();
            }
            targets
        },
    );
}
