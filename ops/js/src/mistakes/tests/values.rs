//! What is said of values that a script takes for something else, and of what it does without effect.

use anabranch_plugin::flow::{Field, Fields, Kinds, Shape, Type};

use super::{body, check, of, structured};

/// Fields of which it is known what they are.
fn known() -> Shape {
    let field = |(name, ty): (&str, Type)| (name.into(), Field::present(ty));
    let text = || Type::of(Kinds::TEXT);
    let addr = Type::map(Fields::closed([("city", text()), ("zip", text())].map(field)));
    let fields = [
        ("name", text()),
        ("mail", text()),
        ("tags", Type::of(Kinds::LIST)),
        ("lines", Type::of(Kinds::LIST)),
        ("addr", addr),
        ("price", Type::of(Kinds::INT)),
    ];
    Shape::structured(Fields::closed(fields.map(field)))
}

#[test]
fn objects_are_no_names_and_no_texts() {
    const NAME: &str = "this is the name \"[object Object]\"";
    const TEXT: &str = "this is \"[object Object]\": .Payload.After.addr is a map";
    let script = |text: &str| format!("const seen = {{}}; function process(rec) {{ {text}\n return rec }}");
    check(
        &[
            ("const k = { n: rec.Payload.After.name }; if (seen[k]) return null; seen[k] = true", structured(), NAME),
            ("const k = { n: 1 }; if (k in seen) return null; seen[JSON.stringify(k)] = 1", structured(), NAME),
            ("const k = { n: 1 }; if (seen.hasOwnProperty(k)) return null", structured(), NAME),
            ("const k = { n: 1 }; rec.Metadata.k = `${k}`", structured(), "this is the text \"[object Object]\""),
            ("const k = { n: 1 }; rec.Metadata.k = 'k ' + k", structured(), "this is the text \"[object Object]\""),
            ("if (seen[{ n: rec.Payload.After.name }]) return null", structured(), NAME),
            ("if (seen[rec.Payload.After]) return null; seen[rec.Payload.After] = true", structured(), NAME),
            ("if (seen[rec.Payload.After.addr]) return null", known(), NAME),
            ("const a = rec.Payload.After.addr; seen[a] = 1", known(), NAME),
            ("rec.Payload.After.note = 'lives at ' + rec.Payload.After.addr", known(), TEXT),
            ("rec.Payload.After.note = 'lives at ' + rec.Payload.After.addr + '!'", known(), TEXT),
            ("rec.Payload.After.note = `at ${rec.Payload.After.addr}`", known(), TEXT),
            ("const { addr } = rec.Payload.After; rec.Payload.After = { note: `at ${addr}` }", known(), TEXT),
            ("rec.Metadata.note = String(rec.Payload.After.addr)", known(), TEXT),
            // A list has a text, and so has what is a text.
            ("const k = [rec.Payload.After.name]; if (seen[k]) return null; seen[k] = true", structured(), ""),
            ("const k = JSON.stringify({ n: 1 }); if (seen[k]) return null", structured(), ""),
            ("const k = { n: 1, toString() { return 'x' } }; if (seen[k]) return null", structured(), ""),
            (
                "if (seen[rec.Payload.After.name]) return null; rec.Metadata.x = `${rec.Payload.After.tags}`",
                known(),
                "",
            ),
            (
                "rec.Payload.After.addr = JSON.stringify(rec.Payload.After.addr); rec.Metadata.x = `${rec.Payload.After.addr}`",
                known(),
                "",
            ),
            (
                "rec.Metadata.x = `${JSON.stringify(rec.Payload.After.addr)} ${rec.Payload.After.addr.city}`",
                known(),
                "",
            ),
            ("rec.Payload.After.n = rec.Payload.After.price + 1", known(), ""),
            (
                "if (typeof rec.Payload.After.addr === 'string') rec.Metadata.x = `${rec.Payload.After.addr}`",
                known(),
                "",
            ),
        ],
        |text, after| of(&format!("const seen = {{}}; function process(rec) {{ {text}\n return rec }}"), after),
    );
    assert!(of(&script("return rec"), known()).is_empty());
}

