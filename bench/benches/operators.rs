//! CPU time per record of processors, and of the library that each one calls, with the same input: `cargo bench -p
//! anabranch-bench --bench operators`.
//!
//! The bare library is called as a program calls it that keeps one value per record: expressions, readers and keys are
//! made once, and the result, as a value of a record, replaces the input. `own` has the processors that call no library.
//! The allocator is that of the service.

#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]
#![allow(missing_docs, reason = "the entry point that divan makes")]

use std::fmt::Write as _;
use std::sync::Arc;

use anabranch_graph::batch::STRIP_ROWS;
use anabranch_plugin::operator::Decision;
use anabranch_plugin::registry::Registry;
use anabranch_plugin::testing::configured::{Opened, processor};
use anabranch_plugin::testing::{host, position};
use anabranch_record::text::{Str, hexadecimal};
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Record};
use chrono::DateTime;
use chrono::format::{Item, Parsed, StrftimeItems, parse};
use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};
use twox_hash::XxHash3_64;

#[global_allocator]
static ALLOCATOR: anabranch_allocator::Allocator = anabranch_allocator::Allocator;

/// Number of records of a call.
const ROWS: usize = 1024;

const REQUEST: &str = r#"203.0.113.7 - ada [01/Mar/2026:09:30:00 +0000] "GET /orders?id=7 HTTP/1.1" 200 512"#;
const REQUEST_PATTERN: &str =
    r#"^(?<address>\S+) \S+ (?<user>\S+) \[(?<at>[^]]+)\] "(?<method>\S+) (?<path>\S+)[^"]*" (?<status>\d+)"#;
const GROK_PATTERN: &str = "%{COMMONAPACHELOG}";
const ROW: &str = r#"17,"Lovelace, Ada",12.50,2026-03-01T09:30:00Z"#;
const PAIRS: &str = r#"level=info took=12ms path=/orders status=200 msg="it began""#;
const TIME: &str = "01/Mar/2026:09:30:00 +0000";
const TIME_LAYOUT: &str = "%d/%b/%Y:%H:%M:%S %z";
const EMAIL: &str = "ada.lovelace@example.com";
const KEY: &str = "a key of the benchmark";

fn main() {
    anabranch_allocator::settle();
    divan::main();
}

/// Returns records with this payload. No two share it, as if a source had just read them.
fn records(after: impl Fn() -> Data) -> impl Fn() -> Vec<Record> {
    move || (0..ROWS as u64).map(|row| Record::create(position(row), Data::Absent, after())).collect()
}

/// Runs a processor on records with this payload, in strips as the executor does, and requires that it succeeds on each.
fn operator(bencher: Bencher<'_, '_>, plugin: &str, settings: &[(&str, &str)], after: impl Fn() -> Data) {
    let mut registry = Registry::new();
    anabranch_ops::register(&mut registry);
    let configured = processor(registry.operator(plugin).unwrap(), settings).unwrap();
    let mut opened = Opened::new(&configured, host()).unwrap();
    let records = records(after);
    bencher.counter(ItemsCount::new(ROWS)).with_inputs(&records).bench_local_values(|mut records| {
        let strips = records.chunks_mut(STRIP_ROWS).map(|strip| opened.process(strip, None));
        let decisions: Vec<Vec<(usize, Decision)>> = strips.collect();
        (records, decisions)
    });
    for (_, decision) in opened.process(&mut records(), None) {
        assert!(!matches!(decision, Decision::Fail(_)), "{plugin}: {decision:?}");
    }
}

/// Replaces each value by the result of a call of a library.
fn library(bencher: Bencher<'_, '_>, input: impl Fn() -> Value, mut call: impl FnMut(&Value) -> Value) {
    let values = || (0..ROWS).map(|_| input()).collect::<Vec<Value>>();
    bencher.counter(ItemsCount::new(ROWS)).with_inputs(values).bench_local_values(|mut values| {
        for value in &mut values {
            *value = call(black_box(value));
        }
        values
    });
}

