//! Layouts of times: those of strptime, those of Go, and numbers since 1970.

use std::fmt::Write as _;
use std::sync::Arc;

use anabranch_record::value::Timestamp;
use chrono::format::{Fixed, Item, Numeric, Pad, Parsed, StrftimeItems, parse_and_remainder};
use chrono::{DateTime, Datelike, LocalResult, NaiveTime, Offset, TimeZone, Timelike, Utc};
use chrono_tz::Tz;

/// The way in which a text states a time.
#[derive(Clone, Debug)]
pub(super) enum Layout {
    /// A number of units since the beginning of 1970 in UTC; a unit has this many nanoseconds.
    Unix(i64),
    /// Parts of a date and a time of day.
    Parts(Arc<[Piece]>),
}

/// A part of a layout.
#[derive(Clone, Debug)]
pub(super) enum Piece {
    /// Parts that the library chrono knows.
    Items(Vec<Item<'static>>),
    /// A fraction of a second.
    Fraction {
        /// The character before the digits.
        separator: char,
        /// The number of digits.
        digits: usize,
        /// True if zeros at the end are not written, and the fraction may be missing.
        short: bool,
    },
    /// The offset from UTC in hours, with minutes only where they are not 0: `+02`, `+05:30`.
    Hours,
}

/// Names of layouts.
const NAMED: [(&str, &str); 2] =
    [("rfc3339", "2006-01-02T15:04:05.999999999Z07:00"), ("rfc2822", "%a, %d %b %Y %H:%M:%S %z")];

/// Names of the units of numbers, with their nanoseconds.
const UNITS: [(&str, i64); 4] = [("unix", 1_000_000_000), ("unix_ms", 1_000_000), ("unix_us", 1_000), ("unix_ns", 1)];

impl Layout {
    /// Reads a layout: a name, a text with `%` (strptime), or the time of Go's documentation in another form.
    ///
    /// # Errors
    /// The reason why it is no layout.
    pub(super) fn new(text: &str) -> Result<Layout, String> {
        if let Some((_, unit)) = UNITS.iter().find(|(name, _)| *name == text) {
            return Ok(Layout::Unix(*unit));
        }
        let text = NAMED.iter().find(|(name, _)| *name == text).map_or(text, |(_, layout)| layout);
        let pieces = if text.contains('%') { vec![strptime(text)?] } else { go(text)? };
        Ok(Layout::Parts(pieces.into()))
    }

    /// Checks that a text of the layout names one time in the zone.
    ///
    /// # Errors
    /// What the layout lacks.
    pub(super) fn check_parses(&self, zone: Tz) -> Result<(), String> {
        let mut text = String::new();
        // Some parts can be read and not written, such as `%#z`.
        if self.write(sample(), zone, &mut text).is_err() {
            return Ok(());
        }
        match self.parse(&text, zone) {
            Ok(_) => Ok(()),
            Err(why) => Err(format!("a text such as {text:?} does not name a time ({why})")),
        }
    }

    /// Checks that times can be written in the layout.
    ///
    /// # Errors
    /// Some part of it can only be read.
    pub(super) fn check_writes(&self) -> Result<(), String> {
        self.write(sample(), Tz::UTC, &mut String::new())
            .map_err(|_| "a part of the layout can be parsed only, and not written".to_owned())
    }

    /// Reads a time. A text without an offset from UTC is a time in `zone`; the earlier one if clocks were put back over
    /// it. O(length).
    ///
    /// # Errors
    /// The reason why the text does not name a time.
    pub(super) fn parse(&self, text: &str, zone: Tz) -> Result<Timestamp, String> {
        let time = match self {
            Layout::Unix(unit) => since_1970(text, *unit).ok_or("it is not a number in the range of times")?,
            Layout::Parts(pieces) => {
                let (mut parsed, mut rest) = (Parsed::new(), text);
                for piece in pieces.iter() {
                    rest = piece.parse(&mut parsed, rest)?;
                }
                if !rest.is_empty() {
                    return Err("it has more than the layout".to_owned());
                }
                resolve(&parsed, zone)?
            }
        };
        match (1..=9999).contains(&time.year()) {
            true => Ok(time),
            false => Err("the year is not between 1 and 9999".to_owned()),
        }
    }

