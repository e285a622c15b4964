use super::*;

const PLACES: [(RecordObject, &str); 6] = [
    (RecordObject::Record, "rec"),
    (RecordObject::Payload, "payload"),
    (RecordObject::Metadata, "metadata"),
    (RecordObject::Key, "key"),
    (RecordObject::Before, "before"),
    (RecordObject::After, "after"),
];

/// The fields that a body may keep, and the other fields that it names.
fn uses(body: &str) -> String {
    of(&format!("function process(rec) {{ {body} }}"))
}

fn of(function: &str) -> String {
    let Some(uses) = RecordUses::of(function) else { return "keeps rec".to_owned() };
    let kept: Vec<&str> =
        PLACES.iter().filter(|(place, _)| uses.fields(*place).is_none()).map(|(_, name)| *name).collect();
    let named = PLACES[2..].iter().filter_map(|(place, name)| Some((name, uses.fields(*place)?)));
    let named =
        named.filter(|(_, fields)| !fields.is_empty()).map(|(name, fields)| format!("{name}.{}", fields.join("+")));
    let named: Vec<String> = named.collect();
    match kept.is_empty() {
        true => named.join(" "),
        false => format!("keeps {}{}{}", kept.join(" "), if named.is_empty() { "" } else { "; " }, named.join(" ")),
    }
}

