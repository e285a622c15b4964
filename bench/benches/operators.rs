//! CPU time per record of processors, and of the library that each one calls, with the same input: `cargo bench -p
//! anabranch-bench --bench operators`.
//!
//! A library is called once for each record and its results are copied, as a program would do that has only the library.

#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]
#![allow(missing_docs, reason = "the entry point that divan makes")]

use std::fmt::Write as _;
use std::sync::Arc;

use anabranch_plugin::operator::Decision;
use anabranch_plugin::registry::Registry;
use anabranch_plugin::testing::configured::{Opened, processor};
use anabranch_plugin::testing::{host, position};
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Record};
use chrono::{DateTime, Utc};
use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

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
    divan::main();
}

/// Runs a processor on strips of records with this payload, and requires that it succeeds on each.
fn operator(bencher: Bencher<'_, '_>, plugin: &str, settings: &[(&str, &str)], after: &Data) {
    let mut registry = Registry::new();
    anabranch_ops::register(&mut registry);
    let configured = processor(registry.operator(plugin).unwrap(), settings).unwrap();
    let mut opened = Opened::new(&configured, host()).unwrap();
    let create = |row: u64| Record::create(position(row), Data::Absent, after.clone());
    let records: Vec<Record> = (0..ROWS as u64).map(create).collect();
    bencher.counter(ItemsCount::new(ROWS)).with_inputs(|| records.clone()).bench_local_values(|mut records| {
        let decisions = opened.process(&mut records, None);
        assert!(!decisions.iter().any(|(_, decision)| matches!(decision, Decision::Fail(_))), "{plugin}");
        (records, decisions)
    });
}

/// Calls a library for each record.
fn library<T>(bencher: Bencher<'_, '_>, mut call: impl FnMut() -> T) {
    bencher.counter(ItemsCount::new(ROWS)).bench_local(|| {
        for _ in 0..ROWS {
            black_box(call());
        }
    });
}

fn text(text: &str) -> Data {
    Data::Raw(text.as_bytes().to_vec().into())
}

/// Structured data with one field.
fn field(value: Value) -> Data {
    Data::Structured(Arc::new(Object::from_iter([("field", value)])))
}

fn text_field(text: &str) -> Data {
    field(Value::Text(text.into()))
}

const FIELD: (&str, &str) = ("field", ".Payload.After.field");
const PAYLOAD: (&str, &str) = ("field", ".Payload.After");

mod regex_parse {
    use super::*;

    #[divan::bench]
    fn ours(bencher: Bencher<'_, '_>) {
        operator(bencher, "regex.parse", &[PAYLOAD, ("pattern", REQUEST_PATTERN)], &text(REQUEST));
    }

    #[divan::bench]
    fn bare(bencher: Bencher<'_, '_>) {
        let regex = regex::Regex::new(REQUEST_PATTERN).unwrap();
        library(bencher, || {
            let captures = regex.captures(black_box(REQUEST)).unwrap();
            captures.iter().skip(1).flatten().map(|group| group.as_str().to_owned()).collect::<Vec<String>>()
        });
    }
}

mod grok_parse {
    use super::*;

    #[divan::bench]
    fn ours(bencher: Bencher<'_, '_>) {
        operator(bencher, "grok.parse", &[PAYLOAD, ("pattern", GROK_PATTERN)], &text(REQUEST));
    }

    #[divan::bench]
    fn bare(bencher: Bencher<'_, '_>) {
        let pattern = grok::Grok::with_default_patterns().compile(GROK_PATTERN, true).unwrap();
        library(bencher, || {
            let found = pattern.match_against(black_box(REQUEST)).unwrap();
            found.iter().map(|(_, part)| part.to_owned()).collect::<Vec<String>>()
        });
    }
}

mod csv_decode {
    use super::*;

    #[divan::bench]
    fn ours(bencher: Bencher<'_, '_>) {
        operator(bencher, "csv.decode", &[PAYLOAD, ("columns", "id,name,price,at")], &text(ROW));
    }

    #[divan::bench]
    fn bare(bencher: Bencher<'_, '_>) {
        let (mut output, mut ends) = ([0; 256], [0; 16]);
        library(bencher, || {
            let mut reader = csv_core::Reader::new();
            let (_, _, written, count) = reader.read_record(black_box(ROW.as_bytes()), &mut output, &mut ends);
            let (_, _, more, last) = reader.read_record(&[], &mut output[written..], &mut ends[count..]);
            let (mut start, mut values) = (0, Vec::with_capacity(count + last));
            for end in &ends[..count + last] {
                values.push(std::str::from_utf8(&output[start..*end]).unwrap().to_owned());
                start = *end;
            }
            assert_eq!((values.len(), start), (4, written + more));
            values
        });
    }
}

mod csv_encode {
    use super::*;

    #[divan::bench]
    fn ours(bencher: Bencher<'_, '_>) {
        let row = Object::from_iter([("id", "17"), ("name", "Lovelace, Ada"), ("price", "12.50")]);
        operator(bencher, "csv.encode", &[PAYLOAD, ("columns", "id,name,price")], &Data::Structured(Arc::new(row)));
    }

