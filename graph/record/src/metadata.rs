//! Record metadata: a small map of text, shared between copies of a record until one of them changes it.

use std::sync::Arc;

use crate::text::Str;

/// Well-known metadata keys (spec § 2.3).
pub mod key {
    use crate::text::Str;

    macro_rules! keys { ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        $($(#[$doc])* pub const $name: Str = Str::from_static($text);)*
        /// All well-known keys.
        pub const ALL: &[Str] = &[$($name),*];
    } }
    keys! {
        /// Version of the record format, `v1`.
        VERSION = "recfmt.version";
        /// Creation time in the source, nanoseconds since the epoch, decimal.
        CREATED_AT = "recfmt.createdAt";
        /// Time the record was read, nanoseconds since the epoch, decimal.
        READ_AT = "recfmt.readAt";
        /// Collection (table, topic, index) of the record.
        COLLECTION = "recfmt.collection";
        /// Schema subject of the key.
        KEY_SCHEMA_SUBJECT = "recfmt.key.schema.subject";
        /// Schema version of the key.
        KEY_SCHEMA_VERSION = "recfmt.key.schema.version";
        /// Schema subject of the payload.
        PAYLOAD_SCHEMA_SUBJECT = "recfmt.payload.schema.subject";
        /// Schema version of the payload.
        PAYLOAD_SCHEMA_VERSION = "recfmt.payload.schema.version";
        /// Id of the source connector, `<pipeline>:<connector>`.
        SOURCE_CONNECTOR_ID = "svc.source.connector.id";
        /// Name of the source plugin.
        SOURCE_PLUGIN_NAME = "svc.source.plugin.name";
        /// Version of the source plugin.
        SOURCE_PLUGIN_VERSION = "svc.source.plugin.version";
        /// The error of the record in a dead letter.
        DLQ_NACK_ERROR = "svc.dlq.nack.error";
        /// Stable code of the error of the record in a dead letter.
        DLQ_NACK_CODE = "svc.dlq.nack.code";
        /// Node where the record in a dead letter failed.
        DLQ_NACK_NODE_ID = "svc.dlq.nack.node.id";
        /// Zero-based index of a record that `split` produced.
        SPLIT_INDEX = "split.index";
        /// `0` on the original of `clone`, `1..=count` on its copies.
        CLONE_INDEX = "clone.index";
        /// Path of the file that contained the record.
        FILE_PATH = "file.path";
        /// First row of the CSV file that contained the record.
        FILE_HEADER = "file.header";
    }
}

/// Prefixes of metadata keys in plugins and files of other systems, each with the prefix that this service uses.
pub const FOREIGN_PREFIXES: [(&str, &str); 2] = [("opencdc.", "recfmt."), ("conduit.", "svc.")];

/// Translates a key with a foreign prefix to this service's prefix; `None` for any other key.
pub fn own_key(key: &str) -> Option<Str> {
    FOREIGN_PREFIXES.iter().find_map(|(foreign, own)| {
        let rest = key.strip_prefix(foreign)?;
        Some(Str::from(format!("{own}{rest}")))
    })
}

/// Memory of an entry in bytes, without its key and value.
const ENTRY: usize = 64;

/// Metadata entries in insertion order, each key once.
///
/// Records carry a handful of entries, so a scan that compares lengths first beats hashing and
/// ordering. Cloning is O(1); the first write to a shared map copies it.
#[derive(Clone, Debug, Default)]
pub struct Metadata(Option<Arc<Entries>>);

#[derive(Clone, Default)]
struct Entries {
    list: Vec<(Str, Str)>,
    /// Total bytes of all keys and values.
    text: usize,
}

impl Entries {
    fn new(list: Vec<(Str, Str)>) -> Self {
        let text = list.iter().map(|(key, value)| key.len() + value.len()).sum();
        Entries { list, text }
    }
}

impl std::fmt::Debug for Entries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.list.fmt(f)
    }
}

impl Metadata {
    /// Creates an empty map; does not allocate.
    pub const fn new() -> Self {
        Metadata(None)
    }

    /// Creates an empty map with room for `n` entries.
    pub fn with_capacity(n: usize) -> Self {
        Metadata(Some(Arc::new(Entries { list: Vec::with_capacity(n), text: 0 })))
    }

