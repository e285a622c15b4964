//! The times of polls.

use std::time::{Duration, SystemTime};

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::parameters::{Argument, Parameters};
use anabranch_record::text::Str;
use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use croner::Cron;

use crate::codes;

/// Maximum time until the clock is read again: it may be set while the source waits.
const LOOK: Duration = Duration::from_secs(30);

/// Parameters of the schedule.
#[derive(Parameters)]
pub(super) struct Settings {
    /// Time between the end of a poll and the next one.
    #[parameter(default = "1m", greater_than = 0)]
    interval: Argument<Duration>,
    /// Times of polls, instead of interval, as a cron expression: `0 3 * * *` is every day at 3.
    cron: Argument<Option<Str>>,
    /// Time zone of cron, such as Europe/Berlin.
    #[parameter(default = "UTC", only_with = "schedule.cron")]
    timezone: Argument<Str>,
}

/// When polls begin.
#[derive(Clone, Debug)]
pub(super) enum Schedule {
    /// So long after the end of the last poll.
    Every(Duration),
    /// At the times of an expression, in a time zone.
    Cron(Box<Cron>, Tz),
}

impl Settings {
    /// Returns the schedule; adds errors to `findings`.
    pub(super) fn schedule(&self, findings: &mut Diagnostics) -> Schedule {
        let every = Schedule::Every(*self.interval);
        let Some(text) = self.cron.as_ref() else { return every };
        if self.interval.is_given() {
            let text = "schedule.interval and schedule.cron exclude each other";
            findings.push(self.interval.finding(codes::SETTINGS_INVALID, text));
        }
        let cron = text.trim().parse::<Cron>();
        let zone = self.timezone.trim().parse::<Tz>();
        if zone.is_err() {
            findings.push(self.timezone.invalid("this is not a time zone").with_hint("for example Europe/Berlin"));
        }
        match (cron, zone) {
            (Ok(cron), Ok(zone)) => {
                if cron.find_next_occurrence(&Utc::now().with_timezone(&zone), false).is_err() {
                    findings.push(self.cron.invalid("no time matches this cron expression: there would be no poll"));
                }
                Schedule::Cron(Box::new(cron), zone)
            }
            (Err(error), _) => {
                let finding = self.cron.invalid(format_args!("this is not a cron expression: {error}"));
                findings.push(finding.with_hint("for example `0 3 * * *`, every day at 3"));
                every
            }
            (_, Err(_)) => every,
        }
    }
}

impl Schedule {
    /// Returns the time of the first poll. `last` is the start of the last one, in seconds since 1970.
    pub(super) fn first(&self, last: Option<i64>, now: SystemTime) -> SystemTime {
        match (self, last.and_then(|seconds| DateTime::from_timestamp(seconds, 0))) {
            (Schedule::Every(_), _) | (Schedule::Cron(..), None) => now,
            (Schedule::Cron(..), Some(last)) => self.after(last.into(), now),
        }
    }

    /// Returns the time of the next poll. `last` is the start of the last one, which ends at `now`.
    pub(super) fn after(&self, last: SystemTime, now: SystemTime) -> SystemTime {
        match self {
            Schedule::Every(interval) => now.checked_add(*interval).unwrap_or(now),
            Schedule::Cron(cron, zone) => {
                let last = DateTime::<Utc>::from(last).with_timezone(zone);
                // An expression without a time in the future, such as a day that does not exist, has no next poll.
                cron.find_next_occurrence(&last, false).map_or_else(|_| never(), |next| next.with_timezone(&Utc).into())
            }
        }
    }
}

/// A time that does not come while a service runs.
fn never() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 36)
}

/// Waits until a time of the clock.
pub(super) async fn wait_until(time: SystemTime) {
    while let Ok(left) = time.duration_since(SystemTime::now())
        && !left.is_zero()
    {
        tokio::time::sleep(left.min(LOOK)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SystemTime {
        DateTime::parse_from_rfc3339(text).unwrap().into()
    }

    #[test]
    fn cron_has_a_time_zone() {
        let schedule = |text: &str, zone: Tz| Schedule::Cron(Box::new(text.parse().unwrap()), zone);
        let daily = schedule("30 2 * * *", chrono_tz::Europe::Berlin);
        let next = |schedule: &Schedule, last: &str| schedule.after(at(last), at(last));
        assert_eq!(next(&daily, "2026-01-10T00:00:00Z"), at("2026-01-10T01:30:00Z"));
        assert_eq!(next(&daily, "2026-07-10T00:00:00Z"), at("2026-07-10T00:30:00Z"));
        let seconds = schedule("*/10 * * * * *", Tz::UTC);
        assert_eq!(next(&seconds, "2026-01-10T00:00:01Z"), at("2026-01-10T00:00:10Z"));
        assert!(next(&schedule("0 0 30 2 *", Tz::UTC), "2026-01-10T00:00:00Z") > at("3000-01-01T00:00:00Z"));
    }

    #[test]
    fn a_time_that_was_missed_is_made_up_for() {
        let daily = Schedule::Cron(Box::new("0 3 * * *".parse().unwrap()), Tz::UTC);
        let last = DateTime::parse_from_rfc3339("2026-01-10T03:00:00Z").unwrap().timestamp();
        let now = at("2026-01-10T12:00:00Z");
        assert_eq!(daily.first(Some(last), now), at("2026-01-11T03:00:00Z"));
        assert!(daily.first(Some(last - 86_400), now) < now, "the poll of the 10th was missed");
        assert_eq!(daily.first(None, now), now);
        assert_eq!(Schedule::Every(Duration::from_secs(60)).first(Some(last), now), now);
    }
}
