//! Metadata keys, and how they are spelled on the other side of the boundary.
//!
//! A processor sees the keys below. Hosts and guests exchange them under the two prefixes of the processor
//! protocol, so that one module runs in every host of the protocol; the change of prefix happens where records
//! are decoded and encoded, and nowhere else.

use std::borrow::Cow;
use std::collections::BTreeMap;

/// Metadata of a record, in the order of their keys.
pub type Metadata = BTreeMap<String, String>;

/// When the record was made, in nanoseconds since 1970.
pub const CREATED_AT: &str = "recfmt.createdAt";
/// When the record was read, in nanoseconds since 1970.
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

/// Our prefix, and the one on the wire.
const PREFIXES: [(&str, &str); 2] = [("recfmt.", "opencdc."), ("svc.", "conduit.")];

/// The key as processors see it, of a key as it crosses the boundary.
pub(crate) fn ours(wire: &str) -> Cow<'_, str> {
    for (ours, theirs) in PREFIXES {
        if let Some(rest) = after(wire, theirs) {
            return Cow::Owned([ours, rest].concat());
        }
    }
    Cow::Borrowed(wire)
}

/// The key as it crosses the boundary, of a key as processors see it: a prefix, and what follows it.
pub(crate) fn wire(ours: &str) -> (&'static str, &str) {
    for (prefix, theirs) in PREFIXES {
        if let Some(rest) = after(ours, prefix) {
            return (theirs, rest);
        }
    }
    ("", ours)
}

/// What follows the prefix. Most keys differ in the first byte, and comparing more is a call in a module.
fn after<'k>(key: &'k str, prefix: &str) -> Option<&'k str> {
    if key.as_bytes().first() == prefix.as_bytes().first() { key.strip_prefix(prefix) } else { None }
}
