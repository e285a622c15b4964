use std::sync::Arc;

use anabranch_record::metadata::Metadata;
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Operation, Position, Record};
use bytes::Bytes;
use chrono::DateTime;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::testing::Worker;

fn with(value: Value) -> Record {
    let fields: Object = [("v", value)].into_iter().collect();
    Record::create(Position(Bytes::from_static(b"p")), Data::Absent, Data::from(fields))
}

fn v(record: &Record) -> &Value {
    record.payload.after.fields().and_then(|fields| fields.get("v")).unwrap()
}

fn time(text: &str) -> Value {
    Value::Time(DateTime::parse_from_rfc3339(text).unwrap().to_utc())
}

fn list(items: &[Value]) -> Value {
    Value::from(items.to_vec())
}

#[test]
fn every_kind_of_value_enters_as_what_it_is() {
    let mut worker = Worker::new(
        "const kind = (v) => v === null ? 'null'
           : typeof v !== 'object' ? `${typeof v} ${v}`
           : Array.isArray(v) ? `[${v.map(kind)}]`
           : v instanceof Date ? `date ${v.toISOString()}`
           : v instanceof Uint8Array ? `bytes ${Array.from(v)}`
           : `{${Object.entries(v).map(([k, v]) => k + ': ' + kind(v))}}`;
         function process(rec) {
           rec.Payload.After.v = kind(rec.Payload.After.v);
           return rec;
         }",
    );
    let cases = [
        (Value::Null, "null"),
        (Value::Bool(true), "boolean true"),
        (Value::Int(-7), "number -7"),
        (Value::Int(1 << 40), "number 1099511627776"),
        (Value::Int((1 << 53) - 1), "number 9007199254740991"),
        (Value::Int(1 << 53), "bigint 9007199254740992"),
        (Value::Int(i64::MIN), "bigint -9223372036854775808"),
        (Value::UInt(u64::MAX), "bigint 18446744073709551615"),
        (Value::Float(0.5), "number 0.5"),
        (Value::Float(3.0), "number 3"),
        (Value::Float(f64::NAN), "number NaN"),
        (Value::Float(f64::NEG_INFINITY), "number -Infinity"),
        (Value::from(""), "string "),
        (Value::from("aé😀"), "string aé😀"),
        (Value::Bytes(Arc::from([0, 255].as_slice())), "bytes 0,255"),
        (time("2024-02-29T12:00:00.123456789Z"), "date 2024-02-29T12:00:00.123Z"),
        (time("1969-12-31T23:59:59.9999Z"), "date 1969-12-31T23:59:59.999Z"),
        (list(&[]), "[]"),
        (list(&[Value::Int(1), list(&[Value::Null])]), "[number 1,[null]]"),
        (Value::from([("b", 1i64), ("a", 2)].into_iter().collect::<Object>()), "{a: number 2,b: number 1}"),
    ];
    for (value, expected) in cases {
        let found = worker.one(with(value.clone())).unwrap();
        assert_eq!(v(&found), &Value::from(expected), "{value:?}");
    }
}

#[test]
fn every_kind_of_value_leaves_as_what_it_is() {
    let cases = [
        ("null", Value::Null),
        ("false", Value::Bool(false)),
        ("1", Value::Int(1)),
        ("1.0", Value::Int(1)),
        ("2 ** 31", Value::Int(1 << 31)),
        ("2 ** 53 - 1", Value::Int((1 << 53) - 1)),
        ("2 ** 53", Value::Float(9_007_199_254_740_992.0)),
        ("-0", Value::Float(-0.0)),
        ("0.1", Value::Float(0.1)),
        ("1e300", Value::Float(1e300)),
        ("5n", Value::Int(5)),
        ("-(2n ** 63n)", Value::Int(i64::MIN)),
        ("2n ** 64n - 1n", Value::UInt(u64::MAX)),
        ("'aé😀'", Value::from("aé😀")),
        ("'é'", Value::from("é")),
        ("new Uint8Array([1, 2]).subarray(1)", Value::Bytes(Arc::from([2].as_slice()))),
        ("new Uint8Array([1, 2]).buffer", Value::Bytes(Arc::from([1, 2].as_slice()))),
        ("new Float64Array([1, 2.5])", list(&[Value::Int(1), Value::Float(2.5)])),
        ("new Date(1)", time("1970-01-01T00:00:00.001Z")),
        ("[1, , undefined]", list(&[Value::Int(1), Value::Null, Value::Null])),
        ("({b: [], a: {}, u: undefined, [Symbol('s')]: 1})", {
            Value::from([("a", Value::from(Object::new())), ("b", list(&[]))].into_iter().collect::<Object>())
        }),
        ("({1: 'x', __proto__: {inherited: 1}})", Value::from([("1", "x")].into_iter().collect::<Object>())),
        ("Object.assign(Object.create(null), {a: 1})", Value::from([("a", 1i64)].into_iter().collect::<Object>())),
        ("new (class A { x = 1; get y() { return 2 } })()", {
            Value::from([("x", 1i64)].into_iter().collect::<Object>())
        }),
        ("(function () { return {...arguments} })('x')", Value::from([("0", "x")].into_iter().collect::<Object>())),
    ];
    for (script, expected) in cases {
        let script = format!("function process(rec) {{ rec.Payload.After.v = {script}; return rec }}");
        let found = Worker::new(&script).one(with(Value::Null)).unwrap();
        assert_eq!(format!("{:?}", v(&found)), format!("{expected:?}"), "{script}");
    }
}