#[test]
fn sets_do_not_find_objects_that_are_new() {
    const NEVER: &str = "this is always false: a Set finds only the same object";
    check(
        &[
            ("const k = [rec.Payload.After.name]; if (seen.has(k)) return null; seen.add(k)", structured(), NEVER),
            ("if (seen.has({ n: 1 })) return null; seen.add({ n: 1 })", structured(), NEVER),
            ("if (seen.has(rec.Payload.After)) return null; seen.add(rec.Payload.After)", structured(), NEVER),
            ("for (const t of []) { const k = { t }; if (seen.has(k)) continue; seen.add(k) }", structured(), NEVER),
            (
                "const k = [1]; if (all.get(k)) return null; all.set(k, 1)",
                structured(),
                "this is always undefined: a Map",
            ),
            ("const k = `${rec.Payload.After.name}`; if (seen.has(k)) return null; seen.add(k)", structured(), ""),
            ("const k = { n: 1 }; seen.add(k); if (seen.has(k)) return rec", structured(), ""),
            ("const k = {}; for (const t of []) { if (seen.has(k)) break; seen.add(k) }", structured(), ""),
            ("if (seen.has(own)) return null; seen.add(own)", structured(), ""),
            ("const f = k => seen.has(k); f('x')", structured(), ""),
            ("const k = [1]; seen.add(k)", structured(), ""),
        ],
        |text, after| {
            let head = "const seen = new Set(), all = new Map(), own = {};";
            of(&format!("{head} function process(rec) {{ {text}\n return rec }}"), after)
        },
    );
}

#[test]
fn metadata_are_texts() {
    const APPENDS: &str = "this appends: metadata is text";
    check(
        &[
            ("rec.Payload.After.n = rec.Metadata['split.index'] + 1", structured(), APPENDS),
            ("const i = rec.Metadata['split.index']; rec.Payload.After.n = 1 + i", structured(), APPENDS),
            ("rec.Metadata.count += 1", structured(), APPENDS),
            (
                "if (rec.Metadata['split.index'] === 0) return null",
                structured(),
                "this is always false: metadata is text",
            ),
            (
                "if (rec.Metadata['split.index'] !== 0) return null",
                structured(),
                "this is always true: metadata is text",
            ),
            ("rec.Payload.After.n = Number(rec.Metadata['split.index']) + 1", structured(), ""),
            ("rec.Payload.After.n = rec.Metadata['split.index'] - 1", structured(), ""),
            ("if (rec.Metadata['split.index'] == 0 || rec.Metadata.x === '0') return null", structured(), ""),
            ("rec.Metadata.x = rec.Metadata.x + '1'", structured(), ""),
        ],
        body,
    );
}

#[test]
fn lists_texts_and_maps_have_fields_of_their_own() {
    const LIST: &str = "this is undefined: .Payload.After.lines is a list, which has no field \"sku\"";
    check(
        &[
            ("rec.Payload.After = { sku: rec.Payload.After.lines.sku }", known(), LIST),
            ("rec.Payload.After = { sku: rec.Payload.After.lines['sku'] }", known(), LIST),
            ("rec.Payload.After = { sku: rec.Payload.After.lines['0'] }", known(), ""),
            ("const { lines } = rec.Payload.After; rec.Payload.After = { sku: lines.sku }", known(), LIST),
            ("const all = rec.Payload.After; const lines = all.lines; rec.Metadata.x = lines.sku", known(), LIST),
            (
                "rec.Metadata.n = `${rec.Payload.After.tags.len}`",
                known(),
                "this is undefined: .Payload.After.tags is a list",
            ),
            (
                "rec.Metadata.n = `${rec.Payload.After.name.size}`",
                known(),
                "this is undefined: .Payload.After.name is a text",
            ),
            (
                "rec.Metadata.n = `${rec.Payload.After.addr.length}`",
                known(),
                "this is undefined: .Payload.After.addr has no",
            ),
            (
                "rec.Metadata.n = rec.Payload.After.addr.City",
                known(),
                "this is undefined: .Payload.After.addr has no \"City\"",
            ),
            (
                "if ('Rome' in rec.Payload.After.tags) return null",
                known(),
                "this is always false: .Payload.After.tags is a",
            ),
            ("if (rec.Payload.After.name in ['Rome', 'Bern']) return null", known(), "`in` searches for an index"),
            ("if ('Rome' in ['Rome']) return null", structured(), "`in` searches for an index of the list"),
            ("rec.Metadata.n = `${rec.Payload.After.tags.length} ${rec.Payload.After.name.trim()}`", known(), ""),
            ("rec.Payload.After.x = rec.Payload.After.lines.map(l => l.sku)", known(), ""),
            ("rec.Metadata.n = rec.Payload.After.lines.sku ?? ''", known(), ""),
            ("rec.Metadata.n = rec.Payload.After.lines?.sku", known(), ""),
            ("if (rec.Payload.After.lines.sku) return null", known(), ""),
            (
                "if (Array.isArray(rec.Payload.After.lines)) return rec; rec.Metadata.s = rec.Payload.After.lines.sku",
                known(),
                "",
            ),
            ("rec.Payload.After.lines = { sku: 1 }; rec.Metadata.n = `${rec.Payload.After.lines.sku}`", known(), ""),
            ("rec.Metadata.n = `${rec.Payload.After.lines.sku}`", structured(), ""),
            ("if (2 in [1, 2, 3] || 'name' in rec.Payload.After) return null", known(), ""),
        ],
        body,
    );
}

