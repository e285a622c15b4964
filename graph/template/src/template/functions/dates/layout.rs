//! Reference-time layouts: `2006-01-02T15:04:05Z07:00` as a sequence of elements.

/// Notation of a zone offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OffsetStyle {
    /// True if `Z` stands for UTC.
    pub(super) z: bool,
    /// True if there are colons between the parts.
    pub(super) colon: bool,
    /// Number of parts: hours, minutes and seconds.
    pub(super) parts: u8,
}

/// One element of a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    /// `2006`
    Year,
    /// `06`
    YearOfCentury,
    /// `January` (long) or `Jan`
    MonthName {
        /// True for full names.
        long: bool,
    },
    /// `1` or `01`
    Month {
        /// True for two digits.
        padded: bool,
    },
    /// `Monday` (long) or `Mon`
    Weekday {
        /// True for full names.
        long: bool,
    },
    /// `2`
    Day,
    /// `02`
    PaddedDay,
    /// `_2`
    SpacedDay,
    /// `002` or `__2`
    YearDay {
        /// True if padded with spaces instead of zeros.
        spaced: bool,
    },
    /// `15`
    Hour,
    /// `3` or `03`
    Hour12 {
        /// True for two digits.
        padded: bool,
    },
    /// `4` or `04`
    Minute {
        /// True for two digits.
        padded: bool,
    },
    /// `5` or `05`
    Second {
        /// True for two digits.
        padded: bool,
    },
    /// `PM` or `pm`
    Half {
        /// True for capital letters.
        upper: bool,
    },
    /// `MST`
    ZoneName,
    /// `-0700`, `Z07:00` and similar
    Offset(OffsetStyle),
    /// `.000` or `,999`
    Fraction {
        /// `.` or `,`
        separator: u8,
        /// Number of digits in the layout.
        digits: usize,
        /// True for `9`: trailing zeros are omitted.
        trimmed: bool,
    },
}

/// Splits a layout into the literal text before its first element, the element, and the rest. O(n).
pub(super) fn split(layout: &str) -> Option<(&str, Element, &str)> {
    let bytes = layout.as_bytes();
    (0..bytes.len()).find_map(|at| {
        // An element starts with an ASCII byte, so that both cuts fall between characters.
        let (element, skip, len) = element_at(&bytes[at..])?;
        Some((&layout[..at + skip], element, &layout[at + skip + len..]))
    })
}

/// Returns the element that starts here, the number of literal bytes before it, and its length.
fn element_at(rest: &[u8]) -> Option<(Element, usize, usize)> {
    use Element::{
        Day, Half, Hour, Hour12, Minute, Month, MonthName, PaddedDay, Second, SpacedDay, Weekday, Year, YearDay,
        YearOfCentury, ZoneName,
    };
    let found = |element, len| Some((element, 0, len));
    match rest[0] {
        b'J' if rest.starts_with(b"January") => found(MonthName { long: true }, 7),
        b'J' if rest.starts_with(b"Jan") && !lower_follows(rest, 3) => found(MonthName { long: false }, 3),
        b'M' if rest.starts_with(b"Monday") => found(Weekday { long: true }, 6),
        b'M' if rest.starts_with(b"Mon") && !lower_follows(rest, 3) => found(Weekday { long: false }, 3),
        b'M' if rest.starts_with(b"MST") => found(ZoneName, 3),
        b'0' => match rest.get(1)? {
            b'1' => found(Month { padded: true }, 2),
            b'2' => found(PaddedDay, 2),
            b'3' => found(Hour12 { padded: true }, 2),
            b'4' => found(Minute { padded: true }, 2),
            b'5' => found(Second { padded: true }, 2),
            b'6' => found(YearOfCentury, 2),
            b'0' if rest.get(2) == Some(&b'2') => found(YearDay { spaced: false }, 3),
            _ => None,
        },
        b'1' if rest.get(1) == Some(&b'5') => found(Hour, 2),
        b'1' => found(Month { padded: false }, 1),
        b'2' if rest.starts_with(b"2006") => found(Year, 4),
        b'2' => found(Day, 1),
        b'_' if rest.starts_with(b"_2006") => Some((Year, 1, 4)),
        b'_' if rest.starts_with(b"_2") => found(SpacedDay, 2),
        b'_' if rest.starts_with(b"__2") => found(YearDay { spaced: true }, 3),
        b'3' => found(Hour12 { padded: false }, 1),
        b'4' => found(Minute { padded: false }, 1),
        b'5' => found(Second { padded: false }, 1),
        b'P' if rest.starts_with(b"PM") => found(Half { upper: true }, 2),
        b'p' if rest.starts_with(b"pm") => found(Half { upper: false }, 2),
        b'-' => offset_at(rest, false),
        b'Z' => offset_at(rest, true),
        b'.' | b',' => fraction_at(rest),
        _ => None,
    }
}

fn lower_follows(rest: &[u8], at: usize) -> bool {
    rest.get(at).is_some_and(u8::is_ascii_lowercase)
}

fn offset_at(rest: &[u8], z: bool) -> Option<(Element, usize, usize)> {
    // Longest first: `-0700` begins with `-07`.
    const STYLES: [(&[u8], bool, u8); 5] =
        [(b"070000", false, 3), (b"07:00:00", true, 3), (b"0700", false, 2), (b"07:00", true, 2), (b"07", false, 1)];
    STYLES.iter().find_map(|&(text, colon, parts)| {
        rest[1..].starts_with(text).then_some((Element::Offset(OffsetStyle { z, colon, parts }), 0, 1 + text.len()))
    })
}

fn fraction_at(rest: &[u8]) -> Option<(Element, usize, usize)> {
    let digit = *rest.get(1)?;
    if digit != b'0' && digit != b'9' {
        return None;
    }
    let digits = rest[1..].iter().take_while(|&&b| b == digit).count();
    // A run of a single repeated digit is a fraction; `.09` is text.
    if rest.get(1 + digits).is_some_and(u8::is_ascii_digit) {
        return None;
    }
    Some((Element::Fraction { separator: rest[0], digits, trimmed: digit == b'9' }, 0, 1 + digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements(mut layout: &str) -> (Vec<Element>, String) {
        let (mut found, mut literal) = (Vec::new(), String::new());
        while let Some((before, element, rest)) = split(layout) {
            literal.push_str(before);
            found.push(element);
            layout = rest;
        }
        literal.push_str(layout);
        (found, literal)
    }

    #[test]
    fn elements_are_told_from_text() {
        assert_eq!(elements("Junk Mona x_é"), (vec![], "Junk Mona x_é".into()));
        assert_eq!(elements("_2006"), (vec![Element::Year], "_".into()));
        assert_eq!(elements(".09"), (vec![], ".09".into()));
        assert_eq!(
            elements("Z07:00-070000").0,
            [
                Element::Offset(OffsetStyle { z: true, colon: true, parts: 2 }),
                Element::Offset(OffsetStyle { z: false, colon: false, parts: 3 })
            ]
        );
        assert_eq!(elements("002__2").0, [Element::YearDay { spaced: false }, Element::YearDay { spaced: true }]);
    }
}
