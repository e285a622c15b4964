use crate::program::Program;

use super::*;

/// The acts of a body: `read after.x?` is an act that not every call reaches.
fn acts(body: &str) -> String {
    of(&format!("function process(rec) {{ {body}\n return rec }}"))
}

fn of(text: &str) -> String {
    let program = Program { text: text.into(), name: "script".into() };
    let acts = program.check().unwrap().acts;
    let shown: Vec<String> = acts
        .iter()
        .map(|act| {
            let doing = match &act.doing {
                RecordAct::Read => "read".to_owned(),
                RecordAct::Below => "below".to_owned(),
                RecordAct::Write => "write".to_owned(),
                RecordAct::Assign(text) => format!("assign {text}"),
                RecordAct::Compare(_) if act.name.is_empty() => "compare".to_owned(),
                RecordAct::Compare(text) => format!("compare {text}"),
                other => format!("{other:?}").to_lowercase(),
            };
            let place = format!("{:?}", act.place).to_lowercase();
            let (dot, perhaps) = (if act.name.is_empty() { "" } else { "." }, if act.certain { "" } else { "?" });
            format!("{doing} {place}{dot}{}{perhaps}", act.name)
        })
        .collect();
    shown.join(", ")
}

#[test]
fn acts_are_read_in_order() {
    for (body, expected) in [
        ("", ""),
        ("rec.Payload.After.x = 1", "write after.x"),
        ("rec.Payload.After.x += 1; rec.Payload.After.y++", "write after.x, write after.y"),
        ("rec['Payload']['After']['x'] = 1", "write after.x"),
        ("rec.operation = 'create'", "assign create record.operation"),
        ("rec.payload.after.x = 1", "below record.payload"),
        ("rec.Payload.after.x = rec.Payload.After.x", "read after.x, below payload.after"),
        (
            "const after = rec.Payload.After; after.x = after.y.z",
            "inside(\"z\", taken) after.y, below after.y, write after.x",
        ),
        ("const { x, y } = rec.Payload.After", "read after.x, read after.y"),
        ("const { x = 1 } = rec.Payload.After", ""),
        (
            "const t = rec.Payload.After.name.toUpperCase()",
            "inside(\"touppercase\", taken) after.name, below after.name",
        ),
        ("f(rec.Key.id, `${rec.Payload.Before.x}`)", "read key.id, text before.x, read before.x"),
        ("if (rec.Payload.After.x > 1) return null; f(rec.Key.id)", "read after.x, read key.id?"),
        ("if (rec.Key.id) { f(rec.Key.x) } f(rec.Key.y)", "read key.id, read key.x?, read key.y"),
        ("rec.Key.id > 1 && f(rec.Key.x); f(rec.Key.y)", "read key.id, read key.x?, read key.y"),
        ("if (rec.Payload.After && rec.Payload.After.x) f()", "read after.x?"),
        ("for (const x of rec.Key.list) { rec.Key.n = x }", "read key.list, write key.n?"),
        ("try { rec.payload.x = 1 } catch { return null }", "below record.payload?"),
        ("[1].map(x => rec.operation)", "read record.operation?"),
        (
            "if (rec.Operation === 'insert' || 'Delete' == rec.Operation) f()",
            "compare insert record.Operation, compare Delete record.Operation?",
        ),
        (
            "switch (rec.Operation) { case 'c': f(); break; case 'delete': g() }",
            "compare c record.Operation, compare delete record.Operation",
        ),
        ("if (rec.Key == 'a') f()", "compare key"),
        ("f(String(rec.Key), rec.Key.split(1)); if (f()) f({ ...rec.Key })", "text key, call key.split, spread key?"),
        ("rec.Payload.After = JSON.parse(rec.Payload.After)", "parse after"),
        (
            "const x = JSON.parse(String(rec.Key)); f(JSON.parse(rec.Payload.After.toString()))",
            "parse key, parse after",
        ),
    ] {
        let found = acts(body);
        let found: Vec<&str> = found.split(", ").filter(|act| !act.starts_with("read record.Operation")).collect();
        assert_eq!(found.join(", "), expected, "{body}");
    }
}

#[test]
fn what_may_be_of_other_data_is_no_act() {
    for body in [
        "rec.Payload.After = { a: 1 }; rec.Payload.After.x = 1",
        "rec.Payload = { After: {} }; rec.Payload.After.x = 1",
        "if (rec.Key) rec.Payload.After = f(); if (rec.Key) rec.Payload.After.x = 1",
        "decode(rec); rec.Payload.After.x = 1; f(rec.operation)",
        "const p = rec.Payload; change(p); p.After.x = 1",
        "if (rec.Payload.After instanceof Uint8Array) return null; rec.Payload.After.x = 1",
        "if (typeof rec.Payload.After.x !== 'string') return null; rec.Payload.After.x = 1",
        "if (rec.Payload.After.x === undefined) return null; rec.Payload.After.x = 1",
        "const op = rec.operation || rec.Operation; const x = rec.Payload.After?.x ?? rec.Key?.x",
        "rec = f(); rec.payload.x = 1",
        "items.forEach(rec => rec.operation)",
        "eval('x'); rec.payload.x = 1",
        "for (const k in rec.Payload.After) { rec.Payload.After[k] = 1; f(rec.Payload.After.x) }",
        "let after = rec.Payload.After; after = {}; after.x = 1",
        "with (rec) { operation = 1 }",
    ] {
        let found = acts(body);
        let other: Vec<&str> =
            found.split(", ").filter(|act| !act.is_empty() && !act.contains("record.Operation")).collect();
        assert_eq!(other, [] as [&str; 0], "{body}");
    }
    assert_eq!(of("function process({ Payload }) { Payload.after.x = 1; return null }"), "");
    assert_eq!(of("var process = rec => rec.x; process = f; function f(rec) { return rec.y.z }"), "");
    assert_eq!(of("const process = async rec => { rec.operation = 'x'; return rec }"), "assign x record.operation");
}
