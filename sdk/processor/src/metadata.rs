//! Metadata keys, and their names in the protocol.
//!
//! A processor sees the keys below. Hosts and guests exchange them with the two prefixes of the processor protocol, so
//! that a module runs in every host of the protocol. Prefixes are converted only where records are decoded and encoded.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::text::same;

/// Metadata of a record, in key order.
pub type Metadata = BTreeMap<String, String>;

/// Time of the record's creation, in nanoseconds since 1970.
pub const CREATED_AT: &str = "recfmt.createdAt";
/// Time when the record was read, in nanoseconds since 1970.
pub const READ_AT: &str = "recfmt.readAt";
/// The collection (table, topic, …) that the record belongs to.
pub const COLLECTION: &str = "recfmt.collection";
/// Subject of the schema of the key.
pub const KEY_SCHEMA_SUBJECT: &str = "recfmt.key.schema.subject";
/// Version of the schema of the key.
pub const KEY_SCHEMA_VERSION: &str = "recfmt.key.schema.version";
/// Subject of the schema of both sides of the payload.
pub const PAYLOAD_SCHEMA_SUBJECT: &str = "recfmt.payload.schema.subject";
/// Version of the schema of both sides of the payload.
pub const PAYLOAD_SCHEMA_VERSION: &str = "recfmt.payload.schema.version";
/// Id of the source that read the record: `pipeline:connector`.
pub const SOURCE_CONNECTOR_ID: &str = "svc.source.connector.id";

/// The prefixes for processors, and those in the protocol.
const PREFIXES: [(&str, &str); 2] = [("recfmt.", "opencdc."), ("svc.", "conduit.")];

/// Returns the key for processors of a key in the protocol.
pub(crate) fn ours(wire: &str) -> Cow<'_, str> {
    for (ours, theirs) in PREFIXES {
        if let Some(rest) = wire.strip_prefix(theirs) {
            return Cow::Owned([ours, rest].concat());
        }
    }
    Cow::Borrowed(wire)
}

/// Returns `true` if `wire` is the name of the key `ours` in the protocol.
pub(crate) fn is_ours(ours: &str, wire: &[u8]) -> bool {
    for (prefix, theirs) in PREFIXES {
        if let Some(rest) = after(wire, theirs) {
            return after(ours.as_bytes(), prefix).is_some_and(|ours| same(ours, rest));
        }
    }
    same(ours.as_bytes(), wire)
}

/// Returns the key in the protocol of a key for processors: a prefix and the rest.
pub(crate) fn wire(ours: &str) -> (&'static str, &str) {
    for (prefix, theirs) in PREFIXES {
        // Most keys differ in the first byte, and comparing more is a call in a module.
        if ours.as_bytes().first() == prefix.as_bytes().first()
            && let Some(rest) = ours.strip_prefix(prefix)
        {
            return (theirs, rest);
        }
    }
    ("", ours)
}

/// Returns the rest of the key after the prefix.
fn after<'k>(key: &'k [u8], prefix: &str) -> Option<&'k [u8]> {
    let (head, rest) = key.split_at_checked(prefix.len())?;
    same(head, prefix.as_bytes()).then_some(rest)
}
