//! Random pipelines over random records, run record by record: whatever a record becomes, its shape allows it,
//! and where the compiler says that every record fails, every record does.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anabranch_graph::exec::{Ending, RunOptions, start};
use anabranch_graph::plan::compile;
use anabranch_graph::plan::flow::{self, Shapes};
use anabranch_graph::plan::graph::{NodeKind, PlanGraph, Port, successors};
use anabranch_graph::plan::lower::lower;
use anabranch_graph::plan::rewrite::rewrite;
use anabranch_graph::testing::services;
use anabranch_plugin::diagnostic::Severity;
use anabranch_plugin::flow::{Fields, Keys, Operations, RecordShape, Shape, Type, Uses};
use anabranch_plugin::host::Host;
use anabranch_plugin::operator::{Configured, Decision};
use anabranch_plugin::testing;
use anabranch_plugin::testing::configured::Opened;
use anabranch_plugin::testing::{
    AtEnd, Downstream, Journal, MemoryStore, Upstream, add_destination, add_source, position,
};
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Timestamp, Value};
use anabranch_record::{Data, Operation, Position, Record};
use petgraph::stable_graph::NodeIndex;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::ends::{OPTIONS, Said, pipeline, registry, yaml};

// ---- records and their shapes ------------------------------------------------------------------

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::from),
        2 => (0i64..3).prop_map(Value::from),
        1 => Just(Value::Float(1.5)),
        2 => prop::sample::select(vec!["x", "7", "YQ==", "{\"a\":1}", "[1,2]", ""]).prop_map(Value::from),
        1 => Just(Value::Bytes(Arc::from(&b"YQ=="[..]))),
        1 => Just(Value::Time(Timestamp::from_timestamp_nanos(1))),
    ];
    leaf.prop_recursive(2, 12, 3, |inner| {
        prop_oneof![vec(inner.clone(), 0..3).prop_map(Value::from), object(inner).prop_map(Value::from)]
    })
}

