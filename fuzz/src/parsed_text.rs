//! Any text is parsed or fails its record, by each processor that parses texts, and a record that fails stays as it was.
//! What `csv.decode` makes of a row is the same after `csv.encode`.

use std::sync::{Arc, LazyLock};

use anabranch_ops::{csv, parse, time};
use anabranch_plugin::operator::{Configured, Decision, OperatorKind};
use anabranch_plugin::testing::configured::{Opened, host, processor};
use anabranch_record::{Data, Record};

use super::text;

type Settings<'a> = &'a [(&'a str, &'a str)];

const AFTER: (&str, &str) = ("field", ".Payload.After");

fn configured(kind: &Arc<dyn OperatorKind>, settings: Settings<'_>) -> Configured {
    let settings: Vec<_> = [AFTER].iter().chain(settings).copied().collect();
    processor(kind, &settings).expect("valid settings")
}

static PARSERS: LazyLock<Vec<Configured>> = LazyLock::new(|| {
    vec![
        configured(&parse::keyvalue::kind(), &[]),
        configured(&parse::keyvalue::kind(), &[("keyDelimiter", ":"), ("pairDelimiter", ",")]),
        configured(&parse::grok::kind(), &[("pattern", "%{COMBINEDAPACHELOG}")]),
        configured(&parse::grok::kind(), &[("pattern", "%{NUMBER:n:float} %{QUOTEDSTRING:q}")]),
        configured(&parse::regex::kind(), &[("pattern", r"^(?<a>\S+) (?<b>.*)$")]),
    ]
});

static ROWS: LazyLock<[(Configured, Configured); 2]> = LazyLock::new(|| {
    [[("columns", "a,b,c"), ("delimiter", ",")], [("columns", "a"), ("delimiter", "\\t")]]
        .map(|settings| (configured(&csv::decode::kind(), &settings), configured(&csv::encode::kind(), &settings)))
});

/// Processes the data; `None` if the record fails, which must not change it.
fn process(operator: &Configured, after: &Data) -> Option<Data> {
    let mut record = Record::default();
    record.payload.after = after.clone();
    let mut records = vec![record];
    let decisions = Opened::new(operator, host()).expect("it opens").process(&mut records, None);
    let found = records.remove(0).payload.after;
    match decisions.as_slice() {
        [] => Some(found),
        [(0, Decision::Fail(_))] => {
            assert_eq!(found, *after, "a failed record changed");
            None
        }
        other => panic!("{other:?}"),
    }
}

pub(crate) fn check(input: &[u8]) {
    let text = text(input);
    let data = Data::text(text);
    for parser in PARSERS.iter() {
        process(parser, &data);
    }
    for (decode, encode) in ROWS.iter() {
        if let Some(decoded) = process(decode, &data) {
            let encoded = process(encode, &decoded).expect("texts can be encoded");
            assert_eq!(process(decode, &encoded), Some(decoded), "{encoded:?}");
        }
    }
    // The first line is a layout, the rest a time of it.
    if let Some((layout, at)) = text.split_once('\n') {
        let settings = [("field", ".Payload.After.at"), ("layout", layout)];
        let object = [("at", anabranch_record::value::Value::from(at))];
        let data = Data::from(object.into_iter().collect::<anabranch_record::value::Object>());
        for kind in [time::parse::kind(), time::format::kind()] {
            if let Ok(operator) = processor(&kind, &settings) {
                process(&operator, &data);
            }
        }
    }
}
