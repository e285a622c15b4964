//! Texts with constant parts, and the kinds of values that such a text can be.

/// A piece of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// Constant text.
    Text(String),
    /// Any text.
    Hole,
}

/// A text of constant pieces, with any text between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern(pub(super) Vec<Piece>);

/// The kind of value that a processor parses a text as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// An integer in base 10.
    Int,
    /// A number.
    Float,
    /// `true`, `false` and other words for them.
    Bool,
    /// A time of RFC 3339, or an integer.
    Time,
    /// JSON.
    Json,
    /// Text of base64.
    Base64,
    /// A list. A text is never a list.
    List,
    /// `true` or `false`, the only texts that a condition may print.
    Verdict,
}

/// Words that are read as true or false, in lower case.
const BOOLS: [&str; 6] = ["true", "false", "t", "f", "1", "0"];

/// Texts that are read as times, with all digits as 0.
const TIMES: [&str; 8] = [
    "0000-00-00T00:00:00Z",
    "0000-00-00T00:00:00+00:00",
    "0000-00-00T00:00:00-00:00",
    "0000-00-00T00:00:00.000000000Z",
    "0000-00-00T00:00:00.000000000+00:00",
    "0000-00-00T00:00:00.000000000-00:00",
    "-0000000000000000000",
    "0000000000000000000",
];

/// Texts that may stand in a hole of JSON.
const PIECES_OF_JSON: [&str; 7] = ["1", "x", "\"x\"", "", "{}", "[1]", "\"a\":1"];
/// Maximum number of holes for which all combinations are tried.
const MOST_HOLES: usize = 5;

impl Pattern {
    /// Returns `true` if some text in the holes makes it such a text, or if that is not decidable.
    pub(super) fn can_be(&self, wanted: Wanted) -> bool {
        match wanted {
            Wanted::List => false,
            Wanted::Int => self.is_of(|at, c| c.is_ascii_digit() || (at == 0 && "+-".contains(c))),
            Wanted::Float => self.is_of(|_, c| c.is_ascii_hexdigit() || "+-._xXpPiIfFnNtTyYaA".contains(c)),
            Wanted::Base64 => self.is_of(|_, c| c.is_ascii_alphanumeric() || "+/=-_\n\r".contains(c)),
            Wanted::Bool => BOOLS.iter().any(|word| self.lower().fits(word)),
            Wanted::Verdict => ["true", "false"].iter().any(|word| self.trimmed().fits(word)),
            Wanted::Time => TIMES.iter().any(|time| self.with_zeros().fits_time(time)),
            Wanted::Json => self.can_be_json(),
        }
    }

    /// Returns `true` if all characters of the constant pieces are allowed. `at`: 0 for the first character of the
    /// text.
    fn is_of(&self, is_allowed: impl Fn(usize, char) -> bool) -> bool {
        self.0.iter().enumerate().all(|(piece, part)| match part {
            Piece::Hole => true,
            Piece::Text(text) => text.chars().enumerate().all(|(at, c)| is_allowed(piece + at, c)),
        })
    }

    fn changed(&self, change: impl Fn(&str) -> String) -> Pattern {
        let pieces = self.0.iter().map(|piece| match piece {
            Piece::Text(text) => Piece::Text(change(text)),
            Piece::Hole => Piece::Hole,
        });
        Pattern(pieces.collect())
    }

    fn lower(&self) -> Pattern {
        self.changed(str::to_lowercase)
    }

    fn with_zeros(&self) -> Pattern {
        self.changed(|text| text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect())
    }

    /// Without spaces: a condition may print them around its verdict.
    fn trimmed(&self) -> Pattern {
        self.changed(|text| text.trim().to_owned())
    }

    /// Returns `true` if the text of [`TIMES`] fits, or one with fewer digits in its fraction or in all.
    fn fits_time(&self, time: &str) -> bool {
        let zeros = |count: usize| "0".repeat(count);
        match time.split_once('.') {
            Some((seconds, rest)) => {
                let zone = rest.trim_start_matches('0');
                // The zone begins with a sign, so none of its digits are trimmed.
                (1..=9).any(|count| self.fits(&format!("{seconds}.{}{zone}", zeros(count))))
            }
            None if time.contains(':') => self.fits(time),
            None => {
                let sign = if time.starts_with('-') { "-" } else { "" };
                (1..=19).any(|count| self.fits(&format!("{sign}{}", zeros(count))))
            }
        }
    }

