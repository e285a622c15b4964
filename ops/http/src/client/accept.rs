//! Statuses that count as success.

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::parameters::Argument;
use anabranch_record::text::Str;
use reqwest::StatusCode;

/// A set of statuses: 2xx and those added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accept(Vec<(u16, u16)>);

/// Error for a text that is not a set of statuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a status (404), class of statuses (4xx) or range (400-404)")]
pub struct InvalidAccept(pub String);

impl Default for Accept {
    fn default() -> Self {
        Accept(vec![(200, 299)])
    }
}

impl Accept {
    /// Returns the statuses of a setting, in addition to 2xx; adds errors to `findings`.
    pub(crate) fn of(setting: &Argument<Vec<Str>>, findings: &mut Diagnostics) -> Accept {
        let mut accept = Accept::default();
        for text in setting.iter() {
            if let Err(error) = accept.add(text) {
                findings.push(setting.invalid(error));
            }
        }
        accept
    }

    /// Adds `404`, `4xx` or `400-404`.
    ///
    /// # Errors
    /// Fails for any other text.
    pub fn add(&mut self, text: &str) -> Result<(), InvalidAccept> {
        let status = |text: &str| text.trim().parse().ok().filter(|n| (100..=599).contains(n));
        let class = |text: &str| {
            let digit = text.strip_suffix("xx").or_else(|| text.strip_suffix("XX"))?;
            status(&format!("{digit}00")).map(|first| (first, first + 99))
        };
        let range = |text: &str| {
            let (first, last) = text.split_once('-')?;
            status(first).zip(status(last)).filter(|(first, last)| first <= last)
        };
        let text = text.trim();
        let found = status(text).map(|n| (n, n)).or_else(|| class(text)).or_else(|| range(text));
        self.0.push(found.ok_or_else(|| InvalidAccept(text.to_owned()))?);
        Ok(())
    }

    /// Returns `true` if the status counts as success.
    pub fn contains(&self, status: StatusCode) -> bool {
        self.0.iter().any(|(first, last)| (*first..=*last).contains(&status.as_u16()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_classes_and_ranges_are_added() {
        let mut accept = Accept::default();
        for text in ["404", " 3xx ", "500-502"] {
            accept.add(text).unwrap();
        }
        let good = |status| accept.contains(StatusCode::from_u16(status).unwrap());
        assert!([200, 204, 299, 300, 399, 404, 500, 502].into_iter().all(good));
        assert!(![199, 400, 403, 405, 499, 503].into_iter().any(good));
        for bad in ["", "4x", "40", "999", "404-400", "-", "4xx-5xx", "é"] {
            assert_eq!(accept.add(bad), Err(InvalidAccept(bad.to_owned())));
        }
    }
}