fn object(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Object> {
    btree_map("[abc]", value, 0..4).prop_map(|entries| entries.into_iter().map(|(k, v)| (Str::from(k), v)).collect())
}

fn data() -> impl Strategy<Value = Data> {
    prop_oneof![
        1 => Just(Data::Absent),
        2 => prop::sample::select(vec!["x", "YQ==", "{\"a\":1}", "{\"payload\":{\"a\":1}}", "[1]", ""]).prop_map(Data::text),
        4 => object(value()).prop_map(Data::from),
    ]
}

fn record() -> impl Strategy<Value = Record> {
    let metadata = btree_map("[ab]", "[17]", 0..3);
    (0..4usize, metadata, data(), data(), data()).prop_map(|(operation, metadata, key, before, after)| {
        let mut record = Record::create(Position::copy_from(b"p"), key, after);
        record.operation = Operation::ALL[operation];
        record.payload.before = before;
        metadata.into_iter().for_each(|(key, value)| {
            record.metadata.insert(key, value);
        });
        record
    })
}

/// Records of which all or most are alike, so that much is known of them.
fn records() -> impl Strategy<Value = Vec<Record>> {
    prop_oneof![
        2 => record().prop_map(|record| vec![record; 2]),
        1 => (record(), data()).prop_map(|(one, after)| {
            let mut other = one.clone();
            other.payload.after = after;
            vec![one, other]
        }),
        1 => vec(record(), 1..4),
    ]
}

fn shape_of_data(data: &Data) -> Shape {
    match data {
        Data::Absent => Shape::ABSENT,
        Data::Raw(_) => Shape::RAW,
        Data::Structured(object) => Shape::structured(Type::of_value(&Value::Map(object.clone())).fields),
    }
}

fn shape_of(records: &[Record]) -> RecordShape {
    let one = |record: &Record| RecordShape {
        operations: Operations::only(record.operation),
        metadata: Keys::of(record.metadata.iter().map(|(key, _)| key.clone())),
        key: shape_of_data(&record.key),
        before: shape_of_data(&record.payload.before),
        after: shape_of_data(&record.payload.after),
        pieces: None,
        uses: Uses::default(),
    };
    records.iter().map(one).reduce(|a, b| a.join(&b)).unwrap()
}

fn allows_value(ty: &Type, value: &Value) -> bool {
    anabranch_plugin::flow::Kinds::of(value).within(ty.kinds)
        && value.as_map().is_none_or(|object| allows_object(&ty.fields, object))
}

fn allows_object(fields: &Fields, object: &Object) -> bool {
    object.iter().all(|(name, value)| fields.get(name).is_some_and(|field| allows_value(&field.ty, value)))
        && fields.iter().all(|(name, field)| field.optional || object.get(name).is_some())
}

fn allows_data(shape: &Shape, data: &Data) -> bool {
    match data {
        Data::Absent => shape.absent,
        Data::Raw(_) => shape.raw,
        Data::Structured(object) => shape.structured.as_ref().is_some_and(|fields| allows_object(fields, object)),
    }
}

fn allows(shape: &RecordShape, record: &Record) -> bool {
    shape.operations.contains(record.operation)
        && record.metadata.iter().all(|(key, _)| shape.metadata.may_have(key))
        && shape.metadata.named().all(|key| !shape.metadata.has(key) || record.metadata.get(key).is_some())
        && allows_data(&shape.key, &record.key)
        && allows_data(&shape.before, &record.payload.before)
        && allows_data(&shape.after, &record.payload.after)
}

// ---- pipelines ---------------------------------------------------------------------------------

const PLACES: [&str; 9] = [
    ".Payload.After",
    ".Payload.After.a",
    ".Payload.After.b",
    ".Payload.After.a.b",
    ".Payload.After.a.c",
    ".Payload.Before.a",
    ".Key",
    ".Key.a",
    ".Key.b.a",
];

const CONDITIONS: [&str; 48] = [
    "{{ eq .Key \"x\" }}",
    "{{ eq .Payload.After \"x\" }}",
    "{{ gt .Payload.After.c 1 }}",
    "{{ gt .Payload.After.a \"x\" }}",
    "{{ lt .Metadata.b \"1\" }}",
    "{{ le .Payload.After.a .Payload.After.b }}",
    "{{ hasPrefix \"x\" .Payload.After.a }}",
    "{{ contains \"x\" .Key }}",
    "{{ eq (upper .Payload.After.a) \"X\" }}",
    "{{ .Payload.After.a }}",
    "{{ .Payload.After.a.b }}",
    "{{ .Key }}",
    "{{ .Payload.After.a 1 }}",
    "{{ if .Payload.After.a }}true{{ end }}",
    "{{ if .Payload.Before }}{{ .Payload.Before.a }}{{ else }}{{ .Payload.After.a }}{{ end }}",
    "{{ with .Payload.After }}{{ .a }}{{ else }}0{{ end }}",
    "{{ with .Payload.After.a }}{{ eq .b 1 }}{{ else }}0{{ end }}",
    "{{ $x := .Payload.After }}{{ eq $x.a 1 }}",
    "{{ $x := .Payload.After.a }}{{ eq $x.b 1 }}",
    "{{ $x := 1 }}{{ if .Payload.After.a }}{{ $x = \"a\" }}{{ end }}{{ eq $x 1 }}",
    "{{ and (gt .Payload.After.a 2) (lt .Payload.After.a 1) }}",
    "{{ or (ne .Metadata.a \"1\") (ne .Metadata.a \"7\") }}",
    "{{ eq (index .Payload.After.a \"b\" \"c\") nil }}",
    "{{ .Payload.After.a | eq 1 }}",
    "{{ and .Payload.After.a .Payload.After.b }}",
    "{{ range .Payload.After.a }}{{ eq . 1 }}{{ else }}true{{ end }}",
    "{{ eq .Operation.String \"create\" }}",
    "{{ eq .Payload.After.a 1 }}",
    "{{ eq .Payload.After.a \"x\" }}",
    "{{ gt .Payload.After.b 1 }}",
    "{{ lt .Payload.After.b 1.5 }}",
    "{{ eq .Payload.After.a.b \"7\" }}",
    "{{ eq (index .Payload.After \"a\") 1 }}",
    "{{ eq (index .Payload.After \"a\" \"b\") 1 }}",
    "{{ eq (index .Payload.After.a \"b\") 1 }}",
    "{{ eq .Key.a true }}",
    "{{ eq .Payload.Before.a \"x\" }}",
    "{{ eq .Metadata.a \"1\" }}",
    "{{ eq (index .Metadata \"split.index\") \"0\" }}",
    "{{ if .Payload.After }}{{ eq .Payload.After.c 1 }}{{ else }}false{{ end }}",
    "{{ and (eq .Metadata.a \"1\") (eq .Payload.After.a 1) }}",
    "{{ with .Payload.After.a }}{{ eq $.Payload.After.b 1 }}{{ else }}true{{ end }}",
    "{{ not .Payload.After.a }}",
    "{{ lt .Payload.After.a 2.0 }}",
    "{{ hasKey .Payload.After.a \"b\" }}",
    "{{ gt (index .Payload.After.b 0) 1 }}",
    "{{ ne .Payload.After.a.b true }}",
    "{{ true }}",
];

const TEMPLATES: [&str; 16] = [
    "{{ upper .Payload.After.a }}",
    "{{ with .Payload.After.a }}{{ .b }}{{ end }}",
    "{{ eq .Payload.After.a \"x\" }}",
    "x",
    "{}",
    "{{ .Metadata.a }}",
    "{{ .Payload.After.a }}-{{ .Operation }}",
    "{{ .Payload.After.a.b }}",
    "{{ index .Payload.After \"b\" }}",
    "{{ if .Payload.Before }}{{ .Payload.Before.a }}{{ end }}",
    "{{ toJson .Payload.After }}",
    "{{ len .Payload.After.a }}{{ lower .Payload.After.b }}",
    "{{ .Payload.After.a.b.c }}{{ addf .Payload.After.c 1 }}",
    "{{ range .Payload.After.b }}{{ . }}{{ end }}{{ le .Payload.After.c 1 }}",
    "{{ append .Payload.After.c 1 | toJson }}",
    "{{ $a := .Payload.After.a }}{{ with .Payload.After.b }}x{{ end }}{{ get $a \"b\" | toString }}",
];

/// Processors of one field, without its name.
const OF_FIELDS: [&str; 14] = [
    "plugin: csv.decode, settings: { columns: 'a,b:int' }",
    "plugin: csv.decode, settings: { columns: a, header: .Metadata.a }",
    "plugin: csv.decode, settings: { header: .Payload.After.b }",
    "plugin: csv.encode, settings: { columns: 'a,b' }",
    "plugin: regex.parse, settings: { pattern: '(?<a>.)(?<b>.)?' }",
    "plugin: grok.parse, settings: { pattern: '%{NUMBER:a:int}' }",
    "plugin: keyvalue.parse, settings: { keyDelimiter: ':' }",
    "plugin: time.parse, settings: { layout: unix }",
    "plugin: time.format, settings: { layout: rfc3339 }",
    "plugin: field.hash, settings: { algorithm: xxh3 }",
    "plugin: field.mask, settings: { keepFirst: 1 }",
    "plugin: field.flatten, settings: { separator: _ }",
    "plugin: field.default, settings: { value: x }",
    "plugin: field.default, settings: { value: '7', type: int }",
];

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn step() -> impl Strategy<Value = String> {
    let place = || prop::sample::select(&PLACES[..]);
    let field = || {
        prop::sample::select(
            PLACES.iter().filter(|p| p.matches('.').count() > 2 || p.starts_with(".Key.")).copied().collect::<Vec<_>>(),
        )
    };
    let settable = prop_oneof![4 => place(), 2 => prop::sample::select(vec![".Metadata.a", ".Metadata.b"])];
    let on_field =
        |plugin: &'static str| move |field: &str| format!("plugin: {plugin}, settings: {{ field: {field} }}");
    prop_oneof![
        4 => (settable.clone(), prop::sample::select(&TEMPLATES[..]))
            .prop_map(|(field, value)| format!("plugin: field.set, settings: {{ field: {field}, value: {} }}", quoted(value))),
        1 => prop::sample::select(vec!["create", "delete"])
            .prop_map(|value| format!("plugin: field.set, settings: {{ field: .Operation, value: {value} }}")),
        3 => place().prop_map(on_field("json.decode")),
        2 => place().prop_map(on_field("json.encode")),
        2 => settable.clone().prop_map(on_field("base64.encode")),
        2 => settable.prop_map(on_field("base64.decode")),
        2 => (field(), "[abc]").prop_map(|(field, name)| format!("plugin: field.rename, settings: {{ mapping: \"{field}:{name}\" }}")),
        1 => "[ab]:[abc]".prop_map(|pair| format!("plugin: field.rename, settings: {{ mapping: \".Metadata.{pair}\" }}")),
        1 => (field(), field(), "[abc]").prop_map(|(one, two, name)| {
            format!("plugin: field.rename, settings: {{ mapping: \"{one}:{name},{two}:d\" }}")
        }),
        2 => (place(), prop::sample::select(vec![".Metadata", ".Metadata.a", ".Payload", ".Payload.After.c"]))
            .prop_map(|(a, b)| format!("plugin: field.exclude, settings: {{ fields: \"{a},{b}\" }}")),
        2 => (field(), prop::sample::select(vec!["string", "int", "float", "bool", "time"]))
            .prop_map(|(field, to)| format!("plugin: field.convert, settings: {{ field: {field}, type: {to} }}")),
        1 => Just("plugin: field.convert, settings: { field: .Payload.After, type: string }".to_owned()),
        2 => field().prop_map(on_field("split")),
        1 => Just("plugin: clone, settings: { count: 1 }".to_owned()),
        1 => Just("plugin: unwrap.kafkaconnect".to_owned()),
        1 => field().prop_map(on_field("unwrap.opencdc")),
        4 => (field(), prop::sample::select(&OF_FIELDS[..]))
            .prop_map(|(field, rest)| format!("{}, field: {field} }}", rest.trim_end_matches(" }"))),
        1 => prop::sample::select(vec!["sample, settings: { percent: 50", "throttle, settings: { rate: 1000"])
            .prop_flat_map(move |plugin| place().prop_map(move |place| format!("plugin: {plugin}, by: {place} }}"))),
        1 => Just("plugin: filter".to_owned()),
        1 => Just("plugin: error, settings: { message: '{{ .Payload.After.a }}' }".to_owned()),
    ]
}

fn processor() -> impl Strategy<Value = String> {
    let condition = prop_oneof![3 => Just(None), 2 => prop::sample::select(&CONDITIONS[..]).prop_map(Some)];
    (step(), condition).prop_map(|(step, condition)| match condition {
        Some(condition) => format!("{step}, condition: {}", quoted(condition)),
        // A processor that fails every record would leave nothing to test.
        None if step.starts_with("plugin: filter") || step.starts_with("plugin: error") => {
            format!("{step}, condition: '{{{{ eq .Metadata.a \"1\" }}}}'")
        }
        None => step,
    })
}

// ---- running -----------------------------------------------------------------------------------

fn apply(operator: &Configured, record: &mut Record) -> Decision {
    let host = Host { node: "p".into(), ..testing::host() };
    let mut decisions = Opened::new(operator, host).unwrap().process(std::slice::from_mut(record), None);
    decisions.pop().map_or(Decision::Keep, |(_, decision)| decision)
}

/// The records at each node.
#[derive(Default)]
struct Fates {
    /// Nodes that a record got past.
    passed: BTreeSet<NodeIndex>,
    /// Records that were delivered.
    delivered: Vec<Record>,
    /// Conditions that gave a verdict.
    decided: BTreeSet<NodeIndex>,
    /// Records that are not as their shape says.
    outside: Vec<String>,
}

fn run(plan: &PlanGraph, shapes: &Shapes, at: NodeIndex, mut record: Record, fates: &mut Fates) {
    let node = &plan[at];
    let mut rows = Vec::new();
    match &node.kind {
        NodeKind::Destination(_) => {
            fates.passed.insert(at);
            fates.delivered.push(record);
            return;
        }
        NodeKind::Operator(step) | NodeKind::Split(step) => {
            let verdict = match &step.guard {
                None => true,
                Some(guard) => match guard.condition.evaluate(&record) {
                    Ok(verdict) => {
                        fates.decided.insert(at);
                        verdict
                    }
                    Err(_) => return,
                },
            };
            if verdict {
                match apply(&step.operator, &mut record) {
                    Decision::Keep => rows.push(record),
                    decision @ (Decision::Split(_) | Decision::Pieces(_)) => rows = decision.into_records(),
                    Decision::Filter => {
                        fates.passed.insert(at);
                    }
                    Decision::Fail(_) => return,
                }
                if !rows.is_empty() {
                    fates.passed.insert(at);
                }
            } else {
                rows.push(record);
            }
        }
        _ => rows.push(record),
    }
    for row in rows {
        if !shapes.after(at).is_some_and(|shape| allows(shape, &row)) {
            let shape = shapes.after(at).map(|shape| format!("{shape:?}"));
            fates.outside.push(format!("after {}: {row:?}\nis not {}", node.id, shape.unwrap_or_default()));
        }
        for (port, next) in successors(plan, at) {
            if port != Port::Failed {
                run(plan, shapes, next, row.clone(), fates);
            }
        }
    }
}

/// The records that the engine delivers after a source without known fields; `None` if it rejects the pipeline.
fn delivered(text: &str, records: &[Record]) -> Option<Vec<Record>> {
    let journal = Journal::default();
    let rows = records.to_vec();
    let make = move |row: u64| rows[row as usize].clone().with_position(position(row));
    let upstream = Arc::new(Upstream::new(&journal, records.len() as u64, AtEnd::End).make(make));
    let shelf = Arc::new(Downstream::new("shelf", &journal));
    let mut registry = registry();
    add_source(&mut registry, "memory", &upstream);
    add_destination(&mut registry, "shelf", &shelf);
    let (_, config) = pipeline(&text.replace(DROP, "plugin: shelf"));
    let plan = compile(&config, &registry, &OPTIONS).ok()?.stages;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Arc::new(MemoryStore::new(&journal));
        let options = RunOptions { once: true, ..RunOptions::default() };
        let ending = start(plan, services(&store), options).join().await;
        assert!(matches!(ending, Ending::Finished), "{ending:?}\n{text}");
    });
    Some(shelf.durable())
}

