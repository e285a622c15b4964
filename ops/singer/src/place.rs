//! Positions: the last STATE before a record, and whether records after it were read.

use anabranch_record::Position;
use anabranch_record::fault::Fault;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::codes;

/// Stored form of a position.
#[derive(Serialize, Deserialize)]
struct StoredPlace<'a> {
    /// The value of the STATE message; absent before the first one.
    #[serde(borrow)]
    state: Option<&'a RawValue>,
    /// True if records after the STATE were read, which the tap writes again when it gets this state.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    partial: bool,
    /// Number of the sync of which this is the end, so that no earlier position equals it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sync: Option<u64>,
}

/// A place in the output of a tap: a STATE message, or the start.
#[derive(Clone, Debug)]
pub(crate) struct StatePlace {
    state: Option<Box<RawValue>>,
    exact: Position,
    partial: Position,
}

impl StatePlace {
    /// Creates the place after a STATE message; `None` = before the first one.
    pub(crate) fn new(state: Option<Box<RawValue>>) -> StatePlace {
        let position = |partial| {
            let stored = StoredPlace { state: state.as_deref(), partial, sync: None };
            // The value is JSON already.
            Position(Bytes::from(serde_json::to_vec(&stored).unwrap_or_default()))
        };
        let (exact, partial) = (position(false), position(true));
        StatePlace { state, exact, partial }
    }

    /// Reads a stored position. Returns `true` with it if records after the place were read.
    ///
    /// # Errors
    /// It is not a position of this source.
    pub(crate) fn decode(position: &Position) -> Result<(StatePlace, bool), Fault> {
        // A list is a form of the structure, too.
        let object = if position.0.starts_with(b"{") { &position.0[..] } else { b"" };
        let stored: StoredPlace<'_> = serde_json::from_slice(object).map_err(|_| {
            let text =
                "the position is not the state of a tap; run `anabranch positions reset` to start from the beginning";
            Fault::fatal(codes::POSITION_UNKNOWN, text)
        })?;
        Ok((StatePlace::new(stored.state.map(ToOwned::to_owned)), stored.partial))
    }

    /// Returns the text of the state for the tap.
    pub(crate) fn state(&self) -> Option<&str> {
        self.state.as_deref().map(RawValue::get)
    }

    /// Returns the position at which nothing after the state was read.
    pub(crate) fn exact(&self) -> &Position {
        &self.exact
    }

    /// Returns the position of a record after the state.
    pub(crate) fn partial(&self) -> &Position {
        &self.partial
    }

    /// Returns the position after all records of a sync that has failed.
    pub(crate) fn end_of(&self, sync: u64) -> Position {
        let stored = StoredPlace { state: self.state.as_deref(), partial: true, sync: Some(sync) };
        Position(Bytes::from(serde_json::to_vec(&stored).unwrap_or_default()))
    }

    /// Returns `true` if a position is one of this place.
    pub(crate) fn is_at(&self, position: &Position) -> bool {
        *position == self.exact || *position == self.partial
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_contains_the_state_as_the_tap_wrote_it() {
        let state = RawValue::from_string(r#"{"b": 1.50, "a": null}"#.to_owned()).unwrap();
        let place = StatePlace::new(Some(state));
        assert_eq!(place.exact().0, r#"{"state":{"b": 1.50, "a": null}}"#);
        assert_eq!(place.partial().0, r#"{"state":{"b": 1.50, "a": null},"partial":true}"#);
        for (position, partial) in [(place.exact(), false), (place.partial(), true)] {
            let (again, is_partial) = StatePlace::decode(position).unwrap();
            assert_eq!((again.state(), is_partial), (place.state(), partial));
            assert!(again.is_at(position));
        }
        let end = place.end_of(3);
        assert!(StatePlace::decode(&end).unwrap().1 && !place.is_at(&end) && end != place.end_of(4));
        let start = StatePlace::new(None);
        assert_eq!(start.exact().0, r#"{"state":null}"#);
        let (again, _) = StatePlace::decode(start.partial()).unwrap();
        assert_eq!(again.state(), None);
    }

    #[test]
    fn other_positions_are_refused() {
        for other in ["", "17", "{}]", "[1]", r#"{"state":{"#] {
            let fault = StatePlace::decode(&Position::copy_from(other.as_bytes())).unwrap_err();
            assert_eq!(fault.code(), codes::POSITION_UNKNOWN, "{other}");
        }
    }
}
