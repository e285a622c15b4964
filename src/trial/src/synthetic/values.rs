//! Values of synthetic records: of every kind, and texts of every form that a pipeline may parse.

use anabranch_record::text::Str;
use anabranch_record::value::{Object, Timestamp, Value};

use super::names::Tree;

/// The kind of all fields of a record, or of one field.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum SyntheticKind {
    /// A text.
    Text(Str),
    /// An integer.
    Int(i64),
    /// A number with a fraction.
    Float(f64),
    /// True or false.
    Bool(bool),
    /// Null.
    Null,
    /// A list of texts.
    Texts,
    /// A list of numbers.
    Numbers,
    /// A list of objects.
    Objects,
    /// A list of lists.
    Lists,
    /// A list of nothing.
    Nothing,
    /// A time.
    Time,
    /// Bytes.
    Bytes,
    /// An object.
    Object,
    /// The text of an object in JSON.
    JsonObject,
    /// The text of a list in JSON.
    JsonList,
    /// An object in an envelope of this form.
    Envelope(Envelope),
    /// The field is missing.
    Missing,
    /// The fields have different kinds; the number distinguishes such records.
    Mixed(u64),
}

impl SyntheticKind {
    /// Returns `true` if it contains no value on which a processor could fail.
    pub(super) fn is_hollow(&self) -> bool {
        match self {
            SyntheticKind::Null | SyntheticKind::Missing | SyntheticKind::Nothing => true,
            SyntheticKind::Text(text) => text.is_empty(),
            _ => false,
        }
    }
}

/// Format of the change events that a tool writes to a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Envelope {
    /// Debezium.
    Debezium,
    /// The same below `payload`, beside a schema.
    DebeziumSchema,
    /// OpenCDC.
    OpenCdc,
    /// Kafka Connect.
    KafkaConnect,
}

/// Texts of the forms that data usually have.
const TEXTS: [&str; 31] = [
    "alpha",
    "17",
    "2.50",
    "2024-05-06T07:08:09Z",
    "2024-05-06",
    "2024-05-06 07:08:09",
    "07:08:09",
    "true",
    "0",
    "-3",
    "ann.lee@example.org",
    "https://ann:pw@example.org:8080/a/b?c=d&e=f#g",
    "aGVsbG8=",
    "eyJhIjoxfQ==",
    "a-b_c,d;e|f/g:h i.j@k",
    "1,2;3|4\t5 6:7/8-9_10.11",
    "k=v a=1 b=2",
    "k=v&a=1&b=2",
    "Ann Maria Lee",
    "123e4567-e89b-12d3-a456-426614174000",
    "/var/data/in.csv",
    "192.168.1.17",
    "1.2.3",
    "1h30m",
    "1714979289000000000",
    "<a id=\"1\"><b>2</b></a>",
    "<13>May  6 07:08:09 host app[17]: said so",
    "EUR 1.234,50",
    "create",
    "\"alpha 17\"",
    "",
];

/// The kinds of the fields of records, the plainest first. `literals`: quoted texts of the pipeline.
pub(super) fn kinds(literals: &[String], envelopes: bool) -> Vec<SyntheticKind> {
    let mut kinds: Vec<SyntheticKind> = TEXTS.iter().map(|text| SyntheticKind::Text(Str::from_static(text))).collect();
    kinds.extend([
        SyntheticKind::Int(17),
        SyntheticKind::Int(0),
        SyntheticKind::Int(-1),
        SyntheticKind::Int(1_714_979_289_000),
        SyntheticKind::Int(4_611_686_018_427_387_905),
        SyntheticKind::Float(2.5),
        SyntheticKind::Float(-0.25),
        SyntheticKind::Float(3.0),
        SyntheticKind::Bool(true),
        SyntheticKind::Bool(false),
        SyntheticKind::Null,
        SyntheticKind::Texts,
        SyntheticKind::Numbers,
        SyntheticKind::Objects,
        SyntheticKind::Lists,
        SyntheticKind::Nothing,
        SyntheticKind::Time,
        SyntheticKind::Bytes,
        SyntheticKind::Object,
        SyntheticKind::JsonObject,
        SyntheticKind::JsonList,
        SyntheticKind::Missing,
    ]);
    if envelopes {
        use Envelope::{Debezium, DebeziumSchema, KafkaConnect, OpenCdc};
        kinds.extend([Debezium, DebeziumSchema, OpenCdc, KafkaConnect].map(SyntheticKind::Envelope));
    }
    kinds.extend(literals.iter().take(12).map(|literal| SyntheticKind::Text(of_layout(literal).into())));
    kinds.extend(literals.iter().take(8).map(|literal| {
        let parts = ["1", "2", "3", "4", "5", "6", "7", "8"].map(str::to_owned);
        SyntheticKind::Text(parts.join(literal).into())
    }));
    kinds.extend((0..28).map(SyntheticKind::Mixed));
    kinds
}

