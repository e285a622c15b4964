//! What is said of conditions and results that are the same whatever the data are.

use super::{body, check, structured};

/// Scripts in which `a` is the data after a change, and what is said of them.
fn check_with_data(cases: &[(&str, &str)]) {
    let scripts: Vec<String> = cases.iter().map(|(text, _)| format!("const a = rec.Payload.After; {text}")).collect();
    let cases: Vec<_> =
        scripts.iter().zip(cases).map(|(text, (_, said))| (text.as_str(), structured(), *said)).collect();
    check(&cases, body);
}

#[test]
fn comparisons_that_give_the_same_for_all_data_are_told() {
    check_with_data(&[
        ("if (Number(a.zip) === NaN) return null", "this is always false: NaN equals nothing"),
        ("if (a.zip != Number.NaN) return null", "this is always true: NaN equals nothing"),
        ("if (typeof a.zip !== 'String') return null", "this is always true: typeof never returns \"String\""),
        ("if (typeof a.tags === 'array') return null", "this is always false: typeof never returns \"array\""),
        ("const t = typeof a.tags; if (t == 'list') return null", "this is always false: typeof never returns"),
        ("if (typeof a.note === undefined) return null", "this is always false: a text is not undefined"),
        ("if (typeof a.note == null) return null", "this is always false: a text is not null"),
        ("if (!a.status === 'paid') return null", "this is always false: true or false is not a text"),
        ("if (!a.status == 'paid') return null", "this is always false: true or false is not a text"),
        ("if (a.id & 1 == 0) return null", "the comparison is evaluated first here"),
        ("if (2 < a.id < 4) return null", "this compares true or false with 4"),
        ("if (!'k' in a) return null", "`!` applies only to the operand after it"),
        ("if (a.tags == []) return null", "this is always false: a list that is created here equals no other"),
        ("if (a.customer === {}) return null", "this is always false: an object that is created here equals no other"),
        (
            "if (new Date(a.at) === new Date('2024-05-01')) return null",
            "this is always false: an object that is created",
        ),
        ("if (a.status.toLowerCase() !== 'Paid') return null", "this is always true: a text in lower case is not"),
        ("const s = a.status.toUpperCase().trim(); if ('paid' == s) return null", "this is always false: a text in"),
        ("if (a.status.trim() === 'paid ') return null", "this is always false: a text without spaces"),
        ("if (a.zip.slice(0, 2) !== '000') return null", "this is always true: this has at most 2 characters"),
        ("if (a.zip.slice(-2) === '000') return null", "this is always false: this has at most 2 characters"),
        ("if (a.zip.charAt(0) === '00') return null", "this is always false: this has at most 1 characters"),
        ("if (a.email.split('@')[1] !== '@b.c') return null", "this is always true: a part of a text that is split"),
        ("if (a.amount.toFixed(2) === '1.5') return null", "this is always false: toFixed(2) returns 2 digits"),
        ("if (a.amount.toFixed(2) !== 1.5) return null", "this is always true: a text is not a number"),
        ("if (parseInt(a.zip) !== '1') return null", "this is always true: a number is not a text"),
        (
            "if (a.id % 2 === 2) return null",
            "this is always false: the remainder of a division is less than the divisor 2",
        ),
        ("if (!(a.zip instanceof String)) return null", "this is always false: values of data are not objects of"),
        ("if (!('status' in Object.keys(a))) return null", "this is always false: `in` searches for an index"),
        ("if (!a.lines.includes({ sku: 's' })) return null", "this is always false: `includes` finds only the same"),
        ("if (!a.tags[-1]) return null", "this is always undefined: a list has no negative indices"),
    ]);
}

#[test]
fn conditions_that_decide_nothing_are_told() {
    check_with_data(&[
        ("if (a.status === 'paid' || 'open') return null", "this text is always true as a condition"),
        ("if (a.status !== 'paid' && 'open') return null", "this text is always true as a condition"),
        ("if (a.status === ('paid' || 'open')) return null", "this is always the first of the two values"),
        ("switch (a.status) { case 'paid' || 'open': return null }", "this is always the first of the two values"),
        ("if (a.status === 'zzz'); return null", "this `if` has no effect"),
        ("if (new Boolean(a.active)) return null", "this is always true as a condition"),
        ("if (a.lines.filter(l => l.price > 9)) return null", "this is always true as a condition"),
        ("a.none = !a.lines.filter(l => l.price > 9)", "this is always true as a condition"),
        ("if (a.status = 'paid' && a.active) a.flag = true", "this assigns everything after it"),
        ("if (a.lines.every(l => l.sku = 'x')) return null", "this assigns, and the condition is always true"),
    ]);
}

