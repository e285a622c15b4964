use std::rc::Rc;
use std::time::Duration;

use super::*;
use crate::isolate::Isolate;
use crate::limits::Limits;
use crate::log::{LineReceiver, ServiceLog};
use crate::program::{Program, ScriptFlaw};
use crate::worker;

/// Ways to nest: before, again and again, in the middle, again and again, after.
const FORMS: &[[&str; 5]] = &[
    ["let x=", "(", "1", ")", ""],
    ["let x=", "[", "1", "]", ""],
    ["", "{", "", "}", ""],
    ["let x=", "{a:", "1", "}", ""],
    ["let x=", "!", "1", "", ""],
    ["let x=", "- ", "1", "", ""],
    ["let x=", "typeof ", "1", "", ""],
    ["let x=", "1?2:", "1", "", ""],
    ["let x=", "1?", "1", ":2", ""],
    ["", "if(1);else ", "", "", ";"],
    ["", "if(1)", "", "", ";"],
    ["", "while(1)", "", "", ";"],
    ["", "do ", ";", " while(1)", ";"],
    ["", "for(;;)", "", "", ";"],
    ["let x=1", "+1", "", "", ""],
    ["let x;x=1", ",1", "", "", ""],
    ["let x=a", ".a", "", "", ""],
    ["let x=a", "()", "", "", ""],
    ["let x=a", "[1]", "", "", ""],
    ["let x=", "x=", "1", "", ""],
    ["let x=", "x=>", "1", "", ""],
    ["let x=", "(x)=>", "1", "", ""],
    ["let x=", "()=>{", "1", "}", ""],
    ["let x=", "(a=", "1", ")=>1", ""],
    ["", "function f(){", "", "}", ""],
    ["let x=", "function(){return ", "1", "}", ""],
    ["", "class A{m(){", "", "}}", ""],
    ["let x=", "class extends ", "Object", "{}", ""],
    ["let x=", "class{a=", "1", "}", ""],
    ["", "class A{static{", "", "}}", ""],
    ["let x=", "new ", "A", "", ""],
    ["async function g(){", "await ", "1", "", "}"],
    ["function* g(){", "yield ", "1", "", "}"],
    ["let x=", "`${", "1", "}`", ""],
    ["let x=a", "``", "", "", ""],
    ["let x=1", "**1", "", "", ""],
    ["", "try{", "", "}catch{}", ""],
    ["", "switch(1){case 1:", "", "}", ""],
    ["let ", "[", "a", "]", "=1"],
    ["let ", "{a:", "a", "}", "=1"],
    ["let {a=", "({a:", "1", "})", "}=1"],
    ["let x=a", "?.a", "", "", ""],
    ["let x=", "[...", "a", "]", ""],
    ["let x=1", "&&1", "", "", ""],
    ["let x=1", "??1", "", "", ""],
    ["let x=1", " in 1", "", "", ""],
    ["", "with(1)", "", "", ";"],
    ["let x=", "import(", "1", ")", ""],
    ["let x=", "{[", "1", "]:1}", ""],
    ["let x=", "{get a(){return ", "1", "}}", ""],
    ["let x=", "async()=>", "1", "", ""],
    ["", "(function(a=", "1", "){})", ""],
    ["let x=", "--", "x", "", ""],
    ["", "a:", "", "", ";"],
    ["", ";", "", "", ""],
    ["switch(1){", "case 1:", "", "", "}"],
    ["let x=/", "(", "", ")", "/"],
    ["", "for(let a of ", "1", ");", ""],
];

fn nested([before, open, middle, close, after]: &[&str; 5], times: usize) -> String {
    let function = "function process(r) { return r }\n";
    [function, before, &open.repeat(times), middle, &close.repeat(times), after].concat()
}

fn flaw(text: String) -> Option<ScriptFlaw> {
    Program { text: text.into(), name: "script".into() }.check().err()
}

#[test]
fn every_way_to_nest_is_parsed_or_refused_at_its_place() {
    for form @ [before, open, ..] in FORMS {
        for times in [10, 80, 199, 4_000] {
            // That this process lives is what is tested.
            let found = flaw(nested(form, times));
            let nested = open.matches(['(', '[', '{']).count();
            let closed = open.matches([')', ']', '}']).count();
            if nested > closed && (nested - closed) * times > MOST_BRACKETS && *before != "let x=/" {
                let flaw = found.unwrap_or_else(|| panic!("{open} {times} times is let through"));
                assert!(matches!(flaw.code.name(), "script.too_deep" | "script.too_large"), "{open}: {flaw:?}");
                assert!(flaw.position.is_none_or(|at| at.line == 2 && at.column > 100), "{open}: {flaw:?}");
            }
        }
    }
}

/// The bounds differ between builds; they are meant to keep a factor of two in each.
#[test]
fn half_of_the_stack_is_enough_for_every_way_to_nest() {
    let on = |stack: usize, work: &(dyn Fn() + Sync)| {
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().stack_size(stack).spawn_scoped(scope, work).unwrap();
            thread.join().unwrap();
        });
    };
    for form in FORMS {
        for times in [10, 80, 199, 4_000] {
            let text = nested(form, times);
            if check(&text).is_err() {
                continue;
            }
            let stack = stack(&text);
            let program = Program { text: text.into(), name: "script".into() };
            // That this process lives is what is tested, here too.
            on(stack / 2, &|| drop(program.parse()));
            on((worker::STACK + stack) / 2, &|| {
                let lines: Rc<dyn LineReceiver> = Rc::new(ServiceLog("js".into()));
                let _ = Isolate::open(&program, Limits { time: Duration::from_millis(1) }, &lines);
            });
        }
    }
}

#[test]
fn what_is_no_bracket_does_not_count() {
    let many = "([{".repeat(500);
    for text in [
        format!("let a = '{many}', b = \"{many}\", c = `{many}`;"),
        format!("// {many}\n/* {many} */"),
        format!("let a = /{}/, b = x.match(/[(]/g);", "\\(".repeat(500)),
        "let a = (b) / (c) / 2;".repeat(500),
        "if (/[({]/.test(`${x}/${y}`)) { a = b / 2 } else { '/' }".repeat(500),
        "x = {a: [1, (2)]};".repeat(1_000),
        "é = 'é'; // é\n".repeat(300),
    ] {
        assert_eq!(check(&text), Ok(()), "{}", &text[..60]);
    }
}

#[test]
fn a_bracket_too_deep_has_its_place() {
    let text = format!("let é = 1;\n  let x = {}", "(".repeat(MOST_BRACKETS + 1));
    assert_eq!(check(&text), Err(Position { line: 2, column: 11 + MOST_BRACKETS }));
    let text = format!("let x = {}", "`${".repeat(MOST_BRACKETS + 1));
    assert!(check(&text).is_err());
}