fn raw(text: &str) -> impl Fn() -> Data {
    move || Data::Raw(text.as_bytes().to_vec().into())
}

/// Structured data with one field.
fn field(value: impl Fn() -> Value) -> impl Fn() -> Data {
    move || Data::Structured(Arc::new(Object::from_iter([("field", value())])))
}

fn text(text: &str) -> impl Fn() -> Value {
    move || Value::from(text)
}

const FIELD: (&str, &str) = ("field", ".Payload.After.field");
const PAYLOAD: (&str, &str) = ("field", ".Payload.After");

mod regex_parse {
    use super::*;

    #[divan::bench]
    fn ours(bencher: Bencher<'_, '_>) {
        operator(bencher, "regex.parse", &[PAYLOAD, ("pattern", REQUEST_PATTERN)], raw(REQUEST));
    }

    #[divan::bench]
    fn bare(bencher: Bencher<'_, '_>) {
        let regex = regex::Regex::new(REQUEST_PATTERN).unwrap();
        let names: Vec<Str> = regex.capture_names().flatten().map(Str::from).collect();
        let mut found = regex.capture_locations();
        library(bencher, text(REQUEST), |value| {
            let text = value.as_str().unwrap();
            regex.captures_read(&mut found, text).unwrap();
            let group = |(at, name): (usize, &Str)| {
                (name.clone(), found.get(at + 1).map_or(Value::Null, |(from, to)| Value::from(&text[from..to])))
            };
            Object::from_entries(names.iter().enumerate().map(group).collect()).into()
        });
    }
}

mod grok_parse {
    use super::*;

    #[divan::bench]
    fn ours(bencher: Bencher<'_, '_>) {
        operator(bencher, "grok.parse", &[PAYLOAD, ("pattern", GROK_PATTERN)], raw(REQUEST));
    }

    /// The expression of the pattern. The crate grok makes the same one, but compiles it with an older version of the
    /// library than the processor does.
    fn expression(pattern: &str) -> String {
        let Some((before, rest)) = pattern.split_once("%{") else { return pattern.to_owned() };
        let (reference, after) = rest.split_once('}').unwrap();
        let (name, part) = match reference.split_once(':') {
            Some((name, part)) => (name, format!("?<{part}>")),
            None => (reference, "?:".to_owned()),
        };
        let (_, definition) = grok::patterns().iter().find(|(known, _)| *known == name).unwrap();
        format!("{before}({part}{}){}", expression(definition), expression(after))
    }

    #[divan::bench]
    fn bare(bencher: Bencher<'_, '_>) {
        let mut regex = fancy_regex::RegexBuilder::new(&expression(GROK_PATTERN));
        let regex = regex.oniguruma_mode(true).build().unwrap();
        let names: Vec<(usize, Str)> =
            regex.capture_names().enumerate().filter_map(|(at, name)| Some((at, name?.into()))).collect();
        library(bencher, text(REQUEST), |value| {
            let found = regex.captures(value.as_str().unwrap()).unwrap().unwrap();
            let group = |(at, name): &(usize, Str)| {
                (name.clone(), found.get(*at).map_or(Value::Null, |group| Value::from(group.as_str())))
            };
            Object::from_entries(names.iter().map(group).collect()).into()
        });
    }
}

mod csv_decode {
    use super::*;

    #[divan::bench]
    fn ours(bencher: Bencher<'_, '_>) {
        operator(bencher, "csv.decode", &[PAYLOAD, ("columns", "id,name,price,at")], raw(ROW));
    }

