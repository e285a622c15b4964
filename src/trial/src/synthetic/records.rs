//! Synthetic records: possible records of a source, derived from the source and the pipeline.

use anabranch_graph::plan::graph::{NodeKind, PlanGraph};
use anabranch_plugin::flow::{Fields, Form, Kinds, RecordShape, Shape};
use anabranch_plugin::written::Written;
use anabranch_record::metadata::{Metadata, key};
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Operation, Position, Record};

use super::names::{PipelineNames, Tree};
use super::values::{SyntheticKind, ValueMaker, json, kinds};

/// A synthetic record and the data that it holds.
#[derive(Clone, Debug)]
pub(super) struct Synthetic {
    /// The record as the source would give it.
    pub(super) record: Record,
    /// The fields of its key and of both sides of its payload, even if the record has them as text.
    pub(super) fields: [Object; 2],
    /// Number of its form of data. Each source has one record of each form.
    pub(super) variant: usize,
    /// `true` if its fields are all empty or null.
    pub(super) is_hollow: bool,
    /// The parts that are the same in every record of the source, so that other data cannot occur.
    pub(super) known: DeclaredParts,
}

/// Parts of a record that a source declares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DeclaredParts {
    /// `true` if it has no other metadata.
    pub(super) metadata: bool,
    /// The key is a word or a number, or there is none.
    pub(super) key: bool,
    /// The payload before the change is never there.
    pub(super) no_before: bool,
    /// The fields of the payload.
    pub(super) fields: bool,
}

impl DeclaredParts {
    fn of(shape: &RecordShape) -> DeclaredParts {
        let is_closed = |side: &Shape| !side.raw && side.structured.as_ref().is_some_and(|fields| !fields.is_open());
        DeclaredParts {
            metadata: !shape.metadata.may_have("any key that nobody sets"),
            key: shape.key.plain || shape.key.is_absent(),
            no_before: shape.before.is_absent(),
            fields: is_closed(&shape.after),
        }
    }
}

/// Lines of files that are not JSON.
const LINES: [&str; 14] = [
    "17,alpha,2024-05-06,2.50,true,b@example.org,4,5,6,7,8,9",
    "17;alpha;2024-05-06;2,50;true;b@example.org;4;5;6;7;8;9",
    "17|alpha|2024-05-06|2.50|true|b@example.org|4|5|6|7|8|9",
    "17\talpha\t2024-05-06\t2.50\ttrue\tb@example.org\t4\t5\t6\t7\t8\t9",
    "\"17\",\"alpha, beta\",\"2024-05-06\",\"2.50\",\"true\",\"\",\"7\",\"8\"",
    "id=17 name=alpha at=2024-05-06T07:08:09Z amount=2.50 level=info",
    "id=17&name=alpha&at=2024-05-06&amount=2.50",
    "id: 17",
    "a plain line of words",
    "17",
    "",
    "<order id=\"17\"><name>alpha</name></order>",
    "<13>May  6 07:08:09 host app[17]: said so",
    "192.168.1.17 - - [06/May/2024:07:08:09 +0000] \"GET /a?b=c HTTP/1.1\" 200 17 \"-\" \"curl/8\"",
];

/// Returns the names in the settings, conditions and scripts of a plan.
pub(super) fn names(plan: &PlanGraph) -> PipelineNames {
    let mut names = PipelineNames::default();
    for node in plan.node_weights() {
        if matches!(node.kind, NodeKind::Source(_)) {
            continue;
        }
        node.settings.iter().for_each(|given| names.read(whole(&given.value)));
        if let Some(guard) = node.kind.operator().and_then(|step| step.guard.as_ref()) {
            names.read(guard.written.value());
        }
    }
    names
}

/// Returns the text of a value, or the content of the file that it names.
pub(super) fn whole(written: &Written) -> &str {
    match written.content().map(|content| &content.text) {
        Some(Ok(text)) => text,
        _ => written.value(),
    }
}

/// The records of a source. `first` is the number of the first of them, which is its position.
pub(super) fn of_source(shape: &RecordShape, names: &PipelineNames, envelopes: bool, first: usize) -> Vec<Synthetic> {
    let maker = ValueMaker { loose: &names.loose, literals: &names.literals };
    let usual = Tree(["id", "name"].map(|name| (name.to_owned(), Tree::default())).into_iter().collect());
    let certain = names.data.with(&usual);
    // Names without a known place may be fields of an element, or of the key.
    let data = certain.with(&names.loose);
    let keys = match names.key.0.is_empty() {
        true => Tree([("id".to_owned(), Tree::default())].into_iter().collect()),
        false => names.key.clone(),
    };
    let operations: Vec<Operation> =
        Operation::ALL.into_iter().filter(|operation| shape.operations.contains(*operation)).collect();
    let known = DeclaredParts::of(shape);
    let mut records = Vec::new();
    let mut add = |variant: usize, key: &Object, fields: Object, line: Option<&str>, is_hollow: bool| {
        let number = records.len();
        let operation = operations.get(number % operations.len().max(1)).copied().unwrap_or_default();
        let side = |shape: &Shape| match line {
            Some(line) if shape.raw => Data::text(line),
            _ => presented(shape, &fields, number),
        };
        let mut record = Record::at(Position::copy_from((first + number).to_string().as_bytes()));
        record.operation = operation;
        record.metadata = metadata(shape, names, number);
        record.key = match (&shape.key.fixed, shape.key.plain) {
            (Some(text), _) => Data::text(text.to_string()),
            (None, true) => Data::text((number + 1).to_string()),
            (None, false) => presented(&shape.key, key, number),
        };
        let is_delete = operation == Operation::Delete;
        let has_before = is_delete || (operation == Operation::Update && number % 3 != 0);
        record.payload.before = match shape.before.absent && !has_before {
            true => Data::Absent,
            false => side(&shape.before),
        };
        record.payload.after = match shape.after.absent && is_delete {
            true => Data::Absent,
            false => side(&shape.after),
        };
        records.push(Synthetic { record, fields: [key.clone(), fields], variant, is_hollow, known });
    };
    let kinds = kinds(&names.literals, envelopes);
    let mut variants = 0;
    for kind in &kinds {
        let fields = match (&shape.after.structured, &shape.before.structured) {
            (Some(fields), _) | (None, Some(fields)) if !fields.is_open() => closed(fields, kind, &maker),
            _ => match kind {
                SyntheticKind::Envelope(envelope) => envelope.around(maker.object(&data, &SyntheticKind::Mixed(1))),
                SyntheticKind::Mixed(number) if number % 2 == 1 => maker.object(&certain, kind),
                kind => maker.object(&data, kind),
            },
        };
        add(variants, &maker.object(&keys, kind), fields, None, kind.is_hollow());
        variants += 1;
    }
    if shape.after.raw && shape.after.form() == Some(Form::Raw) {
        let separated = names.literals.iter().take(6).map(|literal| {
            ["17", "alpha", "2024-05-06", "2.50", "true", "6", "7", "8", "9"].map(str::to_owned).join(literal)
        });
        for line in LINES.iter().map(|line| (*line).to_owned()).chain(separated) {
            add(variants, &maker.object(&keys, &SyntheticKind::Int(17)), Object::new(), Some(&line), line.is_empty());
            variants += 1;
        }
    }
    records
}