fn check(cases: &[(&str, &str)]) {
    let wrong: Vec<_> = cases
        .iter()
        .map(|(body, expected)| (body, expected, uses(body)))
        .filter(|(_, expected, found)| found != *expected)
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn reading_and_writing_fields_keeps_nothing() {
    check(&[
        ("", ""),
        ("return rec", ""),
        ("return (rec)", ""),
        ("return rec.Operation === 'delete' ? null : rec", ""),
        ("return rec.Metadata.a && rec", "metadata.a"),
        ("rec.Metadata['js'] = '1'; rec.Payload.After.done = true; return rec", "metadata.js after.done"),
        ("rec.Metadata['a.b'] = rec.Key.id + rec.Payload.Before.x", "metadata.a.b key.id before.x"),
        ("rec.Payload.After.n += 1; rec.Payload.After.m++", "after.n+m"),
        ("rec.Metadata.a ??= 'x'", "metadata.a"),
        ("rec.Payload.After = {id: rec.Payload.After.id, name: rec.Metadata.name}", "metadata.name after.id"),
        ("rec.Key = rec.Payload.After.id; rec.Payload = {After: null}; rec.Metadata = {}", "after.id"),
        ("return `${rec.Payload.After.name}`.split(',')", "after.name"),
        ("rec.Payload.After.list.push(rec.Payload.After.item)", "after.list+item"),
        ("f(rec.Payload.After.x, rec.Operation, rec.Position)", "after.x"),
        ("if (rec.Payload.After && !rec.Payload.Before) rec.Metadata.x = '1'", "metadata.x"),
        ("if (rec.Key == null || rec.Payload.After !== undefined) return null", ""),
        ("return typeof rec.Key === 'object' ? rec : null", ""),
        ("rec.Payload?.After?.name; rec?.Metadata?.['a']", "metadata.a after.name"),
        ("const after = rec.Payload.After; after.x = after.y", "after.x+y"),
        ("const p = rec.Payload, a = p.After; var m = rec.Metadata; m.k = a.v; return rec", "metadata.k after.v"),
        ("const r = rec; r.Metadata.x = 1; return r", "metadata.x"),
        ("for (let i = 0; i < 2; i++) { if (i) a.x = 1; var a = p.After; var p = rec.Payload }", "after.x"),
        (
            "const { Metadata, Payload: { After, Before: { y } } } = rec; Metadata.x = After.z",
            "metadata.x before.y after.z",
        ),
        ("const { name, tags: [first] = [] } = rec.Payload.After", "keeps after"),
        ("const { name, tags: [first] } = rec.Payload.After", "after.name+tags"),
        ("const { name = rec.Metadata.x } = rec.Payload.After", "metadata.x after.name"),
        ("[rec.Metadata.a, rec.Metadata.b] = [1, 2]; ({ x: rec.Payload.After.x } = f())", "metadata.a+b after.x"),
        ("for (const item of rec.Payload.After.items) item.x = 1", "after.items"),
        ("new rec.Payload.After.list.Odd(1)", "after.list"),
        ("x => x.rec", ""),
    ]);
}

#[test]
fn what_may_be_kept_is_made_for_each_record() {
    check(&[
        ("last = rec", "keeps rec"),
        ("rec = last", "keeps rec"),
        ("rec++", "keeps rec"),
        ("f(rec)", "keeps rec"),
        ("return [rec]", "keeps rec"),
        ("return { ...rec }", "keeps rec"),
        ("return { rec }", "keeps rec"),
        ("return last = rec", "keeps rec"),
        ("return rec || last", "keeps rec"),
        ("throw rec", "keeps rec"),
        ("JSON.stringify(rec)", "keeps rec"),
        ("for (const k in rec) k", "keeps rec"),
        ("for (rec of list) f()", "keeps rec"),
        ("[rec] = list", "keeps rec"),
        ("with (rec) f()", "keeps rec"),
        ("with (globals) { var m = rec.Metadata }", "keeps rec"),
        ("eval('last = ' + 'rec')", "keeps rec"),
        ("last = arguments[0]", "keeps rec"),
        ("(() => { last = arguments })()", "keeps rec"),
        ("last = () => rec.Metadata.a", "keeps rec"),
        ("last = function () { return rec }", "keeps rec"),
        ("function later() { return rec.Key }", "keeps rec"),
        ("last = { get key() { return rec.Key } }", "keeps rec"),
        ("last = class { x = rec.Key }", "keeps rec"),
        ("last = class { static { rec } }", "keeps rec"),
        ("last = async () => rec.Key; last = function* () { yield rec }", "keeps rec"),
        ("{ let rec = 1 }", "keeps rec"),
        ("var rec", "keeps rec"),
        ("var rec = rec", "keeps rec"),
        ("try {} catch (rec) {}", "keeps rec"),
        ("rec[name]", "keeps rec"),
        ("rec.other = 1", "keeps rec"),
        ("rec.toString()", "keeps rec"),
        ("rec.Key()", "keeps rec"),
        ("rec.Metadata?.()", "keeps rec"),
        ("delete rec.Key", "keeps rec"),
        ("delete rec?.Key", "keeps rec"),
        ("'Key' in rec", "keeps rec"),
        ("rec == other", "keeps rec"),
        ("rec + ''", "keeps rec"),
        ("`${rec}`", "keeps rec"),
        ("let r; r = rec", "keeps rec"),
        ("const r = rec; last = r", "keeps rec"),
        ("const { Metadata, ...rest } = rec", "keeps rec"),
        ("const { [name]: x } = rec", "keeps rec"),
        ("const [x] = rec", "keeps rec"),
        ("(0, rec).Key", "keeps rec"),
        ("last = rec.Payload", "keeps payload"),
        ("rec.Payload.other", "keeps payload"),
        ("delete rec.Payload.After", "keeps payload after"),
        ("rec.Payload.After()", "keeps payload after"),
        ("rec.Payload.constructor", "keeps payload"),
        ("last = rec.Metadata", "keeps metadata"),
        ("rec.Key = rec.Payload", "keeps payload"),
        ("rec.Payload.After = rec.Metadata", "keeps metadata"),
        ("rec.Payload += 1", "keeps payload"),
        ("x = (rec.Metadata ??= {})", "keeps metadata"),
        ("x = rec.Metadata || {}", "keeps metadata"),
        ("x = rec.Key && rec.Metadata", "keeps metadata"),
        ("x = rec.Key ? rec.Metadata : null", "keeps metadata"),
        ("x = (1, rec.Metadata)", "keeps metadata"),
        ("return rec.Metadata", "keeps metadata"),
        ("rec.Metadata[name] = rec.Metadata.a", "keeps metadata"),
        ("rec.Metadata[0]", "keeps metadata"),
        ("rec.Metadata['7']", "keeps metadata"),
        ("rec.Metadata['\\ud800']", "keeps metadata"),
        ("rec.Metadata[last = rec.Key]", "keeps metadata key"),
        ("rec.Metadata?.[last = rec.Key]", "keeps metadata key"),
        ("delete rec.Metadata.a", "keeps metadata"),
        ("'a' in rec.Metadata", "keeps metadata"),
        ("Object.keys(rec.Metadata)", "keeps metadata"),
        ("JSON.stringify(rec.Payload.After)", "keeps after"),
        ("rec.Payload.After.toJSON()", "keeps after"),
        ("rec.Payload.After?.f()", "keeps after"),
        ("(rec.Payload.After.f)()", "keeps after"),
        ("rec.Payload.After.f?.()", "keeps after"),
        ("rec.Payload.After.f`x`", "keeps after"),
        ("rec.Payload.After == text", "keeps after"),
        ("rec.Payload.After + ''", "keeps after"),
        ("const a = rec.Payload.After; last = a", "keeps after"),
        ("let a = rec.Payload.After; a = 1", "keeps after"),
        ("const a = rec.Payload.After; last = () => a.x", "keeps after"),
        ("{ const a = rec.Key } { const a = rec.Metadata; last = a }", "keeps metadata key"),
        ("for (let i = 0; i < 2; i++) { if (i) last = a; var a = rec.Key }", "keeps key"),
        ("const { After } = rec.Payload; last = After", "keeps after"),
        ("const { Metadata: { ...rest } } = rec", "keeps metadata"),
        ("const { Metadata: [x] } = rec", "keeps metadata"),
        ("({ x: rec.Payload } = f())", "keeps payload"),
        ("for (const k in rec.Metadata) k", "keeps metadata"),
        ("[...rec.Key]", "keeps key"),
        ("f(...rec.Key)", "keeps key"),
        ("switch (rec.Key) { case 1: }", "keeps key"),
    ]);
}

#[test]
fn functions_of_other_kinds_are_understood_or_left_alone() {
    let same = [
        "rec => { rec.Metadata.a = 1; return rec }",
        "(rec, other) => (rec.Metadata.a = 1) && rec",
        "function (rec, other = rec.Metadata.a) { return rec }",
        "function process(rec) { 'use strict'; rec.Metadata.a = 1 }",
    ];
    for function in same {
        assert_eq!(of(function), "metadata.a", "{function}");
    }
    let unknown = [
        "",
        "function process() { [native code] }",
        "process(rec) { return rec }",
        "class process {}",
        "async function process(rec) { return rec }",
        "async rec => rec",
        "function* process(rec) { yield rec }",
        "function process() { return arguments[0] }",
        "function process(...rec) { return rec[0] }",
        "function process({ Metadata }) { Metadata.x = 1 }",
        "function process(rec = Record()) { return rec }",
        "function process(rec, rec) { return rec }",
        "function process(rec, other = () => rec) { return rec }",
        "function process(rec, other = rec) { last = other }",
        "x) + (y",
        "rec => rec); last = (rec => rec",
    ];
    for function in unknown {
        assert_eq!(of(function), "keeps rec", "{function}");
    }
}

#[test]
fn objects_of_which_many_fields_are_named_are_made_for_each_record() {
    let named = |count: usize| (0..count).map(|n| format!("rec.Metadata.m{n};")).collect::<String>();
    assert!(!uses(&named(MOST_FIELDS)).starts_with("keeps"));
    assert_eq!(uses(&named(MOST_FIELDS + 1)), "keeps metadata");
}
