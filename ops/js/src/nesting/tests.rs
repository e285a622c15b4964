use super::*;
use crate::program::{Flaw, Program};

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

fn flaw(text: String) -> Option<Flaw> {
    Program { text: text.into(), name: "script".into() }.check().err()
}

#[test]
fn every_way_to_nest_is_parsed_or_refused_at_its_place() {
    for [before, open, middle, close, after] in FORMS {
        for times in [10, 80, 199, 4_000] {
            let text = [
                "function process(r) { return r }\n",
                before,
                &open.repeat(times),
                middle,
                &close.repeat(times),
                after,
            ]
            .concat();
            // That this process lives is what is tested.
            let found = flaw(text);
            let nested = open.matches(['(', '[', '{']).count();
            let closed = open.matches([')', ']', '}']).count();
            if nested > closed && (nested - closed) * times > MOST_BRACKETS && *before != "let x=/" {
                let flaw = found.unwrap_or_else(|| panic!("{open} {times} times is let through"));
                assert!(matches!(flaw.code, "script.too_deep" | "script.too_large"), "{open}: {flaw:?}");
                assert!(flaw.position.is_none_or(|at| at.line == 2 && at.column > 100), "{open}: {flaw:?}");
            }
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