    /// Appends the text of a time in a zone.
    ///
    /// # Errors
    /// A part of the layout can only be read ([`Layout::check_writes`]).
    pub(super) fn write(&self, time: Timestamp, zone: Tz, out: &mut String) -> std::fmt::Result {
        match self {
            Layout::Unix(unit) => write!(out, "{}", self::units(&time, *unit)),
            Layout::Parts(pieces) => {
                let local = time.with_timezone(&zone);
                pieces.iter().try_for_each(|piece| piece.write(&local, out))
            }
        }
    }

    /// Returns the number of units since 1970 if the layout is a number that fits 64 bits.
    pub(super) fn number(&self, time: &Timestamp) -> Option<i64> {
        match self {
            Layout::Unix(unit) => i64::try_from(units(time, *unit)).ok(),
            Layout::Parts(_) => None,
        }
    }

    /// Returns `true` if the times are numbers.
    pub(super) fn is_number(&self) -> bool {
        matches!(self, Layout::Unix(_))
    }
}

/// Returns the whole units since 1970, rounded down.
fn units(time: &Timestamp, unit: i64) -> i128 {
    let nanos = i128::from(time.timestamp()) * 1_000_000_000 + i128::from(time.timestamp_subsec_nanos());
    nanos.div_euclid(i128::from(unit))
}

/// A time whose parts are all different.
fn sample() -> Timestamp {
    DateTime::from_timestamp(1_164_639_845, 123_456_789).unwrap_or(DateTime::<Utc>::UNIX_EPOCH)
}

/// Returns the time of a decimal number of units since 1970; digits below a nanosecond are left out.
fn since_1970(text: &str, unit: i64) -> Option<Timestamp> {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || whole.len() > 24 || !are_digits(whole) || !are_digits(fraction) {
        return None;
    }
    let mut nanos = whole.parse::<i128>().ok()? * i128::from(unit);
    let mut worth = i128::from(unit);
    for digit in fraction.bytes().take(9) {
        worth /= 10;
        nanos += i128::from(digit - b'0') * worth;
    }
    let nanos = if is_negative { -nanos } else { nanos };
    let seconds = i64::try_from(nanos.div_euclid(1_000_000_000)).ok()?;
    DateTime::from_timestamp(seconds, u32::try_from(nanos.rem_euclid(1_000_000_000)).ok()?)
}

/// Returns the time of the parts that a text named.
fn resolve(parsed: &Parsed, zone: Tz) -> Result<Timestamp, String> {
    let told = |error: chrono::ParseError| match error.kind() {
        chrono::format::ParseErrorKind::NotEnough => "it lacks a part of the date or the time".to_owned(),
        _ => error.to_string(),
    };
    if parsed.offset().is_some() || parsed.timestamp().is_some() {
        let time = match parsed.offset() {
            Some(_) => parsed.to_datetime().map_err(told)?.to_utc(),
            None => parsed.to_naive_datetime_with_offset(0).map_err(told)?.and_utc(),
        };
        return Ok(time);
    }
    let has_time = parsed.hour_mod_12().is_some() || parsed.minute().is_some();
    let local = match has_time {
        true => parsed.to_naive_datetime_with_offset(0).map_err(told)?,
        false => parsed.to_naive_date().map_err(told)?.and_time(NaiveTime::MIN),
    };
    match zone.from_local_datetime(&local) {
        LocalResult::Single(time) | LocalResult::Ambiguous(time, _) => Ok(time.to_utc()),
        LocalResult::None => Err(format!("there was no such time in {zone}, where clocks were put forward over it")),
    }
}

impl Piece {
    /// Reads the piece at the beginning of a text, and returns the rest of the text.
    fn parse<'t>(&self, parsed: &mut Parsed, text: &'t str) -> Result<&'t str, String> {
        match self {
            Piece::Items(items) => {
                parse_and_remainder(parsed, text, items.iter()).map_err(|error| match error.kind() {
                    chrono::format::ParseErrorKind::TooShort => "it ends before the layout".to_owned(),
                    chrono::format::ParseErrorKind::Invalid => "it has other characters than the layout".to_owned(),
                    _ => error.to_string(),
                })
            }
            Piece::Fraction { separator, digits, short } => {
                let Some(rest) = text.strip_prefix(*separator) else {
                    return if *short { Ok(text) } else { Err("it has no fraction of a second".to_owned()) };
                };
                let end = rest.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
                if end == 0 || end > 9 || (!short && end != *digits) {
                    return Err("its fraction of a second has another number of digits".to_owned());
                }
                let (fraction, rest) = rest.split_at(end);
                let value: i64 = fraction.parse().map_err(|_| "its fraction of a second is no number")?;
                let nanos = value * 10_i64.pow(u32::try_from(9 - end).unwrap_or_default());
                parsed.set_nanosecond(nanos).map_err(|error| error.to_string())?;
                Ok(rest)
            }
            Piece::Hours => {
                let wrong = || "it has no offset in hours".to_owned();
                let sign = match text.as_bytes().first() {
                    Some(b'+') => 1,
                    Some(b'-') => -1,
                    _ => return Err(wrong()),
                };
                let hours = text.get(1..3).and_then(two_digits).ok_or_else(wrong)?;
                let rest = &text[3..];
                let (minutes, rest) = match rest.strip_prefix(':').unwrap_or(rest) {
                    more if more.get(..2).and_then(two_digits).is_some() => {
                        (more.get(..2).and_then(two_digits).unwrap_or_default(), &more[2..])
                    }
                    _ => (0, rest),
                };
                parsed.set_offset(sign * (hours * 3600 + minutes * 60)).map_err(|error| error.to_string())?;
                Ok(rest)
            }
        }
    }

    /// Appends the text of the piece.
    fn write(&self, time: &DateTime<Tz>, out: &mut String) -> std::fmt::Result {
        match self {
            Piece::Items(items) => write!(out, "{}", time.format_with_items(items.iter())),
            Piece::Fraction { separator, digits, short } => {
                let start = out.len();
                // A leap second is one of 1,000,000,000 nanoseconds and more.
                write!(out, "{separator}{:09}", time.nanosecond().min(999_999_999))?;
                out.truncate(start + separator.len_utf8() + digits);
                if *short {
                    out.truncate(out.trim_end_matches('0').len().max(start));
                    if out.len() == start + separator.len_utf8() {
                        out.truncate(start);
                    }
                }
                Ok(())
            }
            Piece::Hours => {
                let seconds = time.offset().fix().local_minus_utc();
                let (sign, minutes) = (if seconds < 0 { '-' } else { '+' }, seconds.abs() / 60);
                write!(out, "{sign}{:02}", minutes / 60)?;
                if minutes % 60 != 0 { write!(out, ":{:02}", minutes % 60) } else { Ok(()) }
            }
        }
    }
}

