//! Dates and times in the style ISO.

use anabranch_record::value::Timestamp;
use chrono::{NaiveDate, NaiveDateTime, NaiveTime};

/// Parses `YYYY-MM-DD`. `None` for other texts, such as dates before the year 1 or after the year 9999.
pub(super) fn date(text: &[u8]) -> Option<Timestamp> {
    Some(day(text)?.and_time(NaiveTime::MIN).and_utc())
}

/// Parses `YYYY-MM-DD HH:MM:SS`, with up to six digits after a point.
pub(super) fn timestamp(text: &[u8]) -> Option<Timestamp> {
    let (date, rest) = text.split_at_checked(10)?;
    let (time, fraction) = rest.strip_prefix(b" ")?.split_at_checked(8)?;
    let &[h, i, b':', m, n, b':', s, t] = time else { return None };
    let nanos = match fraction {
        [] => 0,
        [b'.', digits @ ..] if (1..=6).contains(&digits.len()) => {
            number(digits)? * 10u32.pow(9 - u32::try_from(digits.len()).ok()?)
        }
        _ => return None,
    };
    let time = NaiveTime::from_hms_nano_opt(number(&[h, i])?, number(&[m, n])?, number(&[s, t])?, nanos)?;
    Some(NaiveDateTime::new(day(date)?, time).and_utc())
}

fn day(text: &[u8]) -> Option<NaiveDate> {
    let &[a, b, c, d, b'-', m, n, b'-', e, f] = text else { return None };
    let year = number(&[a, b, c, d])?;
    // PostgreSQL has no year 0.
    NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, number(&[m, n])?, number(&[e, f])?).filter(|_| year > 0)
}

/// Parses up to nine digits.
fn number(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |sum: u32, digit| digit.is_ascii_digit().then(|| sum * 10 + u32::from(digit - b'0')))
}
