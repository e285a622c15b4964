use std::rc::Rc;
use std::time::Duration;

use anabranch_record::Record;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};

use super::*;
use crate::isolate::Isolate;
use crate::limits::Limits;
use crate::program::Program;
use crate::testing::{Wired, Worker, record, text};
use crate::wire::orders::write_order;

/// Records that differ in which fields there are, too.
const RECORDS: [&str; 4] = [
    r#"{"position":"cA==","operation":"update","metadata":{"a":"1","x.y":"2"},"key":{"id":1},"payload":{"before":{"a":0},"after":{"a":1,"b":"text","x.y":true,"o":{"n":1},"l":[1,{"n":2}]}}}"#,
    r#"{"position":"cQ==","operation":"create","metadata":{"b":"3"},"key":"a2V5","payload":{"before":null,"after":{"b":2.5,"n":null}}}"#,
    r#"{"position":"cg==","operation":"delete","metadata":{},"key":null,"payload":{"before":{"b":[],"o":{"n":5}},"after":null}}"#,
    r#"{"position":"cw==","operation":"snapshot","metadata":{"n":"4","a":"5"},"key":{"id":2,"o":{}},"payload":{"before":null,"after":"cmF3"}}"#,
];

/// Runs a script over records, one after the other.
fn made(script: &str) -> Vec<Result<Vec<String>, String>> {
    let mut worker = Worker::new(script);
    let shown = |made: Vec<Record>| made.iter().map(text).collect();
    let all = RECORDS.iter().cycle().take(6).map(|of| worker.run(&[record(of)]).remove(0).map(shown));
    all.collect()
}

/// The objects that are lasting under a script.
fn lasting_places(script: &str) -> Vec<RecordObject> {
    let program = Program { text: script.into(), name: "script".into() };
    let lines: Rc<dyn crate::log::LineReceiver> = Rc::new(crate::log::ServiceLog("js".into()));
    let isolate = Isolate::open(&program, Limits { time: Duration::from_secs(60) }, &lines).unwrap();
    let places = RecordObject::ALL.into_iter().filter(|place| part(*place, isolate.context()).is_some());
    places.collect()
}

#[test]
fn objects_last_where_the_script_cannot_keep_them() {
    let all = "function process(rec) { rec.Metadata.a = '1'; rec.Payload.After.b = rec.Key.c; return rec }";
    assert_eq!(lasting_places(all), RecordObject::ALL);
    let without = |kept: RecordObject| RecordObject::ALL.into_iter().filter(|place| *place != kept).collect();
    let cases: [(&str, Vec<RecordObject>); 6] = [
        ("let last; function process(rec) { last = rec; return rec }", Vec::new()),
        ("const process = (rec) => { f(rec.Payload); rec.Key.x; return rec }", without(RecordObject::Payload)),
        // The prototype of all objects has a say in these.
        ("function process(rec) { rec.Metadata.constructor = '1' }", without(RecordObject::Metadata)),
        ("Object.prototype.a = 1; function process(rec) { rec.Metadata.a }", without(RecordObject::Metadata)),
        // A wrapper is another function.
        ("let process = (rec) => rec; process = ((f) => (rec) => f(rec))(process)", Vec::new()),
        ("let last; function process(rec) { last = rec } Function.prototype.toString = () => 'x => x'", Vec::new()),
    ];
    for (script, expected) in cases {
        assert_eq!(lasting_places(script), expected, "{script}");
    }
}

fn wanted(body: &str) -> Wants {
    Wired::new(&format!("function process(rec) {{ {body} }}")).wants
}

#[test]
fn a_worker_is_sent_what_its_script_can_look_at() {
    let fields = |names: &[&str]| Want::fields(names.iter().copied());
    let both = "rec.Metadata['js'] = '1'; rec.Payload.After['processed'] = true; return rec;";
    let expected = Wants { metadata: fields(&["js"]), after: fields(&["processed"]), ..Wants::default() };
    assert_eq!(wanted(both), expected);
    // Of a record of hundreds of bytes.
    let mut record = record(RECORDS[0]);
    let mut frame = Vec::new();
    write_order(&mut frame, false, &[&mut record], &expected).unwrap();
    assert!(frame.len() < 16, "{} bytes", frame.len());

    let whole = |part: fn(&mut Wants) -> &mut Want| {
        let mut wants = Wants::default();
        *part(&mut wants) = Want::Whole;
        wants
    };
    for (body, expected) in [
        ("return null", Wants::default()),
        ("return rec.Operation === 'delete' ? null : rec", Wants::default()),
        ("f(rec.Position); return rec", Wants { position: true, ..Wants::default() }),
        ("JSON.stringify(rec.Payload.After); return rec", whole(|wants| &mut wants.after)),
        (
            "rec.Key.a = rec.Payload.Before.b; return rec",
            Wants { key: fields(&["a"]), before: fields(&["b"]), ..Wants::default() },
        ),
        ("f(rec.Payload)", Wants { before: Want::Whole, after: Want::Whole, ..Wants::default() }),
        // A value that is equal in both is unchanged and keeps its type.
        (
            "rec.Payload.After = { a: rec.Metadata.b }; return rec",
            Wants { metadata: fields(&["b"]), after: Want::Whole, ..Wants::default() },
        ),
        ("rec.Payload = { After: null }", Wants { before: Want::Whole, after: Want::Whole, ..Wants::default() }),
        ("const p = rec.Payload; p.Before = null", whole(|wants| &mut wants.before)),
        ("rec.Metadata = {}", whole(|wants| &mut wants.metadata)),
        ("[rec.Key] = [1]", whole(|wants| &mut wants.key)),
        ("return { Payload: { After: rec.Payload.After.a } }", Wants::ALL),
        ("return Record()", Wants::ALL),
        ("return rec.Metadata.a ? rec : f()", Wants::ALL),
        ("return [rec]", Wants::ALL),
        ("return rec[name]", Wants::ALL),
        // No object can be made for these once and for all.
        ("rec.Metadata.constructor = '1'", whole(|wants| &mut wants.metadata)),
    ] {
        assert_eq!(wanted(body), expected, "{body}");
    }
    assert_eq!(Wired::new("const process = (rec) => ({ Operation: 'create' })").wants, Wants::ALL);
    assert_eq!(Wired::new("const process = async (rec) => rec").wants, Wants::ALL);
}

