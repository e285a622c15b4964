//! What is said of statements that fail in every call, and of values that no record can hold.

use anabranch_plugin::flow::{Fields, Shape};

use super::{body, check, of, structured};
use crate::testing::{Wired, record};

/// Scripts in which `d` is the data after a change, and what is said of them.
fn check_all(cases: &[(&str, &str)]) {
    let scripts: Vec<String> = cases.iter().map(|(text, _)| format!("const d = rec.Payload.After; {text}")).collect();
    let cases: Vec<_> =
        scripts.iter().zip(cases).map(|(text, (_, said))| (text.as_str(), structured(), *said)).collect();
    check(&cases, body);
    for (text, _, said) in cases {
        if said.starts_with("fails;") {
            fails(&format!("function process(rec) {{ {text}\n return rec }}"));
        }
    }
}

/// Runs a script in which every record fails.
fn fails(script: &str) {
    let records = [
        r#""operation":"create","payload":{"before":null,"after":{"id":1,"a":"x","name":"n","amount":2.5}}"#,
        r#""operation":"update","metadata":{"n":"1"},"key":{"k":1},"payload":{"before":null,"after":{"a":{"b":[1]}}}"#,
        r#""operation":"create","payload":{"before":null,"after":{}}"#,
    ];
    let records = records.map(|fields| record(&format!(r#"{{"position":"cA==",{fields}}}"#)));
    for result in Wired::new(script).run(&records) {
        assert!(result.is_err(), "{script}: {result:?}");
    }
}

#[test]
fn statements_that_always_fail_are_errors() {
    check_all(&[
        ("let out; out.push(d.id);", "fails; the script fails here: `out` is undefined, which has no fields"),
        ("const [a] = undefined;", "fails; the script fails here: this is undefined, which has no elements"),
        ("const { a } = null;", "fails; the script fails here: this is null, which has no fields"),
        ("const n = 1n + 1;", "fails; the script fails here: a BigInt does not calculate with other values"),
        ("d.n = 1n * 2.5;", "fails; the script fails here: a BigInt does not calculate"),
        ("d.n = BigInt(d.id) + 1;", "fails; the script fails here: a BigInt does not calculate"),
        ("d.n = +1n;", "fails; the script fails here: `+` does not convert a BigInt"),
        ("let m = null; m.a = 1;", "fails; the script fails here: `m` is null, which has no fields"),
        ("for (const x of 5) { d.n = x }", "fails; the script fails here: `5` is a number, which has no elements"),
        (
            "for (const x of { a: 1 }) { d.n = x }",
            "fails; the script fails here: `{ a: 1 }` is an object, which has no",
        ),
        ("const [a, b] = 7;", "fails; the script fails here: `7` is a number, which has no elements"),
        ("d.n = Math.max(...7);", "fails; the script fails here: `7` is a number"),
        ("d.n = 0; [1, 2].foreach(x => { d.n += x; });", "fails; the script fails here: a list has no method foreach"),
        ("const out = []; out.add(d.id); d.ids = out;", "fails; the script fails here: a list has no method add"),
        ("d.n = [1, 2].sum();", "fails; the script fails here: a list has no method sum"),
        ("d.t = Date.now().toISOString();", "fails; the script fails here: a number has no method toISOString"),
        ("d.t = d.name.trim().toUppercase();", "fails; the script fails here: a text has no method toUppercase"),
        ("d.total = d.amount.toFixed(101);", "fails; the script fails here: toFixed accepts 0 to 100 digits, not 101"),
        ("const c = 'abc' in 'abcdef';", "fails; the script fails here: `in` searches for a field of an object"),
        ("const c = d instanceof 'object';", "fails; the script fails here: `instanceof` needs a class"),
        (
            "d.x = [1].forEach(x => x).length;",
            "fails; the script fails here: `[1].forEach(x => x)` is undefined, which",
        ),
        ("d.x = [].pop().trim();", "fails; the script fails here: `[].pop()` is undefined, which has no fields"),
        ("rec.Metadata.x = [].pop().trim();", "fails; the script fails here: `[].pop()` is undefined, which has no"),
        ("const T = { DE: 1 }; d.x = T.get(d.a);", "fails; the script fails here: an object has no method get"),
        ("const T = { DE: 1 }; if (T.has(d.a)) return null;", "fails; the script fails here: an object has no method"),
        ("const L = new Set(['a']); if (!L.includes(d.a)) return null;", "fails; the script fails here: a Set has no"),
        ("const M = new Map([['a', 1]]); d.x = M.find(d.a);", "fails; the script fails here: a Map has no method find"),
        (
            "const RE = /^a/; return RE.match(d.a) ? rec : null;",
            "fails; the script fails here: a regular expression has",
        ),
        ("const RE = new RegExp(d.p); d.m = RE.match(d.a);", "fails; the script fails here: a regular expression has"),
        ("if (new RegExp('(').test(d.a)) return null;", "fails; the script fails here: this is not a valid regular"),
        ("d.m = new RegExp('(?i)abc').test(d.a);", "fails; the script fails here: this is not a valid regular"),
        ("d.m = new RegExp('(?P<y>..)').test(d.a);", "fails; the script fails here: this is not a valid regular"),
        ("d.m = new RegExp('*', 'g').test(d.a);", "fails; the script fails here: this is not a valid regular"),
        ("d.m = RegExp('*.txt').test(d.a);", "fails; the script fails here: this is not a valid regular"),
        ("const P = '[a'; d.m = new RegExp(P, 'i').test(d.a);", "fails; the script fails here: this is not a valid"),
        ("d.m = new RegExp('a', 'gx').test(d.a);", "fails; the script fails here: this is not a valid regular"),
        ("return [rec, null];", "fails; process returns a list with null, which is not a record"),
        ("return [rec, undefined];", "fails; process returns a list with undefined, which is not a record"),
        ("return [d];", "fails; process returns a list with a part of the record, which is not a record"),
        ("return [rec, rec.Payload.After];", "fails; process returns a list with a part of the record"),
    ]);
}

#[test]
fn values_that_no_record_can_hold_are_errors() {
    check_all(&[
        ("rec.Metadata.n = null;", "fails; the script fails here: a metadata entry is text, not null"),
        ("rec.Metadata['file.path'] = undefined; rec.Metadata.b = '1';", "fails; the script fails here: a metadata"),
        ("rec.Payload.After = { x: NaN };", "fails; the script fails here: this is NaN, which a record cannot hold"),
        ("rec.Payload.After = { ...d, x: Number('1,5') };", "fails; the script fails here: `Number('1,5')` is NaN"),
        ("rec.Payload.After = { x: parseInt('abc') };", "fails; the script fails here: `parseInt('abc')` is NaN"),
        ("rec.Payload.After = { x: undefined + 1 };", "fails; the script fails here: `undefined + 1` is NaN"),
        ("rec.Payload.After = { x: 1/0 };", "fails; the script fails here: `1/0` is infinite"),
        ("rec.Payload.After = { x: [Math.max()] };", "fails; the script fails here: `Math.max()` is infinite"),
        ("const t = parseFloat('EUR 5'); rec.Payload.After = { ...d, t };", "fails; the script fails here: `t` is NaN"),
        (
            "rec.Payload.After = Object.keys(d);",
            "fails; the script fails here: a key or a payload is an object, a text",
        ),
        ("rec.Payload.After = Object.entries(d);", "fails; the script fails here: a key or a payload is an object"),
        ("rec.Payload.After = d.a > 5;", "fails; the script fails here: a key or a payload is an object, a text or"),
        ("rec.Payload.After = parseInt(d.a);", "fails; the script fails here: a key or a payload is an object, a text"),
        (
            "const n = Number(d.a); rec.Key = n;",
            "fails; the script fails here: a key or a payload is an object, a text",
        ),
        ("rec.Key = !d.a;", "fails; the script fails here: a key or a payload is an object, a text or bytes, not true"),
        ("rec.Metadata.x = Object.keys(d);", "fails; the script fails here: a metadata entry is text, not a list"),
        ("rec.Metadata.x = new Set(d.a);", "fails; the script fails here: a metadata entry is text, not a Set"),
        ("rec.Key = { d: new Date('13/13/2020') };", "fails; the script fails here: `new Date('13/13/2020')` is an"),
    ]);
}

#[test]
fn statements_that_some_records_pass_are_no_errors() {
    check_all(&[
        ("let out; if (d.a) out = []; if (out) out.push(1);", ""),
        ("let out = null; d.list.forEach(x => { out = x }); d.n = out.n;", ""),
        ("let last = null; for (last of d.list) { d.n = 1 } d.last = last.sku;", ""),
        ("let out; if (d.a) { out.push(1) }", ""),
        ("const m = undefined; d.a = m?.a; d.b = m && m.a;", ""),
        ("if (d.a) return null; rec.Metadata.n = null;", ""),
        ("try { null.a } catch { d.n = 1 }", ""),
        ("const f = () => null.a; d.f = typeof f;", ""),
        ("const get = k => k; const T = { get }; d.x = T.get(d.a);", ""),
        ("const T = { has(k) { return k } }; d.x = T.has(d.a); d.y = T.hasOwnProperty(d.a);", ""),
        ("const T = {}; T.__defineGetter__('n', () => 1); d.x = T.n;", ""),
        ("const T = {}; T[`get`] = k => k; d.x = T.get(d.a); d.y = T.find?.(d.a);", ""),
        ("const log = { ...console }; log.info(d.a);", ""),
        ("const L = new Set(['a']); d.x = L.has(d.a); d.y = [...L]; for (const l of L) { d.z = l }", ""),
        ("const M = new Map(); M.set(d.a, 1); d.x = M.get(d.a); M.forEach(x => { d.y = x });", ""),
        ("const RE = /a/g; d.x = RE.test(d.a); d.y = RE.exec(d.a); d.z = RE.toString() + RE.source;", ""),
        ("d.m = new RegExp('^a/[b(]$', 'gi').test(d.a); d.n = new RegExp('ä+').test(d.a); d.o = new RegExp('=');", ""),
        ("d.m = new RegExp(d.p).test(d.a); d.n = new RegExp('a', d.f); d.o = new RegExp('', 'g');", ""),
        ("d.x = [1].pop().trim(); const l = []; l.push('a'); d.y = l.pop().trim();", ""),
        ("rec.Key = Object.keys(d).join(','); rec.Metadata.n = Number(d.a);", ""),
        ("rec.Key = Number(d.a); rec.Key = { n: 1 };", ""),
        ("rec.Key = d.a > 5 ? { n: 1 } : null;", ""),
        ("const t = parseFloat('EUR 5'); rec.Payload.After = { t, ...d }; ", ""),
        ("if (d.a) return [rec, Record()]; return d.b ? [rec] : null;", ""),
        ("d.n = '' + 1n; d.m = 1n + d.t; d.c = 1n < 2;", ""),
        ("const out = []; out.Size = () => 1; d.n = out.Size();", ""),
        ("const out = []; out['size'] = () => 1; d.n = out.size();", ""),
        ("d.n = [...new Set(d.tags)].length; d.u = [...'abc'].at(0);", ""),
        ("const [a, b] = d.pair; const [c] = [a, b].values(); d.c = c;", ""),
        ("d.n = d.amount.toFixed(100); d.t = d.amount.toPrecision(1);", ""),
        ("rec.Metadata.n = null; delete rec.Metadata.n;", ""),
        ("rec.Metadata.n = null; rec.Metadata.n = '1';", ""),
        ("rec.Metadata.n = null; rec.Metadata = { a: '1' };", ""),
        ("rec.Metadata.n = null; clean(rec); function clean(r) { delete r.Metadata.n }", ""),
        ("rec.Metadata.n = null; if (d.a) return null;", ""),
        ("rec.Metadata.n = null; return Record();", ""),
        ("rec.Payload.After = { x: NaN }; rec.Payload.After.x = 1;", ""),
        ("rec.Payload.After = { x: NaN, ...d };", ""),
        (
            "rec.Payload.After = { x: parseInt('abc', 16), y: Number(''), z: Number('0x1f'), d: new Date('2024-05-06') };",
            "",
        ),
        ("rec.Payload.After = null;", ""),
    ]);
}

#[test]
fn variables_without_a_value_in_every_call_fail() {
    const SAID: &str = "fails; the script fails here: `last` is";
    let process = |body: &str| format!("function process(rec) {{ const d = rec.Payload.After; {body} return rec }}");
    let scripts = [
        ("let last = null;", "rec.Metadata.x = last.id; last = d;", SAID),
        ("let last;", "d.x = last.id; if (d.a) last = d;", SAID),
        ("let last = null;", "last = d; rec.Metadata.x = last.id;", ""),
        ("let last = null;", "if (last) { d.x = last.id } last = d;", ""),
        ("let last = null;", "d.x = last && last.id; last = d;", ""),
        ("let last = null;", "d.x = last?.id; last = d;", ""),
        ("let last = null;", "if (!last) { last = d; return rec } d.x = last.id; last = d;", ""),
        ("let last = null;", "try { d.x = last.id } catch { d.x = 0 } last = d;", ""),
        ("let last = null;", "[last] = [d]; d.x = last.id; last = d;", ""),
        ("let last = null;", "for (last of d.list) { d.n = 1 } d.x = last.id; last = d;", ""),
        ("let last = null;", "const before = last; last = d; d.x = before.id;", ""),
        ("let last = null;", "rec.Metadata.x = last; last = '1';", ""),
        ("let last = null; function set(d) { last = d }", "set(d); d.x = last.id; last = d;", ""),
        ("var last = null;", "this.last = d; d.x = last.id; last = d;", ""),
        ("let last = null; last = { id: 1 };", "d.x = last.id; last = d;", ""),
        ("let last = null;", "let [last] = d.list; d.x = last.id; last = d; ", ""),
        ("let last = null;", "set(); d.x = last.id; last = d; function set() { last = d }", ""),
    ];
    let texts: Vec<String> = scripts.iter().map(|(before, body, _)| format!("{before}\n{}", process(body))).collect();
    let cases: Vec<_> =
        texts.iter().zip(scripts).map(|(text, (.., said))| (text.as_str(), structured(), said)).collect();
    check(&cases, of);
    for (text, _, _) in cases.iter().filter(|(.., said)| *said == SAID) {
        fails(text);
    }
}

#[test]
fn loops_over_fields_fail() {
    const SAID: &str =
        "fails; the script fails here: .Payload.After is structured data, fields, which have no elements";
    check(
        &[
            ("for (const [k, v] of rec.Payload.After) { logger.info(k + v) }", structured(), SAID),
            ("const d = rec.Payload.After; for (const k of d) { logger.info(k) }", structured(), SAID),
            ("for (const b of rec.Payload.After) { logger.info(b) }", Shape::RAW, ""),
            ("for (const b of rec.Payload.After) { logger.info(b) }", Shape::decoded_json(), ""),
            ("for (const k in rec.Payload.After) { logger.info(k) }", structured(), ""),
            ("rec.Payload.After = 'abc'; for (const k of rec.Payload.After) { logger.info(k) }", structured(), ""),
            ("if (rec.Payload.After.length) for (const k of rec.Payload.After) { logger.info(k) }", Shape::RAW, ""),
        ],
        body,
    );
}

#[test]
fn methods_that_no_data_has_fail() {
    const SAID: &str = "fails; the script fails here: neither raw nor structured data has a method \"get\"";
    check(
        &[
            ("rec.Metadata.x = rec.Payload.After.get('a');", Shape::decoded_json(), SAID),
            ("rec.Metadata.x = rec.Payload.After.at(0);", Shape::decoded_json(), ""),
            ("rec.Metadata.x = rec.Payload.After.get?.('a');", Shape::decoded_json(), ""),
            ("if (rec.Payload.After.get) rec.Metadata.x = rec.Payload.After.get('a');", Shape::decoded_json(), ""),
        ],
        body,
    );
}

#[test]
fn a_script_that_changes_built_in_values_is_not_judged() {
    const SCRIPT: &str = "Array.prototype.add = function (x) { this.push(x) };\n\
                          function process(rec) { const out = []; out.add(1); return rec }";
    check(&[(SCRIPT, structured(), "")], of);
}

#[test]
fn methods_that_no_value_of_json_has_fail() {
    let json = || Shape::structured(Fields::json());
    const SAID: &str =
        "fails; the script fails here: .Payload.After.at is a value of JSON, which has no method toISOString";
    check(
        &[
            ("const d = rec.Payload.After; d.at = d.at.toISOString();", json(), SAID),
            ("rec.Payload.After.day = rec.Payload.After.at.toISOString().slice(0, 10);", json(), SAID),
            ("rec.Payload.After.t = rec.Payload.After.at.toISOString();", Shape::decoded_json(), SAID),
            ("rec.Payload.After.t = rec.Payload.After.at.call([1], 0);", Shape::decoded_json(), ""),
            ("rec.Payload.After.t = rec.Payload.After.buffer.transfer();", Shape::decoded_json(), ""),
            ("const { at } = rec.Payload.After; rec.Metadata.at = at.toISOString();", json(), SAID),
            (
                "const d = rec.Payload.After; d.items.foreach(item => { item.a = 1 });",
                json(),
                "fails; the script fails here: .Payload.After.items is a value of JSON, which has no method foreach",
            ),
            ("const d = rec.Payload.After; d.at = new Date(d.at); d.t = d.at.toISOString();", json(), ""),
            ("const d = rec.Payload.After; if (d.at.toISOString) d.at = d.at.toISOString();", json(), ""),
            ("const d = rec.Payload.After; d.at = d.at?.toISOString?.();", json(), ""),
            (
                "const d = rec.Payload.After; d.n = d.n.toFixed(2); d.t = d.t.trim(); d.s = d.l.some(x => x);",
                json(),
                "",
            ),
            ("const d = rec.Payload.After; d.at = d.at.toISOString();", structured(), ""),
        ],
        body,
    );
}
