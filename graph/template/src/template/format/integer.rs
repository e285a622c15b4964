//! Integers with the integer verbs.

use super::{Printer, quote};
use crate::template::functions::CallError;
use crate::template::val::Val;

impl Printer<'_> {
    /// Writes the integer with the given sign and absolute value; a bad verb shows `val`.
    pub(super) fn integer(
        &mut self,
        negative: bool,
        n: u64,
        signed: bool,
        verb: char,
        val: &Val,
    ) -> Result<(), CallError> {
        let bits = if negative { n.wrapping_neg() } else { n };
        match verb {
            'v' if self.flags.sharp_v && !signed => {
                let sharp = std::mem::replace(&mut self.flags.sharp, true);
                self.digits(false, &format!("{n:x}"), "0x", verb);
                self.flags.sharp = sharp;
            }
            'v' | 'd' => self.digits(negative, itoa::Buffer::new().format(n), "", verb),
            'b' => self.digits(negative, &format!("{n:b}"), "0b", verb),
            'o' | 'O' => self.digits(negative, &format!("{n:o}"), "0", verb),
            'x' => self.digits(negative, &format!("{n:x}"), "0x", verb),
            'X' => self.digits(negative, &format!("{n:X}"), "0X", verb),
            'c' => self.pad(rune(bits).encode_utf8(&mut [0; 4]).as_bytes()),
            'q' => {
                let quoted = quote::quote(rune(bits).encode_utf8(&mut [0; 4]).as_bytes(), '\'', self.flags.plus);
                self.pad(quoted.as_bytes());
            }
            'U' => {
                let digits = format!("{bits:04X}");
                let zeros = self.flags.precision.unwrap_or(0).saturating_sub(digits.len());
                let mut text = format!("U+{}{digits}", "0".repeat(zeros));
                if self.flags.sharp
                    && let Some(c) =
                        u32::try_from(bits).ok().and_then(char::from_u32).filter(|c| quote::is_printable(*c))
                {
                    text.push_str(&format!(" '{c}'"));
                }
                self.pad_with_spaces(text.as_bytes());
            }
            _ => return self.bad_verb(verb, Some(val)),
        }
        Ok(())
    }

    fn digits(&mut self, negative: bool, digits: &str, prefix: &str, verb: char) {
        let flags = self.flags;
        if flags.width.is_none()
            && flags.precision.is_none()
            && !flags.plus
            && !flags.space
            && !flags.sharp
            && verb != 'O'
        {
            if negative {
                self.out.push('-');
            }
            self.out.push_str(digits);
            return;
        }
        let least = match (flags.precision, flags.width) {
            // Value 0 with precision 0 prints only padding.
            (Some(0), _) if digits == "0" => {
                self.pad_with_spaces(b"");
                return;
            }
            (Some(precision), _) => precision,
            (None, Some(width)) if flags.zero && !flags.minus => {
                width.saturating_sub(usize::from(negative || flags.plus || flags.space))
            }
            _ => 0,
        };
        let mut text = String::new();
        match (negative, flags.plus, flags.space) {
            (true, ..) => text.push('-'),
            (false, true, _) => text.push('+'),
            (false, false, true) => text.push(' '),
            (false, false, false) => {}
        }
        if verb == 'O' {
            text.push_str("0o");
        }
        let zeros = least.saturating_sub(digits.len());
        if flags.sharp && (prefix != "0" || (zeros == 0 && !digits.starts_with('0'))) {
            text.push_str(prefix);
        }
        text.push_str(&"0".repeat(zeros));
        text.push_str(digits);
        self.pad_with_spaces(text.as_bytes());
    }
}

fn rune(bits: u64) -> char {
    u32::try_from(bits).ok().and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER)
}
