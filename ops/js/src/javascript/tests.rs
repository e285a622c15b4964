use anabranch_record::value::Value;
use anabranch_record::{Data, Operation, Record};

use crate::testing::{Worker, configure, record, text};

/// The scripts of the pipeline that turns documents into rows of a vector database.
mod documents {
    pub(super) const PAIR: &str = r#"
        function process(rec) {
          const { chunks, embeddings } = rec.Payload.After;
          let items = StructuredData();
          items["items"] = chunks.map((text, i) => ({ text, embedding: embeddings.embeddings[i] }));
          rec.Payload.After = items;
          return rec;
        }"#;
    pub(super) const NAME: &str = r#"
        function process(rec) {
          rec.Metadata["file_id"] = crypto.randomUUID();
          return rec;
        }"#;
    pub(super) const ROW: &str = r#"
        function process(rec) {
          rec.Metadata["recfmt.collection"] = "file_items";
          let row = StructuredData();
          row["file_id"] = rec.Metadata["file_id"];
          row["user_id"] = "7f9c24e5-2b31-4d7e-9d0a-8f1f4a1d0e01";
          row["content"] = rec.Payload.After.text;
          row["local_embedding"] = JSON.stringify(rec.Payload.After.embedding);
          row["tokens"] = rec.Payload.After.text.split(/\s+/).filter((word) => word.length > 0).length;
          rec.Metadata["file_name"] = String.fromCharCode.apply(null, rec.Key);
          rec.Payload.After = row;
          rec.Key = StructuredData();
          return rec;
        }"#;
    pub(super) const FILE: &str = r#"
        function process(rec) {
          const path = rec.Metadata["file_name"];
          rec.Metadata["recfmt.collection"] = "files";
          rec.Payload.After = {
            id: rec.Metadata["file_id"],
            user_id: "7f9c24e5-2b31-4d7e-9d0a-8f1f4a1d0e01",
            description: rec.Metadata["title"],
            file_path: path,
            name: path.split("/").pop(),
            size: 0,
            tokens: 0,
            type: "application/pdf",
          };
          rec.Key = StructuredData();
          return rec;
        }"#;
    pub(super) const COLLECTION: &str = r#"
        function process(rec) {
          rec.Metadata["recfmt.collection"] = "collection_files";
          let key = StructuredData();
          key["file_id"] = rec.Metadata["file_id"];
          key["collection_id"] = "c";
          rec.Key = key;
          let after = StructuredData();
          after["user_id"] = rec.Payload.After.user_id;
          rec.Payload.After = after;
          return rec;
        }"#;
    pub(super) const WORKSPACE: &str = r#"
        function process(rec) {
          rec.Metadata["recfmt.collection"] = "file_workspaces";
          rec.Key = { file_id: rec.Metadata["file_id"], workspace_id: "w" };
          rec.Payload.After = { user_id: rec.Payload.After.user_id };
          return rec;
        }"#;
}