#[test]
fn what_goes_nowhere_is_told() {
    check_with_data(&[
        ("a.lines.forEach(l => { if (l.price > 0) return null; })", "this value is lost: forEach"),
        ("a.lines.forEach(function (l) { if (l.price > 0) { return rec } })", "this value is lost: forEach"),
        ("a.skus = a.lines.map(l => { l.sku })", "the function returns undefined to `map`"),
        (
            "let hit = false; for (const l in a.lines) if (l.price > 1) hit = true; if (!hit) return null",
            "this is undefined: `in` returns the names",
        ),
        (
            "const seen = new Set(); if (seen.has(a.status)) return null; seen.add(a.status)",
            "this is always false: each call of the function creates an empty `seen`",
        ),
        (
            "const last = new Map(); if (last.get(a.id) === a.x) return null; last.set(a.id, a.x)",
            "this is always undefined: each call of the function creates an empty `last`",
        ),
        ("const b = { ...a, total: 1 }", "nothing reads `b`"),
        ("const status = a.status.trim()", "nothing reads `status`"),
    ]);
}

#[test]
fn variables_in_a_circle_are_not_followed() {
    let mut chain = String::from("const x0 = a.x + 1; ");
    for number in 1..200 {
        chain += &format!("const x{number} = x{0} + x{0}; ", number - 1);
    }
    let chain = format!("{chain} if (x199 === 'x') return null");
    check_with_data(&[
        ("const n = -n; if (a.x % 2 === n || a[n]) return null", ""),
        ("const s = s.trim(); if (s === 'x') return null", ""),
        ("const s = t + 1, t = s + 1; if (s === 1) return null", ""),
        ("const s = t.trim(), t = s.trim(); if (s === 'x' || t === 'x') return null", ""),
        (&chain, ""),
    ]);
}

#[test]
fn what_depends_on_the_data_is_not_told() {
    let scripts = [
        "if (Number.isNaN(Number(a.zip)) || a.NaN === 1) return null",
        "if (typeof a.x === 'string' || typeof a.x == 'undefined' || typeof a.x === typeof a.y) return null",
        "if (!a.x === true || !a.x == '1' || !a.x === !a.y) return null",
        "if ((a.id & 1) === 0 || a.x & (a.y == 0) || a.x === 1 & a.y === 2) return null",
        "if (2 < a.id && a.id < 4 || (a.x < 1) === (a.y < 1)) return null",
        "if (!('k' in a) || 0 in a.tags || 'length' in Object.keys(a)) return null",
        "const none = []; if (a.list === none || a.at < new Date('2024-05-01')) return null",
        "if (a.status.toLowerCase() === 'paid' || a.status.toUpperCase() === 'ÄÖ 1') return null",
        "const f = { toLowerCase: x => x }; if (f.toLowerCase('X') === 'X') return null",
        "if (a.zip.slice(0, 2) === '00' || a.zip.slice(1) === '0000' || a.zip.slice(0, -1) === '0000') return null",
        "if (a.email.split('@')[1] === 'b.c' || a.amount.toFixed(1) === '1.5' || a.x.toFixed() === '1') return null",
        "if (parseInt(a.zip) === 1 || parseInt(a.zip) == '1' || a.id % 2 === 1 || a.id % 3 === -2) return null",
        "let s = a.x.trim(); s = a.y; if (s === ' ') return null",
        "let s = 'A'; for (s of a.tags) { if (s === 1) return null }",
        "if (a.at instanceof Date || a.lines.includes(a.x) || a.lines.indexOf('x') === -1) return null",
        "const name = a.name || 'none'; rec.Metadata.name = name ?? 'x'",
        "if (a.x) { } else return null",
        "while (true) { break }",
        "if (a.lines.filter(l => l.price > 9).length) return null",
        "const by = {}; by[-1] = 'x'; rec.Metadata.x = by[-1]",
        "const by = { '-1': 'x' }; rec.Metadata.x = by[-1]",
        "a.lines.forEach(l => { if (!l.price) return; l.total = l.price })",
        "a.lines.forEach(l => { const all = l.parts.map(p => { return null }); l.all = all })",
        "a.lines.map(l => { l.price = 1 }); a.all = a.lines.map(l => { if (l.x) return l.x; throw new Error(l) })",
        "for (const k in a) if (a[k].price > k.length) return null",
        "const seen = new Set(); for (const t of a.tags) { if (seen.has(t)) return null; seen.add(t) }",
        "const seen = new Set(); a.tags.forEach(t => { if (seen.has(t)) a.twice = t; seen.add(t) })",
        "const seen = new Set(); fill(); if (seen.has(a.x)) return null; function fill() { seen.add(a.y) }",
        "const seen = new Set(a.tags); if (seen.has('x')) return null",
        "const seen = new Set(); seen.add(a.x); if (seen.has(a.y)) return null",
        "const status = a.status.trim(); const g = () => status; a.status = g()",
        "if (a.lines.some(l => l.sku === 'x')) a.lines.forEach(l => l.sku = 'y')",
    ];
    check_with_data(&scripts.map(|script| (script, "")));
}