/// A text that is the layout of a time becomes that time.
fn of_layout(text: &str) -> String {
    const PARTS: [(&str, &str); 14] = [
        ("January", "May"),
        ("Monday", "Monday"),
        ("2006", "2024"),
        ("Jan", "May"),
        ("Mon", "Mon"),
        ("MST", "UTC"),
        ("Z07:00", "Z"),
        ("-0700", "+0000"),
        ("01", "05"),
        ("02", "06"),
        ("15", "07"),
        ("04", "08"),
        ("05", "09"),
        ("PM", "AM"),
    ];
    if !text.contains("2006") && !text.contains("15:04") {
        return text.to_owned();
    }
    let mut time = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        match PARTS.iter().find(|(part, _)| rest.starts_with(part)) {
            Some((part, becomes)) => {
                time.push_str(becomes);
                rest = &rest[part.len()..];
            }
            None => {
                time.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    time
}

/// Creates values. Contains the names of fields of lists and objects, and the texts of the pipeline.
pub(super) struct ValueMaker<'a> {
    /// Names of the fields of objects that have no names of their own.
    pub(super) loose: &'a Tree,
    /// Texts in quotes of the pipeline.
    pub(super) literals: &'a [String],
}

/// Deepest nesting of objects.
const DEEPEST: usize = 6;

impl ValueMaker<'_> {
    /// An object with these fields, all of a kind.
    pub(super) fn object(&self, tree: &Tree, kind: &SyntheticKind) -> Object {
        self.fields(tree, kind, 0, 0)
    }

    fn fields(&self, tree: &Tree, kind: &SyntheticKind, seed: u64, depth: usize) -> Object {
        let field = |(name, inner): (&String, &Tree)| {
            Some((Str::from(name.as_str()), self.value(inner, kind, hash(name, seed), depth)?))
        };
        tree.0.iter().filter_map(field).collect()
    }

    /// A value of a kind; `None` where it is missing. `tree`: the names of its fields, if it has any.
    pub(super) fn value(&self, tree: &Tree, kind: &SyntheticKind, seed: u64, depth: usize) -> Option<Value> {
        let inner = |number: u64| match tree.0.is_empty() {
            true => self.element(hash("", seed ^ number), depth + 1),
            false if number == 0 => self.fields(tree, &scalar(kind), seed, depth + 1),
            false => self.fields(tree, &SyntheticKind::Mixed(seed ^ number), seed, depth + 1),
        };
        let is_map = !tree.0.is_empty();
        Some(match kind {
            SyntheticKind::Missing => return None,
            SyntheticKind::Mixed(number) => {
                let draw = hash("", seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                return match (is_map && depth < DEEPEST, draw % 4) {
                    (true, 0) => self.value(tree, &SyntheticKind::Objects, seed, depth),
                    (true, 1) => self.value(tree, &SyntheticKind::JsonObject, seed, depth),
                    (true, _) => Some(Value::from(self.fields(tree, kind, seed, depth + 1))),
                    (false, _) => self.value(tree, &self.drawn(draw), seed, depth),
                };
            }
            SyntheticKind::Null => Value::Null,
            SyntheticKind::Objects => {
                Value::from(vec![Value::from(inner(0)), Value::from(inner(1)), Value::from(inner(2))])
            }
            SyntheticKind::JsonObject => Value::from(json(&Value::from(inner(0)))),
            SyntheticKind::JsonList => {
                Value::from(json(&Value::from(vec![Value::from(inner(0)), Value::from(inner(1))])))
            }
            SyntheticKind::Envelope(envelope) => Value::from(envelope.around(inner(0))),
            _ if is_map && depth < DEEPEST => Value::from(self.fields(tree, kind, seed, depth + 1)),
            SyntheticKind::Object => Value::from(inner(0)),
            SyntheticKind::Text(text) => Value::Text(text.clone()),
            SyntheticKind::Int(number) => Value::from(*number),
            SyntheticKind::Float(number) => Value::from(*number),
            SyntheticKind::Bool(truth) => Value::from(*truth),
            SyntheticKind::Texts => {
                Value::from(["alpha", "17", "2024-05-06", "b@example.org"].map(Value::from).to_vec())
            }
            SyntheticKind::Numbers => Value::from([1i64, 2, 3, 5].map(Value::from).to_vec()),
            SyntheticKind::Lists => {
                let pair = |name: &str, number: i64| Value::from(vec![Value::from(name), Value::from(number)]);
                let objects = Value::from(vec![Value::from(inner(1)), Value::from(inner(2))]);
                Value::from(vec![pair("a", 1), objects, pair("b", 2)])
            }
            SyntheticKind::Nothing => Value::from(Vec::new()),
            SyntheticKind::Time => Value::Time(Timestamp::from_timestamp_nanos(1_714_979_289_000_000_000)),
            SyntheticKind::Bytes => Value::Bytes(b"alpha".as_slice().into()),
        })
    }

    /// The kind of a field of a mixed record: often one of the usual kinds.
    fn drawn(&self, draw: u64) -> SyntheticKind {
        let number = usize::try_from(draw >> 40).unwrap_or_default();
        let literal = self.literals.get(number % self.literals.len().max(1));
        match draw % 14 {
            0 | 1 => SyntheticKind::Text(Str::from_static("alpha")),
            2 => SyntheticKind::Text(Str::from_static("17")),
            3 => SyntheticKind::Text(Str::from_static("2024-05-06T07:08:09Z")),
            4 => SyntheticKind::Text(Str::from_static("2.50")),
            5 | 6 => SyntheticKind::Int(17),
            7 => SyntheticKind::Float(2.5),
            8 => SyntheticKind::Objects,
            9 => SyntheticKind::Texts,
            10 => SyntheticKind::Object,
            11 => SyntheticKind::Bool(draw >> 20 & 1 == 0),
            12 => literal.map_or(SyntheticKind::Int(3), |literal| SyntheticKind::Text(of_layout(literal).into())),
            _ => SyntheticKind::Text(Str::from_static("2024-05-06")),
        }
    }

    /// An object of which no field has a name in the pipeline.
    fn element(&self, seed: u64, depth: usize) -> Object {
        let mut object = match depth < DEEPEST {
            true if seed.is_multiple_of(3) => {
                self.fields(self.loose, &SyntheticKind::Text(Str::from_static("17")), seed, depth + 1)
            }
            true => self.fields(self.loose, &SyntheticKind::Mixed(seed), seed, depth + 1),
            false => Object::new(),
        };
        object.insert("a", Value::from(1i64));
        object
    }
}

/// The kinds of the fields of an object in a list.
fn scalar(kind: &SyntheticKind) -> SyntheticKind {
    match kind {
        SyntheticKind::Objects
        | SyntheticKind::JsonObject
        | SyntheticKind::JsonList
        | SyntheticKind::Object
        | SyntheticKind::Envelope(_) => SyntheticKind::Text(Str::from_static("17")),
        other => other.clone(),
    }
}

impl Envelope {
    /// The data of a change, wrapped.
    pub(super) fn around(self, data: Object) -> Object {
        let object = |fields: Vec<(&'static str, Value)>| -> Object { fields.into_iter().collect() };
        let debezium = |data: Object| {
            let source = object(vec![("table", Value::from("orders")), ("db", Value::from("shop"))]);
            object(vec![
                ("op", Value::from("c")),
                ("before", Value::Null),
                ("after", Value::from(data)),
                ("source", Value::from(source)),
                ("ts_ms", Value::from(1_714_979_289_000i64)),
            ])
        };
        match self {
            Envelope::Debezium => debezium(data),
            Envelope::DebeziumSchema => {
                object(vec![("schema", Value::from(Object::new())), ("payload", Value::from(debezium(data)))])
            }
            Envelope::OpenCdc => {
                let payload = object(vec![("before", Value::Null), ("after", Value::from(data))]);
                object(vec![
                    ("position", Value::from("MQ==")),
                    ("operation", Value::from("create")),
                    ("metadata", Value::from(Object::new())),
                    ("key", Value::from(object(vec![("id", Value::from(17i64))]))),
                    ("payload", Value::from(payload)),
                ])
            }
            Envelope::KafkaConnect => {
                object(vec![("schema", Value::from(Object::new())), ("payload", Value::from(data))])
            }
        }
    }
}

/// A value as text of JSON.
pub(super) fn json(value: &Value) -> String {
    let mut text = Vec::new();
    // This module creates only values that JSON can represent.
    let written = anabranch_record::json::write_value(value, &mut text);
    if written.is_err() {
        text.clear();
    }
    String::from_utf8(text).unwrap_or_default()
}

/// FNV-1a: the same in every run.
pub(super) fn hash(text: &str, seed: u64) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325 ^ seed;
    for byte in text.bytes().chain(seed.to_le_bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash ^ hash >> 29
}