#[test]
fn values_that_nothing_reads_are_told() {
    const NAME: &str = "nothing reads the new value of `name`";
    check(
        &[
            ("let { name } = rec.Payload.After; name = name.toUpperCase()", structured(), NAME),
            ("let name = rec.Payload.After.name; if (!name) return null; name = name.trim();", structured(), NAME),
            (
                "rec.Payload.After.tags.forEach(t => { t = t.toUpperCase() })",
                structured(),
                "nothing reads the new value of `t`",
            ),
            (
                "for (let t of rec.Payload.After.tags) { t = t.trim() }",
                structured(),
                "nothing reads the new value of `t`",
            ),
            (
                "let { price } = rec.Payload.After; price = Math.round(price * 1.2)",
                structured(),
                "nothing reads the new value of `price`",
            ),
            ("let { name } = rec.Payload.After; name = name.trim(); rec.Payload.After.name = name", structured(), ""),
            ("let { name } = rec.Payload.After; name = name.trim(); rec.Payload.After = { name }", structured(), ""),
            ("let n = rec.Payload.After.n; while (n > 0) { n = n - 1 }", structured(), ""),
            ("let n = rec.Payload.After.n; const f = () => n; n = n + 1; rec.Payload.After.n = f()", structured(), ""),
            ("let q = rec.Payload.After.tags; q = q.concat(q.splice(0, 1))", structured(), ""),
            (
                "let last = rec.Payload.After.a; for (const t of []) { rec.Metadata.x = last; last = last + t }",
                structured(),
                "",
            ),
            ("let count = 0; for (const t of []) { count = count + 1 }", structured(), ""),
        ],
        body,
    );
    check(
        &[
            ("let total = rec => 1; let n = 0; function process(rec) { n = n + 1; return rec }", structured(), ""),
            ("const process = rec => { rec = { ...rec }; return rec }", structured(), ""),
        ],
        of,
    );
}

#[test]
fn results_of_methods_of_lists_and_texts_for_patterns_are_told() {
    const PATTERN: &str = "`replace` searches for exactly this text";
    check(
        &[
            ("rec.Payload.After.lines.map(l => ({ q: l.q * 2 }))", structured(), "the result of `map` is not used"),
            ("rec.Payload.After.lines.map(l => l.q * 2)", structured(), "the result of `map` is not used"),
            ("rec.Payload.After.lines.map(l => { l.q = l.q * 2 })", structured(), ""),
            ("rec.Payload.After.lines.map(l => console.log(l))", structured(), ""),
            ("rec.Payload.After.mail = rec.Payload.After.mail.replace('^.*@', '***@')", structured(), PATTERN),
            ("rec.Payload.After.card = rec.Payload.After.card.replace('\\\\d{4}', '*')", structured(), PATTERN),
            ("rec.Payload.After.card = rec.Payload.After.card.replace('[^@]+@', '*')", structured(), PATTERN),
            ("rec.Payload.After.card = rec.Payload.After.card.replace('/[ab]/g', '*')", structured(), PATTERN),
            (
                "rec.Payload.After.x = rec.Payload.After.x.split('\\\\s+')",
                structured(),
                "`split` searches for exactly this text",
            ),
            ("rec.Payload.After.mail = rec.Payload.After.mail.replace(/^.*@/, '***@')", structured(), ""),
            (
                "rec.Payload.After.x = rec.Payload.After.x.replace('$', '').replace('/', '-').replace('a.b', '')",
                structured(),
                "",
            ),
            (
                "rec.Payload.After.x = rec.Payload.After.x.replace('/api/v1/', '').split('|').join('[x]')",
                structured(),
                "",
            ),
        ],
        body,
    );
}
