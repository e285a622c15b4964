//! Parsing of dates with a reference-time layout.

use anabranch_record::text::Str;
use chrono::{Datelike as _, NaiveDate, NaiveTime};

use super::layout::{self, Element, OffsetStyle};
use super::moment::{self, months, weekdays};
use crate::template::val::Time;

/// Reason why a text is not a date.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// The text does not match the layout.
    Mismatch,
    /// This part is out of range.
    OutOfRange(&'static str),
    /// Text remains after the date.
    Extra,
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Reason::Mismatch => f.write_str("the text does not match"),
            Reason::OutOfRange(part) => write!(f, "{part} out of range"),
            Reason::Extra => f.write_str("text remains at the end"),
        }
    }
}

/// The elements parsed so far.
#[derive(Default)]
struct Fields {
    year: i32,
    month: Option<u32>,
    day: Option<u32>,
    year_day: Option<u32>,
    hour: u32,
    minute: u32,
    second: u32,
    nanosecond: u32,
    afternoon: Option<bool>,
    zone: Zone,
}

/// The zone in the text. An abbreviation does not determine the offset, and a text may contain both.
#[derive(Default)]
struct Zone {
    utc: bool,
    offset: Option<i32>,
    name: Option<Str>,
}

/// Parses `text` with `layout`; UTC unless the text names a zone. O(length of both).
///
/// # Errors
/// The first part that does not match.
pub(super) fn parse(layout: &str, text: &str) -> Result<Time, Reason> {
    let mut fields = Fields::default();
    let (mut layout, mut text) = (layout, text.as_bytes());
    loop {
        let Some((literal, element, rest)) = layout::split(layout) else {
            text = skip(text, layout.as_bytes())?;
            return if text.is_empty() { fields.moment() } else { Err(Reason::Extra) };
        };
        text = skip(text, literal.as_bytes())?;
        text = fields.read(element, text, rest)?;
        layout = rest;
    }
}

/// Removes `literal` from the front; a space in it stands for any number of spaces.
fn skip<'a>(mut text: &'a [u8], mut literal: &[u8]) -> Result<&'a [u8], Reason> {
    while let Some(&first) = literal.first() {
        match text.first() {
            Some(b' ') | None if first == b' ' => {
                literal = without_spaces(literal);
                text = without_spaces(text);
            }
            Some(&found) if found == first => (literal, text) = (&literal[1..], &text[1..]),
            _ => return Err(Reason::Mismatch),
        }
    }
    Ok(text)
}

fn without_spaces(text: &[u8]) -> &[u8] {
    &text[text.iter().take_while(|b| **b == b' ').count()..]
}

/// Parses one to `most` digits; exactly `most` if `fixed`.
fn number(text: &[u8], most: usize, fixed: bool) -> Result<(u32, &[u8]), Reason> {
    let digits = text.iter().take(most).take_while(|b| b.is_ascii_digit()).count();
    if digits == 0 || fixed && digits < most {
        return Err(Reason::Mismatch);
    }
    let value = text[..digits].iter().fold(0, |sum, b| sum * 10 + u32::from(b - b'0'));
    Ok((value, &text[digits..]))
}

fn in_range(value: u32, below: u32, part: &'static str) -> Result<u32, Reason> {
    if value < below { Ok(value) } else { Err(Reason::OutOfRange(part)) }
}

/// Returns the index of the name at the front of `text`, ignoring case.
fn name<'a>(text: &'a [u8], names: &[&str], long: bool) -> Result<(u32, &'a [u8]), Reason> {
    (0u32..)
        .zip(names)
        .find_map(|(index, name)| {
            let name = if long { name.as_bytes() } else { &name.as_bytes()[..3] };
            let found = text.get(..name.len())?.eq_ignore_ascii_case(name);
            found.then(|| (index, &text[name.len()..]))
        })
        .ok_or(Reason::Mismatch)
}

/// Parses a separator and digits as nanoseconds; digits after the ninth are dropped.
fn fraction(text: &[u8]) -> Result<u32, Reason> {
    if !matches!(text.first(), Some(b'.' | b',')) {
        return Err(Reason::Mismatch);
    }
    let digits = &text[1..];
    if !digits.iter().all(u8::is_ascii_digit) {
        return Err(Reason::Mismatch);
    }
    Ok((0..9).fold(0, |sum, i| sum * 10 + digits.get(i).map_or(0, |b| u32::from(b - b'0'))))
}

