//! Separates failures that only the script causes from failures that depend on data.
//!
//! This module reads scripts as text. In doubt, a failure depends on data.

use std::collections::BTreeSet;

use super::names::{FieldPath, literals, paths};

/// Messages of the engine about the text of the script: if the place is reached, no data avoid the failure.
const MISTAKES: [&str; 6] = [
    "immutable binding",
    "uninitialized",
    "without new",
    "Callbackfn is not",
    "callback function is not",
    "non-global",
];

/// Messages about a missing value, or about the content of a value: other data may avoid the failure.
const OF_DATA: [&str; 19] = [
    "null",
    "undefined",
    "destructure",
    "SyntaxError",
    "RangeError",
    "UriError",
    "URIError",
    "nvalid",
    "cannot mix BigInt",
    "serialize bigint",
    "cyclic object",
    "contains itself",
    "maximum number of recursive",
    "records hold numbers",
    "comparison function",
    "failed to create matcher",
    "digits argument",
    "radix must be",
    "not iterable",
];

/// Returns `true` if a message is about a mistake in the script.
pub(super) fn is_mistake(message: &str) -> bool {
    MISTAKES.iter().any(|words| message.contains(words))
}

/// Returns `true` if a message is about data.
pub(super) fn is_of_data(message: &str) -> bool {
    OF_DATA.iter().any(|words| message.contains(words))
}

/// Returns `true` if the script may throw its own errors.
pub(super) fn throws(script: &str) -> bool {
    words(script).any(|word| word == "throw" || word == "reject")
}

/// Effect of a script on a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Nothing.
    None,
    /// It deletes the field, or assigns a constant, for every record.
    Fixed,
    /// Anything else.
    Any,
}

/// Returns the effect of a script on a field, judged by its text.
pub(super) fn effect(script: &str, path: &FieldPath) -> Effect {
    const BRANCHES: [&str; 12] =
        ["if", "else", "switch", "case", "for", "while", "try", "catch", "throw", "function", "let", "var"];
    let Some((_, body)) = script.split_once("function process") else { return Effect::Any };
    let is_branched = words(body).any(|word| BRANCHES.contains(&word))
        || ["?", "&&", "||", "=>"].iter().any(|sign| body.contains(sign));
    let Some(body) = body.split_once('{').map(|(_, body)| body).filter(|_| !is_branched) else { return Effect::Any };
    let tainted = tainted(script);
    let is_of_record = |text: &str| words(text).any(|word| tainted.contains(word));
    let mut effect = Effect::None;
    for statement in body.split([';', '\n']).map(str::trim) {
        let deleted = statement.strip_prefix("delete ");
        let assigned = statement.split_once('=').filter(|(_, value)| !is_of_record(value)).map(|(target, _)| target);
        match deleted.or(assigned.map(str::trim)) {
            Some(target) if target.ends_with(|c: char| "+-*/%&|^?!<>".contains(c)) => return Effect::Any,
            Some(target) => match &paths(target)[..] {
                [] if target.starts_with("const ") || target.contains(".Metadata") => {}
                [field] if field.side == path.side && path.names.starts_with(&field.names) => effect = Effect::Fixed,
                [field] if !field.names.is_empty() => {}
                _ => return Effect::Any,
            },
            None if !is_of_record(statement) || (statement.starts_with("return") && words(statement).count() == 2) => {}
            None if is_read(statement) => {}
            None => return Effect::Any,
        }
    }
    effect
}

/// Returns `true` if a statement only binds a part of the record to a name.
fn is_read(statement: &str) -> bool {
    let value = statement.strip_prefix("const ").and_then(|declared| declared.split_once('='));
    value.is_some_and(|(_, value)| value.chars().all(|c| is_of_word(c) || c == '.' || c.is_whitespace()))
}

/// Returns `true` if the script itself throws this.
pub(super) fn is_thrown(script: &str, message: &str) -> bool {
    let literals = literals(script);
    // The text around the expressions of a template literal.
    let mut parts = literals.iter().flat_map(|literal| literal.split(['$', '{', '}'])).map(str::trim);
    throws(script) && parts.any(|part| part.len() > 2 && message.contains(part))
}

/// The expression at a place of a script: its statement, or what it assigns. Line and column from 1.
pub(super) fn expression(script: &str, line: usize, column: usize) -> Option<&str> {
    let text = script.lines().nth(line.checked_sub(1)?)?;
    let at = text.char_indices().nth(column.checked_sub(1)?).map_or(text.len(), |(at, _)| at);
    let start = text[..at].rfind([';', '{', '}']).map_or(0, |found| found + 1);
    let end = text[at..].find(';').map_or(text.len(), |found| at + found);
    let statement = &text[start..end];
    Some(match statement.find(" = ") {
        Some(found) if start + found < at => &statement[found + 3..],
        _ => statement,
    })
}