#[test]
fn an_object_of_a_wrong_kind_takes_the_place_of_nothing() {
    let kinds = [
        ("new Map([['x', 'y']])", "is a Map: use Object.fromEntries(map)"),
        ("new Set(['a'])", "is a Set: use Array.from(set)"),
        ("new Date()", "is a Date"),
        ("['q']", "is an array"),
        ("[]", "is an array"),
        ("new Uint8Array([1])", "is a typed array"),
        ("new Float64Array([1])", "is a typed array"),
        ("new ArrayBuffer(1)", "is an ArrayBuffer"),
        ("(() => 1)", "is a function"),
        ("Object.assign(new Error('x'), { Key: 'k' })", "is an Error: use String(error)"),
        ("/x/", "is a regular expression"),
        ("Promise.resolve({})", "is a promise"),
        ("new Proxy({ After: 'a' }, {})", "is a Proxy of the script"),
        ("new String('x')", "is an object of a kind that records cannot hold"),
        ("new WeakMap()", "is an object of a kind that records cannot hold"),
    ];
    let places = [
        ("rec.Metadata = OBJECT; return rec", "rec.Metadata"),
        ("return { ...rec, Metadata: OBJECT }", "rec.Metadata"),
        ("rec.Payload = OBJECT; return rec", "rec.Payload"),
        ("return { ...rec, Payload: OBJECT }", "rec.Payload"),
        ("rec.Payload.After = OBJECT; return rec", "rec.Payload.After"),
        ("rec.Key = OBJECT; return rec", "rec.Key"),
        ("return [OBJECT]", "result[0]"),
        ("return OBJECT", "rec"),
    ];
    let mut wrong = Vec::new();
    for (place, path) in places {
        for (object, said) in kinds {
            // Bytes are a key or a side of a payload, a list is several records, and a promise is awaited.
            let fits = match path {
                "rec.Key" | "rec.Payload.After" => {
                    said == "is a typed array" && object.contains("Uint8") || object.contains("Buffer")
                }
                "result[0]" => said == "is a function",
                "rec" => ["is an array", "is a promise", "is a function"].contains(&said),
                _ => false,
            };
            if fits {
                continue;
            }
            let script = format!("function process(rec) {{ {} }}", place.replace("OBJECT", object));
            let mut record = with(Value::from("v"));
            record.metadata = [("a", "1")].into_iter().collect();
            let found = Worker::new(&script).one(record);
            let expected = format!("script_result: script: {path} {said}");
            if !found.as_ref().is_err_and(|error| error.starts_with(&expected)) {
                wrong.push((script, expected, found));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_date_keeps_all_digits_wherever_it_is_put() {
    let exact = time("2024-02-29T12:00:00.742586427Z");
    for script in [
        "return rec",
        "rec.Payload.After = { ...rec.Payload.After, n: 1 }; return rec",
        "rec.Payload.After.v = rec.Payload.After.t; return rec",
        "const { v, ...rest } = rec.Payload.After; rec.Payload.After = { ...rest, v: rest.t }; return rec",
        "return { ...rec, Payload: { After: { v: rec.Payload.After.list[0].t } } }",
        "const made = Record(); made.Payload = { After: StructuredData(rec.Payload.After) }; return made",
        "rec.Payload.After.v = Object.freeze(rec.Payload.After.t); return rec",
        "const t = rec.Payload.After.t; t.setTime(0); t.setTime(1709208000742); rec.Payload.After.v = t; return rec",
        // In the same millisecond, but another time.
        "rec.Payload.After.v = rec.Payload.After.near; rec.Payload.After.v = rec.Payload.After.t; return rec",
        "rec.Payload.After.near = rec.Payload.After.t; rec.Payload.After.v = rec.Payload.After.near; return rec",
    ] {
        let fields = [("t", exact.clone())].into_iter().collect::<Object>();
        let near = time("2024-02-29T12:00:00.742Z");
        let entries =
            [("v", exact.clone()), ("t", exact.clone()), ("list", list(&[Value::from(fields)])), ("near", near)];
        let mut record = with(Value::Null);
        record.payload.after = Data::from(entries.into_iter().collect::<Object>());
        let made = Worker::new(&format!("function process(rec) {{ {script} }}")).one(record).unwrap();
        assert_eq!(v(&made), &exact, "{script}");
    }
}

#[test]
fn of_two_times_in_one_millisecond_each_stays_itself() {
    let (whole, exact) = (time("2024-02-29T12:00:00.742Z"), time("2024-02-29T12:00:00.742586427Z"));
    let mut worker = Worker::new(
        "function process(rec) {
           [rec.Payload.After.v, rec.Payload.After.w] = [rec.Payload.After.w, rec.Payload.After.v];
           return rec;
         }",
    );
    let mut record = with(Value::Null);
    record.payload.after = Data::from([("v", exact.clone()), ("w", whole.clone())].into_iter().collect::<Object>());
    let made = worker.one(record).unwrap();
    assert_eq!((v(&made), made.payload.after.fields().unwrap().get("w")), (&whole, Some(&exact)));
}

#[test]
fn a_date_that_a_script_changed_or_made_has_milliseconds() {
    for (script, expected) in [
        ("const t = rec.Payload.After.v; t.setTime(t.getTime() + 1)", "2024-02-29T12:00:00.743Z"),
        ("rec.Payload.After.v.setUTCHours(0)", "2024-02-29T00:00:00.742Z"),
        ("rec.Payload.After = { v: new Date(rec.Payload.After.v) }", "2024-02-29T12:00:00.742Z"),
        (
            "const d = new Date(0);
             Object.defineProperties(d, Object.getOwnPropertyDescriptors(rec.Payload.After.v));
             rec.Payload.After.v = d",
            "1970-01-01T00:00:00Z",
        ),
    ] {
        let script = format!("function process(rec) {{ {script}; return rec }}");
        let made = Worker::new(&script).one(with(time("2024-02-29T12:00:00.742586427Z"))).unwrap();
        assert_eq!(v(&made), &time(expected), "{script}");
    }
}

#[test]
fn a_date_that_a_script_keeps_has_all_digits_for_the_next_record() {
    let mut worker = Worker::new(
        "let last = null;
         function process(rec) {
           const now = rec.Payload.After.v;
           rec.Payload.After = { v: last, keys: Object.keys(now).length, json: JSON.stringify(now) };
           last = now;
           return rec;
         }",
    );
    let times = ["2024-02-29T12:00:00.000000001Z", "1960-01-01T00:00:00.999999999Z"].map(time);
    let made = times.clone().map(|time| worker.one(with(time)).unwrap());
    assert_eq!((v(&made[0]), v(&made[1])), (&Value::Null, &times[0]));
    let fields = made[1].payload.after.fields().unwrap();
    assert_eq!(fields.get("keys"), Some(&Value::Int(0)));
    assert_eq!(fields.get("json"), Some(&Value::from(r#""1960-01-01T00:00:00.999Z""#)));
}

#[test]
fn bytes_of_a_large_payload_can_be_made_text() {
    let mut worker = Worker::new(
        "function process(rec) {
           rec.Payload.After = { n: String.fromCharCode.apply(null, rec.Key).length };
           return rec;
         }",
    );
    let key = Data::Raw(Bytes::from(vec![b'x'; 1 << 20]));
    let made = worker.one(Record::create(Position::default(), key, Data::Absent)).unwrap();
    assert_eq!(made.payload.after.fields().unwrap().get("n"), Some(&Value::Int(1 << 20)));
}

fn key() -> impl Strategy<Value = Str> {
    prop_oneof![4 => "[abc]", 2 => "[0-9]{1,3}|__proto__|constructor|length|toString", 1 => any::<String>()]
        .prop_map(Str::from)
}

fn times() -> impl Strategy<Value = Value> {
    (any::<i32>(), 0..1_999_999_999u32)
        .prop_filter_map("a time", |(s, n)| DateTime::from_timestamp(i64::from(s) * 3000, n))
        .prop_map(Value::Time)
}

fn values(json: bool) -> BoxedStrategy<Value> {
    let float = any::<f64>().prop_filter("JSON has finite numbers", move |v| !json || v.is_finite());
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-(1i64 << 53) + 1..1 << 53).prop_map(Value::from),
        float.prop_map(Value::from),
        (-9i32..9).prop_map(|v| Value::Float(f64::from(v))),
        any::<String>().prop_map(Value::from),
    ];
    let leaf = match json {
        true => leaf.boxed(),
        false => prop_oneof![
            4 => leaf,
            1 => any::<i64>().prop_map(Value::from),
            1 => any::<u64>().prop_map(Value::from),
            1 => vec(any::<u8>(), 0..20).prop_map(|b| Value::Bytes(Arc::from(b))),
            1 => times(),
        ]
        .boxed(),
    };
    let nested = leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![vec(inner.clone(), 0..4).prop_map(Value::from), object(inner).prop_map(Value::from)]
    });
    nested.boxed()
}

fn object(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Object> {
    btree_map(key(), value, 0..5).prop_map(|entries| entries.into_iter().collect())
}

fn records(json: bool) -> impl Strategy<Value = Record> {
    let data = move || {
        prop_oneof![
            1 => Just(Data::Absent),
            1 => vec(any::<u8>(), 0..40).prop_map(|b| Data::Raw(Bytes::from(b))),
            3 => object(values(json)).prop_map(Data::from),
        ]
    };
    let metadata = btree_map(key(), any::<String>(), 0..4);
    (vec(any::<u8>(), 0..12), 0..4usize, metadata, data(), data(), data()).prop_map(
        |(position, operation, metadata, key, before, after)| {
            let mut record = Record::create(Position(position.into()), key, after);
            record.operation = Operation::ALL[operation];
            record.metadata = metadata.into_iter().collect::<Metadata>();
            record.payload.before = before;
            record
        },
    )
}

/// Runs a script on random records.
fn each(script: &str, json: bool, check: impl Fn(&Record, &Record)) {
    let worker = std::cell::RefCell::new(Worker::new(script));
    TestRunner::new(Config::with_cases(200))
        .run(&records(json), |record| {
            let made = worker.borrow_mut().one(record.clone()).map_err(TestCaseError::fail)?;
            check(&record, &made);
            Ok(())
        })
        .unwrap();
}

fn same(before: &Record, after: &Record) {
    assert_eq!(format!("{before:?}"), format!("{after:?}"));
}

#[test]
fn a_script_that_touches_nothing_changes_nothing() {
    each("function process(rec) { return rec }", false, same);
}

#[test]
fn a_script_that_reads_everything_changes_nothing() {
    let script = "const walk = (v) => {
           if (typeof v !== 'object' || v === null) return;
           if (Array.isArray(v)) v.forEach(walk);
           else for (const k of Object.keys(v)) walk(v[k]);
         };
         function process(rec) { walk(rec); return rec }";
    each(script, false, same);
}

#[test]
fn a_script_that_writes_back_what_it_read_changes_nothing() {
    let script = "const again = (v) => {
           if (typeof v !== 'object' || v === null || v instanceof Date || v instanceof Uint8Array) return;
           for (const k of Object.keys(v)) { again(v[k]); v[k] = v[k]; }
         };
         function process(rec) { again(rec); return {...rec} }";
    each(script, false, same);
}

