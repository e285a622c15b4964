//! Retries of failed attempts.

use std::time::{Duration, SystemTime};

use anabranch_plugin::backoff::Backoff;
use anabranch_plugin::parameters::Parameters;
use chrono::DateTime;
use reqwest::header::{HeaderMap, RETRY_AFTER};

/// Maximum time that a server may ask to wait. Above it, the record fails: a pipeline should not stand still for an
/// hour.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(300);
/// Random part of a delay, so that clients that failed together do not retry together.
const SPREAD: f64 = 0.25;

/// Number and delays of retries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Retry {
    /// Maximum number of retries.
    pub count: u32,
    /// Delays before the retries.
    pub delays: Backoff,
}

impl Retry {
    /// No retries.
    pub const NEVER: Retry = Retry { count: 0, delays: Backoff::doubling(Duration::ZERO, Duration::ZERO) };

    /// Returns retries with these delays; a number that is too large is the largest.
    pub fn new(count: u64, delays: Backoff) -> Self {
        Retry { count: u32::try_from(count).unwrap_or(u32::MAX), delays }
    }

    /// Returns the delay after `made` attempts. `wish` is the time that the last answer asked to wait.
    pub(crate) fn delay(&self, made: u32, wish: Option<Duration>) -> Duration {
        let delay = self.delays.after(made);
        (delay + delay.mul_f64(SPREAD * fastrand::f64())).max(wish.unwrap_or_default())
    }
}

/// Parameters of retries, for all processors that send requests.
#[derive(Debug, Parameters)]
pub struct Retries {
    /// Maximum number of retries after 408, 429, 5xx or no answer.
    #[parameter(name = "backoffRetry.count", default = 0, greater_than = -1)]
    count: u64,
    /// Growth factor of the delay between attempts.
    #[parameter(name = "backoffRetry.factor", default = 2, greater_than = 0, only_with = "backoffRetry.count")]
    factor: f64,
    /// Delay before the first retry; a random part of up to a quarter is added.
    #[parameter(name = "backoffRetry.min", default = "100ms", only_with = "backoffRetry.count")]
    min: Duration,
    /// Maximum delay, unless the service asks for more.
    #[parameter(name = "backoffRetry.max", default = "5s", only_with = "backoffRetry.count")]
    max: Duration,
}

impl Retries {
    /// Returns the number and delays.
    pub fn retry(&self) -> Retry {
        let delays = Backoff { first: self.min, longest: self.max, factor: self.factor };
        Retry::new(self.count, delays)
    }
}

/// Returns the time that an answer asks to wait, given in seconds or as a date.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = DateTime::parse_from_rfc2822(text).ok()?;
    SystemTime::from(until).duration_since(SystemTime::now()).ok()
}

#[cfg(test)]
mod tests {
    use chrono::Utc;
    use reqwest::header::HeaderValue;

    use super::*;

    const RETRY: Retry =
        Retry { count: 9, delays: Backoff::doubling(Duration::from_millis(100), Duration::from_secs(5)) };

    #[test]
    fn delays_grow_to_the_longest() {
        let within = |made: u32, seconds: f64| {
            let delay = RETRY.delay(made, None).as_secs_f64();
            assert!((seconds..=seconds * 1.25 + 1e-9).contains(&delay), "{made}: {delay}");
        };
        within(1, 0.1);
        within(2, 0.2);
        within(5, 1.6);
        within(7, 5.0);
        within(u32::MAX, 5.0);
    }

    #[test]
    fn a_wish_is_a_lower_bound() {
        assert_eq!(RETRY.delay(1, Some(Duration::from_secs(60))), Duration::from_secs(60));
        assert!(RETRY.delay(1, Some(Duration::ZERO)) >= RETRY.delays.first);
    }

    #[test]
    fn the_wait_is_read_as_seconds_or_a_date() {
        let read = |text: &str| {
            let value = HeaderValue::from_str(text).unwrap();
            retry_after(&HeaderMap::from_iter([(RETRY_AFTER, value)]))
        };
        assert_eq!(read("7"), Some(Duration::from_secs(7)));
        assert_eq!(read("Sun, 06 Nov 1994 08:49:37 GMT"), None, "it is over");
        let later = DateTime::<Utc>::from(SystemTime::now() + Duration::from_secs(100));
        let later = later.format("%a, %d %b %Y %H:%M:%S GMT").to_string();
        let wait = read(&later).unwrap().as_secs();
        assert!((90..=100).contains(&wait), "{wait}");
        for odd in ["", "-1", "soon", "1.5"] {
            assert_eq!(read(odd), None, "{odd}");
        }
    }
}