/// Returns the length of the separator and digits at the front; 0 if there are none.
fn fraction_len(text: &[u8]) -> usize {
    match text {
        [b'.' | b',', digits @ ..] => match digits.iter().take_while(|b| b.is_ascii_digit()).count() {
            0 => 0,
            count => 1 + count,
        },
        _ => 0,
    }
}

impl Fields {
    fn read<'a>(&mut self, element: Element, text: &'a [u8], layout_after: &str) -> Result<&'a [u8], Reason> {
        let rest;
        match element {
            Element::Year => {
                let year;
                (year, rest) = number(text, 4, true)?;
                self.year = i32::try_from(year).unwrap_or_default();
            }
            Element::YearOfCentury => {
                let year;
                (year, rest) = number(text, 2, true)?;
                let century = if year >= 69 { 1900 } else { 2000 };
                self.year = century + i32::try_from(year).unwrap_or_default();
            }
            Element::MonthName { long } => {
                let index;
                (index, rest) = name(text, months(), long)?;
                self.month = Some(index + 1);
            }
            Element::Month { padded } => {
                let month;
                (month, rest) = number(text, 2, padded)?;
                if month == 0 || month > 12 {
                    return Err(Reason::OutOfRange("month"));
                }
                self.month = Some(month);
            }
            Element::Weekday { long } => (_, rest) = name(text, weekdays(), long)?,
            Element::Day | Element::SpacedDay | Element::PaddedDay => {
                let text = match text {
                    [b' ', after @ ..] if element == Element::SpacedDay => after,
                    _ => text,
                };
                let day;
                (day, rest) = number(text, 2, element == Element::PaddedDay)?;
                self.day = Some(day);
            }
            Element::YearDay { spaced } => {
                let spaces = if spaced { text.iter().take(2).take_while(|b| **b == b' ').count() } else { 0 };
                let day;
                (day, rest) = number(&text[spaces..], 3, !spaced)?;
                self.year_day = Some(day);
            }
            Element::Hour => {
                (self.hour, rest) = number(text, 2, false)?;
                in_range(self.hour, 24, "hour")?;
            }
            Element::Hour12 { padded } => {
                (self.hour, rest) = number(text, 2, padded)?;
                in_range(self.hour, 13, "hour")?;
            }
            Element::Minute { padded } => {
                (self.minute, rest) = number(text, 2, padded)?;
                in_range(self.minute, 60, "minute")?;
            }
            Element::Second { padded } => {
                let after;
                (self.second, after) = number(text, 2, padded)?;
                in_range(self.second, 60, "second")?;
                // A fraction is accepted even if the layout does not contain one.
                let in_layout =
                    layout::split(layout_after).is_some_and(|(_, e, _)| matches!(e, Element::Fraction { .. }));
                let len = if in_layout { 0 } else { fraction_len(after) };
                if len > 0 {
                    self.nanosecond = fraction(&after[..len])?;
                }
                rest = &after[len..];
            }
            Element::Half { upper } => {
                let (am, pm): (&[u8], &[u8]) = if upper { (b"AM", b"PM") } else { (b"am", b"pm") };
                let half = text.get(..2).ok_or(Reason::Mismatch)?;
                if half == pm {
                    self.afternoon = Some(true);
                } else if half == am {
                    // If a text contains both AM and PM, PM applies.
                    self.afternoon.get_or_insert(false);
                } else {
                    return Err(Reason::Mismatch);
                }
                rest = &text[2..];
            }
            Element::Offset(style) => rest = self.zone.read_offset(style, text)?,
            Element::ZoneName => rest = self.zone.read_name(text)?,
            Element::Fraction { digits, trimmed: false, .. } => {
                let shown = text.get(..=digits).ok_or(Reason::Mismatch)?;
                self.nanosecond = fraction(shown)?;
                rest = &text[digits + 1..];
            }
            Element::Fraction { trimmed: true, .. } => {
                let len = fraction_len(text);
                if len > 0 {
                    self.nanosecond = fraction(&text[..len])?;
                }
                rest = &text[len..];
            }
        }
        Ok(rest)
    }

    fn date(&self) -> Result<NaiveDate, Reason> {
        let Some(year_day) = self.year_day else {
            return NaiveDate::from_ymd_opt(self.year, self.month.unwrap_or(1), self.day.unwrap_or(1))
                .ok_or(Reason::OutOfRange("day"));
        };
        let date = NaiveDate::from_yo_opt(self.year, year_day).ok_or(Reason::OutOfRange("day-of-year"))?;
        let same = |given: Option<u32>, is: u32| given.is_none_or(|given| given == is);
        if same(self.month, date.month()) && same(self.day, date.day()) {
            Ok(date)
        } else {
            Err(Reason::OutOfRange("day-of-year"))
        }
    }

    fn moment(self) -> Result<Time, Reason> {
        let hour = match (self.afternoon, self.hour) {
            (Some(true), hour) if hour < 12 => hour + 12,
            (Some(false), 12) => 0,
            (_, hour) => hour,
        };
        let time = NaiveTime::from_hms_nano_opt(hour, self.minute, self.second, self.nanosecond)
            .ok_or(Reason::OutOfRange("hour"))?;
        let clock = self.date()?.and_time(time);
        let utc = || Some(Time::utc(clock.and_utc()));
        let moment = match self.zone {
            Zone { utc: true, .. } => utc(),
            Zone { offset: Some(0), name: None, .. } => utc(),
            Zone { offset: Some(offset), name, .. } => moment::from_local(clock, offset, name),
            // The offset of an abbreviation is unknown; the local time is treated as UTC.
            Zone { name: Some(name), .. } => {
                let hours = name.strip_prefix("GMT").and_then(|h| h.parse::<i32>().ok()).unwrap_or(0);
                moment::seen_at(clock.and_utc(), hours.saturating_mul(3600), Some(name))
            }
            Zone { .. } => utc(),
        };
        moment.ok_or(Reason::OutOfRange("year"))
    }
}

