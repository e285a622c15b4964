//! The result cache of operators: results by space and key. The oldest are removed when the cache exceeds its size
//! limit.

use anabranch_plugin::state::{ResultKey, StoreError};
use bytes::Bytes;
use redb::{ReadTransaction, ReadableTable as _, TableDefinition, TableError, WriteTransaction};

use crate::request::unavailable;
use crate::tables::WriteFailure;

/// Maximum bytes of results and their keys. A file of this size is still fully verified when it is opened.
pub(super) const BOUND: u64 = 48 << 20;

/// (Space, key) -> number of the entry, eight bytes, most significant first; then the result.
const MEMO: TableDefinition<'_, (&str, &[u8]), &[u8]> = TableDefinition::new("memo");
/// Number of an entry, in order of insertion -> its space and key.
const MEMO_AGE: TableDefinition<'_, u64, (&str, &[u8])> = TableDefinition::new("memo_age");
/// `bytes` -> bytes of all entries.
const MEMO_SIZE: TableDefinition<'_, &str, u64> = TableDefinition::new("memo_size");

/// Returns the bytes that an entry counts: its key is stored twice.
fn weight(space: &str, value: usize) -> u64 {
    (value + 2 * (space.len() + size_of::<ResultKey>()) + 16) as u64
}

pub(super) fn recall(
    transaction: &ReadTransaction,
    space: &str,
    keys: &[ResultKey],
) -> Result<Vec<Option<Bytes>>, StoreError> {
    let table = match transaction.open_table(MEMO) {
        Err(TableError::TableDoesNotExist(_)) => return Ok(vec![None; keys.len()]),
        other => other.map_err(unavailable)?,
    };
    let value = |key: &ResultKey| {
        let found = table.get((space, &key[..])).map_err(unavailable)?;
        Ok(found.and_then(|found| found.value().get(8..).map(Bytes::copy_from_slice)))
    };
    keys.iter().map(value).collect()
}

/// Stores results, each once, and removes the oldest beyond `bound` bytes. O(entries stored and removed × log all).
pub(super) fn keep(
    transaction: &WriteTransaction,
    space: &str,
    entries: &[(ResultKey, Bytes)],
    bound: u64,
) -> Result<(), WriteFailure> {
    let mut memo = transaction.open_table(MEMO)?;
    let mut age = transaction.open_table(MEMO_AGE)?;
    let mut size = transaction.open_table(MEMO_SIZE)?;
    let mut bytes = size.get("bytes")?.map_or(0, |bytes| bytes.value());
    let first = age.last()?.map_or(0, |(number, _)| number.value() + 1);
    for (next, (key, value)) in (first..).zip(entries) {
        let mut numbered = next.to_be_bytes().to_vec();
        numbered.extend_from_slice(value);
        let before = memo.insert((space, &key[..]), numbered.as_slice())?.map(|before| before.value().to_vec());
        if let Some((number, value)) = before.as_deref().and_then(|before| before.split_first_chunk()) {
            age.remove(u64::from_be_bytes(*number))?;
            bytes = bytes.saturating_sub(weight(space, value.len()));
        }
        age.insert(next, (space, &key[..]))?;
        bytes += weight(space, value.len());
    }
    while bytes > bound {
        let Some(oldest) = age.pop_first()?.map(|(_, key)| (key.value().0.to_owned(), key.value().1.to_vec())) else {
            break;
        };
        let forgotten = memo.remove((oldest.0.as_str(), &oldest.1[..]))?.map(|value| value.value().len());
        bytes = bytes.saturating_sub(forgotten.map_or(0, |len| weight(&oldest.0, len.saturating_sub(8))));
    }
    size.insert("bytes", bytes)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use redb::backends::InMemoryBackend;
    use redb::{Database, ReadableDatabase as _};

    use super::*;

    #[test]
    fn the_oldest_are_forgotten_and_what_is_kept_again_is_young() {
        let database = Database::builder().create_with_backend(InMemoryBackend::new()).unwrap();
        let key = |n: u8| [n; 32];
        let value = Bytes::from(vec![7; 100]);
        let bound = 3 * weight("s", value.len());
        let keep_one = |n: u8| {
            let transaction = database.begin_write().unwrap();
            assert!(keep(&transaction, "s", &[(key(n), value.clone())], bound).is_ok());
            transaction.commit().unwrap();
        };
        for n in [1, 2, 3, 1, 4, 5] {
            keep_one(n);
        }
        let transaction = database.begin_read().unwrap();
        let found = recall(&transaction, "s", &[1, 2, 3, 4, 5].map(key)).unwrap();
        let there: Vec<bool> = found.iter().map(Option::is_some).collect();
        assert_eq!(there, [true, false, false, true, true]);
        assert_eq!(recall(&transaction, "t", &[key(1)]).unwrap(), [None]);
    }
}
