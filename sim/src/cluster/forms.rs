//! The forms in which nodes of two versions write: the newer one adds optional fields, which the older one does not know.

use anabranch_record::Position;

use super::PlantedFault;

/// Version of the program of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProgramVersion {
    Older,
    Newer,
}

/// Between the number of a position and the fields that the newer version adds.
const FIELDS: char = ';';

impl ProgramVersion {
    /// Returns the position of a row, as a node of this version writes it.
    pub(super) fn position(self, number: u64) -> Position {
        let text = match self {
            ProgramVersion::Older => number.to_string(),
            ProgramVersion::Newer => format!("{number}{FIELDS}{}", number * 2),
        };
        Position::copy_from(text.as_bytes())
    }

    /// Returns the number of the row after which a node of this version resumes.
    pub(super) fn resumed(self, position: &Position, planted: Option<PlantedFault>) -> u64 {
        match (self, planted) {
            // It takes the whole text for the number.
            (ProgramVersion::Older, Some(PlantedFault::NewerPositionMisread)) => {
                text(position).and_then(|text| text.parse().ok()).unwrap_or(0)
            }
            _ => row_number(position),
        }
    }

    /// Returns an optional field of a row of the store, as a node of this version fills it.
    pub(super) fn field(self, value: u64) -> Option<u64> {
        match self {
            ProgramVersion::Older => None,
            ProgramVersion::Newer => Some(value),
        }
    }
}

fn text(position: &Position) -> Option<&str> {
    std::str::from_utf8(&position.0).ok()
}

/// Returns the number of the row at a position; 0 = before the first.
pub(super) fn row_number(position: &Position) -> u64 {
    let number = text(position).and_then(|text| text.split(FIELDS).next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}