/// Returns `true` if an expression may depend on the record: it names a parameter, or a variable that was made of one.
pub(super) fn reads_record(script: &str, expression: &str) -> bool {
    let tainted = tainted(script);
    words(expression).any(|word| tainted.contains(word))
}

/// Parameters of functions, and variables that are assigned something that names one of them.
fn tainted(script: &str) -> BTreeSet<&str> {
    let mut tainted: BTreeSet<&str> = BTreeSet::from(["arguments", "this"]);
    for (at, _) in script.match_indices("=>") {
        let before = script[..at].trim_end();
        let start = match before.ends_with(')') {
            true => before.rfind('(').unwrap_or(0),
            false => before.rfind(|c: char| !is_of_word(c)).unwrap_or(0),
        };
        tainted.extend(words(&before[start..]));
    }
    for (at, _) in script.match_indices("function") {
        if let Some((head, _)) = script[at..].split_once('{')
            && let Some((_, parameters)) = head.split_once('(')
        {
            tainted.extend(words(parameters));
        }
        // A destructured parameter contains braces.
        if let Some((head, _)) = script[at..].split_once(')')
            && let Some((_, parameters)) = head.split_once('(')
        {
            tainted.extend(words(parameters));
        }
    }
    // A variable that is assigned in several places may be assigned conditionally.
    for name in
        ["let ", "var "].iter().flat_map(|word| script.match_indices(word).map(|(at, word)| &script[at + word.len()..]))
    {
        let Some(name) = words(name).next() else { continue };
        let is_assigned = |statement: &&str| {
            statement.split_once('=').is_some_and(|(target, _)| words(target).any(|word| word == name))
        };
        if script.split([';', '\n', '{', '}']).filter(is_assigned).count() != 1 {
            tainted.insert(name);
        }
    }
    loop {
        let before = tainted.len();
        for statement in statements(script).into_iter().map(behind_head) {
            let is_tainted = |text: &str| words(text).any(|word| tainted.contains(word));
            let is_nested =
                ["for", "while", "if", "else", "switch"].iter().any(|word| statement.trim_start().starts_with(word));
            // Names of fields do not matter, only those of variables.
            let named = variables(statement).filter(|word| !GLOBALS.contains(word));
            let assigned = statement.split_once('=').filter(|(_, value)| !is_nested && !is_tainted(value));
            if let Some((target, _)) = assigned {
                // A place in the record is tainted already, and so may be what indexes it.
                if variables(target).skip(1).any(|word| tainted.contains(word)) {
                    tainted.extend(variables(target).filter(|word| !GLOBALS.contains(word)));
                }
            } else if is_tainted(statement) {
                tainted.extend(named);
            }
        }
        if tainted.len() == before {
            return tainted;
        }
    }
}

/// The statements of a script, separated by ends of lines and semicolons. A continued line is of one statement with
/// the next.
fn statements(script: &str) -> Vec<&str> {
    let opens = |line: &str| {
        line.strip_suffix('{').is_some_and(|before| {
            let before = before.trim_end();
            before.ends_with(['=', '(', '[', ',', ':', '?']) || before.ends_with("return")
        })
    };
    let goes_on =
        |line: &str| line.ends_with(['(', '[', ',', '=', '+', '-', '*', '?', ':', '&', '|', '.']) || opens(line);
    let is_rest = |line: &str| line.starts_with(['.', '?', ':', '+', '-', '&', '|', ')', ']', '}', ',']);
    let mut found = Vec::new();
    let (mut start, mut end) = (0, 0);
    let mut lines = script.split_inclusive('\n').peekable();
    while let Some(line) = lines.next() {
        end += line.len();
        if !goes_on(line.trim_end()) && !lines.peek().is_some_and(|next| is_rest(next.trim_start())) {
            found.extend(script[start..end].split(';'));
            start = end;
        }
    }
    found.extend(script[start..].split(';'));
    found
}

/// A statement without the head of the function that it is the first of.
fn behind_head(statement: &str) -> &str {
    let head = statement.trim_start().strip_prefix("function");
    head.and_then(|head| head.split_once('{')).map_or(statement, |(_, body)| body)
}

/// Names that no statement of a script changes.
const GLOBALS: [&str; 34] = [
    "const",
    "let",
    "var",
    "for",
    "if",
    "else",
    "of",
    "in",
    "return",
    "new",
    "function",
    "while",
    "typeof",
    "delete",
    "throw",
    "Math",
    "JSON",
    "Number",
    "String",
    "Object",
    "Array",
    "Date",
    "BigInt",
    "Boolean",
    "RegExp",
    "Map",
    "Set",
    "Error",
    "TypeError",
    "parseInt",
    "parseFloat",
    "true",
    "false",
    "null",
];