    #[divan::bench]
    fn bare(bencher: Bencher<'_, '_>) {
        let columns = ["id", "name", "price", "at"].map(Str::from);
        let mut reader = csv_core::Reader::new();
        let (mut output, mut ends) = ([0; 256], [0; 16]);
        library(bencher, text(ROW), |value| {
            reader.reset();
            let row = value.as_str().unwrap().as_bytes();
            let (_, _, written, count) = reader.read_record(row, &mut output, &mut ends);
            let (_, _, _, last) = reader.read_record(&[], &mut output[written..], &mut ends[count..]);
            assert_eq!(count + last, columns.len());
            let mut start = 0;
            let column = |(name, end): (&Str, &usize)| {
                let value = std::str::from_utf8(&output[std::mem::replace(&mut start, *end)..*end]).unwrap();
                (name.clone(), Value::from(value))
            };
            Object::from_entries(columns.iter().zip(&ends).map(column).collect()).into()
        });
    }
}

mod csv_encode {
    use super::*;

    fn row() -> Object {
        Object::from_iter([("id", "17"), ("name", "Lovelace, Ada"), ("price", "12.50")])
    }

    #[divan::bench]
    fn ours(bencher: Bencher<'_, '_>) {
        let after = || Data::Structured(Arc::new(row()));
        operator(bencher, "csv.encode", &[PAYLOAD, ("columns", "id,name,price")], after);
    }

    #[divan::bench]
    fn bare(bencher: Bencher<'_, '_>) {
        let mut writer = csv_core::Writer::new();
        let mut output = [0; 256];
        library(
            bencher,
            || row().into(),
            |value| {
                let object = value.as_map().unwrap();
                let mut written = 0;
                for (at, name) in ["id", "name", "price"].iter().enumerate() {
                    if at > 0 {
                        written += writer.delimiter(&mut output[written..]).1;
                    }
                    let text = object.get(name).and_then(Value::as_str).unwrap();
                    written += writer.field(text.as_bytes(), &mut output[written..]).2;
                }
                written += writer.finish(&mut output[written..]).1;
                Value::from(std::str::from_utf8(&output[..written]).unwrap())
            },
        );
    }
}

mod time_parse {
    use super::*;

    #[divan::bench]
    fn ours(bencher: Bencher<'_, '_>) {
        operator(bencher, "time.parse", &[FIELD, ("layout", TIME_LAYOUT)], field(text(TIME)));
    }

    #[divan::bench]
    fn bare(bencher: Bencher<'_, '_>) {
        let layout: Vec<Item<'_>> = StrftimeItems::new(TIME_LAYOUT).collect();
        library(bencher, text(TIME), |value| {
            let mut parsed = Parsed::new();
            parse(&mut parsed, value.as_str().unwrap(), layout.iter()).unwrap();
            Value::Time(parsed.to_datetime().unwrap().to_utc())
        });
    }
}

mod time_format {
    use super::*;

    fn time() -> Value {
        Value::Time(DateTime::parse_from_str(TIME, TIME_LAYOUT).unwrap().to_utc())
    }

    #[divan::bench]
    fn ours(bencher: Bencher<'_, '_>) {
        operator(bencher, "time.format", &[FIELD, ("layout", TIME_LAYOUT)], field(time));
    }

    #[divan::bench]
    fn bare(bencher: Bencher<'_, '_>) {
        let layout: Vec<Item<'_>> = StrftimeItems::new(TIME_LAYOUT).collect();
        let mut text = String::new();
        library(bencher, time, |value| {
            let Value::Time(time) = value else { panic!("{value:?}") };
            text.clear();
            write!(text, "{}", time.format_with_items(layout.iter())).unwrap();
            Value::from(text.as_str())
        });
    }
}

mod field_hash {
    use super::*;

    #[divan::bench]
    fn sha256(bencher: Bencher<'_, '_>) {
        operator(bencher, "field.hash", &[FIELD], field(text(EMAIL)));
    }

    #[divan::bench]
    fn sha256_bare(bencher: Bencher<'_, '_>) {
        library(bencher, text(EMAIL), |value| hexadecimal(&Sha256::digest(value.as_str().unwrap())).into());
    }

