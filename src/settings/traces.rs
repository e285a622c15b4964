//! Settings of traces.

use std::fmt;

use anabranch_plugin::secret::MASKED_FROM;
use anabranch_plugin::trace::Share;
use anabranch_record::text::Str;

use super::credential::Credential;
use super::layers::headers;

/// Export of traces. `Debug` leaves out the headers.
#[derive(Clone)]
pub struct TraceSettings {
    /// URL that spans are posted to.
    pub endpoint: String,
    /// Share of the records that are traced.
    pub share: Share,
    /// Headers of every request: names and values.
    pub headers: Vec<(String, Str)>,
    /// The source of the headers. Its file can be replaced while the service runs.
    pub credential: Credential,
    /// Name of the service.
    pub service: String,
    /// Further attributes of the service.
    pub attributes: Vec<(String, String)>,
}

impl TraceSettings {
    /// Returns the current headers. If the file contains no valid headers, returns those of the start. Blocks on the
    /// file.
    pub fn headers_now(&self) -> Vec<(String, Str)> {
        headers(&self.credential.now()).unwrap_or_else(|_| self.headers.clone())
    }

    /// Returns the values that must not appear in the log.
    pub fn secrets(&self) -> impl Iterator<Item = Str> + '_ {
        self.headers.iter().map(|(_, value)| value.clone()).filter(|value| value.len() >= MASKED_FROM)
    }
}

impl fmt::Debug for TraceSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceSettings").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

/// Parses a share: `0.01`, `1/100`.
pub(super) fn parse_share(text: &str) -> Option<Share> {
    let number = |text: &str| text.trim().parse::<f64>().ok();
    let share = match text.split_once('/') {
        Some((part, whole)) => number(part)? / number(whole)?,
        None => number(text)?,
    };
    Share::new(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_number_or_a_fraction() {
        let parsed = |text| parse_share(text).map(Share::as_f64);
        assert_eq!(["0", "1", "0.25", " 1 / 4 ", "1e-3"].map(parsed), [0.0, 1.0, 0.25, 0.25, 0.001].map(Some));
        assert_eq!(["", "2", "-0.1", "1/0", "0/0", "NaN", "1%", "a/b", "1/2/3"].map(parsed), [None; 9]);
    }
}
