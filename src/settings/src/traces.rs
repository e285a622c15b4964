//! Settings of traces.

use std::fmt;

use anabranch_plugin::secret::MASKED_FROM;
use anabranch_plugin::trace::Share;
use anabranch_record::text::Str;
use http::{HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;

use crate::credential::Credential;

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
pub(crate) fn parse_share(text: &str) -> Option<Share> {
    let number = |text: &str| text.trim().parse::<f64>().ok();
    let share = match text.split_once('/') {
        Some((part, whole)) => number(part)? / number(whole)?,
        None => number(text)?,
    };
    Share::new(share)
}

/// Parses `name=value,name=value`, with percent-encoded bytes.
pub(crate) fn pairs(text: &str) -> Result<Vec<(String, String)>, &'static str> {
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    let pair = |item: &str| {
        let (name, value) = item.split_once('=')?;
        let decoded = |text: &str| Some(percent_decode_str(text.trim()).decode_utf8().ok()?.into_owned());
        Some((decoded(name).filter(|name| !name.is_empty())?, decoded(value)?))
    };
    items.map(|item| pair(item).ok_or("expected name=value, separated by commas")).collect()
}

/// Parses headers of requests: names and values.
pub(crate) fn headers(text: &str) -> Result<Vec<(String, Str)>, &'static str> {
    let sound = |(name, value): (String, String)| {
        HeaderName::try_from(&name).map_err(|_| "it contains a name that is invalid in an HTTP header")?;
        HeaderValue::try_from(&value).map_err(|_| "it contains a value that is invalid in an HTTP header")?;
        Ok((name, value.into()))
    };
    pairs(text)?.into_iter().map(sound).collect()
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
