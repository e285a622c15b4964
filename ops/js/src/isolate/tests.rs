use anabranch_record::Record;

use crate::testing::Worker;

const SAMPLE: &str = r#"{"position":"cA==","operation":"create","metadata":{"a":"1"},"key":null,"payload":{"before":null,"after":{"do":"KEEP"}}}"#;

const STACK: usize = 64 << 20;

fn sample(what: &str) -> Record {
    crate::testing::record(&SAMPLE.replace("KEEP", what))
}

/// Runs three records, the middle one of which has an instruction.
fn between(script: &str, timeout: &str) -> Vec<Result<usize, String>> {
    let script = format!(
        "let seen = 0;
         function process(rec) {{
           seen++;
           if (rec.Payload.After.do === 'BREAK') {{ {script} }}
           rec.Metadata.seen = seen;
           return rec;
         }}"
    );
    // The executor gives isolates as much.
    let thread = std::thread::Builder::new().stack_size(STACK);
    let timeout = timeout.to_owned();
    let work = move || {
        let mut worker = Worker::with(&[("script", &script), ("timeout", &timeout)]);
        let made = worker.run(&["KEEP", "BREAK", "KEEP"].map(sample));
        let seen = |made: Vec<Record>| made[0].metadata.get("seen").unwrap().parse().unwrap();
        made.into_iter().map(|made| made.map(seen)).collect()
    };
    thread.spawn(work).unwrap().join().unwrap()
}

#[test]
fn an_endless_loop_fails_its_record_and_the_next_gets_a_fresh_isolate() {
    for script in [
        "for (;;);",
        "while (true) { try { for (;;); } catch {} finally { continue } }",
        "const f = () => { for (let i = 0; i < 1e6; i++); }; for (;;) f();",
        "label: for (;;) { for (;;) continue label }",
    ] {
        let found = between(script, "200ms");
        let timeout = "script_timeout: script was stopped after 200ms (setting timeout)".to_owned();
        assert_eq!(found, [Ok(1), Err(timeout), Ok(1)], "{script}");
    }
}

#[test]
fn endless_recursion_fails_its_record() {
    for script in [
        "const f = () => f() + 1; f();",
        "const f = () => [1].map(f); f();",
        "const o = { get x() { return this.x } }; o.x;",
        "const f = (x) => JSON.stringify({ toJSON: f }); f();",
        "rec.Payload.After.toString = () => `${rec.Payload.After}`; `${rec.Payload.After}`;",
        "const f = () => { try { f() } catch { f() } }; f();",
        "class A { constructor() { new A() } } new A();",
    ] {
        let found = between(script, "20s");
        assert_eq!((&found[0], found[2].is_ok()), (&Ok(1), true), "{script}: {found:?}");
        assert!(found[1].as_ref().is_err_and(|error| error.starts_with("script_")), "{script}: {found:?}");
    }
}

#[test]
fn deep_data_does_not_overflow_the_stack() {
    for script in [
        "JSON.parse('['.repeat(1e5))",
        "let a = []; for (let i = 0; i < 3e3; i++) a = [a]; JSON.stringify(a);",
        "let a = []; for (let i = 0; i < 3e3; i++) a = [a]; String(a);",
        "let a = []; for (let i = 0; i < 3e3; i++) a = [a]; a.flat(Infinity);",
        "let a = {}; for (let i = 0; i < 3e3; i++) a = {a}; rec.Payload.After.a = a;",
        "eval('('.repeat(1e3));",
        "new RegExp('('.repeat(1e3));",
    ] {
        // Whether it fails or not is the engine's business; that the process lives is ours.
        let found = between(script, "20s");
        assert!(found[0].is_ok() && found[2].is_ok(), "{script}: {found:?}");
    }
}

#[test]
fn the_end_of_a_script_is_awaited_no_longer_than_a_record() {
    let host = crate::testing::configure(&[
        ("script", "function process(rec) { return rec }\nfor (;;);"),
        ("timeout", "100ms"),
    ]);
    let message = match crate::testing::build(&host.unwrap()) {
        Err(fault) => fault.message(),
        Ok(_) => panic!("it opened"),
    };
    assert_eq!(message, "script was stopped after 100ms (setting timeout)");
}

#[test]
fn scripts_have_worlds_of_their_own() {
    let spoil = "Object.prototype.spoilt = 1; Array.prototype.map = null; JSON.stringify = null; globalThis.x = 1;
         logger.info('still here', {a: 1});
         function process(rec) { rec.Metadata.x = String(x) + rec.Payload.After.spoilt; x++; return rec }";
    let mut spoilt = Worker::new(spoil);
    let mut clean = Worker::new(
        "function process(rec) {
           rec.Metadata.x = typeof x + typeof {}.spoilt + [1].map((v) => v) + JSON.stringify({});
           return rec;
         }",
    );
    let x = |worker: &mut Worker| worker.one(sample("KEEP")).unwrap().metadata.get("x").unwrap().to_string();
    assert_eq!([x(&mut spoilt), x(&mut spoilt)], ["11", "21"]);
    assert_eq!(x(&mut clean), "undefinedundefined1{}");
}

#[test]
fn a_record_cannot_change_the_prototypes() {
    let mut worker = Worker::new(
        "function process(rec) {
           const copy = {};
           for (const k of Object.keys(rec.Payload.After)) rec.Payload.After[k];
           rec.Metadata.spoilt = String({}.spoilt);
           return rec;
         }",
    );
    let evil = SAMPLE.replace(r#""do":"KEEP""#, r#""__proto__":{"spoilt":1},"constructor":{"prototype":{"spoilt":1}}"#);
    let made = worker.json(&evil).unwrap();
    assert_eq!(made, evil.replace(r#""a":"1""#, r#""a":"1","spoilt":"undefined""#));
}
