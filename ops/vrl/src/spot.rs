//! Paths of a program, as parts of a record.

use anabranch_record::access::Access;
use anabranch_record::metadata::own_key;
use anabranch_record::reference::Side;
use anabranch_record::text::Str;
use vrl::path::{OwnedSegment, OwnedTargetPath, OwnedValuePath, PathPrefix};

/// A part of a record that a program can access: `.` is the payload after the change, the others are fields of `%`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TargetPart {
    /// The key or a side of the payload.
    Data(Side),
    Metadata,
    Operation,
    Position,
}

/// Names of the fields of `%`, with their parts.
pub(crate) const FIELDS: [(&str, TargetPart); 5] = [
    ("before", TargetPart::Data(Side::Before)),
    ("key", TargetPart::Data(Side::Key)),
    ("metadata", TargetPart::Metadata),
    ("operation", TargetPart::Operation),
    ("position", TargetPart::Position),
];

/// The place in a record that a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) part: TargetPart,
    /// Names of fields, up to the first index: a list is accessed as a whole.
    pub(crate) names: Vec<Str>,
}

/// A path that names no part of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoSpot {
    /// `%`, which is all of them.
    All,
    /// `%name`, with the unknown name; an index of `%` has no name.
    Unknown(String),
}

impl Spot {
    pub(crate) fn of(path: &OwnedTargetPath) -> Result<Spot, NoSpot> {
        let segments = &path.path.segments[..];
        let (part, rest) = match path.prefix {
            PathPrefix::Event => (TargetPart::Data(Side::After), segments),
            PathPrefix::Metadata => match segments {
                [] => return Err(NoSpot::All),
                [OwnedSegment::Field(name), rest @ ..] => {
                    let known = FIELDS.iter().find(|(field, _)| *field == name.as_str());
                    (known.ok_or_else(|| NoSpot::Unknown(name.to_string()))?.1, rest)
                }
                [OwnedSegment::Index(_), ..] => return Err(NoSpot::Unknown(String::new())),
            },
        };
        let names = rest.iter().map_while(|segment| match segment {
            OwnedSegment::Field(name) => Some(Str::from(name.as_str())),
            OwnedSegment::Index(_) => None,
        });
        Ok(Spot { part, names: names.collect() })
    }

    /// Returns the path of the spot in the program.
    pub(crate) fn path(&self) -> OwnedTargetPath {
        let prefix = match self.part {
            TargetPart::Data(Side::After) => PathPrefix::Event,
            _ => PathPrefix::Metadata,
        };
        let field = FIELDS.iter().find(|(_, part)| *part == self.part).map(|(name, _)| *name);
        let names = field.into_iter().chain(self.names.iter().map(Str::as_str));
        let segments = names.map(OwnedSegment::field).collect();
        OwnedTargetPath { prefix, path: OwnedValuePath { segments } }
    }

    /// Returns `true` if the spot is `other` or contains it.
    pub(crate) fn contains(&self, other: &Spot) -> bool {
        self.part == other.part && other.names.starts_with(&self.names)
    }

    /// Returns the spot with at most this many names.
    pub(crate) fn shortened(&self, most: usize) -> Spot {
        Spot { part: self.part, names: self.names.iter().take(most).cloned().collect() }
    }

    /// Returns the part as the compiler knows it.
    pub(crate) fn access(&self) -> Access {
        let mut path: Vec<Str> = match self.part {
            TargetPart::Data(side) => side.parts().to_vec(),
            TargetPart::Metadata => vec![Str::from_static("Metadata")],
            TargetPart::Operation => vec![Str::from_static("Operation")],
            TargetPart::Position => vec![Str::from_static("Position")],
        };
        match self.part {
            TargetPart::Metadata => path.extend(self.names.first().map(key_of)),
            _ => path.extend(self.names.iter().cloned()),
        }
        Access::These(vec![path])
    }
}

/// Returns the key of metadata that a name in a program means.
pub(crate) fn key_of(name: &Str) -> Str {
    own_key(name).unwrap_or_else(|| name.clone())
}
