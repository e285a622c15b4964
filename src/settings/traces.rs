//! Where traces of records are sent, and of how many records.

use std::fmt;

use anabranch_plugin::secret::MASKED_FROM;
use anabranch_plugin::trace::Share;
use anabranch_record::text::Str;

use super::credential::Credential;
use super::layers::headers;

/// Where traces are sent, and of how many records. What headers say is shown to nobody.
#[derive(Clone)]
pub struct TraceSettings {
    /// URL that spans are posted to.
    pub endpoint: String,
    /// The records that are traced.
    pub share: Share,
    /// Headers of every request: names and values.
    pub headers: Vec<(String, Str)>,
    /// What the headers were read from; its file may be replaced while the service runs.
    pub credential: Credential,
    /// Name of the service.
    pub service: String,
    /// What else is told of it.
    pub attributes: Vec<(String, String)>,
}

impl TraceSettings {
    /// The headers as they are now. Those of the start, where the file holds none that can be sent. Blocks for the file.
    pub fn headers_now(&self) -> Vec<(String, Str)> {
        headers(&self.credential.now()).unwrap_or_else(|_| self.headers.clone())
    }

    /// What no line of the log may show.
    pub fn secrets(&self) -> impl Iterator<Item = Str> + '_ {
        self.headers.iter().map(|(_, value)| value.clone()).filter(|value| value.len() >= MASKED_FROM)
    }
}

impl fmt::Debug for TraceSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceSettings").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

/// A share as it is written: `0.01`, `1/100`.
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