#[test]
fn the_scripts_of_the_documents_pipeline_run() {
    let document = r#"{"position":"cA==","operation":"create","metadata":{"title":"A report"},"key":"ZG9jcy9hL3JlcG9ydC5wZGY=","payload":{"before":null,"after":{"chunks":["one two","drei  vier fünf "],"embeddings":{"embeddings":[[0.5,-1.0,2.0],[1e-7,3.25,0.0]]}}}}"#;
    let paired = Worker::new(documents::PAIR).json(document).unwrap();
    let items = r#""after":{"items":[{"embedding":[0.5,-1,2],"text":"one two"},{"embedding":[1e-7,3.25,0],"text":"drei  vier fünf "}]}"#;
    assert!(paired.contains(items), "{paired}");
    let named = Worker::new(documents::NAME).one(record(&paired)).unwrap();
    let id = named.metadata.get("file_id").unwrap().to_string();
    let parts: Vec<usize> = id.split('-').map(str::len).collect();
    assert_eq!((parts.as_slice(), &id[14..15]), (&[8, 4, 4, 4, 12][..], "4"), "{id}");
    assert!(id.bytes().all(|b| b == b'-' || b.is_ascii_digit() || (b'a'..=b'f').contains(&b)), "{id}");
    assert!("89ab".contains(&id[19..20]), "{id}");

    let mut piece = named.clone();
    let item = match &named.payload.after.fields().unwrap().get("items").unwrap() {
        Value::List(items) => items[1].as_map().unwrap().clone(),
        other => panic!("{other:?}"),
    };
    piece.payload.after = Data::from(item);
    let row = Worker::new(documents::ROW).one(piece).unwrap();
    let metadata = |collection: &str| {
        format!(
            r#""metadata":{{"file_id":"{id}","file_name":"docs/a/report.pdf","recfmt.collection":"{collection}","title":"A report"}}"#
        )
    };
    let user = r#""user_id":"7f9c24e5-2b31-4d7e-9d0a-8f1f4a1d0e01""#;
    let expected = |collection: &str, key: &str, after: &str| {
        let metadata = metadata(collection);
        format!(
            r#"{{"position":"cA==","operation":"create",{metadata},"key":{key},"payload":{{"before":null,"after":{after}}}}}"#
        )
    };
    let after = format!(
        r#"{{"content":"drei  vier fünf ","file_id":"{id}","local_embedding":"[1e-7,3.25,0]","tokens":3,{user}}}"#
    );
    assert_eq!(text(&row), expected("file_items", "{}", &after));

    let made = |script| text(&Worker::new(script).one(row.clone()).unwrap());
    let after = format!(
        r#"{{"description":"A report","file_path":"docs/a/report.pdf","id":"{id}","name":"report.pdf","size":0,"tokens":0,"type":"application/pdf",{user}}}"#
    );
    assert_eq!(made(documents::FILE), expected("files", "{}", &after));
    let (after, key) =
        (format!("{{{user}}}"), |what: &str| format!(r#"{{"{what}_id":"{}","file_id":"{id}"}}"#, &what[..1]));
    assert_eq!(made(documents::COLLECTION), expected("collection_files", &key("collection"), &after));
    let key = format!(r#"{{"file_id":"{id}","workspace_id":"w"}}"#);
    assert_eq!(made(documents::WORKSPACE), expected("file_workspaces", &key, &after));
}

const SAMPLE: &str = r#"{"position":"cA==","operation":"update","metadata":{"a":"1","b":"2"},"key":"a2V5","payload":{"before":{"x":1},"after":{"id":7,"in":{"deep":{"n":1.0}},"name":"ann","tags":["a","b"]}}}"#;

fn changed(script: &str) -> Result<String, String> {
    Worker::new(&format!("function process(rec) {{ {script}\nreturn rec }}")).json(SAMPLE)
}

#[test]
fn what_a_script_changes_changes() {
    let cases = [
        ("return rec", r#""x":1"#),
        ("rec.Metadata.c = 5; delete rec.Metadata.a; return rec", r#""metadata":{"b":"2","c":"5"}"#),
        ("rec.Metadata = {z: 'y'}; return rec", r#""metadata":{"z":"y"}"#),
        ("rec.Payload.After = 'text'; return rec", r#""after":"dGV4dA==""#),
        ("rec.Payload.After = RawData('text'); return rec", r#""after":"dGV4dA==""#),
        ("rec.Payload.After = new RawData([1, 2, 258]); return rec", r#""after":"AQIC""#),
        ("rec.Payload.After = null; return rec", r#""after":null"#),
        ("delete rec.Payload.After; return rec", r#""after":null"#),
        (
            "delete rec.Payload.After.id; delete rec.Payload.After.in; return rec",
            r#""after":{"name":"ann","tags":["a","b"]}"#,
        ),
        ("rec.Payload.After.id = undefined; return rec", r#""after":{"in":{"deep":{"n":1.0}},"name":"#),
        ("delete rec.Payload.After.id; rec.Payload.After.id = 8; return rec", r#""after":{"id":8,"in":"#),
        ("rec.Payload.After.in.deep.n += 0.5; return rec", r#""in":{"deep":{"n":1.5}}"#),
        ("rec.Payload.After.in.deep.n += 1; return rec", r#""in":{"deep":{"n":2}}"#),
        ("rec.Payload.After.tags.push('c'); return rec", r#""tags":["a","b","c"]"#),
        ("rec.Payload.After.tags[0] = rec.Payload.After.in; return rec", r#""tags":[{"deep":{"n":1.0}},"b"]"#),
        ("rec.Payload = {After: {a: 1}}; return rec", r#""payload":{"before":null,"after":{"a":1}}"#),
        ("rec.Payload.Before = rec.Payload.After; return rec", r#""payload":{"before":{"id":7"#),
        ("rec.Key[0] = 75; return rec", r#""key":"S2V5""#),
        ("rec.Key = {id: rec.Payload.After.id}; return rec", r#""key":{"id":7}"#),
        ("rec.Operation = 'delete'; return rec", r#""operation":"delete""#),
        ("return {...rec, Key: 'k'}", r#""metadata":{"a":"1","b":"2"},"key":"aw==","payload":{"before":{"x":1},"#),
        (
            "let r = Record(); r.Payload.After = {n: 1}; r.Metadata.m = 'x'; return r",
            r#"{"position":"cA==","operation":"create","metadata":{"m":"x"},"key":null,"payload":{"before":null,"after":{"n":1}}}"#,
        ),
        ("rec.Payload.After.keys = Object.keys(rec.Payload.After); return rec", r#""keys":["id","in","name","tags"]"#),
        (
            "rec.Payload.After = {t: JSON.stringify(rec)}; return rec",
            r#"\"Metadata\":{\"a\":\"1\",\"b\":\"2\"},\"Key\":{\"0\":107"#,
        ),
        (
            "rec.Payload.After = {...rec.Payload.After, id: 1}; return rec",
            r#""after":{"id":1,"in":{"deep":{"n":1.0}},"name":"ann","tags":["a","b"]}"#,
        ),
        (
            "const {id, ...rest} = rec.Payload.After; rec.Payload.After = rest; return rec",
            r#""after":{"in":{"deep":{"n":1.0}},"name":"ann","tags":["a","b"]}"#,
        ),
        (
            "rec.Payload.After = {h: ['id' in rec.Payload.After, rec.Payload.After.hasOwnProperty('id'), 'no' in rec.Payload.After, Object.hasOwn(rec.Payload.After, 'no')]}; return rec",
            r#""h":[true,true,false,false]"#,
        ),
        (
            "rec.Payload.After = {t: new TextDecoder().decode(rec.Key), n: rec.Key.length, s: `${rec.Payload.After.name}!`}; return rec",
            r#""after":{"n":3,"s":"ann!","t":"key"}"#,
        ),
        (
            "rec.Payload.After = {t: btoa('a?b'), u: atob('YT9i'), e: Array.from(new TextEncoder().encode('é'))}; return rec",
            r#""after":{"e":[195,169],"t":"YT9i","u":"a?b"}"#,
        ),
        (
            "rec.Payload.After = {same: rec.Payload.After === rec.Payload.After, p: rec.Payload === rec.Payload}; return rec",
            r#""after":{"p":true,"same":true}"#,
        ),
        (
            "for (const k in rec.Metadata) rec.Payload.After[k] = rec.Metadata[k]; return rec",
            r#""after":{"a":"1","b":"2","id":7,"#,
        ),
        ("Object.freeze(rec.Payload.After); rec.Payload.After.id = 9; return rec", r#""after":{"id":7,"#),
        (
            "Object.defineProperty(rec.Payload.After, 'g', {get() { return 4 }, enumerable: true}); return rec",
            r#""g":4"#,
        ),
        ("Object.defineProperty(rec.Payload.After, 'id', {enumerable: false}); return rec", r#""after":{"in":"#),
        (
            "rec.Payload.After = Object.create(rec.Payload.After); rec.Payload.After.own = 1; return rec",
            r#""after":{"own":1}"#,
        ),
        (
            "rec.Payload.After.s = new String('x'); rec.Payload.After.d = new Date(0); rec.Payload.After.f = new Float32Array([0.5]); return rec",
            r#""d":"1970-01-01T00:00:00Z","f":[0.5],"#,
        ),
        (
            "rec.Payload.After = JSON.parse(JSON.stringify(rec.Payload.After)); return rec",
            r#""after":{"id":7,"in":{"deep":{"n":1}},"name":"ann","tags":["a","b"]}"#,
        ),
        (
            "Object.defineProperty(rec, 'Key', {value: 'k', enumerable: false}); return rec",
            r#""key":"aw==","payload":{"before":{"x":1}"#,
        ),
        ("Object.defineProperty(rec, 'Key', {get() { return {id: 1} }}); return rec", r#""key":{"id":1}"#),
        ("delete rec.Key; return rec", r#""key":null"#),
        ("delete rec.Key; rec.Key = 'k'; return rec", r#""key":"aw==""#),
        ("delete rec.Payload; rec.Payload = {After: 'a'}; return rec", r#""payload":{"before":null,"after":"YQ=="}"#),
        ("Object.freeze(rec); rec.Payload.After.id = 9; return rec", r#""after":{"id":9,"#),
        (
            "const heir = Object.create(rec); heir.Key = 'k'; heir.other = 1; rec.Metadata.k = heir.Key; return rec",
            r#""metadata":{"a":"1","b":"2","k":"k"},"key":"a2V5""#,
        ),
        (
            "rec.Metadata.k = Object.create(rec).Operation + Object.keys(rec) + ('Key' in rec) + rec.hasOwnProperty('Key') + (rec instanceof Object); return rec",
            r#""k":"updatePosition,Operation,Metadata,Key,Payloadtruetruetrue""#,
        ),
        (
            "rec.Metadata.k = String(rec) + rec.Payload + rec.constructor.name + typeof rec.nothing; return rec",
            r#""k":"[object Object][object Object]Objectundefined""#,
        ),
        ("for (const k in rec) rec.Metadata.k = k; return rec", r#""k":"Payload""#),
        ("const {Metadata, ...rest} = rec; return rest", r#""metadata":{},"key":"a2V5","payload":{"before":{"x":1},"#),
        ("rec.Key = rec.Payload; return rec", r#""key":{"After":{"id":7,"#),
        ("rec.Payload.After = rec.Metadata; return rec", r#""after":{"a":"1","b":"2"}"#),
        ("rec.Metadata = rec.Payload.Before; return rec", r#""metadata":{"x":"1"}"#),
        (
            "const m = rec.Metadata; delete m.a; m.a = '3'; m[7] = true; return rec",
            r#""metadata":{"7":"true","a":"3","b":"2"}"#,
        ),
        (
            "rec.Metadata.b = rec.Metadata.a; rec.Metadata.a = rec.Metadata.a; return rec",
            r#""metadata":{"a":"1","b":"1"}"#,
        ),
        (
            "Object.assign(rec, {Key: 'k', Operation: 'delete'}); return rec",
            r#""operation":"delete","metadata":{"a":"1","b":"2"},"key":"aw==""#,
        ),
        (
            "rec.Payload.After.big = 2n ** 63n; rec.Payload.After.neg = -(2n ** 63n); return rec",
            r#""big":9223372036854775808,"#,
        ),
    ];
    let wrong: Vec<_> = cases
        .into_iter()
        .map(|(script, part)| (script, part, changed(script)))
        .filter(|(_, part, found)| !found.as_ref().is_ok_and(|found| found.contains(part)))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn what_no_record_can_hold_fails_at_its_path() {
    let found: Vec<_> = [
        "return 5",
        "return 'text'",
        "return process",
        "return {}",
        "return {Payload: {After: {}}, payload: 1}",
        "rec.payload = {}; return rec",
        "rec.Payload.after = {}; return rec",
        "rec.Payload.After = 5; return rec",
        "rec.Payload.After = [1]; return rec",
        "rec.Payload.After.f = () => 1; return rec",
        "rec.Payload.After.in.deep['a b'] = [1, Symbol('x')]; return rec",
        "rec.Payload.After.n = 0 / 0; return rec",
        "rec.Payload.After.n = -1 / 0; return rec",
        "rec.Payload.After.n = 2n ** 64n; return rec",
        "rec.Payload.After.t = '\\ud800'; return rec",
        "rec.Payload.After['\\ud800'] = 1; return rec",
        "rec.Payload.After.me = rec.Payload.After; return rec",
        "let a = []; a.push([a]); rec.Payload.After.a = a; return rec",
        "let a = []; for (let i = 0; i < 1000; i++) a = [a]; rec.Payload.After.a = a; return rec",
        "let a = {}; for (let i = 0; i < 1000; i++) a = {a}; rec.Payload.After = a; return rec",
        "rec.Payload.After = {get x() { throw new Error('no') }}; return rec",
        "rec.Payload.After.m = new Map(); return rec",
        "rec.Payload.After.m = new Set(); return rec",
        "rec.Payload.After.d = new Date(NaN); return rec",
        "rec.Payload.After.e = new Error('x'); return rec",
        "rec.Payload.After.p = new Proxy({}, {}); return rec",
        "rec.Payload.After.r = /x/; return rec",
        "let a = []; a.length = 4e9; rec.Payload.After.a = a; return rec",
        "rec.Metadata.x = undefined; return rec",
        "rec.Metadata.x = {}; return rec",
        "rec.Metadata = 5; return rec",
        "rec.Operation = 'upsert'; return rec",
        "rec.Operation = 1; return rec",
        "rec.Position = RawData('other'); return rec",
        "rec.Payload = 1; return rec",
        "return [rec, 5]",
        "rec[0] = 1; return rec",
        "rec[Symbol.iterator] = 1; return rec",
        "Object.assign(rec.Payload, {Afer: 1}); return rec",
        "Object.defineProperty(rec, 'key', {value: 1}); return rec",
        "Object.defineProperty(rec.Payload, 5, {value: 1}); return rec",
        "'use strict'; Object.freeze(rec); rec.Key = 'k'; return rec",
        "delete rec.Operation; return rec",
        "Object.getOwnPropertyDescriptor(rec, 'Key').get.call({}); return rec",
        "return new Promise(() => 1)",
    ]
    .into_iter()
    .map(|script| format!("{script}\n    {}", changed(script).unwrap_err()))
    .collect();
    insta::assert_snapshot!(found.join("\n"));
}

#[test]
fn a_thrown_error_names_its_line() {
    let found: Vec<_> = [
        "\n\n  throw new Error('boom')",
        "\n  throw new TypeError('x', {cause: 1})",
        "\n  'x'.repeat(-1)",
        "\n  throw 'text'",
        "\n  throw {code: 5}",
        "\n  rec.Payload.After.no.way",
        "\n  const f = () => { null.x };\n  [1].map(f)",
        "\n  class Odd extends Error { get name() { return 'Odd' } }\n  throw new Odd('x')",
        "\n  JSON.parse('{')",
        "\n  missing()",
        "\n  return Promise.reject(new Error('late'))",
        "\n  new TextDecoder('utf-8', {fatal: true}).decode(RawData([255]))",
    ]
    .into_iter()
    .map(|script| format!("{script}\n    {}", changed(script).unwrap_err()))
    .collect();
    insta::assert_snapshot!(found.join("\n"));
}

#[test]
fn a_script_drops_splits_and_awaits() {
    let mut worker = Worker::new(
        "let n = 0;
         async function process(rec) {
           n++;
           const { name } = await Promise.resolve(rec.Payload.After);
           if (name === 'drop') return null;
           if (name === 'nothing') return;
           if (name === 'split') return ['a', 'b'].map((Key) => ({ ...rec, Key, Payload: { After: { n } } }));
           rec.Metadata.n = n;
           return rec;
         }",
    );
    let named = |name: &str| {
        let mut record = record(SAMPLE);
        record.payload.after = Data::from([("name", name)].into_iter().collect::<anabranch_record::value::Object>());
        record
    };
    let made = worker.run(&["keep", "drop", "nothing", "split", "keep"].map(named));
    let shown = |records: &Vec<Record>| records.iter().map(text).collect::<Vec<_>>();
    let shown: Vec<_> = made.iter().map(|made| made.as_ref().map(shown)).collect();
    assert!(shown[0].as_ref().unwrap()[0].contains(r#""n":"1""#), "{shown:?}");
    assert_eq!((shown[1].as_deref(), shown[2].as_deref()), (Ok(&[][..]), Ok(&[][..])));
    let split = shown[3].as_ref().unwrap();
    assert_eq!(split.len(), 2);
    assert!(split[1].starts_with(r#"{"position":"cA==","operation":"update","metadata":{"a":"1","b":"2"},"key":"Yg==","payload":{"before":null,"after":{"n":4}}}"#), "{split:?}");
    assert!(shown[4].as_ref().unwrap()[0].contains(r#""n":"5""#), "globals stay: {shown:?}");
}

#[test]
fn settings_are_checked() {
    let found = |settings: &[(&str, &str)]| {
        let findings = configure(settings).err().unwrap();
        findings.iter().map(|finding| format!("{}: {}", finding.code, finding.message)).collect::<Vec<_>>()
    };
    let good = "function process(rec) { return rec }";
    assert_eq!(found(&[]), ["script.missing: custom.javascript needs a script"]);
    assert_eq!(
        found(&[("script", good), ("script.path", "x.js")]),
        ["script.twice: both script and script.path are set"]
    );
    // Whoever reads the pipeline file reads the script: here nothing is opened, not even what is there.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.js");
    std::fs::write(&path, good).unwrap();
    let path = path.to_str().unwrap();
    assert!(found(&[("script.path", path)])[0].starts_with("script.unreadable: cannot read the script"));
    assert_eq!(found(&[("script", "function process( {")]).len(), 1);
    assert_eq!(record(SAMPLE).operation, Operation::Update);
}

#[test]
fn a_record_that_a_script_keeps_stays_what_it_was() {
    let mut worker = Worker::new(
        "let last = null;
         function process(rec) {
           const of_last = last && last.Payload.After.id + last.Metadata.a + last.Operation;
           last = rec;
           rec.Metadata.last = String(of_last);
           return rec;
         }",
    );
    let numbered = |n: usize| record(&SAMPLE.replace(r#""id":7"#, &format!(r#""id":{n}"#)));
    let last = |made: Record| made.metadata.get("last").unwrap().to_string();
    let found: Vec<_> = (0..3).map(|n| last(worker.one(numbered(n)).unwrap())).collect();
    assert_eq!(found, ["null", "01update", "11update"]);
    let mut worker = Worker::new("let first; function process(rec) { first ??= rec; return first }");
    assert!(worker.one(numbered(0)).is_ok());
    let mut other = numbered(1);
    other = Record::from_json(text(&other).replace("cA==", "cQ==").as_bytes()).unwrap();
    assert!(worker.one(other).unwrap_err().contains("has the position of another record"));
}

#[test]
fn metadata_of_many_entries_is_as_that_of_few() {
    for entries in [1, 8, 9, 40] {
        let mut before = record(SAMPLE);
        before.metadata = (0..entries).map(|n| (format!("k{n}"), format!("v{n}"))).collect();
        let mut worker = Worker::new(
            "function process(rec) {
               rec.Metadata.seen = Object.keys(rec.Metadata).length + rec.Metadata.k0 + ('k0' in rec.Metadata);
               delete rec.Metadata.k0;
               rec.Metadata.new = 1;
               return rec;
             }",
        );
        let made = worker.one(before.clone()).unwrap();
        let mut expected = before.metadata.clone();
        expected.remove("k0");
        expected.insert("seen", format!("{entries}v0true"));
        expected.insert("new", "1");
        assert_eq!(made.metadata, expected, "{entries}");
    }
}

#[test]
fn a_replaced_accessor_is_noticed_however_it_was_replaced() {
    for replace in [
        "Object.defineProperty(rec, 'Key', { get })",
        "Object.defineProperties(rec, { Key: { get } })",
        "Reflect.defineProperty(rec, 'Key', { get })",
        "Object.defineProperty(new Proxy(rec, {}), 'Key', { get })",
        "rec.__defineGetter__('Key', get)",
        "Object.prototype.__defineGetter__.call(rec, 'Key', get)",
        "Reflect.apply(Object.defineProperty, null, [rec, 'Key', { get }])",
        "Object.defineProperty(rec.Payload, 'After', { get })",
        "rec.Payload.__defineGetter__('After', get)",
    ] {
        let script = format!(
            "const get = () => ({{ id: 9 }});
             function process(rec) {{
               if (rec.Metadata.a === '1') {replace};
               rec.Metadata.a = '2';
               return rec;
             }}"
        );
        let mut worker = Worker::new(&script);
        let made = worker.json(SAMPLE).unwrap();
        assert!(made.contains(r#"{"id":9}"#), "{replace}: {made}");
        // The next record has its own again.
        let other = SAMPLE.replace(r#""a":"1""#, r#""a":"3""#);
        assert_eq!(worker.json(&other).unwrap(), SAMPLE.replace(r#""a":"1""#, r#""a":"2""#), "{replace}");
    }
}

#[test]
fn the_functions_that_are_watched_look_as_they_did() {
    let mut worker = Worker::new(
        "const seen = [Object.defineProperty, Object.defineProperties, Reflect.defineProperty, {}.__defineSetter__]
           .map((f) => [f.name, f.length, typeof f.prototype, Object.keys(Object).length]);
         function process(rec) {
           rec.Payload.After = { seen: seen.join(), own: Object.defineProperty({}, 'x', { value: 1 }).x };
           try { Object.defineProperty(1, 'x', {}) } catch (e) { rec.Payload.After.error = e.name }
           return rec;
         }",
    );
    let made = worker.json(SAMPLE).unwrap();
    let expected = r#""after":{"error":"TypeError","own":1,"seen":"defineProperty,3,undefined,0,defineProperties,2,undefined,0,defineProperty,3,undefined,0,__defineSetter__,2,undefined,0"}"#;
    assert!(made.contains(expected), "{made}");
}

#[test]
fn metadata_has_the_names_of_the_reference_service_too() {
    let before = r#"{"position":"cA==","operation":"create","metadata":{"recfmt.collection":"a","svc.x":"1"},"key":null,"payload":{"before":null,"after":null}}"#;
    for (script, metadata) in [
        // Named in the script, and computed.
        (
            "rec.Metadata.seen = rec.Metadata['opencdc.collection'] + rec.Metadata['conduit.x']",
            r#""recfmt.collection":"a","seen":"a1","svc.x":"1""#,
        ),
        (
            "const m = rec.Metadata; const k = 'opencdc.' + 'collection'; m.seen = m[k] + (k in m)",
            r#""recfmt.collection":"a","seen":"atrue","svc.x":"1""#,
        ),
        ("rec.Metadata['opencdc.collection'] = 'b'", r#""recfmt.collection":"b","svc.x":"1""#),
        (
            "rec.Metadata['opencdc.collection'] = rec.Metadata['recfmt.collection'] + '!'; rec.Metadata.y = rec.Metadata['recfmt.collection']",
            r#""recfmt.collection":"a!","svc.x":"1","y":"a!""#,
        ),
        ("delete rec.Metadata['opencdc.collection']", r#""svc.x":"1""#),
        ("rec.Metadata = { ...rec.Metadata, 'opencdc.collection': 'c' }", r#""recfmt.collection":"c","svc.x":"1""#),
        ("rec.Metadata = { 'opencdc.version': 'v1' }", r#""recfmt.version":"v1""#),
    ] {
        let expected = before.replace(r#""recfmt.collection":"a","svc.x":"1""#, metadata);
        let made = Worker::new(&format!("function process(rec) {{ {script}; return rec }}")).json(before);
        assert_eq!(made, Ok(expected), "{script}");
    }
}

/// Returns the findings of a script after a source of raw data, or of fields.
fn findings(script: &str, after: anabranch_plugin::flow::Shape) -> String {
    use anabranch_plugin::flow::{Flow, RecordShape, Shape};

    let configured =
        configure(&[("script", &format!("function process(rec) {{\n  {script}\n  return rec\n}}\nfunction f() {{}}"))])
            .unwrap();
    let mut flow = Flow::new(RecordShape::create(Shape::PLAIN, after));
    configured.flow(&mut flow);
    let fails = if flow.fails() { "fails; " } else { "" };
    format!("{fails}{}", flow.messages().collect::<Vec<_>>().join("; "))
}

#[test]
fn mistakes_about_records_are_told() {
    use anabranch_plugin::flow::{Fields, Shape};

    let structured = || Shape::structured(Fields::any());
    for (script, after, expected) in [
        ("rec.Payload.After.x = 1", Shape::RAW, "fails; script:2:3: this is lost: .Payload.After is raw data"),
        ("rec.Payload.After.x += 1", Shape::RAW, "fails; script:2:3: this is lost"),
        ("if (rec.Payload.After.price > 5) return null", Shape::RAW, "script:2:7: this is always undefined"),
        ("const { price } = rec.Payload.After", Shape::RAW, "script:2:11: this is always undefined"),
        ("f(rec.Payload.After.a.b)", Shape::RAW, "fails; script:2:5: the script fails here"),
        ("rec.Payload.After = JSON.parse(rec.Payload.After)", Shape::RAW, "fails; script:2:33: the script fails here"),
        (
            "rec.Payload.After = JSON.parse(rec.Payload.After)",
            structured(),
            "fails; script:2:33: the script fails here",
        ),
        ("if (rec.Key == '1') return null", Shape::RAW, "script:2:7: this is always false"),
        ("f(rec.Payload.Before.x)", Shape::RAW, "fails; script:2:5: the script fails here: .Payload.Before is absent"),
        (
            "rec.payload.after.x = 1",
            structured(),
            "fails; script:2:3: the script fails here: a record has no \"payload\"",
        ),
        (
            "rec.Payload.after = {}",
            structured(),
            "fails; script:2:3: the script fails here: a payload has no \"after\"",
        ),
        ("if (rec.operation === 'create') return null", structured(), "script:2:7: this is always undefined"),
        (
            "rec.Operation = 'insert'",
            structured(),
            "fails; script:2:3: the script fails here: \"insert\" is not an operation",
        ),
        ("if (rec.Operation == 'CREATE') return null", structured(), "script:2:24: no record has the operation"),
    ] {
        let found = findings(script, after);
        assert!(found.starts_with(expected), "{script}\n  {found}");
    }
    for (script, after) in [
        ("rec.Payload.After.x = rec.Payload.After.y.z", structured()),
        ("rec.Payload.After.x = 1", Shape::decoded()),
        ("rec.Payload.After.x = 1", Shape::unknown()),
        ("rec.Metadata.n = String(rec.Payload.After.length + rec.Payload.After[0])", Shape::RAW),
        (
            "rec.Payload.After = JSON.parse(new TextDecoder().decode(rec.Payload.After)); rec.Payload.After.x = 1",
            Shape::RAW,
        ),
        ("if (rec.Payload.Before) f(rec.Payload.Before.x)", Shape::RAW),
        ("if (rec.Operation === 'delete' && rec.hasOwnProperty('Key')) return null", Shape::RAW),
        ("rec.Operation = 'snapshot'; rec.Key = { id: 1 }; rec.Key.id = 2", structured()),
    ] {
        assert_eq!(findings(script, after), "", "{script}");
    }
}

#[test]
fn a_time_limit_that_is_too_short_is_told() {
    use anabranch_plugin::flow::{Flow, RecordShape, Shape};

    let told = |timeout| {
        let script = ("script", "function process(rec) { return rec }");
        let mut flow = Flow::new(RecordShape::create(Shape::RAW, Shape::RAW));
        configure(&[script, ("timeout", timeout)]).unwrap().flow(&mut flow);
        flow.messages().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(told("1us"), ["a script has hardly time to begin in 1µs: records may fail"]);
    assert_eq!(told("1ms"), [] as [&str; 0]);
}