/// Without what differs from run to run.
fn timeless(records: impl IntoIterator<Item = Record>) -> Vec<Record> {
    let timeless = |mut record: Record| {
        STAMPED.iter().for_each(|key| {
            record.metadata.remove(key);
        });
        record.with_position(Position::default())
    };
    records.into_iter().map(timeless).collect()
}

const STAMPED: [&str; 2] = ["recfmt.readAt", "svc.source.connector.id"];
/// Records may fail; the pipeline goes on.
const FAILURES: &str = "    dead-letter-queue: { plugin: drop, window-size: 0 }\n";
const DROP: &str = "plugin: drop, settings: { encode: true }";

#[test]
fn what_the_compiler_says_is_true() {
    let (valid, refused, warned, ran) = (Cell::new(0), Cell::new(0), Cell::new(0), Cell::new(0));
    let codes: Cell<BTreeMap<&'static str, usize>> = Cell::default();
    let cases = Config { cases: 1500, failure_persistence: None, ..Config::default() };
    TestRunner::new(cases)
        .run(&(records(), vec(processor(), 1..6)), |(records, processors)| {
            let mut registry = registry();
            registry.add_source(Arc::new(Said::new("memory", shape_of(&records))));
            let text = yaml(&["plugin: memory"], &processors, DROP) + FAILURES;
            let (files, config) = pipeline(&text);
            let lowered = lower(&config, &registry, &OPTIONS);
            prop_assert!(!lowered.findings.has_errors(), "{}", lowered.findings.render(&files, Default::default()));
            let mut plan = lowered.graph;
            rewrite(&mut plan);
            let (shapes, findings) = (flow::shapes(&plan), flow::check(&plan));

            let mut fates = Fates::default();
            for mut record in records.clone() {
                for stamped in STAMPED {
                    record.metadata.insert(stamped, "1");
                }
                let source = plan.node_indices().next().unwrap();
                run(&plan, &shapes, source, record, &mut fates);
            }
            prop_assert!(fates.outside.is_empty(), "{}\n{text}", fates.outside.join("\n"));
            for finding in findings.iter() {
                let mut counted = codes.take();
                *counted.entry(finding.code.name()).or_default() += 1;
                codes.set(counted);
                let path = finding.path.as_deref().unwrap_or_default();
                let of = |node: &NodeIndex| {
                    path.starts_with(&format!("{}/", plan[*node].path)) || *path == *plan[*node].path
                };
                let node = plan.node_indices().filter(|n| !plan[*n].path.is_empty()).find(of).unwrap();
                // Where a step is wrong, it fails on every record it is applied to, be it an error or, for it has
                // a condition, a warning.
                let always = ["flow.not_a_list", "flow.name_taken", "flow.not_convertible", "flow.not_a_text"];
                // The finding names its records if only the usual ones fail, or those with a field.
                let some = ["nearly every record", "every record that has"];
                let nearly = some.iter().any(|start| finding.message.starts_with(start));
                let fails = finding.severity == Severity::Error || (always.contains(&finding.code.name()) && !nearly);
                let of_condition = path.ends_with("/condition");
                if fails && of_condition {
                    prop_assert!(!fates.decided.contains(&node), "{finding:?} is wrong\n{text}");
                }
                if fails && !of_condition {
                    prop_assert!(!fates.passed.contains(&node), "{finding:?} is wrong\n{text}");
                }
            }
            if !findings.has_errors() && valid.get() + warned.get() < 300 {
                match delivered(&text, &records) {
                    Some(delivered) => {
                        ran.set(ran.get() + 1);
                        prop_assert_eq!(timeless(delivered), timeless(fates.delivered), "{}", text);
                    }
                    // A statement about all records must be true of these.
                    None => prop_assert!(fates.delivered.is_empty(), "{}", text),
                }
            }
            let count = if findings.has_errors() {
                &refused
            } else if findings.is_empty() {
                &valid
            } else {
                &warned
            };
            count.set(count.get() + 1);
            Ok(())
        })
        .unwrap_or_else(|e| panic!("{e}"));
    let codes = codes.take();
    let (valid, warned, refused) = (valid.get(), warned.get(), refused.get());
    println!("{valid} without findings, {warned} with warnings, {refused} refused: {codes:?}");
    assert!(valid + warned >= 250 && refused >= 400, "{valid} {warned} {refused}");
    assert!(ran.get() >= 200, "the engine ran only {} of them", ran.get());
}