    /// Creates a map from entries in any order; the last of equal keys wins. O(n log n); many entries are kept in key
    /// order.
    pub fn from_entries(mut entries: Vec<(Str, Str)>) -> Self {
        const FEW: usize = 32;
        if entries.len() <= FEW {
            let distinct = |(i, (key, _)): (usize, &(Str, Str))| entries[..i].iter().all(|(other, _)| other != key);
            return match entries.iter().enumerate().all(distinct) {
                true if entries.is_empty() => Metadata::new(),
                true => Metadata(Some(Arc::new(Entries::new(entries)))),
                false => entries.into_iter().collect(),
            };
        }
        entries.reverse();
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        entries.dedup_by(|later, kept| later.0 == kept.0);
        Metadata(Some(Arc::new(Entries::new(entries))))
    }

    #[inline]
    fn entries(&self) -> &[(Str, Str)] {
        self.0.as_ref().map_or(&[], |entries| entries.list.as_slice())
    }

    fn entries_mut(&mut self) -> &mut Entries {
        Arc::make_mut(self.0.get_or_insert_default())
    }

    /// Returns the entries for replacement in place; `None` if there are none, or another map shares them.
    pub(crate) fn refill(&mut self) -> Option<Refill<'_>> {
        let entries = Arc::get_mut(self.0.as_mut()?)?;
        Some(Refill { entries, next: 0 })
    }

    #[inline]
    fn find(&self, key: &str) -> Option<usize> {
        self.entries().iter().position(|(k, _)| *k == *key)
    }

    /// Returns the value of `key`.
    #[inline]
    pub fn get(&self, key: &str) -> Option<&Str> {
        self.find(key).map(|i| &self.entries()[i].1)
    }

    /// Sets `key` and returns the previous value.
    pub fn insert(&mut self, key: impl Into<Str>, value: impl Into<Str>) -> Option<Str> {
        let (key, value) = (key.into(), value.into());
        match self.find(&key) {
            Some(i) => {
                let Entries { list, text } = self.entries_mut();
                let before = std::mem::replace(&mut list[i].1, value);
                *text = *text + list[i].1.len() - before.len();
                Some(before)
            }
            None => {
                let Entries { list, text } = self.entries_mut();
                *text += key.len() + value.len();
                list.push((key, value));
                None
            }
        }
    }

    /// Sets `key` under its translated name, see [`own_key`]. If `key` has a foreign prefix and the translated name is
    /// already set, this does nothing.
    pub fn insert_translated(&mut self, key: &Str, value: impl Into<Str>) {
        match own_key(key) {
            None => {
                self.insert(key.clone(), value);
            }
            Some(own) => {
                if self.find(&own).is_none() {
                    self.insert(own, value);
                }
            }
        }
    }

    /// Removes `key`; if the key is absent, a shared map stays shared.
    pub fn remove(&mut self, key: &str) -> Option<Str> {
        let at = self.find(key)?;
        let Entries { list, text } = self.entries_mut();
        let (key, value) = list.remove(at);
        *text -= key.len() + value.len();
        Some(value)
    }

    /// Returns `true` if both are unchanged copies of one map. O(1).
    #[inline]
    pub fn shares(&self, other: &Metadata) -> bool {
        match (&self.0, &other.0) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        }
    }

    /// Returns `true` if the map is shared, so that the next write copies it. O(1).
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.0.as_ref().is_some_and(|entries| Arc::strong_count(entries) > 1)
    }

    /// Returns `true` if there is an entry with this key.
    pub fn contains_key(&self, key: &str) -> bool {
        self.find(key).is_some()
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.entries().len()
    }

    /// Returns the approximate number of bytes that the entries hold in memory. O(1).
    pub fn weight(&self) -> usize {
        self.0.as_ref().map_or(0, |entries| entries.list.len() * ENTRY + entries.text)
    }

    /// Returns `true` if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries().is_empty()
    }

    /// Returns the entries in insertion order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Str, &Str)> {
        self.entries().iter().map(|(k, v)| (k, v))
    }
}