/// Returns the number of two digits.
fn two_digits(text: &str) -> Option<i64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Reads a layout of strptime.
fn strptime(text: &str) -> Result<Piece, String> {
    let items = StrftimeItems::new(text)
        .parse_to_owned()
        .map_err(|_| "it has a % sequence that strptime does not know; %% is a percent sign".to_owned())?;
    let names_zone = |item: &Item| matches!(item, Item::Fixed(Fixed::TimezoneName));
    match items.iter().any(names_zone) {
        true => Err(ABBREVIATION.to_owned()),
        false => Ok(Piece::Items(items)),
    }
}

/// Why names of zones in texts are not read.
const ABBREVIATION: &str = "abbreviations of zones (%Z, MST) have several meanings: write the abbreviation that the texts \
                            have, such as GMT, and set zone";

/// Reads a layout of Go, which shows how the time Mon Jan 2 15:04:05 MST 2006 is written. Source of the elements:
/// documentation of Go's package time.
fn go(text: &str) -> Result<Vec<Piece>, String> {
    let (mut pieces, mut items, mut literal) = (Vec::new(), Vec::new(), String::new());
    let mut names_part = false;
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let Some((length, element)) = element(rest) else {
            literal.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        };
        if !literal.is_empty() {
            items.push(Item::OwnedLiteral(std::mem::take(&mut literal).into()));
        }
        match element {
            Element::Item(item) => items.push(item),
            Element::Piece(piece) => {
                if !items.is_empty() {
                    pieces.push(Piece::Items(std::mem::take(&mut items)));
                }
                pieces.push(piece);
            }
            Element::Refused(why) => return Err(why.to_owned()),
        }
        names_part = true;
        rest = &rest[length..];
    }
    if !names_part {
        return Err(
            "it names no part of a time: write it with strptime's % sequences, such as %Y-%m-%d, or as Go does, \
                    such as 2006-01-02"
                .to_owned(),
        );
    }
    if !literal.is_empty() {
        items.push(Item::OwnedLiteral(literal.into()));
    }
    if !items.is_empty() {
        pieces.push(Piece::Items(items));
    }
    Ok(pieces)
}

