//! Translation of Go's regular expressions to the syntax of the `regex` crate.
//!
//! Go's `\d`, `\w`, `\s` and `\b` mean ASCII; brackets do not nest and have no set operations; braces that are not a
//! repetition are text; `\Q..\E` quotes. Syntax of the crate that Go does not have is rejected, as Go does.

use std::fmt::Write as _;

/// Maximum number of repetitions in Go.
const MOST_REPEATS: u32 = 1000;

/// Returns the pattern for the crate, with all groups nameless, and the names of the groups from 1. O(n).
pub(super) fn translate(pattern: &str) -> Result<(String, Vec<Option<String>>), &'static str> {
    let mut translator = Translator { rest: pattern, out: String::with_capacity(pattern.len()), names: Vec::new() };
    translator.pattern()?;
    Ok((translator.out, translator.names))
}

struct Translator<'a> {
    rest: &'a str,
    out: String,
    names: Vec<Option<String>>,
}

/// The item before a repetition operator.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PrecedingItem {
    /// An item that cannot be repeated.
    Nothing,
    /// An item that can be repeated.
    Item,
    /// A repetition, which cannot be repeated again.
    Repetition,
}

impl Translator<'_> {
    fn next(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let c = chars.next();
        self.rest = chars.as_str();
        c
    }

    fn take(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn literal(&mut self, c: char) {
        if c.is_ascii_alphanumeric() || !c.is_ascii() {
            self.out.push(c);
        } else {
            // Writing to a `String` cannot fail.
            let _ = write!(self.out, "\\x{{{:x}}}", u32::from(c));
        }
    }

    fn pattern(&mut self) -> Result<(), &'static str> {
        let mut before = PrecedingItem::Nothing;
        while let Some(c) = self.next() {
            before = match c {
                '*' | '+' | '?' => {
                    self.out.push(c);
                    self.repetition(before)?
                }
                '{' => match self.count()? {
                    Some(count) => {
                        self.out.push_str(&count);
                        self.repetition(before)?
                    }
                    None => {
                        self.literal('{');
                        PrecedingItem::Item
                    }
                },
                '(' => self.group()?,
                '|' => {
                    self.out.push('|');
                    PrecedingItem::Nothing
                }
                '[' => {
                    self.class()?;
                    PrecedingItem::Item
                }
                '\\' => self.escape(before)?,
                '.' | '^' | '$' | ')' => {
                    self.out.push(c);
                    PrecedingItem::Item
                }
                c => {
                    self.literal(c);
                    PrecedingItem::Item
                }
            };
        }
        Ok(())
    }

    fn repetition(&mut self, before: PrecedingItem) -> Result<PrecedingItem, &'static str> {
        match before {
            PrecedingItem::Nothing => Err("missing argument to repetition operator"),
            PrecedingItem::Repetition => Err("invalid nested repetition operator"),
            PrecedingItem::Item => {
                if self.take("?") {
                    self.out.push('?');
                }
                Ok(PrecedingItem::Repetition)
            }
        }
    }

    /// Parses `n}`, `n,}` or `n,m}`; `None` if the brace is text.
    fn count(&mut self) -> Result<Option<String>, &'static str> {
        let Some((inner, after)) = self.rest.split_once('}') else { return Ok(None) };
        let (least, most) = inner.split_once(',').map_or((inner, None), |(least, most)| (least, Some(most)));
        let is_number = |text: &str| {
            !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) && (text.len() == 1 || !text.starts_with('0'))
        };
        if !is_number(least) || !most.is_none_or(|most| most.is_empty() || is_number(most)) {
            return Ok(None);
        }
        let number = |text: &str| text.parse::<u32>().ok().filter(|n| *n <= MOST_REPEATS);
        let least = number(least).ok_or("invalid repeat count")?;
        let count = match most {
            None => format!("{{{least}}}"),
            Some("") => format!("{{{least},}}"),
            Some(most) => {
                let most = number(most).filter(|most| *most >= least).ok_or("invalid repeat count")?;
                format!("{{{least},{most}}}")
            }
        };
        self.rest = after;
        Ok(Some(count))
    }

    /// Translates the text after an opening parenthesis.
    fn group(&mut self) -> Result<PrecedingItem, &'static str> {
        if !self.take("?") {
            self.names.push(None);
            self.out.push('(');
            return Ok(PrecedingItem::Nothing);
        }
        if self.take("P<") || self.take("<") {
            let (name, after) = self.rest.split_once('>').ok_or("invalid named capture")?;
            if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
                return Err("invalid named capture");
            }
            self.names.push(Some(name.to_owned()));
            self.rest = after;
            self.out.push('(');
            return Ok(PrecedingItem::Nothing);
        }
        let end = self.rest.find([':', ')']).ok_or("missing closing )")?;
        let flags = &self.rest[..end];
        let letters = flags.strip_suffix('-').map_or(flags, |_| "-");
        if letters == "-" || !letters.bytes().all(|b| b"imsU-".contains(&b)) || letters.matches('-').count() > 1 {
            return Err("invalid or unsupported Perl syntax");
        }
        let scoped = self.rest.as_bytes()[end] == b':';
        // The crate requires a flag if there is no group.
        if scoped || !flags.is_empty() {
            self.out.push_str("(?");
            self.out.push_str(flags);
            self.out.push(if scoped { ':' } else { ')' });
        }
        self.rest = &self.rest[end + 1..];
        Ok(PrecedingItem::Nothing)
    }

    /// Translates the text after a backslash, outside brackets.
    fn escape(&mut self, before: PrecedingItem) -> Result<PrecedingItem, &'static str> {
        let Some(c) = self.rest.chars().next() else { return Err("trailing backslash at end of expression") };
        match c {
            'Q' => {
                self.next();
                let (quoted, after) = self.rest.split_once("\\E").unwrap_or((self.rest, ""));
                self.rest = after;
                quoted.chars().for_each(|c| self.literal(c));
                return Ok(if quoted.is_empty() { before } else { PrecedingItem::Item });
            }
            'E' => {
                // The end of a quotation that has no beginning.
                return Err("invalid escape sequence");
            }
            'A' => self.out.push_str("\\A"),
            'z' => self.out.push_str("\\z"),
            'b' => self.out.push_str("(?-u:\\b)"),
            'B' => self.out.push_str("(?-u:\\B)"),
            _ => {
                match self.set_escape()? {
                    Some(set) => self.out.push_str(&set),
                    None => {
                        let c = self.char_escape()?;
                        self.literal(c);
                    }
                }
                return Ok(PrecedingItem::Item);
            }
        }
        self.next();
        Ok(PrecedingItem::Item)
    }

    /// Translates an escape that stands for a set of characters; also used inside brackets.
    fn set_escape(&mut self) -> Result<Option<String>, &'static str> {
        let set = match self.rest.chars().next() {
            Some('d') => "[0-9]",
            Some('D') => "[^0-9]",
            Some('w') => "[0-9A-Za-z_]",
            Some('W') => "[^0-9A-Za-z_]",
            Some('s') => "[\\t\\n\\x0C\\r ]",
            Some('S') => "[^\\t\\n\\x0C\\r ]",
            Some(c @ ('p' | 'P')) => {
                self.next();
                return self.property(c == 'P').map(Some);
            }
            _ => return Ok(None),
        };
        self.next();
        Ok(Some(set.to_owned()))
    }

    /// Translates a Unicode class by its name.
    fn property(&mut self, mut negated: bool) -> Result<String, &'static str> {
        const WRONG: &str = "invalid character class range";
        let name = if self.take("{") {
            let (name, after) = self.rest.split_once('}').ok_or(WRONG)?;
            self.rest = after;
            let positive = name.strip_prefix('^');
            negated ^= positive.is_some();
            positive.unwrap_or(name).to_owned()
        } else {
            self.next().ok_or(WRONG)?.to_string()
        };
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b' ') {
            return Err(WRONG);
        }
        Ok(format!("\\{}{{{name}}}", if negated { 'P' } else { 'p' }))
    }

    /// Translates an escape that stands for one character.
    fn char_escape(&mut self) -> Result<char, &'static str> {
        const WRONG: &str = "invalid escape sequence";
        let c = self.next().ok_or("trailing backslash at end of expression")?;
        Ok(match c {
            'a' => '\u{7}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            'x' => return self.hexadecimal().ok_or(WRONG),
            '0'..='7' => {
                // A single digit would be a back-reference, which is not supported.
                if c != '0' && !self.rest.starts_with(|c: char| ('0'..='7').contains(&c)) {
                    return Err(WRONG);
                }
                let mut code = c.to_digit(8).unwrap_or_default();
                for _ in 0..2 {
                    let Some(digit) = self.rest.chars().next().and_then(|c| c.to_digit(8)) else { break };
                    code = code * 8 + digit;
                    self.next();
                }
                char::from_u32(code).ok_or(WRONG)?
            }
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => c,
            _ => return Err(WRONG),
        })
    }

    fn hexadecimal(&mut self) -> Option<char> {
        let digits = if self.take("{") {
            let (digits, after) = self.rest.split_once('}')?;
            self.rest = after;
            digits
        } else {
            let digits = self.rest.get(..2)?;
            self.rest = &self.rest[2..];
            digits
        };
        let valid = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
        char::from_u32(valid.then(|| u32::from_str_radix(digits, 16).ok())??)
    }

    /// Translates the text after an opening bracket.
    fn class(&mut self) -> Result<(), &'static str> {
        const MISSING: &str = "missing closing ]";
        self.out.push('[');
        if self.take("^") {
            self.out.push('^');
        }
        let mut first = true;
        loop {
            if self.rest.is_empty() {
                return Err(MISSING);
            }
            if !first && self.take("]") {
                self.out.push(']');
                return Ok(());
            }
            first = false;
            if self.rest.starts_with("[:")
                && let Some(len) = posix_len(self.rest)?
            {
                self.out.push_str(&self.rest[..len]);
                self.rest = &self.rest[len..];
                continue;
            }
            if let Some(after) = self.rest.strip_prefix('\\') {
                let backslash = std::mem::replace(&mut self.rest, after);
                if let Some(set) = self.set_escape()? {
                    self.out.push_str(&set);
                    continue;
                }
                self.rest = backslash;
            }
            let low = self.class_char()?;
            // A minus before the closing bracket is text.
            let range = self.rest.starts_with('-') && !self.rest.starts_with("-]") && self.rest.len() > 1;
            if range {
                self.rest = &self.rest[1..];
                let high = self.class_char()?;
                if high < low {
                    return Err("invalid character class range");
                }
                self.literal(low);
                self.out.push('-');
                self.literal(high);
            } else {
                self.literal(low);
            }
        }
    }

    fn class_char(&mut self) -> Result<char, &'static str> {
        match self.next() {
            Some('\\') => self.char_escape(),
            Some(c) => Ok(c),
            None => Err("missing closing ]"),
        }
    }
}