/// Data in a form that the shape allows.
fn presented(shape: &Shape, fields: &Object, number: usize) -> Data {
    let structured = shape.structured.is_some();
    match (structured, shape.raw) {
        (false, false) => Data::Absent,
        (true, true) if shape.absent && number % 17 == 16 => Data::Absent,
        (true, false) => Data::from(fields.clone()),
        (true, true) if number % 4 != 3 && shape.usually != Some(Form::Raw) => Data::from(fields.clone()),
        (_, true) => Data::text(json(&Value::from(fields.clone()))),
    }
}

/// Known fields, each of a possible kind, as near to the requested kind as possible.
fn closed(fields: &Fields, kind: &SyntheticKind, maker: &ValueMaker<'_>) -> Object {
    let value = |(name, field): (&Str, &anabranch_plugin::flow::Field)| {
        let wanted = maker.value(&Tree::default(), kind, super::values::hash(name, 7), 0);
        let allowed = field.ty.kinds;
        let value = match wanted {
            None if field.optional => return None,
            Some(value) if Kinds::of(&value).within(allowed) && !matches!(value, Value::Map(_)) => value,
            _ if allowed.overlaps(Kinds::MAP) => Value::from(closed(&field.ty.fields, kind, maker)),
            _ => of_kinds(allowed, kind),
        };
        Some((name.clone(), value))
    };
    fields.iter().filter_map(value).collect()
}

/// A value of one of these kinds.
fn of_kinds(allowed: Kinds, kind: &SyntheticKind) -> Value {
    let number = match kind {
        SyntheticKind::Int(number) => *number,
        SyntheticKind::Mixed(number) => i64::try_from(*number).unwrap_or_default(),
        SyntheticKind::Text(text) => i64::try_from(text.len()).unwrap_or_default(),
        _ => 17,
    };
    let time = anabranch_record::value::Timestamp::from_timestamp_nanos(1_714_979_289_000_000_000 + number);
    [
        (Kinds::TEXT, Value::from("alpha")),
        (Kinds::INT, Value::from(number)),
        (Kinds::FLOAT, Value::from(2.5)),
        (Kinds::BOOL, Value::from(true)),
        (Kinds::TIME, Value::Time(time)),
        (Kinds::BYTES, Value::Bytes(b"alpha".as_slice().into())),
        (Kinds::LIST, Value::from(vec![Value::from("alpha")])),
        (Kinds::MAP, Value::from(Object::new())),
    ]
    .into_iter()
    .find(|(kinds, _)| kinds.overlaps(allowed))
    .map_or(Value::Null, |(_, value)| value)
}

/// The metadata that the source sets, and where it may set any, most of those that the pipeline names.
fn metadata(shape: &RecordShape, names: &PipelineNames, number: usize) -> Metadata {
    let mut metadata = Metadata::new();
    let value = |name: &str| match name {
        name if name == key::CREATED_AT.as_str() || name == key::READ_AT.as_str() => "1714979289000000000".to_owned(),
        name if name == key::FILE_PATH.as_str() => "in.ndjson".to_owned(),
        _ if number % 7 == 5 => "true".to_owned(),
        _ => match (number % 5, names.literals.get(number / 5 % names.literals.len().max(1))) {
            (0 | 1, Some(literal)) => literal.clone(),
            (2, _) => "17".to_owned(),
            (3, _) => "orders".to_owned(),
            _ => "alpha".to_owned(),
        },
    };
    for name in shape.metadata.named() {
        if shape.metadata.has(name) || number % 4 != 3 {
            let text = value(name);
            metadata.insert(name.clone(), text);
        }
    }
    let free = names.metadata.iter().filter(|name| shape.metadata.may_have(name) && metadata.get(name).is_none());
    for name in free.cloned().collect::<Vec<_>>() {
        if number % 4 != 3 {
            let text = value(&name);
            metadata.insert(name, text);
        }
    }
    if shape.metadata.may_have(&key::COLLECTION) && metadata.get(&key::COLLECTION).is_none() && number % 4 != 3 {
        metadata.insert(key::COLLECTION, value("collection"));
    }
    metadata
}
