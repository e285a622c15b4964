//! Parsing and execution of format strings.

use super::{Flags, Printer, quote};
use crate::template::functions::CallError;
use crate::template::val::Val;

/// Maximum width and precision; larger numbers are invalid, as in Go.
const MOST: usize = 1_000_000;

/// The position in the format and the arguments.
struct Cursor<'f> {
    format: &'f [u8],
    at: usize,
    arg: usize,
    /// True directly after an index such as `[3]`.
    after_index: bool,
    /// True if any index was used: extra arguments are not an error then.
    reordered: bool,
    good_index: bool,
}

impl Cursor<'_> {
    fn peek(&self) -> Option<u8> {
        self.format.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn number(&mut self) -> Option<usize> {
        let start = self.at;
        let mut number = 0;
        while let Some(digit) = self.peek().filter(u8::is_ascii_digit) {
            if number > MOST {
                self.at = self.format.len();
                return None;
            }
            number = number * 10 + usize::from(digit - b'0');
            self.at += 1;
        }
        (self.at > start).then_some(number)
    }

    /// Reads an index `[n]`.
    fn index(&mut self, args: usize) {
        self.after_index = false;
        if self.peek() != Some(b'[') {
            return;
        }
        self.reordered = true;
        let rest = &self.format[self.at..];
        let Some(close) = rest.iter().position(|b| *b == b']').filter(|_| rest.len() >= 3) else {
            self.at += 1;
            self.good_index = false;
            return;
        };
        let number = std::str::from_utf8(&rest[1..close]).ok().and_then(|digits| {
            digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse::<usize>().ok()).flatten()
        });
        self.at += close + 1;
        match number {
            Some(n) if (1..=args).contains(&n) => {
                self.arg = n - 1;
                self.after_index = true;
            }
            other => {
                self.good_index = false;
                self.after_index = other.is_some();
            }
        }
    }

    /// Reads a width or precision from an argument.
    fn number_argument(&mut self, args: &[Val]) -> Option<i64> {
        let arg = args.get(self.arg)?;
        self.arg += 1;
        let number = arg.as_int().or_else(|| arg.as_uint().and_then(|n| i64::try_from(n).ok()))?;
        (number.unsigned_abs() <= MOST as u64).then_some(number)
    }
}

impl Printer<'_> {
    /// Writes the output of `fmt.Sprintf`.
    pub(super) fn formatted(&mut self, format: &[u8], args: &[Val]) -> Result<(), CallError> {
        let mut cursor = Cursor { format, at: 0, arg: 0, after_index: false, reordered: false, good_index: true };
        while cursor.at < format.len() {
            let rest = &format[cursor.at..];
            let text = memchr::memchr(b'%', rest).unwrap_or(rest.len());
            self.out.push_bytes(&rest[..text]);
            cursor.at += text;
            if cursor.at == format.len() {
                break;
            }
            cursor.at += 1;
            self.directive(&mut cursor, args)?;
        }
        if !cursor.reordered && cursor.arg < args.len() {
            self.flags = Flags::default();
            self.out.push_str("%!(EXTRA ");
            for (i, arg) in args[cursor.arg..].iter().enumerate() {
                if i > 0 {
                    self.out.push_str(", ");
                }
                if arg.is_nil() {
                    self.out.push_str("<nil>");
                } else {
                    self.out.push_str(arg.type_name());
                    self.out.push('=');
                    self.argument(arg, 'v')?;
                }
            }
            self.out.push(')');
        }
        Ok(())
    }

    fn directive(&mut self, cursor: &mut Cursor<'_>, args: &[Val]) -> Result<(), CallError> {
        self.flags = Flags::default();
        cursor.good_index = true;
        cursor.after_index = false;
        while let Some(flag) = cursor.peek() {
            match flag {
                b'#' => self.flags.sharp = true,
                b'0' => self.flags.zero = true,
                b'+' => self.flags.plus = true,
                b'-' => self.flags.minus = true,
                b' ' => self.flags.space = true,
                _ => break,
            }
            cursor.at += 1;
        }
        cursor.index(args.len());
        if cursor.take(b'*') {
            match cursor.number_argument(args) {
                Some(width) => {
                    self.flags.width = Some(usize::try_from(width.unsigned_abs()).unwrap_or(0));
                    if width < 0 {
                        self.flags.minus = true;
                        self.flags.zero = false;
                    }
                }
                None => self.out.push_str("%!(BADWIDTH)"),
            }
            cursor.after_index = false;
        } else {
            self.flags.width = cursor.number();
            if cursor.after_index && self.flags.width.is_some() {
                cursor.good_index = false;
            }
        }
        if cursor.take(b'.') {
            if cursor.after_index {
                cursor.good_index = false;
            }
            cursor.index(args.len());
            if cursor.take(b'*') {
                match cursor.number_argument(args).map(usize::try_from) {
                    Some(Ok(precision)) => self.flags.precision = Some(precision),
                    Some(Err(_)) | None => self.out.push_str("%!(BADPREC)"),
                }
                cursor.after_index = false;
            } else {
                self.flags.precision = Some(cursor.number().unwrap_or(0));
            }
        }
        if !cursor.after_index {
            cursor.index(args.len());
        }
        let Some((verb, size)) = quote::decode_rune(&cursor.format[cursor.at.min(cursor.format.len())..]) else {
            self.out.push_str("%!(NOVERB)");
            return Ok(());
        };
        cursor.at += size;
        let verb = verb.unwrap_or(char::REPLACEMENT_CHARACTER);
        let note = match verb {
            '%' => {
                self.out.push('%');
                return Ok(());
            }
            _ if !cursor.good_index => "(BADINDEX)",
            _ => match args.get(cursor.arg) {
                None => "(MISSING)",
                Some(arg) => {
                    cursor.arg += 1;
                    if verb == 'v' {
                        self.flags.sharp_v = std::mem::replace(&mut self.flags.sharp, false);
                        self.flags.plus_v = std::mem::replace(&mut self.flags.plus, false);
                    }
                    return self.argument(arg, verb);
                }
            },
        };
        self.out.push_str("%!");
        self.out.push(verb);
        self.out.push_str(note);
        Ok(())
    }
}
