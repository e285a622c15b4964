//! Dates and times in years before Christ or beyond the year 9999, as PostgreSQL prints them.

/// Days from 1970-01-01 to 2000-01-01.
const EPOCH_DAYS: i64 = 10_957;

/// A moment in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    /// Days since 2000-01-01.
    pub(super) days: i64,
    /// Microseconds since midnight; beyond a day if the offset moves the moment to another one.
    pub(super) micros: i64,
}

/// Parses `YEAR-MM-DD`, perhaps with ` HH:MM:SS.ffffff`, then an offset `+HH:MM:SS`, then ` BC`. Returns `None` for other
/// text, and for the years 0 to 9999, which need no parser of their own.
pub(super) fn parse(text: &str) -> Option<Moment> {
    let (text, is_bc) = match text.strip_suffix("BC") {
        Some(text) => (text.strip_suffix(' ')?, true),
        None => (text, false),
    };
    let (date, time) = match text.split_once([' ', 'T']) {
        Some((date, time)) => (date, Some(time)),
        None => (text, None),
    };
    let mut parts = date.split('-');
    let year = parts.next().filter(|year| (4..=7).contains(&year.len())).and_then(number)?;
    let (month, day) = (two_digits(parts.next()?)?, two_digits(parts.next()?)?);
    let is_near = !is_bc && year <= 9999;
    // There is no year 0: the year before 1 is 1 BC.
    let year = if is_bc { 1 - year } else { year };
    if is_near || (is_bc && year == 1) || parts.next().is_some() || !(1..=12).contains(&month) {
        return None;
    }
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let longest = match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    let days = days_since_1970(year, month, day) - EPOCH_DAYS;
    let micros = time.map_or(Some(0), micros)?;
    (1..=longest).contains(&day).then_some(Moment { days, micros })
}

/// The proleptic Gregorian calendar in eras of 400 years, with years that begin in March.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Parses a time of day with an offset. Returns microseconds in UTC.
fn micros(text: &str) -> Option<i64> {
    let text = text.strip_suffix('Z').unwrap_or(text).trim_end();
    let (time, offset) = match text.find(['+', '-']) {
        Some(at) => {
            (text[..at].trim_end(), seconds(&text[at + 1..])? * if text[at..].starts_with('-') { -1 } else { 1 })
        }
        None => (text, 0),
    };
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let digits = fraction.get(..fraction.len().min(6))?;
    let fraction = number(digits)? * 10_i64.pow(6 - u32::try_from(digits.len()).ok()?);
    (time.len() >= 5).then_some(())?;
    Some((seconds(time)? - offset) * 1_000_000 + fraction)
}

/// Parses `HH`, `HH:MM` or `HH:MM:SS`.
fn seconds(text: &str) -> Option<i64> {
    let mut parts = text.split(':');
    let hours = two_digits(parts.next()?)?;
    let mut below_sixty = || parts.next().map_or(Some(0), two_digits).filter(|part| *part < 60);
    let (minutes, seconds) = (below_sixty()?, below_sixty()?);
    (hours <= 24 && parts.next().is_none()).then_some((hours * 60 + minutes) * 60 + seconds)
}

fn two_digits(text: &str) -> Option<i64> {
    if text.len() == 2 { number(text) } else { None }
}

/// Parses digits only.
fn number(text: &str) -> Option<i64> {
    (!text.is_empty() && text.bytes().all(|c| c.is_ascii_digit())).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distant_years_count_from_2000() {
        // PostgreSQL: SELECT DATE '…' - DATE '2000-01-01'.
        for (text, days, micros) in [
            ("0044-03-15 BC", -746_117, 0),
            ("0001-12-31 BC", -730_120, 0),
            ("4714-11-24 BC", -2_451_545, 0),
            ("10000-01-01", 2_921_940, 0),
            ("5874897-12-31", 2_145_031_948, 0),
            ("294276-12-31 23:59:59.999999", 106_751_982, 86_399_999_999),
            ("10000-01-01T12:00:00Z", 2_921_940, 43_200_000_000),
            ("10000-01-01 00:00:00.5+02", 2_921_940, -7_199_500_000),
            ("10000-01-01 00:00-01:30:05", 2_921_940, 5_405_000_000),
            ("0002-02-28 00:00:00+00 BC", -730_792, 0),
        ] {
            assert_eq!(parse(text), Some(Moment { days, micros }), "{text}");
        }
    }

    #[test]
    fn other_text_is_left_to_others() {
        for text in [
            "2006-01-31",
            "0000-01-01 BC",
            "44-03-15 BC",
            "10000-13-01",
            "10000-02-30",
            "10000-1-1",
            "10000-01-01-01",
            "10000-01-01 1",
            "10000-01-01 25:00:00",
            "10000-01-01 00:60:00",
            "10000-01-01 00:00:00.x",
            "10000-01-01 é",
            "-10000-01-01",
            "BC",
            "",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