    /// Returns `true` if the text is the pattern with some text in its holes.
    fn fits(&self, text: &str) -> bool {
        let mut rest = text;
        let mut after_hole = false;
        for (at, piece) in self.0.iter().enumerate() {
            match piece {
                Piece::Hole => after_hole = true,
                Piece::Text(part) if after_hole => {
                    let is_last = !self.0[at + 1..].contains(&Piece::Hole)
                        && self.0[at + 1..].iter().all(|piece| matches!(piece, Piece::Text(text) if text.is_empty()));
                    let found = if is_last {
                        rest.ends_with(part.as_str()).then(|| rest.len() - part.len())
                    } else {
                        rest.find(part.as_str())
                    };
                    let Some(found) = found else { return false };
                    rest = &rest[found + part.len()..];
                    after_hole = false;
                }
                Piece::Text(part) => match rest.strip_prefix(part.as_str()) {
                    Some(after) => rest = after,
                    None => return false,
                },
            }
        }
        after_hole || rest.is_empty()
    }

    fn can_be_json(&self) -> bool {
        let holes = self.0.iter().filter(|piece| **piece == Piece::Hole).count();
        if holes > MOST_HOLES {
            return true;
        }
        let combinations = PIECES_OF_JSON.len().pow(u32::try_from(holes).unwrap_or(u32::MAX));
        (0..combinations).any(|number| {
            let mut number = number;
            let mut text = String::new();
            for piece in &self.0 {
                match piece {
                    Piece::Text(part) => text.push_str(part),
                    Piece::Hole => {
                        text.push_str(PIECES_OF_JSON[number % PIECES_OF_JSON.len()]);
                        number /= PIECES_OF_JSON.len();
                    }
                }
            }
            serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `*` is a hole.
    fn pattern(text: &str) -> Pattern {
        let mut pieces = Vec::new();
        for (at, part) in text.split('*').enumerate() {
            if at > 0 {
                pieces.push(Piece::Hole);
            }
            if !part.is_empty() {
                pieces.push(Piece::Text(part.to_owned()));
            }
        }
        Pattern(pieces)
    }

    #[test]
    fn constant_pieces_decide_what_a_text_can_be() {
        for (text, wanted) in [
            ("*", Wanted::Int),
            ("-*0", Wanted::Int),
            ("*.*", Wanted::Float),
            ("t*", Wanted::Bool),
            ("*-*-*T*Z", Wanted::Time),
            ("*T00:00:00Z", Wanted::Time),
            ("2024-*-01T10:00:00.25+02:00", Wanted::Time),
            ("17*", Wanted::Time),
            ("{\"a\": *, \"b\": \"*\"}", Wanted::Json),
            ("{\"a\": *, *}", Wanted::Json),
            ("[*]", Wanted::Json),
            ("*==", Wanted::Base64),
            (" * ", Wanted::Verdict),
        ] {
            assert!(pattern(text).can_be(wanted), "{text} {wanted:?}");
        }
        for (text, wanted) in [
            ("* EUR", Wanted::Int),
            ("0x*", Wanted::Int),
            ("*-", Wanted::Int),
            ("*%", Wanted::Float),
            ("*,*", Wanted::Float),
            ("*!", Wanted::Bool),
            ("*T00:00:00", Wanted::Time),
            ("* 00:00:00", Wanted::Time),
            ("*/*/*", Wanted::Time),
            ("{'a': *}", Wanted::Json),
            ("{\"a\": *,}", Wanted::Json),
            ("*!", Wanted::Json),
            ("data:*", Wanted::Base64),
            ("x*", Wanted::Verdict),
            ("*", Wanted::List),
        ] {
            assert!(!pattern(text).can_be(wanted), "{text} {wanted:?}");
        }
    }
}