/// Words that do not follow on a dot.
fn variables(text: &str) -> impl Iterator<Item = &str> {
    words(text).filter(move |word| {
        let at = word.as_ptr() as usize - text.as_ptr() as usize;
        !text[..at].trim_end().ends_with('.') || text[..at].trim_end().ends_with("...")
    })
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !is_of_word(c)).filter(|word| word.starts_with(|c: char| !c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use anabranch_record::reference::Side;

    use super::*;

    const SCRIPT: &str = "function process(rec) {\n  const rates = { eur: 1 };\n  const id = rec.Payload.After.id;\n  \
                          rec.Payload.After.t = rates.EUR.toFixed(2);\n  rec.Payload.After.u = id.x.y;\n  \
                          rec.Payload.After.items.map(i => i.price.toFixed(2));\n  return rec;\n}\n";

    #[test]
    fn an_expression_of_constants_reads_no_record() {
        let at = expression(SCRIPT, 4, 40).unwrap();
        assert_eq!(at, "rates.EUR.toFixed(2)");
        assert!(!reads_record(SCRIPT, at));
    }

    #[test]
    fn a_variable_that_was_made_of_the_record_reads_it() {
        assert!(reads_record(SCRIPT, expression(SCRIPT, 5, 30).unwrap()));
        assert!(reads_record(SCRIPT, expression(SCRIPT, 6, 40).unwrap()));
    }

    #[test]
    fn what_a_script_throws_is_its_own() {
        assert!(is_thrown("throw new TypeError('no id here')", "TypeError: no id here (at script:1:1)"));
        assert!(!is_thrown("x.y('no id here')", "TypeError: no id here"));
        assert!(is_thrown("throw `got ${n} columns`", "got 7 columns"));
    }

    #[test]
    fn what_a_statement_fills_with_parts_of_the_record_reads_it() {
        let script = "function process(rec) {\n  const fields = {};\n  const seen = [];\n  let unit = null;\n  \
                      for (const [, k, v] of rec.Payload.After.line.matchAll(/x/g)) fields[k] = v;\n  \
                      Object.assign(seen, rec.Payload.After);\n  if (rec.Key) unit = 'kg';\n  return rec;\n}\n";
        let tainted = tainted(script);
        assert!(["fields", "seen", "unit", "k"].iter().all(|name| tainted.contains(name)), "{tainted:?}");
        assert!(!tainted.contains("Object"));
    }

    #[test]
    fn a_statement_may_have_several_lines() {
        let script = "function process(rec) {\n  const o = {\n    ...rec.Payload.After,\n    b: 1,\n  };\n  const m = new \
                      Map(\n    rec.Key\n  );\n  const c = {\n    d: 1,\n  };\n  const l = c\n    .with(rec);\n  return rec;\n}\n";
        let tainted = tainted(script);
        assert!(["o", "m", "l"].iter().all(|name| tainted.contains(name)), "{tainted:?}");
    }

    #[test]
    fn the_effect_of_a_script_on_a_field_is_known_where_it_does_not_depend_on_data() {
        let field = |name: &str| FieldPath { side: Side::After, names: vec![name.to_owned()] };
        let script = |body: &str| format!("function process(rec) {{ {body} return rec; }}");
        for (body, expected) in [
            ("rec.Metadata.a = 'b';", Effect::None),
            ("rec.Payload.After.other = 1;", Effect::None),
            ("rec.Payload.After = { name: 'x' };", Effect::Fixed),
            ("delete rec.Payload.After.a;", Effect::Fixed),
            ("rec.Payload.After.a = 'A' + 1;", Effect::Fixed),
            ("const d = rec.Payload.After; rec.Payload.After = 'x;y';", Effect::Fixed),
            ("const { b } = rec.Payload.After; rec.Payload.After = { a: 1 };", Effect::Fixed),
            ("const d = rec.Payload.After; d.a = 'A';", Effect::Any),
            ("const d = rec.Payload.After; rec.Payload.After = { a: d.a };", Effect::Any),
            ("const d = rec.Payload.After = read(rec);", Effect::Any),
            ("rec.Payload.After.a = 'A' + rec.Payload.After.id;", Effect::Any),
            ("if (rec.Key) { rec.Payload.After.a = 1; }", Effect::Any),
            ("rec.Payload.After.a += 1;", Effect::Any),
            ("change(rec.Payload.After);", Effect::Any),
            ("change(rec);", Effect::Any),
        ] {
            assert_eq!(effect(&script(body), &field("a")), expected, "{body}");
        }
    }
}
