//! The text form of arrays: `{1,NULL,"a b"}`, nested for each dimension, perhaps after bounds: `[2:3]={5,6}`.

use anabranch_record::value::Value;

use super::DIMENSIONS;

/// An array as its text shows it: texts, `NULL`s and lists of them.
#[derive(Debug, PartialEq)]
pub(super) struct Literal {
    pub(super) list: Value,
    /// Bounds of each dimension; empty if the text has none.
    pub(super) bounds: Vec<Bounds>,
}

/// First and last index of a dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) lower: i32,
    upper: i32,
}

impl Bounds {
    /// Returns the number of elements; `None` if the bounds are in the wrong order.
    pub(super) fn len(&self) -> Option<usize> {
        usize::try_from(i64::from(self.upper) - i64::from(self.lower) + 1).ok()
    }
}

/// Parses the text of an array. Returns `None` if it is not one, or has too many dimensions.
pub(super) fn parse(text: &str) -> Option<Literal> {
    let mut rest = text.trim();
    let mut bounds = Vec::new();
    while let Some(inner) = rest.strip_prefix('[') {
        let (range, after) = inner.split_once(']')?;
        let (lower, upper) = range.split_once(':').unwrap_or(("1", range));
        bounds.push(Bounds { lower: lower.trim().parse().ok()?, upper: upper.trim().parse().ok()? });
        rest = after.trim_start();
    }
    if !bounds.is_empty() {
        rest = rest.strip_prefix('=')?.trim_start();
    }
    let mut text = Text(rest);
    let list = text.list(1)?;
    text.0.trim().is_empty().then_some(Literal { list, bounds })
}

/// The text that is left to parse.
struct Text<'a>(&'a str);

impl Text<'_> {
    /// Takes a character, if it is the next one after white space.
    fn take(&mut self, c: char) -> bool {
        match self.0.trim_start().strip_prefix(c) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }

    fn list(&mut self, depth: usize) -> Option<Value> {
        if depth > DIMENSIONS || !self.take('{') {
            return None;
        }
        let mut items = Vec::new();
        if self.take('}') {
            return Some(Value::from(items));
        }
        loop {
            items.push(match self.0.trim_start().chars().next()? {
                '{' => self.list(depth + 1)?,
                '"' => self.quoted()?,
                _ => self.bare()?,
            });
            if self.take('}') {
                return Some(Value::from(items));
            }
            if !self.take(',') {
                return None;
            }
        }
    }

    fn quoted(&mut self) -> Option<Value> {
        self.take('"');
        let mut item = String::new();
        let mut chars = self.0.chars();
        loop {
            match chars.next()? {
                '"' => break,
                '\\' => item.push(chars.next()?),
                c => item.push(c),
            }
        }
        self.0 = chars.as_str();
        Some(Value::from(item))
    }

    /// Takes an element without quotes: up to a comma or a brace, without white space around it.
    fn bare(&mut self) -> Option<Value> {
        let mut item = String::new();
        let mut chars = self.0.trim_start().chars();
        // Length without white space at the end that is not escaped.
        let mut length = 0;
        let mut has_escapes = false;
        loop {
            let before = chars.as_str();
            match chars.next()? {
                ',' | '}' => {
                    self.0 = before;
                    break;
                }
                '{' | '"' => return None,
                '\\' => {
                    item.push(chars.next()?);
                    has_escapes = true;
                    length = item.len();
                }
                c => {
                    item.push(c);
                    if !c.is_whitespace() {
                        length = item.len();
                    }
                }
            }
        }
        item.truncate(length);
        match item.as_str() {
            "" => None,
            text if !has_escapes && text.eq_ignore_ascii_case("null") => Some(Value::Null),
            _ => Some(Value::from(item)),
        }
    }
}

#[cfg(test)]
mod tests {
    use anabranch_record::json;

    use super::*;

    #[test]
    fn literals_are_lists_of_texts() {
        for (text, list) in [
            ("{}", "[]"),
            (" { } ", "[]"),
            ("{1,2}", r#"["1","2"]"#),
            ("{ 1 , NULL,null}", r#"["1",null,null]"#),
            (r#"{"NULL","a\"b\\c",\NULL}"#, r#"["NULL","a\"b\\c","NULL"]"#),
            ("{{a b,☃},{\"\",\" x \"}}", r#"[["a b","☃"],[""," x "]]"#),
            (r#"{a\ ,b}"#, r#"["a ","b"]"#),
            (r#"{"2006-01-31 15:04:05+00"}"#, r#"["2006-01-31 15:04:05+00"]"#),
        ] {
            let found = parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(found.list, json::parse_value(list.as_bytes()).unwrap(), "{text}");
            assert_eq!(found.bounds, []);
        }
        let found = parse("[0:1][-2:-1]={{1,2},{3,4}}").unwrap();
        assert_eq!(found.bounds, [Bounds { lower: 0, upper: 1 }, Bounds { lower: -2, upper: -1 }]);
        assert_eq!(found.bounds[0].len(), Some(2));
        assert_eq!(parse("[3]={1,2,3}").unwrap().bounds, [Bounds { lower: 1, upper: 3 }]);
        assert_eq!(Bounds { lower: 3, upper: 1 }.len(), None);
    }

    #[test]
    fn other_text_is_not_a_literal() {
        for text in [
            "",
            "1",
            "{",
            "{1",
            "{1,}",
            "{,1}",
            "{1}}",
            "{1}x",
            "{\"a}",
            "{a\\",
            "{a\"b\"}",
            "[1:2]{1,2}",
            "[a:b]={1}",
            "[1:2={1,2}",
            "{{{{{{{1}}}}}}}",
            "{\"a\"b}",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
