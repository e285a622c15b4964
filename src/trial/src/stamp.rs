//! Metadata that every record of a run has, and that a trial removes again.

use anabranch_record::metadata::{Metadata, key};
use anabranch_record::text::Str;

/// Metadata that the engine adds to records that lack it. A trial removes it again, so that input and output differ
/// only by what the processor did.
#[derive(Clone)]
pub struct Stamp {
    read_at: Str,
    pub(crate) connector: Str,
}

impl Stamp {
    /// Creates the stamp of a trial.
    pub fn new(pipeline: &str, connector: &str) -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let nanos = now.map_or(0, |since| since.as_nanos());
        Stamp { read_at: nanos.to_string().into(), connector: format!("{pipeline}:{connector}").into() }
    }

    fn entries(&self) -> [(Str, &Str); 2] {
        [(key::READ_AT, &self.read_at), (key::SOURCE_CONNECTOR_ID, &self.connector)]
    }

    /// Adds the entries that a record lacks.
    pub fn put(&self, metadata: &mut Metadata) {
        for (key, value) in self.entries() {
            if metadata.get(&key).is_none() {
                metadata.insert(key, value.clone());
            }
        }
    }

    /// Removes the entries that [`Stamp::put`] added.
    pub fn remove(&self, metadata: &mut Metadata) {
        for (key, value) in self.entries() {
            if metadata.get(&key) == Some(value) {
                metadata.remove(&key);
            }
        }
    }
}
