use std::io::Write as _;

use anabranch_record::json::write_data;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;

fn records(format: BodyFormat, body: &str) -> Result<Vec<String>, String> {
    let shown = |data: Data| match data {
        Data::Raw(bytes) => format!("raw {}", String::from_utf8_lossy(&bytes)),
        data => {
            let mut text = Vec::new();
            write_data(&data, &mut text).unwrap();
            String::from_utf8(text).unwrap()
        }
    };
    let records = format.records(&Bytes::copy_from_slice(body.as_bytes()), 3).map_err(|error| error.to_string())?;
    Ok(records.into_iter().map(shown).collect())
}

fn texts(texts: &[&str]) -> Result<Vec<String>, String> {
    Ok(texts.iter().map(|&text| text.to_owned()).collect())
}

#[test]
fn each_format_has_its_records() {
    assert_eq!(records(BodyFormat::Raw, ""), texts(&["raw "]));
    assert_eq!(records(BodyFormat::Raw, "[1]\n"), texts(&["raw [1]\n"]));
    assert_eq!(records(BodyFormat::Json, r#" {"a":1} "#), texts(&[r#"{"a":1}"#]));
    assert_eq!(records(BodyFormat::Json, "[1, 2]"), texts(&["raw [1, 2]"]));
    assert_eq!(records(BodyFormat::Array, r#"[{"a":1},2,"x"]"#), texts(&[r#"{"a":1}"#, "raw 2", "raw \"x\""]));
    assert_eq!(records(BodyFormat::Array, "[]"), texts(&[]));
    assert_eq!(records(BodyFormat::Ndjson, "{\"a\":1}\r\n\n  2 \n"), texts(&[r#"{"a":1}"#, "raw 2"]));
    assert_eq!(records(BodyFormat::Ndjson, "\n \n"), texts(&[]));
}

#[test]
fn an_invalid_part_refuses_the_whole_body() {
    let told = |format, body: &str| records(format, body).unwrap_err();
    assert_eq!(told(BodyFormat::Array, r#"{"a":1}"#), "the body is not an array, but map");
    assert_eq!(told(BodyFormat::Array, "[1,2,3,4]"), "the body has more than 3 records");
    assert_eq!(told(BodyFormat::Ndjson, "1\n2\n3\n\n4"), "the body has more than 3 records");
    assert!(told(BodyFormat::Json, "").starts_with("the body is not valid JSON: "));
    assert!(told(BodyFormat::Array, "[1,").starts_with("the body is not valid JSON: "));
    assert!(told(BodyFormat::Ndjson, "{}\n\n{").starts_with("line 3 of the body is not valid JSON: "));
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn a_compressed_body_takes_no_more_memory_than_it_may() {
    let body = vec![b' '; 1 << 20];
    let packed = gzip(&body);
    assert!(packed.len() < 2000);
    let mut reserved = 0;
    let whole = inflate(&packed, 1 << 20, |more| {
        reserved += more;
        true
    });
    assert_eq!(whole.unwrap(), body);
    assert!(reserved <= (1 << 20) + 1, "{reserved}");

    let mut reserved = 0;
    let limited = inflate(&packed, 1000, |more| {
        reserved += more;
        true
    });
    assert_eq!(limited, Err(NotInflated::TooLarge));
    assert!(reserved <= 1001, "{reserved}");

    assert_eq!(inflate(&packed, 1 << 20, |_| false), Err(NotInflated::Busy));
    for broken in [&packed[..packed.len() - 1], b"", b"not gzip"] {
        assert_eq!(inflate(broken, 1 << 20, |_| true), Err(NotInflated::Invalid));
    }
    // Several members are one body.
    assert_eq!(inflate(&[gzip(b"a"), gzip(b"b")].concat(), 9, |_| true).unwrap(), &b"ab"[..]);
}