#[test]
fn a_copy_of_times_is_equal() {
    let worker = std::cell::RefCell::new(Worker::new(
        "function process(rec) { rec.Payload.After = { v: { ...rec.Payload.After.v, n: null } }; return rec }",
    ));
    TestRunner::new(Config::with_cases(200))
        .run(&object(prop_oneof![times(), vec(times(), 0..3).prop_map(Value::from)]), |mut times| {
            times.insert("n", Value::Null);
            let made = worker.borrow_mut().one(with(Value::from(times.clone()))).map_err(TestCaseError::fail)?;
            prop_assert_eq!(v(&made), &Value::from(times));
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_copy_by_way_of_json_is_equal() {
    // A number of JavaScript knows not whether it was a float.
    fn plain(value: &Value) -> Value {
        match value {
            Value::Float(v) if v.fract() == 0.0 && v.abs() < 9e15 => Value::Int(*v as i64),
            Value::List(items) => Value::from(items.iter().map(plain).collect::<Vec<_>>()),
            Value::Map(map) => Value::from(map.iter().map(|(k, v)| (k.clone(), plain(v))).collect::<Object>()),
            other => other.clone(),
        }
    }
    let plain_data = |data: &Data| match data {
        Data::Structured(map) => match plain(&Value::Map(map.clone())) {
            Value::Map(map) => Data::Structured(map),
            other => panic!("{other:?}"),
        },
        other => other.clone(),
    };
    let script = "const copy = (v) => v === null || v instanceof Uint8Array ? v : JSON.parse(JSON.stringify(v));
         function process(rec) {
           rec.Metadata = copy(rec.Metadata);
           rec.Key = copy(rec.Key);
           rec.Payload = { Before: copy(rec.Payload.Before), After: copy(rec.Payload.After) };
           return rec;
         }";
    each(script, true, |before, after| {
        assert_eq!(after.metadata, before.metadata);
        assert_eq!(plain_data(&after.key), plain_data(&before.key));
        assert_eq!(plain_data(&after.payload.before), plain_data(&before.payload.before));
        assert_eq!(plain_data(&after.payload.after), plain_data(&before.payload.after));
    });
}

/// Runs a script on random records, once as it is and once where all that is touched has become properties of the
/// objects at which the script looks, and accessors are compared for each record.
fn both_ways(body: &str) {
    let settled = format!(
        "Object.defineProperty(new Proxy({{}}, {{}}), 'x', {{ value: 1 }});
         const settle = (v) => {{ if (v && typeof v === 'object') delete v.nosuch; return v; }};
         function inner(rec) {{ {body} }}
         function process(rec) {{
           [rec.Metadata, rec.Key, rec.Payload.Before, rec.Payload.After].forEach(settle);
           return inner(rec);
         }}"
    );
    let settled = std::cell::RefCell::new(Worker::new(&settled));
    let quick = std::cell::RefCell::new(Worker::new(&format!("function process(rec) {{ {body} }}")));
    // Where a script threw differs, what it threw does not.
    let shown = |made: Result<Vec<Record>, String>| match made {
        Ok(records) => format!("{records:?}"),
        Err(why) => why.split(" (at ").next().unwrap_or_default().to_owned(),
    };
    TestRunner::new(Config::with_cases(60))
        .run(&records(false), |record| {
            let records = [record];
            let [a, b] = [&quick, &settled].map(|worker| shown(worker.borrow_mut().run(&records).remove(0)));
            prop_assert_eq!(a, b, "{}", body);
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_script_makes_the_same_of_a_record_however_its_fields_are_kept() {
    for body in [
        "rec.Metadata.js = '1'; if (rec.Payload.After) rec.Payload.After.done = true; return rec",
        "const m = rec.Metadata; m.a = m.b ?? 'none'; m[1] = 2; m.a += m.a; delete m.b; m.b = 'again'; return rec",
        "const a = rec.Payload.After ?? {}; a.a = a.b; a.b = a.c; delete a.a; a.a = a.c; a[7] = 7; return rec",
        "const a = rec.Payload.After ?? {}; for (let i = 0; i < 40; i++) a['f' + i] = a['f' + (i - 1)] ?? i; return rec",
        "const a = rec.Payload.After ?? {}; a.s = Object.keys(a).length + ('a' in a) + ('nosuch' in a); return rec",
        "const a = rec.Payload.After ?? {}; a.a = 1; a.s = JSON.stringify(Object.entries(rec.Metadata)); return rec",
        "const a = rec.Payload.After ?? {}; a.a = 1; Object.freeze(a); a.a = 2; a.b = 2; return rec",
        "'use strict'; const m = rec.Metadata; m.x = 'y'; Object.seal(m); m.x = 'z'; m.y = 'z'; return rec",
        "const a = rec.Payload.After ?? {}; a.x = undefined; a.a = undefined; a.y = null; return rec",
        "const a = rec.Payload.After ?? {}; Object.defineProperty(a, 'a', {get() { return this.b }}); return rec",
        "const a = rec.Payload.After ?? {}; a.a; Object.setPrototypeOf(a, {set b(v) { this.c = v }}); a.b = 1; return rec",
        "const a = rec.Payload.After ?? {}; a.me = a; return rec",
        "const a = rec.Payload.After ?? {}; a.__proto__ = {p: 1}; a.constructor = 'c'; a.s = String(a.p); return rec",
        "const heir = Object.create(rec.Payload.After ?? {}); heir.a = 1; heir.b = heir.a; return {...rec, Key: heir}",
        "rec.Payload.Before = rec.Payload.After; rec.Payload.After = {...rec.Metadata}; return [rec, rec]",
        "const a = rec.Payload.After ?? {}; a[Symbol('s')] = 1; a.a = new Date(0); a.b = RawData('x'); return rec",
        "const k = rec.Key; rec.Metadata.k = typeof k; rec.Key = k; if (k) k.a = k.a; return rec",
    ] {
        both_ways(body);
    }
}