/// The entries of a map, whose values are replaced one after the other.
pub(crate) struct Refill<'m> {
    entries: &'m mut Entries,
    next: usize,
}

impl Refill<'_> {
    /// Sets the value of the next entry if its key fits; a value that is the same keeps its memory. Returns `false` if
    /// the key does not fit, or there is no such entry.
    pub(crate) fn next(&mut self, fits: impl FnOnce(&str) -> bool, value: &str) -> bool {
        let Entries { list, text } = &mut *self.entries;
        let Some((_, place)) = list.get_mut(self.next).filter(|(key, _)| fits(key)) else { return false };
        if *place != *value {
            *text = *text + value.len() - place.len();
            *place = value.into();
        }
        self.next += 1;
        true
    }

    /// Returns `true` if all entries have their values.
    pub(crate) fn is_complete(&self) -> bool {
        self.next == self.entries.list.len()
    }
}

impl PartialEq for Metadata {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().all(|(k, v)| other.get(k) == Some(v))
    }
}

impl Eq for Metadata {}

impl<K: Into<Str>, V: Into<Str>> FromIterator<(K, V)> for Metadata {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut metadata = Metadata::new();
        for (k, v) in entries {
            metadata.insert(k, v);
        }
        metadata
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_equal_keys_wins_however_many_there_are() {
        for n in [3, 100] {
            let entries = (0..n).chain(0..n).enumerate().map(|(i, k)| (format!("k{k}").into(), i.to_string().into()));
            let metadata = Metadata::from_entries(entries.collect());
            assert_eq!(metadata.len(), n);
            assert_eq!(metadata.get("k1").map(Str::as_str), Some((n + 1).to_string().as_str()));
        }
    }

    #[test]
    fn the_weight_follows_every_change() {
        let weight = |entries: &[(&str, &str)]| entries.iter().map(|(k, v)| ENTRY + k.len() + v.len()).sum::<usize>();
        let mut metadata = Metadata::new();
        assert_eq!(metadata.weight(), 0);
        metadata.insert("key", "x".repeat(1_000_000));
        assert_eq!(metadata.weight(), ENTRY + 1_000_003);
        let copy = metadata.clone();
        metadata.insert("key", "short");
        metadata.insert("more", "");
        assert_eq!(metadata.weight(), weight(&[("key", "short"), ("more", "")]));
        assert_eq!(copy.weight(), ENTRY + 1_000_003);
        metadata.remove("key");
        metadata.remove("none");
        assert_eq!(metadata.weight(), weight(&[("more", "")]));
        for n in [3, 100] {
            let entries: Vec<(Str, Str)> = (0..2 * n).map(|k| (format!("k{}", k % n).into(), "value".into())).collect();
            let metadata = Metadata::from_entries(entries);
            assert_eq!(metadata.weight(), metadata.iter().map(|(k, v)| ENTRY + k.len() + v.len()).sum::<usize>());
        }
    }

    #[test]
    fn foreign_keys_get_their_own_names() {
        let entries = [("opencdc.collection", "theirs"), ("conduit.x", "1"), ("recfmt.collection", "ours"), ("a", "b")];
        for order in [[0, 1, 2, 3], [3, 2, 1, 0]] {
            let mut metadata = Metadata::new();
            order.into_iter().for_each(|i| metadata.insert_translated(&entries[i].0.into(), entries[i].1));
            assert_eq!(metadata, [("recfmt.collection", "ours"), ("svc.x", "1"), ("a", "b")].into_iter().collect());
        }
        assert_eq!(own_key("opencdcx"), None);
    }

    #[test]
    fn copies_share_until_written() {
        let mut a: Metadata = [("x", "1")].into_iter().collect();
        assert!(!a.is_shared());
        let b = a.clone();
        assert!(a.is_shared() && b.is_shared());
        assert_eq!(a.insert("x", "2").as_deref(), Some("1"));
        assert!(!a.is_shared() && !b.is_shared());
        assert_eq!(b.get("x").map(Str::as_str), Some("1"));
        assert_eq!(a.remove("y"), None);
        assert_eq!(a.remove("x").as_deref(), Some("2"));
        assert!(a.is_empty() && !b.is_empty());
    }
}
