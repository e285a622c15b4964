//! What is said of scripts after a source of raw data, or of fields.

use anabranch_plugin::flow::{Field, Fields, Flow, RecordShape, Shape, Type};

use crate::testing::configure;

mod always;
mod failing;
mod values;

/// The findings of a whole script, each after its severity.
fn of(script: &str, after: Shape) -> String {
    let configured = configure(&[("script", script)]).unwrap_or_else(|why| panic!("{script}: {why:?}"));
    let mut flow = Flow::new(RecordShape::create(Shape::RAW, after));
    configured.flow(&mut flow);
    let fails = if flow.fails() { "fails; " } else { "" };
    format!("{fails}{}", flow.messages().collect::<Vec<_>>().join("; "))
}

/// Those of a function with this body.
fn body(body: &str, after: Shape) -> String {
    of(&format!("function process(rec) {{ {body}\n return rec }}"), after)
}

fn structured() -> Shape {
    Shape::structured(Fields::any())
}

/// Findings that begin so, behind `fails; ` for errors, and the place.
fn check(cases: &[(&str, Shape, &str)], found: fn(&str, Shape) -> String) {
    let mut wrong = Vec::new();
    for (script, after, expected) in cases {
        let found = found(script, after.clone());
        let (fails, message) = found.strip_prefix("fails; ").map_or(("", found.as_str()), |rest| ("fails; ", rest));
        let message = message.splitn(4, ':').nth(3).unwrap_or(message).trim_start();
        let text = format!("{fails}{message}");
        if !text.starts_with(expected) || (expected.is_empty() && !found.is_empty()) {
            wrong.push(format!("{script}\n  {found}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn raw_data_are_no_text() {
    const NUMBERS: &str = "this is a text of byte values, for example \"123,34,105\": .Payload.After is raw data";
    const OF_KEY: &str = "this is a text of byte values, for example \"123,34,105\": .Key is raw data";
    check(
        &[
            ("return rec.Payload.After.includes('order') ? rec : null", Shape::RAW, "this is always false"),
            ("if (rec.Key.indexOf('x') >= 0) return null", Shape::RAW, "this is always -1"),
            ("const x = rec.Payload.After.lastIndexOf(`a${1}`)", Shape::RAW, "this is always -1"),
            ("rec.Payload.After = { line: String(rec.Payload.After).trim() }", Shape::RAW, NUMBERS),
            ("rec.Payload.After = { line: `${rec.Payload.After}` }", Shape::RAW, NUMBERS),
            ("rec.Metadata.k = rec.Key.toString()", Shape::RAW, OF_KEY),
            ("rec.Metadata.k = '' + rec.Key", Shape::RAW, OF_KEY),
            ("rec.Payload.After = rec.Payload.After + '\\n'", Shape::RAW, NUMBERS),
            ("rec.Payload.After += '\\n'", Shape::RAW, NUMBERS),
            ("let s = ''; s += rec.Payload.After", Shape::RAW, NUMBERS),
            ("const line = rec.Payload.After; f(`${line}`)", Shape::RAW, NUMBERS),
            ("f(parseInt(rec.Key), Number(rec.Key), +rec.Key)", Shape::RAW, OF_KEY),
            ("if (/a/.test(rec.Payload.After)) return null", Shape::RAW, NUMBERS),
            ("if (rec.Key > '5') return null", Shape::RAW, OF_KEY),
            ("f(String(rec.Payload.After ?? ''))", Shape::RAW, NUMBERS),
            ("if (rec.Key) { f(String(rec.Payload.After)) }", Shape::RAW, NUMBERS),
            ("f(JSON.stringify(rec.Payload.After))", Shape::RAW, "this creates a field for each byte"),
            (
                "rec.Payload.After = { ...rec.Payload.After, x: 1 }",
                Shape::RAW,
                "this creates a field for each byte: .Payload.After is raw data",
            ),
            ("f(Object.keys(rec.Payload.After))", Shape::RAW, "this creates a field for each byte"),
            (
                "const [a] = rec.Payload.After.split(',')",
                Shape::RAW,
                "fails; the script fails here: .Payload.After is raw data, bytes, which have no method \"split\"",
            ),
            (
                "rec.Payload.After = rec.Payload.After.replace('a', 'b')",
                Shape::RAW,
                "fails; the script fails here: .Payload.After is raw data",
            ),
            ("if (rec.Metadata.a) f(rec.Key.trim())", Shape::RAW, "the script fails here: .Key is raw data"),
            (
                "rec.Metadata.k = rec.Key",
                Shape::RAW,
                "fails; the script fails here: metadata is text, and .Key is raw data",
            ),
            ("f(String(rec.Payload.After))", structured(), "this is \"[object Object]\""),
            (
                "rec.Payload.After = rec.Payload.After.split(',')",
                structured(),
                "fails; the script fails here: .Payload.After is structured data, fields, which have no method",
            ),
            (
                "rec.Payload.After.forEach(f)",
                structured(),
                "fails; the script fails here: .Payload.After is structured data",
            ),
        ],
        |script, after| body(&format!("const f = x => x; {script}"), after),
    );
}

#[test]
fn other_uses_of_data_are_no_mistakes() {
    let decode = "new TextDecoder().decode(rec.Payload.After)";
    let scripts = [
        (format!("const s = {decode}; rec.Payload.After = s.split(',')[0] + String(s)"), Shape::RAW),
        (format!("rec.Payload.After = {decode}; rec.Payload.After = rec.Payload.After.trim()"), Shape::RAW),
        (format!("if (!{decode}.includes('order')) return null"), Shape::RAW),
        ("rec.Metadata.k = String.fromCharCode.apply(null, rec.Key)".to_owned(), Shape::RAW),
        ("rec.Metadata.k = String.fromCharCode(...rec.Key) + rec.Key.length".to_owned(), Shape::RAW),
        ("rec.Metadata.k = rec.Key.toHex() + rec.Key.join(' ') + rec.Key.includes(10)".to_owned(), Shape::RAW),
        ("rec.Payload.After = rec.Payload.After.map(b => b ^ 1).slice(1)".to_owned(), Shape::RAW),
        ("const all = [...rec.Payload.After]; rec.Payload.After = RawData(all)".to_owned(), Shape::RAW),
        ("if (typeof rec.Payload.After === 'string') f(rec.Payload.After.split(','))".to_owned(), Shape::RAW),
        ("console.log(JSON.stringify(rec), String(rec.Operation), `${rec.Metadata.x}`)".to_owned(), Shape::RAW),
        ("rec.Payload.After = { ...rec.Payload.After, x: `${rec.Payload.After.x}` }".to_owned(), structured()),
        ("rec.Metadata.k = JSON.stringify(rec.Payload.After)".to_owned(), structured()),
        ("if (rec.Payload.After.hasOwnProperty('x')) rec.Payload.After.x.split(',')[0] = 1".to_owned(), structured()),
        ("f(String(rec.Payload.After), { ...rec.Key }, rec.Payload.After.includes('x'))".to_owned(), Shape::unknown()),
        ("f(rec.Payload.After.name.includes('x'), rec.Payload.After.name + '')".to_owned(), structured()),
    ];
    for (script, after) in scripts {
        let mut flow = RecordShape::create(Shape::RAW, after.clone());
        if after == Shape::unknown() {
            flow = RecordShape::unknown();
        }
        let script = format!("const f = x => x; function process(rec) {{ {script}\n return rec }}");
        let configured = configure(&[("script", &script)]).unwrap();
        let mut flow = Flow::new(flow);
        configured.flow(&mut flow);
        assert_eq!(flow.messages().collect::<Vec<_>>(), [] as [&str; 0], "{script}");
    }
}

#[test]
fn names_that_scripts_do_not_have_are_told() {
    check(
        &[
            ("rec.Metadata.x = fetch('http://x')", structured(), "fails; scripts have no `fetch`"),
            ("setTimeout(() => {}, 5)", structured(), "fails; scripts have no `setTimeout`"),
            ("setInterval(() => {}, 5)", structured(), "fails; scripts have no `setInterval`"),
            ("rec.Payload.After.x = Buffer.from('a')", structured(), "fails; scripts have no `Buffer`"),
            ("rec.Payload.After = structuredClone(rec.Payload.After)", structured(), "fails; scripts have no"),
            ("window.x = document.title", structured(), "fails; scripts have no `"),
            ("new XMLHttpRequest()", structured(), "fails; scripts have no `XMLHttpRequest`"),
            ("rec.Payload.After.x = process.env.HOME", structured(), "fails; scripts have no `process.env`"),
            ("rec.Metadata.h = crypto.createHash('md5')", structured(), "fails; scripts have no `crypto.createHash`"),
            ("rec.Metadata.h = `${Math.Round(1.5)}`", structured(), "fails; scripts have no `Math.Round`"),
            ("rec.Metadata.h = `${Date.Now()}`", structured(), "fails; scripts have no `Date.Now`"),
            ("rec.Metadata.h = `${JSON.decode('{}')}`", structured(), "fails; scripts have no `JSON.decode`"),
            ("Array.fromAsync([1])", structured(), "fails; scripts have no `Array.fromAsync`"),
            (
                "rec.Metadata.h = globalThis.Buffer.from('x').toString('base64')",
                structured(),
                "fails; scripts have no `globalThis.Buffer`",
            ),
            ("rec.Metadata.h = `${Math.round(1.5)} ${Date.now()} ${Number.call(null, 5)}`", structured(), ""),
            ("Math.twice = x => 2 * x; rec.Metadata.h = `${Math.twice(2)}`", structured(), ""),
            ("if (Math.sum) rec.Metadata.h = `${Math.sum([1])}`", structured(), ""),
            ("const s = globalThis.seen || {}; rec.Metadata.h = `${globalThis.JSON.stringify(s)}`", structured(), ""),
            ("for (const r of records) r.x = 1", structured(), "fails; scripts have no `records`"),
            ("if (rec.Key) { fetch('x') }", structured(), "scripts have no `fetch`"),
            ("const total = 1; rec.Payload.After.x = totel", structured(), "fails; scripts have no `totel`"),
            ("typeof fetch === 'function' && fetch('x')", structured(), ""),
            ("total = 1; rec.Payload.After.x = total", structured(), ""),
            ("const { a, b: [c] } = rec.Payload.After; rec.Payload.After.d = a + c", structured(), ""),
            ("try { undefined } catch (e) { throw e }", structured(), ""),
            ("const g = (a, { b }) => { class C {} return new C(a, b) }; g(1, {})", structured(), ""),
            ("outer: for (const k in {}) { for (i of [1]) continue outer }", structured(), ""),
            ("for ({ k } of [{ k: 1 }]) rec.Metadata.k = k", structured(), ""),
            ("({ fetch: 1, window() {} }).fetch", structured(), ""),
            ("globalThis.seen = 1; rec.Metadata.n = seen", structured(), ""),
        ],
        body,
    );
    check(
        &[
            ("function process(rec, ctx) { ctx.log('x'); return rec }", structured(), "fails; `ctx` is undefined"),
            (
                "function process(rec, ctx) { if (rec.Key) ctx.log('x'); return rec }",
                structured(),
                "`ctx` is undefined",
            ),
            ("function process(rec, ctx) { return rec }", structured(), ""),
            ("function process(rec, n = 1) { rec.Metadata.n = n.toFixed(1); return rec }", structured(), ""),
            ("function process(rec, ctx) { if (ctx) ctx.log(1); ctx?.log(2); return rec }", structured(), ""),
            ("const b = new Buffer(1); function process(rec) { return rec }", structured(), "fails; scripts have no"),
            ("function f() { fetch('x') } function process(rec) { f(); return rec }", structured(), "scripts have no"),
        ],
        of,
    );
}

#[test]
fn results_that_are_no_record_are_told() {
    check(
        &[
            ("return rec.Operation === 'create'", structured(), "fails; process returns true or false"),
            ("const keep = rec.Payload.After.n > 1; return keep", structured(), "fails; process returns true or false"),
            ("return rec.Payload.After.name.includes('a')", structured(), "fails; process returns true or false"),
            ("if (rec.Key) return false", structured(), "process returns true or false"),
            ("return rec.Payload.After.n > 1 && rec", structured(), "process returns false if"),
            ("return rec.Payload.After", structured(), "fails; process returns a part of the record"),
            ("return rec.Metadata", structured(), "fails; process returns a part of the record"),
            ("return {}", structured(), "fails; process returns an empty object"),
            ("return { name: 1 }", structured(), "fails; process returns an object with a field \"name\""),
            ("return () => rec", structured(), "fails; process returns a function"),
            ("return JSON.stringify(rec)", structured(), "fails; process returns text"),
            ("return `${rec.Metadata.x}`", structured(), "fails; process returns text"),
            ("return 1", structured(), "fails; process returns a number"),
            ("return JSON.parse(JSON.stringify(rec))", structured(), "fails; process returns a copy made with JSON"),
            (
                "const r = JSON.parse(JSON.stringify(rec)); r.Payload.After.x = 1; return r",
                structured(),
                "fails; process returns a copy made with JSON",
            ),
            ("rec.Position = 'x'", structured(), "fails; the script fails here: a record keeps its Position"),
            ("rec.Metadata.recfmt.collection = 'x'", structured(), "fails; the script fails here: metadata is text"),
            ("f(rec.Metadata.recfmt.collection)", structured(), "metadata is text"),
            ("rec.Metadata.get('x')", structured(), "fails; the script fails here: metadata is text"),
            ("rec.get('x')", structured(), "fails; the script fails here: a record has no \"get\""),
            ("rec.Payload.After = [1]", structured(), "fails; the script fails here: .Payload.After accepts an object"),
            ("rec.Payload.After = new Map()", structured(), "fails; the script fails here: .Payload.After accepts an"),
            ("rec.Key = 5", structured(), "fails; the script fails here: .Key accepts an object"),
            ("return rec.Operation === 'create' ? rec : null", structured(), ""),
            ("return rec.Key ? [rec, rec] : undefined", structured(), ""),
            ("return { ...rec, Key: 'k' }", structured(), ""),
            ("const r = JSON.parse(JSON.stringify(rec)); r.Position = rec.Position; return r", structured(), ""),
            ("const r = JSON.parse(JSON.stringify(rec)); rec.Metadata.t = r.Operation", structured(), ""),
            ("[1].forEach(x => { return x > 1 }); const p = rec.Position; rec.Position = p", structured(), ""),
            ("const r = Record(); r.Position = rec.Position; return r", structured(), ""),
            ("rec.Payload.After = [1]; rec.Payload.After = { list: [] }", structured(), ""),
            ("rec.Metadata.n = rec.Metadata.x.length + rec.Metadata.y.trim().split(',')[0]", structured(), ""),
        ],
        |script, after| body(&format!("const f = x => x; {script}"), after),
    );
}

#[test]
fn what_has_no_effect_is_told() {
    check(
        &[
            ("rec.Payload.After.email.replace(/@.*/, '***')", structured(), "the result of `replace` is not used"),
            ("rec.Payload.After.name.trim().toUpperCase()", structured(), "the result of `toUpperCase` is not used"),
            ("let s = rec.Payload.After.name; s.trim(); rec.Metadata.s = s", structured(), "the result of `trim`"),
            ("rec.Payload.After.tags.filter(t => t !== 'a')", structured(), "the result of `filter` is not used"),
            ("rec.Payload.After.kind == 'order'", structured(), "the result of this comparison is not used"),
            ("if (rec.Payload.After.kind = 'order') rec.Metadata.o = '1'", structured(), "this assigns, and"),
            ("while (rec.Payload.After.n = 0) { }", structured(), "this assigns, and"),
            (
                "return rec.Payload.After.kind = 'x' ? rec : null",
                structured(),
                "this text is always true as a condition",
            ),
            ("const p = { ...rec.Payload.After }; p.x = 1; delete p.y", structured(), "`p` is changed and never used"),
            (
                "const p = { ...rec.Payload.After }; p.total = p.price * p.count; p.name = p.name.trim()",
                structured(),
                "`p` is changed and never used",
            ),
            ("const p = Object.assign({}, rec.Payload.After); p.x = 1", structured(), "`p` is changed and never used"),
            (
                "rec.Payload.After.d = new Date(0).toLocaleDateString('de-DE')",
                structured(),
                "`toLocaleDateString` does not support locales",
            ),
            (
                "rec.Payload.After.n = (1234.5).toLocaleString('de-DE')",
                structured(),
                "`toLocaleString` does not support",
            ),
            ("rec.Payload.After.tags.push('x'); rec.Payload.After.tags.sort()", structured(), ""),
            ("rec.Payload.After.list.map(x => { x.y = 1; return x })", structured(), ""),
            ("const seen = []; 'a'.replace(/a/g, m => seen.push(m)); rec.Payload.After.s = seen", structured(), ""),
            ("const o = { trim() { rec.Key = 'x' } }; o.trim()", structured(), ""),
            ("let m; const re = /a/g; while (m = re.exec('aa')) rec.Metadata.m = m[0]", structured(), ""),
            ("const p = { ...rec.Payload.After }; p.x = 1; rec.Payload.After = p", structured(), ""),
            ("const p = { ...rec.Payload.After }; p.list.x = 1", structured(), ""),
            ("const p = { ...rec.Payload.After }; p.list.push(1); p.y = 1; rec.Metadata.n = p.y", structured(), ""),
            (
                "const p = { ...rec.Payload.After }; p.x = 1; const g = () => p; rec.Payload.After = g()",
                structured(),
                "",
            ),
            ("const p = rec.Payload.After; p.x = 1", structured(), ""),
            ("const p = { ...rec.Payload.After }", structured(), ""),
            ("'use strict'; rec.Metadata.t = new Date(0).toISOString()", structured(), ""),
        ],
        body,
    );
}

/// The scripts in a file: the blocks behind `script: |`.
fn scripts(text: &str) -> Vec<String> {
    let mut lines = text.lines().peekable();
    let mut scripts = Vec::new();
    while let Some(line) = lines.next() {
        if !line.trim_end().ends_with("script: |") {
            continue;
        }
        let depth = line.len() - line.trim_start().trim_start_matches("- ").len();
        let mut script = String::new();
        while let Some(line) =
            lines.next_if(|line| line.trim().is_empty() || line.len() - line.trim_start().len() > depth)
        {
            script += line;
            script += "\n";
        }
        scripts.push(script);
    }
    scripts
}

#[test]
fn the_scripts_of_the_repository_are_clean() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut open = ["examples", "docs", "src/cli/templates", "tests/it"].map(|name| root.join(name)).to_vec();
    let mut count = 0;
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        // Pipelines in tests of mistakes have some.
        let name = path.to_string_lossy().into_owned();
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        if name.contains("mistakes") || name.contains("doubts") {
            continue;
        }
        let text = if name.ends_with(".rs") { text.replace("{{", "{").replace("}}", "}") } else { text };
        for script in scripts(&text).iter().filter(|script| script.contains("process")) {
            let Ok(configured) = configure(&[("script", script)]) else { continue };
            let mut flow = Flow::new(RecordShape::unknown());
            configured.flow(&mut flow);
            assert_eq!(flow.messages().collect::<Vec<_>>(), [] as [&str; 0], "{name}\n{script}");
            count += 1;
        }
    }
    assert!(count > 8, "only {count} scripts were found");
}

#[test]
fn fields_that_no_record_has_are_told_where_the_fields_are_known() {
    let fields = || {
        let field = |name: &str| (name.into(), Field::present(Type::any()));
        Shape::structured(Fields::closed(["name", "price"].map(field)))
    };
    const NMAE: &str = "this is undefined: .Payload.After has no \"nmae\"";
    const FAILS: &str = "fails; the script fails here, because this is undefined: .Payload.After has no \"nmae\"";
    check(
        &[
            ("console.log(rec.Payload.After.nmae)", fields(), NMAE),
            ("console.log(rec.Payload.After['nmae'])", fields(), NMAE),
            ("console.log(rec.Payload.After.nmae.trim())", fields(), FAILS),
            ("rec.Payload.After.nmae += 1", fields(), NMAE),
            ("rec.Payload.After.nmae = rec.Payload.After.nmae + 1", fields(), NMAE),
            ("if (!rec.Payload.After.nmae) return null", fields(), NMAE),
            ("delete rec.Payload.After.nmae", fields(), NMAE),
            ("const { nmae = 1 } = rec.Payload.After; console.log(nmae)", fields(), NMAE),
            ("for (const x of []) console.log(rec.Payload.After.nmae)", fields(), NMAE),
            (
                "console.log(rec.Payload.After.discount)",
                fields(),
                "this is undefined: .Payload.After has no \"discount\"",
            ),
            // Fields that may be created by the script, or be absent on purpose.
            ("if (rec.Payload.After.discount) return null", fields(), ""),
            ("console.log(rec.Payload.After.discount ?? 0)", fields(), ""),
            ("console.log(rec.Payload.After?.discount)", fields(), ""),
            ("rec.Payload.After.nmae = 1; console.log(rec.Payload.After.nmae)", fields(), ""),
            ("rec.Payload.After.nmae ??= 1; console.log(rec.Payload.After.nmae)", fields(), ""),
            ("console.info(rec.Payload.After); console.log(rec.Payload.After.nmae)", fields(), ""),
            (
                "for (const x of []) { if (rec.Payload.After.nmae) console.log(); rec.Payload.After.nmae = 1 }",
                fields(),
                "",
            ),
            ("rec.Payload.After = { nmae: 1 }; console.log(rec.Payload.After.nmae)", fields(), ""),
            ("console.log(rec.Payload.After.hasOwnProperty('x'))", fields(), ""),
            ("console.log(rec.Payload.After.nmae)", structured(), ""),
            ("console.log(rec.Payload.After.nmae)", Shape { raw: true, ..fields() }, ""),
            // Another field of that name is read, too.
            ("if (rec.Payload.After.nmae) console.log(rec.Payload.After.name)", fields(), ""),
        ],
        body,
    );
}

#[test]
fn one_record_in_the_place_of_each_element_is_told() {
    const SAME: &str = "each element becomes `rec` itself";
    check(
        &[
            ("return rec.Payload.After.tags.map(t => { rec.Payload.After.tag = t; return rec; })", structured(), SAME),
            (
                "return rec.Payload.After.tags.map(function (t) { rec.Payload.After.tag = t; return rec })",
                structured(),
                SAME,
            ),
            ("return tags().map(t => rec)", structured(), SAME),
            (
                "return tags().map(t => { const out = Record(); out.Payload.After = { t }; return out })",
                structured(),
                "",
            ),
            ("return tags().map(rec => { return rec })", structured(), ""),
            ("tags().map(t => { rec.Metadata[t] = 'x'; return rec })", structured(), ""),
        ],
        |text, after| {
            of(&format!("function tags() {{ return ['a'] }} function process(rec) {{ {text}\n return rec }}"), after)
        },
    );
}
