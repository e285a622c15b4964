//! Encodes dates and times, counted from 2000-01-01.

use anabranch_record::value::Value;
use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, NaiveTime};

use super::{Mismatch, calendar, not_a};

/// Microseconds of a day.
const DAY_MICROS: i64 = 86_400_000_000;
/// Days from the year 1 to 2000-01-01.
const EPOCH_DAYS: i32 = 730_120;
/// Microseconds from 1970-01-01 to 2000-01-01.
const EPOCH_MICROS: i64 = 946_684_800_000_000;

/// Converts a value to a `date` in days. Times must be midnight.
pub(super) fn days(value: &Value) -> Result<i32, Mismatch> {
    let date = match value {
        Value::Time(time) if time.time() == NaiveTime::MIN => Some(time.date_naive()),
        Value::Time(_) => return Err(not_a(value, "a date: it has a time of day")),
        Value::Text(text) => match text.trim() {
            "infinity" => return Ok(i32::MAX),
            "-infinity" => return Ok(i32::MIN),
            text => match NaiveDate::parse_from_str(text, "%Y-%m-%d") {
                Ok(date) => Some(date),
                Err(_) => match calendar::parse(text).filter(|moment| moment.micros == 0) {
                    Some(moment) => {
                        return i32::try_from(moment.days).map_err(|_| not_a(value, "in the range of dates"));
                    }
                    None => parse(text).filter(|time| time.time() == NaiveTime::MIN).map(|time| time.date()),
                },
            },
        },
        _ => None,
    };
    let date = date.ok_or_else(|| not_a(value, "a date, for example 2006-01-31"))?;
    Ok(date.num_days_from_ce() - EPOCH_DAYS)
}

/// Converts a value to a `timestamp` (in UTC) or `timestamptz` in microseconds. Text without an offset is read as UTC.
pub(super) fn micros(value: &Value) -> Result<i64, Mismatch> {
    let micros = match value {
        Value::Time(time) => Some(time.timestamp_micros()),
        Value::Text(text) => match text.trim() {
            "infinity" => return Ok(i64::MAX),
            "-infinity" => return Ok(i64::MIN),
            text => match calendar::parse(text) {
                Some(moment) => {
                    let micros = moment.days.checked_mul(DAY_MICROS).and_then(|days| days.checked_add(moment.micros));
                    return micros.ok_or_else(|| not_a(value, "in the range of timestamps"));
                }
                None => parse(text).map(|time| time.and_utc().timestamp_micros()),
            },
        },
        _ => None,
    };
    let micros = micros.ok_or_else(|| not_a(value, "a time, for example 2006-01-31T15:04:05Z"))?;
    micros.checked_sub(EPOCH_MICROS).ok_or_else(|| not_a(value, "in the range of timestamps"))
}

/// Parses RFC 3339, the SQL format with a space, both optionally without seconds or offset, or a date; returns UTC.
fn parse(text: &str) -> Option<NaiveDateTime> {
    if let Ok(time) = DateTime::parse_from_rfc3339(text) {
        return Some(time.naive_utc());
    }
    for form in ["%Y-%m-%dT%H:%M:%S%.f%#z", "%Y-%m-%d %H:%M:%S%.f%#z", "%Y-%m-%d %H:%M:%S%.f %#z"] {
        if let Ok(time) = DateTime::parse_from_str(text, form) {
            return Some(time.naive_utc());
        }
    }
    for form in ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M"] {
        if let Ok(time) = NaiveDateTime::parse_from_str(text, form) {
            return Some(time);
        }
    }
    NaiveDate::parse_from_str(text, "%Y-%m-%d").ok().map(|date| date.and_time(NaiveTime::MIN))
}