/// Returns the length of a class such as `[:alpha:]` at the front; `None` if the bracket is text.
fn posix_len(text: &str) -> Result<Option<usize>, &'static str> {
    const NAMES: &[&str] = &[
        "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper",
        "word", "xdigit",
    ];
    let Some((name, _)) = text[2..].split_once(":]") else { return Ok(None) };
    if NAMES.contains(&name.strip_prefix('^').unwrap_or(name)) {
        Ok(Some(name.len() + 4))
    } else {
        Err("invalid character class range")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(pattern: &str) -> Result<String, &'static str> {
        translate(pattern).map(|(pattern, _)| pattern)
    }

    #[test]
    fn classes_are_those_of_ascii() {
        assert_eq!(translated(r"\d[\w-]").unwrap(), r"[0-9][[0-9A-Za-z_]\x{2d}]");
        assert_eq!(translated(r"\bž").unwrap(), r"(?-u:\b)ž");
    }

    #[test]
    fn braces_that_repeat_nothing_are_text() {
        assert_eq!(translated("a{2}b{").unwrap(), r"a{2}b\x{7b}");
        assert_eq!(translated("a{,3}").unwrap(), r"a\x{7b}\x{2c}3\x{7d}");
        assert!(translated("a{1001}").is_err());
        assert!(translated("a**").is_err());
    }

    #[test]
    fn groups_lose_their_names_but_not_their_numbers() {
        let (pattern, names) = translate("(a)(?P<n>b)(?:c)(?i:d)(?<m>e)").unwrap();
        assert_eq!(pattern, "(a)(b)(?:c)(?i:d)(e)");
        assert_eq!(names, [None, Some("n".to_owned()), Some("m".to_owned())]);
    }

    #[test]
    fn what_go_does_not_have_is_refused() {
        for pattern in
            [r"\b{start}\1", "(?=a)", "(?x)a", r"\Z", r"\p{gc=Lu}", "[z-a]", "[[:foo:]]", "(?", "(?P<a", "\\"]
        {
            assert!(translated(pattern).is_err(), "{pattern}");
        }
    }
}
