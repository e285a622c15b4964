//! Places in the write-ahead log.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A place in the write-ahead log: an offset in bytes, written as two hexadecimal numbers (`16/B374D848`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Lsn(pub(super) u64);

impl Lsn {
    /// The place before all others. It stands for an unknown place.
    pub(super) const ZERO: Lsn = Lsn(0);

    /// Returns the bytes from `earlier` to this place; 0 if it is not earlier.
    pub(super) fn since(self, earlier: Lsn) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Error: the text is not a place in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a place in the write-ahead log, such as 16/B374D848")]
pub(super) struct NotAnLsn;

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xffff_ffff)
    }
}

impl FromStr for Lsn {
    type Err = NotAnLsn;

    fn from_str(text: &str) -> Result<Lsn, NotAnLsn> {
        let (high, low) = text.split_once('/').ok_or(NotAnLsn)?;
        let part = |digits: &str| u32::from_str_radix(digits, 16).map_err(|_| NotAnLsn);
        Ok(Lsn(u64::from(part(high)?) << 32 | u64::from(part(low)?)))
    }
}

impl Serialize for Lsn {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Lsn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Lsn, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn texts_survive(place in any::<u64>()) {
            prop_assert_eq!(Lsn(place).to_string().parse(), Ok(Lsn(place)));
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "1", "1/", "/1", "g/1", "1/123456789", "-1/1"] {
            assert_eq!(text.parse::<Lsn>(), Err(NotAnLsn), "{text}");
        }
        assert_eq!("16/B374D848".parse(), Ok(Lsn(0x16_B374_D848)));
    }
}
