//! What of a failure of a script is of the script alone, and what of the data.
//!
//! Everything here reads scripts as text, and takes for data whatever may be.

use std::collections::BTreeSet;

use super::names::literals;

/// Messages that say that the script is wrong whatever came before it: no data make them right.
const MISTAKES: [&str; 22] = [
    "immutable binding",
    "uninitialized",
    "non-global",
    "cannot mix BigInt",
    "non-writable",
    "failed to create matcher",
    "Callbackfn is not",
    "callback function is not",
    "comparison function",
    "without 'new'",
    "digits argument",
    "radix must be",
    "not a record",
    "no record:",
    "records hold",
    "metadata is text",
    "object of texts",
    "serialize bigint",
    "cyclic object",
    "contains itself",
    "maximum number of recursive",
    "of a kind that records cannot hold",
];

/// Messages about something that is not there, or about what a text holds: other data may be right.
const OF_DATA: [&str; 7] = ["null", "undefined", "destructure", "SyntaxError", "RangeError", "UriError", "nvalid"];

/// Whether a message is about a mistake in the script.
pub(super) fn is_mistake(message: &str) -> bool {
    MISTAKES.iter().any(|words| message.contains(words))
}

/// Whether a message is about data.
pub(super) fn is_of_data(message: &str) -> bool {
    OF_DATA.iter().any(|words| message.contains(words))
}

/// Whether the script itself throws this.
pub(super) fn is_thrown(script: &str, message: &str) -> bool {
    script.contains("throw")
        && literals(script).iter().any(|text| text.trim().len() > 2 && message.contains(text.trim()))
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

/// Whether an expression may depend on the record: it names a parameter, or a variable that was made of one.
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
        // A parameter that is taken apart has braces of its own.
        if let Some((head, _)) = script[at..].split_once(')')
            && let Some((_, parameters)) = head.split_once('(')
        {
            tainted.extend(words(parameters));
        }
    }
    loop {
        let before = tainted.len();
        for statement in script.split([';', '\n']) {
            let is_tainted = |text: &str| words(text).any(|word| tainted.contains(word));
            let parts = statement.split_once(" of ").or_else(|| statement.split_once(" in ")).or_else(|| {
                let at = statement.find('=')?;
                Some((&statement[..at], &statement[at + 1..]))
            });
            if let Some((left, right)) = parts
                && is_tainted(right)
            {
                tainted.extend(words(left).filter(|word| !["const", "let", "var", "for", "if"].contains(word)));
            }
            // A list or map that is filled.
            if let Some((left, right)) = statement.split_once(".push(").or_else(|| statement.split_once(".set("))
                && words(right).any(|word| tainted.contains(word))
            {
                tainted.extend(words(left).last());
            }
        }
        if tainted.len() == before {
            return tainted;
        }
    }
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !is_of_word(c)).filter(|word| word.starts_with(|c: char| !c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
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
    }
}