    #[divan::bench]
    fn hmac(bencher: Bencher<'_, '_>) {
        operator(bencher, "field.hash", &[FIELD, ("algorithm", "hmac-sha256"), ("key", KEY)], field(text(EMAIL)));
    }

    #[divan::bench]
    fn hmac_bare(bencher: Bencher<'_, '_>) {
        let keyed = Hmac::<Sha256>::new_from_slice(KEY.as_bytes()).unwrap();
        library(bencher, text(EMAIL), |value| {
            let mut keyed = keyed.clone();
            keyed.update(value.as_str().unwrap().as_bytes());
            hexadecimal(&keyed.finalize().into_bytes()).into()
        });
    }

    #[divan::bench]
    fn xxh3(bencher: Bencher<'_, '_>) {
        operator(bencher, "field.hash", &[FIELD, ("algorithm", "xxh3")], field(text(EMAIL)));
    }

    #[divan::bench]
    fn xxh3_bare(bencher: Bencher<'_, '_>) {
        library(bencher, text(EMAIL), |value| {
            hexadecimal(&XxHash3_64::oneshot(value.as_str().unwrap().as_bytes()).to_be_bytes()).into()
        });
    }
}

mod sample {
    use super::*;

    #[divan::bench]
    fn ours(bencher: Bencher<'_, '_>) {
        operator(bencher, "sample", &[("percent", "10"), ("by", FIELD.1)], field(text(EMAIL)));
    }

    /// Hashes a field of each record, and lists the records to drop: there is no value to replace.
    #[divan::bench]
    fn bare(bencher: Bencher<'_, '_>) {
        let records = records(field(text(EMAIL)));
        bencher.counter(ItemsCount::new(ROWS)).with_inputs(records).bench_local_values(|records| {
            let mut dropped = Vec::with_capacity(ROWS);
            for (row, record) in records.iter().enumerate() {
                let value = record.payload.after.fields().and_then(|fields| fields.get("field")?.as_str()).unwrap();
                if XxHash3_64::oneshot_with_seed(0, value.as_bytes()) >= u64::MAX / 10 {
                    dropped.push(row);
                }
            }
            (records, dropped)
        });
    }
}

/// Processors that call no library.
mod own {
    use super::*;

    #[divan::bench]
    fn keyvalue_parse(bencher: Bencher<'_, '_>) {
        operator(bencher, "keyvalue.parse", &[PAYLOAD], raw(PAIRS));
    }

    #[divan::bench(args = ["text", "email"])]
    fn field_mask(bencher: Bencher<'_, '_>, kind: &str) {
        operator(bencher, "field.mask", &[FIELD, ("kind", kind)], field(text(EMAIL)));
    }

    #[divan::bench]
    fn field_mask_ip(bencher: Bencher<'_, '_>) {
        operator(bencher, "field.mask", &[FIELD, ("kind", "ip")], field(text("203.0.113.7")));
    }

    #[divan::bench]
    fn field_flatten(bencher: Bencher<'_, '_>) {
        let after = || {
            let inner = Object::from_iter([("city", Value::from("London")), ("zip", Value::Int(7))]);
            Data::from(Object::from_iter([("name", Value::from("ada")), ("address", Value::from(inner))]))
        };
        operator(bencher, "field.flatten", &[PAYLOAD], after);
    }

    #[divan::bench]
    fn field_default(bencher: Bencher<'_, '_>) {
        let settings = [("field", ".Payload.After.country"), ("value", "GB")];
        operator(bencher, "field.default", &settings, field(text("ada")));
    }

    #[divan::bench]
    fn throttle(bencher: Bencher<'_, '_>) {
        operator(bencher, "throttle", &[("rate", "1000000000")], raw(ROW));
    }

    #[divan::bench]
    fn throttle_by(bencher: Bencher<'_, '_>) {
        let settings = [("rate", "1000000000"), ("by", FIELD.1)];
        operator(bencher, "throttle", &settings, field(text(EMAIL)));
    }
}
