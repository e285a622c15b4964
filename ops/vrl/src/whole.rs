//! `.` and `%` as maps, for programs that take a part of a record as a whole.

use vrl::path::{OwnedSegment, OwnedTargetPath, PathPrefix};
use vrl::value::Value;

use crate::spot::{Spot, TargetPart};

/// `.` and `%` of a record.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) event: Value,
    pub(crate) rest: Value,
}

impl Whole {
    pub(crate) fn root(&self, prefix: PathPrefix) -> &Value {
        match prefix {
            PathPrefix::Event => &self.event,
            PathPrefix::Metadata => &self.rest,
        }
    }

    pub(crate) fn root_mut(&mut self, prefix: PathPrefix) -> &mut Value {
        match prefix {
            PathPrefix::Event => &mut self.event,
            PathPrefix::Metadata => &mut self.rest,
        }
    }

    /// Returns `true` if the path is a field of data that has no fields.
    pub(crate) fn is_misplaced(&self, path: &OwnedTargetPath) -> bool {
        // The key and the payload before the change are fields of `%`.
        let data = match (path.prefix, &path.path.segments[..]) {
            (PathPrefix::Event, [OwnedSegment::Field(_), ..]) => Some(&self.event),
            (PathPrefix::Metadata, [part @ OwnedSegment::Field(_), OwnedSegment::Field(_), ..]) => {
                match Spot::of(path).map(|spot| spot.part) {
                    Ok(TargetPart::Data(_)) => self.rest.get(std::slice::from_ref(part)),
                    _ => return false,
                }
            }
            _ => return false,
        };
        !data.is_some_and(Value::is_object)
    }
}
