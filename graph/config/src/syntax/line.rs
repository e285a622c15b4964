//! Properties of a line: indentation, comment, unclosed quotes and brackets.

/// Returns the number of spaces at the start of a line; `None` if the indentation contains tabs.
pub(super) fn indent_of(line: &str) -> Option<usize> {
    let blank = line.len() - line.trim_start_matches([' ', '\t']).len();
    line[..blank].bytes().all(|byte| byte == b' ').then_some(blank)
}

/// Returns a line without the comment at its end.
pub(super) fn without_comment(line: &str) -> &str {
    line.find(" #").map_or(line, |at| &line[..at]).trim_end()
}

/// Returns the length of an unquoted text with templates between braces or brackets.
pub(super) fn flow_text(text: &str) -> usize {
    let mut at = 0;
    while let Some(found) = text[at..].find(['{', ',', '}', ']']).map(|found| at + found) {
        let Some(end) = text[found..].strip_prefix("{{").and_then(|inner| inner.find("}}")) else {
            return text[..found].trim_end().len();
        };
        at = found + 2 + end + 2;
    }
    text.trim_end().len()
}

/// Returns the place of the quote that opens a value on this line and is not closed there.
pub(super) fn unclosed(line: &str) -> Option<usize> {
    let mut open: Option<(usize, char)> = None;
    let mut before = ' ';
    let mut chars = line.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match open {
            None if matches!(c, '"' | '\'') && matches!(before, ' ' | '[' | '{' | ',' | '\t') => open = Some((at, c)),
            None if c == '#' && before == ' ' => break,
            Some((_, '"')) if c == '\\' => drop(chars.next()),
            Some((_, '\'')) if c == '\'' && chars.peek().is_some_and(|(_, next)| *next == '\'') => drop(chars.next()),
            Some((_, mark)) if c == mark => open = None,
            _ => {}
        }
        before = c;
    }
    open.map(|(at, _)| at)
}

/// Returns the place of the bracket or brace that opens a value on this line and is not closed there.
pub(super) fn unclosed_bracket(line: &str) -> Option<usize> {
    let mut open: Vec<usize> = Vec::new();
    let mut quote = None;
    for (at, c) in line.char_indices() {
        match (quote, c) {
            (Some(mark), c) if c == mark => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '{' | '[') => open.push(at),
            (None, '}' | ']') => drop(open.pop()),
            _ => {}
        }
    }
    open.first().copied()
}