    #[divan::bench]
    fn bare(bencher: Bencher<'_, '_>) {
        let values = ["17", "Lovelace, Ada", "12.50"];
        let mut output = [0; 256];
        library(bencher, || {
            let mut writer = csv_core::Writer::new();
            let mut written = 0;
            for (at, value) in black_box(values).iter().enumerate() {
                if at > 0 {
                    written += writer.delimiter(&mut output[written..]).1;
                }
                written += writer.field(value.as_bytes(), &mut output[written..]).2;
            }
            written += writer.finish(&mut output[written..]).1;
            output[..written].to_vec()
        });
    }
}

mod time_parse {
    use super::*;

    #[divan::bench]
    fn ours(bencher: Bencher<'_, '_>) {
        operator(bencher, "time.parse", &[FIELD, ("layout", TIME_LAYOUT)], &text_field(TIME));
    }

    #[divan::bench]
    fn bare(bencher: Bencher<'_, '_>) {
        library(bencher, || DateTime::parse_from_str(black_box(TIME), TIME_LAYOUT).unwrap());
    }
}

mod time_format {
    use super::*;

    fn time() -> DateTime<Utc> {
        DateTime::parse_from_str(TIME, TIME_LAYOUT).unwrap().to_utc()
    }

    #[divan::bench]
    fn ours(bencher: Bencher<'_, '_>) {
        operator(bencher, "time.format", &[FIELD, ("layout", TIME_LAYOUT)], &field(Value::Time(time())));
    }

    #[divan::bench]
    fn bare(bencher: Bencher<'_, '_>) {
        let time = time();
        library(bencher, || black_box(time).format(TIME_LAYOUT).to_string());
    }
}

mod field_hash {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    #[divan::bench]
    fn sha256(bencher: Bencher<'_, '_>) {
        operator(bencher, "field.hash", &[FIELD], &text_field(EMAIL));
    }

    #[divan::bench]
    fn sha256_bare(bencher: Bencher<'_, '_>) {
        library(bencher, || hex(&Sha256::digest(black_box(EMAIL))));
    }

    #[divan::bench]
    fn hmac(bencher: Bencher<'_, '_>) {
        operator(bencher, "field.hash", &[FIELD, ("algorithm", "hmac-sha256"), ("key", KEY)], &text_field(EMAIL));
    }

    #[divan::bench]
    fn hmac_bare(bencher: Bencher<'_, '_>) {
        let keyed = Hmac::<Sha256>::new_from_slice(KEY.as_bytes()).unwrap();
        library(bencher, || {
            let mut keyed = keyed.clone();
            keyed.update(black_box(EMAIL).as_bytes());
            hex(&keyed.finalize().into_bytes())
        });
    }

    #[divan::bench]
    fn xxh3(bencher: Bencher<'_, '_>) {
        operator(bencher, "field.hash", &[FIELD, ("algorithm", "xxh3")], &text_field(EMAIL));
    }

    #[divan::bench]
    fn xxh3_bare(bencher: Bencher<'_, '_>) {
        library(bencher, || format!("{:016x}", twox_hash::XxHash3_64::oneshot(black_box(EMAIL).as_bytes())));
    }
}

/// Processors that call no library.
mod own {
    use super::*;

    #[divan::bench]
    fn keyvalue_parse(bencher: Bencher<'_, '_>) {
        operator(bencher, "keyvalue.parse", &[PAYLOAD], &text(PAIRS));
    }

    #[divan::bench(args = ["text", "email"])]
    fn field_mask(bencher: Bencher<'_, '_>, kind: &str) {
        operator(bencher, "field.mask", &[FIELD, ("kind", kind)], &text_field(EMAIL));
    }

    #[divan::bench]
    fn field_mask_ip(bencher: Bencher<'_, '_>) {
        operator(bencher, "field.mask", &[FIELD, ("kind", "ip")], &text_field("203.0.113.7"));
    }

    #[divan::bench]
    fn field_flatten(bencher: Bencher<'_, '_>) {
        let inner = Object::from_iter([("city", Value::Text("London".into())), ("zip", Value::Int(7))]);
        let after = Object::from_iter([("name", Value::Text("ada".into())), ("address", Value::Map(Arc::new(inner)))]);
        operator(bencher, "field.flatten", &[PAYLOAD], &Data::Structured(Arc::new(after)));
    }

    #[divan::bench]
    fn field_default(bencher: Bencher<'_, '_>) {
        operator(bencher, "field.default", &[("field", ".Payload.After.country"), ("value", "GB")], &text_field("ada"));
    }

    #[divan::bench]
    fn sample(bencher: Bencher<'_, '_>) {
        operator(bencher, "sample", &[("percent", "10")], &text(ROW));
    }

    #[divan::bench]
    fn throttle(bencher: Bencher<'_, '_>) {
        operator(bencher, "throttle", &[("rate", "1000000000")], &text(ROW));
    }
}