/// An element of a layout of Go.
enum Element {
    Item(Item<'static>),
    Piece(Piece),
    /// An element of Go that is not read, with the reason.
    Refused(&'static str),
}

/// Why offsets with seconds and the letter Z for hours are not read.
const OFFSET: &str = "offsets from UTC have hours and minutes: write -0700, -07:00, Z0700 or Z07:00, or -07 for hours";

/// Returns the element at the beginning of a text, with its length in bytes.
fn element(text: &str) -> Option<(usize, Element)> {
    let fixed = |fixed| Element::Item(Item::Fixed(fixed));
    let number = |number, pad| Element::Item(Item::Numeric(number, pad));
    // A short name with small letters after it is another word.
    let ends_word = |length: usize| !text[length..].starts_with(|next: char| next.is_ascii_lowercase());
    // The first element that fits counts, so longer ones stand before those that they begin with.
    let elements: [(&str, Element); 34] = [
        ("January", fixed(Fixed::LongMonthName)),
        ("Jan", fixed(Fixed::ShortMonthName)),
        ("Monday", fixed(Fixed::LongWeekdayName)),
        ("Mon", fixed(Fixed::ShortWeekdayName)),
        ("MST", Element::Refused(ABBREVIATION)),
        ("002", number(Numeric::Ordinal, Pad::Zero)),
        ("01", number(Numeric::Month, Pad::Zero)),
        ("02", number(Numeric::Day, Pad::Zero)),
        ("03", number(Numeric::Hour12, Pad::Zero)),
        ("04", number(Numeric::Minute, Pad::Zero)),
        ("05", number(Numeric::Second, Pad::Zero)),
        ("06", number(Numeric::YearMod100, Pad::Zero)),
        ("15", number(Numeric::Hour, Pad::Zero)),
        ("1", number(Numeric::Month, Pad::None)),
        ("2006", number(Numeric::Year, Pad::Zero)),
        ("2", number(Numeric::Day, Pad::None)),
        ("__2", number(Numeric::Ordinal, Pad::Space)),
        ("_2006", Element::Item(Item::Literal("_"))),
        ("_2", number(Numeric::Day, Pad::Space)),
        ("3", number(Numeric::Hour12, Pad::None)),
        ("4", number(Numeric::Minute, Pad::None)),
        ("5", number(Numeric::Second, Pad::None)),
        ("PM", fixed(Fixed::UpperAmPm)),
        ("pm", fixed(Fixed::LowerAmPm)),
        ("-07:00:00", Element::Refused(OFFSET)),
        ("-070000", Element::Refused(OFFSET)),
        ("-07:00", fixed(Fixed::TimezoneOffsetColon)),
        ("-0700", fixed(Fixed::TimezoneOffset)),
        ("-07", Element::Piece(Piece::Hours)),
        ("Z07:00:00", Element::Refused(OFFSET)),
        ("Z070000", Element::Refused(OFFSET)),
        ("Z07:00", fixed(Fixed::TimezoneOffsetColonZ)),
        ("Z0700", fixed(Fixed::TimezoneOffsetZ)),
        ("Z07", Element::Refused(OFFSET)),
    ];
    if let Some(fraction) = fraction(text) {
        return Some(fraction);
    }
    let (name, element) = elements.into_iter().find(|(name, _)| text.starts_with(name))?;
    match name {
        "_2006" => Some((1, element)),
        "Jan" | "Mon" if !ends_word(name.len()) => None,
        _ => Some((name.len(), element)),
    }
}

/// Returns the fraction of a second at the beginning of a text: a point or comma with zeros or nines, and no digit after
/// them.
fn fraction(text: &str) -> Option<(usize, Element)> {
    let separator = text.chars().next().filter(|first| matches!(first, '.' | ','))?;
    let digit = text[1..].chars().next().filter(|next| matches!(next, '0' | '9'))?;
    let digits = text[1..].chars().take_while(|next| *next == digit).count();
    let ends = !text[1 + digits..].starts_with(|next: char| next.is_ascii_digit());
    let piece = Piece::Fraction { separator, digits, short: digit == '9' };
    (ends && digits <= 9).then_some((1 + digits, Element::Piece(piece)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(layout: &str, text: &str, zone: &str) -> Result<String, String> {
        let time = Layout::new(layout)?.parse(text, zone.parse().unwrap())?;
        Ok(anabranch_record::value::timestamp_text(&time))
    }

    fn written(layout: &str, time: &str, zone: &str) -> String {
        let mut out = String::new();
        Layout::new(layout).unwrap().write(time.parse().unwrap(), zone.parse().unwrap(), &mut out).unwrap();
        out
    }

    #[test]
    fn texts_of_both_kinds_of_layout_are_read() {
        for (strptime, go, text, expected) in [
            (
                "%d/%b/%Y:%H:%M:%S %z",
                "02/Jan/2006:15:04:05 -0700",
                "27/Nov/2026:04:05:06 +0130",
                "2026-11-27T02:35:06Z",
            ),
            ("%Y-%m-%d", "2006-01-02", "2026-11-27", "2026-11-27T00:00:00Z"),
            ("%Y-%m-%d %H:%M", "2006-01-02 15:04", "2026-11-27 04:05", "2026-11-27T04:05:00Z"),
            (
                "%A, %B %e, %Y %I:%M %p",
                "Monday, January _2, 2006 03:04 PM",
                "Friday, November 27, 2026 04:05 PM",
                "2026-11-27T16:05:00Z",
            ),
            ("%Y-%j", "2006-002", "2026-331", "2026-11-27T00:00:00Z"),
            ("%-d.%-m.%y", "2.1.06", "7.1.26", "2026-01-07T00:00:00Z"),
        ] {
            assert_eq!(parsed(strptime, text, "UTC").as_deref(), Ok(expected), "{strptime}");
            assert_eq!(parsed(go, text, "UTC").as_deref(), Ok(expected), "{go}");
        }
    }

    #[test]
    fn fractions_and_offsets_of_go_are_read_and_written() {
        let time = "2026-11-27T04:05:06.12Z";
        for (layout, text) in [
            ("2006-01-02T15:04:05.000Z07:00", "2026-11-27T04:05:06.120Z"),
            ("2006-01-02T15:04:05.999Z07:00", "2026-11-27T04:05:06.12Z"),
            ("2006-01-02 15:04:05,000000 -07", "2026-11-27 04:05:06,120000 +00"),
            ("2006-01-02_15.04.05.9999-0700", "2026-11-27_04.05.06.12+0000"),
        ] {
            assert_eq!(parsed(layout, text, "UTC").as_deref(), Ok("2026-11-27T04:05:06.120Z"), "{layout}");
            assert_eq!(written(layout, time, "UTC"), text);
        }
        assert_eq!(written("15:04:05.999-07", "2026-11-27T04:05:06Z", "Asia/Kolkata"), "09:35:06+05:30");
        let read = parsed("2006-01-02 15:04:05-07", "2026-11-27 09:35:06+05:30", "UTC");
        assert_eq!(read.as_deref(), Ok("2026-11-27T04:05:06Z"));
    }

    #[test]
    fn numbers_are_read_exactly() {
        for (layout, text, expected) in [
            ("unix", "1764216306", "2025-11-27T04:05:06Z"),
            ("unix", "1764216306.25", "2025-11-27T04:05:06.250Z"),
            ("unix_ms", "1764216306001", "2025-11-27T04:05:06.001Z"),
            ("unix_us", "-1", "1969-12-31T23:59:59.999999Z"),
            ("unix_ns", "1", "1970-01-01T00:00:00.000000001Z"),
        ] {
            assert_eq!(parsed(layout, text, "UTC").as_deref(), Ok(expected), "{text}");
        }
        for text in ["", "-", ".5", "1e3", "1,5", "99999999999999999999", "0x10"] {
            assert!(parsed("unix", text, "UTC").is_err(), "{text:?}");
        }
    }

    #[test]
    fn local_times_are_those_of_their_zone() {
        let at = |text| parsed("%Y-%m-%d %H:%M", text, "Europe/Berlin");
        assert_eq!(at("2026-07-01 12:00").as_deref(), Ok("2026-07-01T10:00:00Z"));
        assert_eq!(at("2026-12-01 12:00").as_deref(), Ok("2026-12-01T11:00:00Z"));
        // Clocks are put back: the earlier one.
        assert_eq!(at("2026-10-25 02:30").as_deref(), Ok("2026-10-25T00:30:00Z"));
        let forward = at("2026-03-29 02:30").unwrap_err();
        assert!(forward.contains("no such time in Europe/Berlin"), "{forward}");
    }

    #[test]
    fn texts_that_are_no_times_are_told_from_those_that_are() {
        let said = |layout, text| parsed(layout, text, "UTC").unwrap_err();
        assert_eq!(said("%Y-%m-%d", "2026-11-27 12"), "it has more than the layout");
        assert_eq!(said("%Y-%m-%d", "2026-11"), "it ends before the layout");
        assert_eq!(said("%Y-%m-%d", "27.11.2026"), "it has other characters than the layout");
        assert!(parsed("%Y-%m-%d", "2026-02-30", "UTC").is_err());
        assert_eq!(said("2006-01-02 15:04:05.000", "2026-11-27 04:05:06"), "it has no fraction of a second");
    }

    #[test]
    fn layouts_that_name_no_time_are_refused() {
        for (layout, why) in [
            ("%H:%M", "it lacks a part of the date or the time"),
            ("%b %d %H:%M:%S", "it lacks a part of the date or the time"),
            ("15:04", "it lacks a part of the date or the time"),
        ] {
            let said = Layout::new(layout).unwrap().check_parses(Tz::UTC).unwrap_err();
            assert!(said.contains(why), "{layout}: {said}");
        }
        for (layout, why) in [
            ("%Q", "strptime does not know"),
            ("yyyy-MM-dd", "it names no part of a time"),
            ("%Y %Z", "abbreviations of zones"),
            ("Jan 2 15:04:05 MST 2006", "abbreviations of zones"),
            ("2006-01-02 15:04:05 Z07", "offsets from UTC"),
        ] {
            let said = Layout::new(layout).unwrap_err();
            assert!(said.contains(why), "{layout}: {said}");
        }
        assert!(Layout::new("%Y-%m-%d %#z").unwrap().check_writes().is_err());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(seconds in -62_135_596_800i64..253_402_300_799, nanos in 0u32..1_000_000_000) {
            let time = DateTime::from_timestamp(seconds, nanos).unwrap();
            let zones = ["UTC", "America/New_York", "Asia/Kolkata"];
            for layout in ["rfc3339", "2006-01-02 15:04:05.000000000 -0700", "%Y-%m-%dT%H:%M:%S%.9f%:z", "unix_ns"] {
                for zone in zones {
                    let zone: Tz = zone.parse().unwrap();
                    // Before standard time, offsets have seconds, which no layout shows.
                    if time.with_timezone(&zone).offset().fix().local_minus_utc() % 60 != 0 {
                        continue;
                    }
                    let local_year = time.with_timezone(&zone).year();
                    if !(1..=9999).contains(&local_year) {
                        continue;
                    }
                    let layout = Layout::new(layout).unwrap();
                    let mut text = String::new();
                    layout.write(time, zone, &mut text).unwrap();
                    prop_assert_eq!(layout.parse(&text, zone), Ok(time), "{}", text);
                }
            }
        }

        #[test]
        fn no_layout_and_no_text_panics(layout in "[-%_0-9a-zA-Z:.,]{0,12}", text in ".{0,12}") {
            if let Ok(layout) = Layout::new(&layout) {
                let _ = layout.parse(&text, Tz::UTC);
                let _ = layout.check_parses(Tz::UTC);
                let _ = layout.check_writes();
            }
        }
    }
}