#[test]
fn nothing_is_left_of_the_record_before() {
    let script = "let n = 0;
        function process(rec) {
          n++;
          if (n % 2) { rec.Metadata.odd = n; rec.Key = 'k'; rec.Operation = 'create' }
          if (n % 3 === 0) { rec.Payload.After.three = n; throw new Error('three') }
          rec.Metadata.seen = `${rec.Metadata.odd} ${rec.Metadata.a} ${rec.Payload.After && rec.Payload.After.three}`;
          return n === 4 ? null : rec;
        }";
    assert_eq!(lasting_places(script).len(), RecordObject::COUNT);
    insta::assert_debug_snapshot!(made(script));
}

#[test]
fn another_function_in_the_place_of_process_sees_objects_that_stay() {
    let script = "let kept = [];
         const other = (rec) => { kept.push(rec); rec.Metadata.kept = kept.map((rec) => rec.Metadata.n).join(); return rec };
         function process(rec) {
           if (rec.Metadata.n === '1') globalThis.process = other;
           return rec;
         }";
    let numbered = |n: usize| record(&RECORDS[2].replace("{}", &format!(r#"{{"n":"{n}","kept":"no"}}"#)));
    let kept = |record: &Record| record.metadata.get("kept").unwrap().to_string();
    let expected = ["no", "no", "2", "2,3", "2,3,4"];
    let mut worker = Worker::new(script);
    let found: Vec<_> = (0..5).map(|n| kept(&worker.one(numbered(n)).unwrap())).collect();
    assert_eq!(found, expected);
    // Half of these are there in part when it happens.
    let mut wired = Wired::new(script);
    assert_ne!(wired.wants, Wants::ALL);
    let numbered: Vec<Record> = (0..5).map(numbered).collect();
    let found: Vec<_> = wired.run(&numbered).into_iter().map(|made| kept(&made.unwrap()[0])).collect();
    assert_eq!((found, wired.wants), (expected.map(str::to_owned).to_vec(), Wants::ALL));
}

#[test]
fn an_object_that_a_prototype_gets_hold_of_stays_as_it_is() {
    for (define, touch) in [
        ("{ get() { seen.push(this) }, configurable: true }", "rec.Metadata.spy;"),
        ("{ set(value) { seen.push(this) }, configurable: true }", "rec.Metadata.spy = 1;"),
    ] {
        let script = format!(
            "const seen = [];
             let n = 0;
             function process(rec) {{
               if (++n === 2) Object.defineProperty(Object.prototype, 'spy', {define});
               rec.Metadata.n;
               if (n > 1) {{ {touch} }}
               rec.Metadata.seen = seen.map((metadata) => metadata.n).join();
               return rec;
             }}"
        );
        let numbered: Vec<Record> =
            (1..5).map(|n| record(&RECORDS[2].replace("{}", &format!(r#"{{"n":"{n}"}}"#)))).collect();
        let seen = |made: Vec<Result<Vec<Record>, String>>| -> Vec<String> {
            made.into_iter().map(|made| made.unwrap()[0].metadata.get("seen").unwrap().to_string()).collect()
        };
        let mut wired = Wired::new(&script);
        for found in [seen(Worker::new(&script).run(&numbered)), seen(wired.run(&numbered))] {
            assert_eq!(found[..2], ["", "2"], "{touch}");
            assert!(found[3].starts_with("2,"), "{touch}: {found:?}");
        }
        assert_eq!(wired.wants, Wants::ALL);
    }
}

fn one_of(texts: &'static [&'static str]) -> impl Strategy<Value = String> {
    select(texts).prop_map(str::to_owned)
}

fn object() -> impl Strategy<Value = String> {
    one_of(&["rec.Metadata", "rec.Payload.After", "rec.Payload.Before", "rec.Key", "m", "d", "rec.Payload?.After"])
}

fn field() -> impl Strategy<Value = String> {
    let field = prop_oneof![
        8 => one_of(&[".a", ".b", "['x.y']", ".o", ".l", ".n", ".missing"]),
        1 => one_of(&["?.a", "[name]", ".constructor", ".extra"]),
    ];
    (object(), field).prop_map(|(of, field)| of + &field)
}

fn target() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => field().prop_map(|field| field.replace("?.", ".")),
        1 => one_of(&["rec.Key", "rec.Payload.After", "rec.Payload", "rec.Metadata", "rec.Operation", "last", "m.b"]),
    ]
}

fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        4 => one_of(&["1", "'text'", "null", "true", "0.5", "[1, 'x']", "({ n: 7 })", "last", "undefined", "n"]),
        6 => field(),
        1 => object(),
        1 => one_of(&["rec", "rec.Payload", "f && f()", "last && last.a", "rec.Operation"]),
    ];
    let leaf = leaf.boxed();
    let both = (leaf.clone(), leaf.clone());
    let one = leaf.clone();
    prop_oneof![
        6 => leaf.clone(),
        2 => (both.clone(), one_of(&["+", "&&", "||", "??", "===", "=="]))
            .prop_map(|((a, b), how)| format!("(({a}) {how} ({b}))")),
        2 => (one, one_of(&["typeof ", "!", "String", "JSON.stringify", "Object.keys", "g"]))
            .prop_map(|(of, how)| format!("{how}({of})")),
        1 => both.prop_map(|(a, b)| format!("({{ a: {a}, o: {b} }})")),
        1 => (leaf.clone(), object()).prop_map(|(a, of)| format!("(({a}) in {of})")),
        1 => leaf.prop_map(|of| format!("`${{{of}}}`")),
    ]
}

fn statement() -> impl Strategy<Value = String> {
    let simple = prop_oneof![
        6 => (target(), value()).prop_map(|(to, value)| format!("{to} = {value}")),
        1 => (target(), value()).prop_map(|(to, value)| format!("{to} += {value}")),
        1 => target().prop_map(|to| format!("{to}++")),
        1 => target().prop_map(|to| format!("delete {to}")),
        1 => one_of(&[
            "f = () => rec.Metadata.a",
            "f = () => m.a",
            "for (const k in rec.Metadata) last = k",
            "Object.prototype.extra = n",
            "delete Object.prototype.extra",
            "delete rec.Key",
            "m = null",
            "return null",
            "throw n",
            "var { After, Before: b } = rec.Payload; last = b && b.a",
            "let r = rec; r.Metadata.b = '7'",
        ]),
    ];
    let simple = (simple, value(), 0..4).prop_map(|(simple, value, chance)| match chance {
        0 => format!("if ({value}) {{ {simple} }}"),
        _ => format!("{simple};"),
    });
    // The error of a step is compared too, but most steps succeed.
    (simple, 0..8).prop_map(|(simple, chance)| match chance {
        0 => simple,
        _ => format!("try {{ {simple} }} catch (e) {{ n += 1 }}"),
    })
}

fn script() -> impl Strategy<Value = String> {
    let end = prop_oneof![4 => one_of(&["rec"]), 1 => one_of(&["n % 2 ? rec : null", "[rec, rec]", "{ ...rec }"])];
    (vec(statement(), 1..8), end).prop_map(|(body, end)| {
        format!(
            "let n = 0, name = 'b', last = null, f = null;
             const g = (x) => typeof x === 'object' && x ? x.a : x;
             function process(rec) {{
               n++;
               var m = rec.Metadata, d = rec.Payload.After;
               {}
               return {end};
               /*keep*/
             }}",
            body.join("\n               ")
        )
    })
}

#[test]
fn scripts_make_the_same_of_objects_that_last_and_of_new_ones() {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(48);
    let lasting = Cell::new(0);
    TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(cases) })
        .run(&script(), |script| {
            let new = script.replace("/*keep*/", "return g(rec);");
            lasting.set(lasting.get() + usize::from(!lasting_places(&script).is_empty()));
            prop_assert!(lasting_places(&new).is_empty());
            prop_assert_eq!(made(&script), made(&new), "{}", script);
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
    assert!(lasting.get() > 0, "no script was of the kind that this is about");
}

#[test]
fn scripts_make_the_same_of_what_they_are_sent_and_of_whole_records() {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(48);
    let parts = Cell::new(0);
    // Each twice, so that neighbours share their metadata.
    let records: Vec<Record> = RECORDS.iter().flat_map(|of| vec![record(of); 2]).collect();
    TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(cases) })
        .run(&script(), |script| {
            let mut wired = Wired::new(&script);
            parts.set(parts.get() + usize::from(wired.wants != Wants::ALL));
            let shown = |made: Vec<Result<Vec<Record>, String>>| -> Vec<Result<Vec<String>, String>> {
                made.into_iter().map(|made| made.map(|made| made.iter().map(text).collect())).collect()
            };
            prop_assert_eq!(shown(Worker::new(&script).run(&records)), shown(wired.run(&records)), "{}", script);
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
    assert!(parts.get() > 0, "no script was of the kind that this is about");
}