impl Zone {
    fn read_offset<'a>(&mut self, style: OffsetStyle, text: &'a [u8]) -> Result<&'a [u8], Reason> {
        if style.z && text.first() == Some(&b'Z') {
            self.utc = true;
            return Ok(&text[1..]);
        }
        let (&sign, mut rest) = text.split_first().ok_or(Reason::Mismatch)?;
        let mut seconds = 0;
        let parts = [(3600, 24, "hour"), (60, 60, "minute"), (1, 60, "second")];
        for (i, (unit, most, _)) in parts.into_iter().take(style.parts.into()).enumerate() {
            if i > 0 && style.colon {
                rest = rest.strip_prefix(b":").ok_or(Reason::Mismatch)?;
            }
            let value;
            (value, rest) = number(rest, 2, true)?;
            in_range(value, most + 1, "time zone offset")?;
            seconds += unit * i32::try_from(value).unwrap_or_default();
        }
        self.offset = Some(match sign {
            b'+' => seconds,
            b'-' => -seconds,
            _ => return Err(Reason::Mismatch),
        });
        Ok(rest)
    }

    fn read_name<'a>(&mut self, text: &'a [u8]) -> Result<&'a [u8], Reason> {
        if let Some(rest) = text.strip_prefix(b"UTC") {
            self.utc = true;
            return Ok(rest);
        }
        let len = name_len(text).ok_or(Reason::Mismatch)?;
        let name = text.get(..len).and_then(|name| str::from_utf8(name).ok()).ok_or(Reason::Mismatch)?;
        self.name = Some(name.into());
        Ok(&text[len..])
    }
}

/// Returns the length of the zone abbreviation at the front.
fn name_len(text: &[u8]) -> Option<usize> {
    if text.len() < 3 {
        return None;
    }
    if text.starts_with(b"ChST") || text.starts_with(b"MeST") {
        return Some(4);
    }
    if text.starts_with(b"GMT") {
        return Some(3 + signed_hours_len(&text[3..]));
    }
    if matches!(text[0], b'+' | b'-') {
        return Some(signed_hours_len(text)).filter(|&len| len > 0);
    }
    match text.iter().take(6).take_while(|b| b.is_ascii_uppercase()).count() {
        3 => Some(3),
        4 if text[3] == b'T' || text.starts_with(b"WITA") => Some(4),
        5 if text[4] == b'T' => Some(5),
        _ => None,
    }
}

/// Returns the length of the sign and hours below 24 at the front; 0 if there are none.
fn signed_hours_len(text: &[u8]) -> usize {
    let [b'+' | b'-', digits @ ..] = text else { return 0 };
    let count = digits.iter().take_while(|b| b.is_ascii_digit()).count();
    let hours = digits[..count].iter().fold(0u32, |sum, b| sum.saturating_mul(10).saturating_add(u32::from(b - b'0')));
    if count == 0 || hours > 23 { 0 } else { 1 + count }
}
