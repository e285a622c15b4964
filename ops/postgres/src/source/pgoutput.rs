//! Messages of the output plugin `pgoutput`, version 1 of its protocol.
//!
//! Source: "Logical Replication Message Formats" of the PostgreSQL manual. Version 1 sends each transaction after its
//! commit, in the order of the commits, so that nothing has to be kept until a commit arrives.

use bytes::{Buf as _, Bytes};

use super::lsn::Lsn;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// A transaction begins.
    Begin(Begin),
    /// A transaction is complete.
    Commit(Commit),
    /// The layout of a table, before its first row and after each change of the layout.
    Relation(Relation),
    /// A row was inserted.
    Insert {
        /// The table.
        relation: u32,
        /// The row.
        new: Tuple,
    },
    /// A row was updated.
    Update {
        /// The table.
        relation: u32,
        /// The row before, as far as the replica identity has it.
        old: Option<OldTuple>,
        /// The row after.
        new: Tuple,
    },
    /// A row was deleted.
    Delete {
        /// The table.
        relation: u32,
        /// The row before, as far as the replica identity has it.
        old: OldTuple,
    },
    /// All rows of tables were removed.
    Truncate {
        /// The tables.
        relations: Vec<u32>,
    },
    /// A message that a program wrote to the log.
    Message,
    /// The origin of a replicated transaction, or the name of a type: not needed.
    Other,
}

/// The beginning of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Begin {
    /// The place of the commit. It identifies the transaction.
    pub(super) commit: Lsn,
    /// Time of the commit, in microseconds since 2000-01-01.
    pub(super) time: i64,
    /// Id of the transaction.
    pub(super) xid: u32,
}

/// The end of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Commit {
    /// The place of the commit.
    pub(super) commit: Lsn,
    /// The place after the commit: who has read the transaction resumes here.
    pub(super) end: Lsn,
}

/// The layout of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Relation {
    /// Object id of the table.
    pub(super) id: u32,
    /// Its schema.
    pub(super) schema: String,
    /// Its name.
    pub(super) name: String,
    /// Replica identity: `d`efault, `n`othing, `f`ull or `i`ndex.
    pub(super) identity: u8,
    /// The published columns, in the order of the values.
    pub(super) columns: Vec<RelationColumn>,
}

/// A column of a [`Relation`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RelationColumn {
    /// True if the column is part of the replica identity.
    pub(super) identifies: bool,
    /// Its name.
    pub(super) name: String,
    /// Object id of its type.
    pub(super) type_id: u32,
    /// Modifier of the type, such as its length; -1 if there is none.
    pub(super) modifier: i32,
}

/// The values before a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OldTuple {
    /// Only columns of the replica identity have values; the others are null.
    Key(Tuple),
    /// All columns have values.
    Full(Tuple),
}

/// The values of a row, in the order of the columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tuple(pub(super) Vec<Cell>);

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cell {
    /// Null.
    Null,
    /// The value was not changed and is stored apart from the row, so that the log does not contain it.
    Unchanged,
    /// The text of the value.
    Text(Bytes),
}

/// Reason why a message cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum DecodeError {
    /// The message ends too early, or a part is invalid.
    #[error("a message of the type `{}` cannot be read: {why}", char::from(*.0).escape_default(), why = .1)]
    Damaged(u8, &'static str),
    /// The message belongs to a later version of the protocol, which nobody asked for.
    #[error("the server sent a message of the type `{}`, which version 1 of the protocol does not have", char::from(*.0).escape_default())]
    Unsupported(u8),
}

/// Decodes a message. Values share its memory. Cost: O(length).
///
/// # Errors
/// The message is damaged, or belongs to another version of the protocol.
pub(super) fn decode(mut body: Bytes) -> Result<Change, DecodeError> {
    let Some((tag, _)) = body.split_first() else { return Err(DecodeError::Damaged(b'?', "it is empty")) };
    let tag = *tag;
    body.advance(1);
    let mut fields = Fields { tag, rest: body };
    let change = match tag {
        b'B' => Change::Begin(Begin { commit: fields.lsn()?, time: fields.i64()?, xid: fields.u32()? }),
        b'C' => {
            fields.u8()?;
            let commit = Commit { commit: fields.lsn()?, end: fields.lsn()? };
            fields.i64()?;
            Change::Commit(commit)
        }
        b'R' => Change::Relation(fields.relation()?),
        b'I' => {
            let relation = fields.u32()?;
            match fields.u8()? {
                b'N' => Change::Insert { relation, new: fields.tuple()? },
                _ => return Err(fields.damaged("the new row is missing")),
            }
        }
        b'U' => {
            let relation = fields.u32()?;
            let (old, kind) = match fields.u8()? {
                b'K' => (Some(OldTuple::Key(fields.tuple()?)), fields.u8()?),
                b'O' => (Some(OldTuple::Full(fields.tuple()?)), fields.u8()?),
                kind => (None, kind),
            };
            match kind {
                b'N' => Change::Update { relation, old, new: fields.tuple()? },
                _ => return Err(fields.damaged("the new row is missing")),
            }
        }
        b'D' => {
            let relation = fields.u32()?;
            let old = match fields.u8()? {
                b'K' => OldTuple::Key(fields.tuple()?),
                b'O' => OldTuple::Full(fields.tuple()?),
                _ => return Err(fields.damaged("the old row is missing")),
            };
            Change::Delete { relation, old }
        }
        b'T' => {
            let count = fields.u32()?;
            fields.u8()?;
            let relations = (0..count).map(|_| fields.u32()).collect::<Result<_, _>>()?;
            Change::Truncate { relations }
        }
        b'M' => {
            fields.u8()?;
            fields.lsn()?;
            fields.text()?;
            fields.counted()?;
            Change::Message
        }
        b'O' | b'Y' => return Ok(Change::Other),
        _ => return Err(DecodeError::Unsupported(tag)),
    };
    match fields.rest.is_empty() {
        true => Ok(change),
        false => Err(fields.damaged("bytes follow its end")),
    }
}

/// The fields of a message that are not read yet.
struct Fields {
    tag: u8,
    rest: Bytes,
}

impl Fields {
    fn damaged(&self, why: &'static str) -> DecodeError {
        DecodeError::Damaged(self.tag, why)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let read = self.rest.first_chunk::<N>().copied().ok_or_else(|| self.damaged("it is cut"))?;
        self.rest.advance(N);
        Ok(read)
    }

    fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_be_bytes)
    }

    fn i64(&mut self) -> Result<i64, DecodeError> {
        self.array().map(i64::from_be_bytes)
    }

    fn lsn(&mut self) -> Result<Lsn, DecodeError> {
        self.array().map(u64::from_be_bytes).map(Lsn)
    }

    fn text(&mut self) -> Result<String, DecodeError> {
        let end = memchr::memchr(0, &self.rest).ok_or_else(|| self.damaged("a text does not end"))?;
        let text = self.rest.split_to(end);
        self.rest.advance(1);
        String::from_utf8(text.to_vec()).map_err(|_| self.damaged("a text is not UTF-8"))
    }

    /// Reads bytes that follow their number.
    fn counted(&mut self) -> Result<Bytes, DecodeError> {
        let length = usize::try_from(self.u32()?).unwrap_or(usize::MAX);
        match length <= self.rest.len() {
            true => Ok(self.rest.split_to(length)),
            false => Err(self.damaged("a value is cut")),
        }
    }

    fn relation(&mut self) -> Result<Relation, DecodeError> {
        let (id, schema, name, identity) = (self.u32()?, self.text()?, self.text()?, self.u8()?);
        // The schema pg_catalog is sent as an empty text.
        let schema = if schema.is_empty() { "pg_catalog".to_owned() } else { schema };
        let count = self.u16()?;
        let column = |_| {
            let identifies = self.u8()? & 1 == 1;
            let (name, type_id, modifier) = (self.text()?, self.u32()?, self.array().map(i32::from_be_bytes)?);
            Ok(RelationColumn { identifies, name, type_id, modifier })
        };
        let columns = (0..count).map(column).collect::<Result<_, _>>()?;
        Ok(Relation { id, schema, name, identity, columns })
    }

    fn tuple(&mut self) -> Result<Tuple, DecodeError> {
        let count = usize::from(self.u16()?);
        // Each value takes a byte at least.
        let mut cells = Vec::with_capacity(count.min(self.rest.len()));
        for _ in 0..count {
            cells.push(match self.u8()? {
                b'n' => Cell::Null,
                b'u' => Cell::Unchanged,
                b't' => Cell::Text(self.counted()?),
                _ => return Err(self.damaged("a value is neither null, unchanged nor text")),
            });
        }
        Ok(Tuple(cells))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(cell: &str) -> Vec<u8> {
        let mut bytes = vec![b't'];
        bytes.extend_from_slice(&(cell.len() as u32).to_be_bytes());
        bytes.extend_from_slice(cell.as_bytes());
        bytes
    }

    fn message(parts: &[&[u8]]) -> Bytes {
        parts.concat().into()
    }

    fn cell(value: &'static str) -> Cell {
        Cell::Text(Bytes::from_static(value.as_bytes()))
    }

    #[test]
    fn a_transaction_has_a_beginning_and_an_end() {
        let begin = message(&[b"B", &7u64.to_be_bytes(), &9i64.to_be_bytes(), &5u32.to_be_bytes()]);
        assert_eq!(decode(begin), Ok(Change::Begin(Begin { commit: Lsn(7), time: 9, xid: 5 })));
        let commit = message(&[b"C\0", &7u64.to_be_bytes(), &8u64.to_be_bytes(), &9i64.to_be_bytes()]);
        assert_eq!(decode(commit), Ok(Change::Commit(Commit { commit: Lsn(7), end: Lsn(8) })));
    }

    #[test]
    fn a_row_has_values_of_three_kinds() {
        let relation = 3u32.to_be_bytes();
        let new = message(&[b"I", &relation, b"N\0\x03", &text("a"), b"n", b"u"]);
        let tuple = Tuple(vec![cell("a"), Cell::Null, Cell::Unchanged]);
        assert_eq!(decode(new), Ok(Change::Insert { relation: 3, new: tuple }));
        let update = message(&[b"U", &relation, b"K\0\x01", &text("1"), b"N\0\x01", &text("2")]);
        let (old, new) = (Some(OldTuple::Key(Tuple(vec![cell("1")]))), Tuple(vec![cell("2")]));
        assert_eq!(decode(update), Ok(Change::Update { relation: 3, old, new: new.clone() }));
        let update = message(&[b"U", &relation, b"N\0\x01", &text("2")]);
        assert_eq!(decode(update), Ok(Change::Update { relation: 3, old: None, new }));
        let delete = message(&[b"D", &relation, b"O\0\x01", &text("1")]);
        let old = OldTuple::Full(Tuple(vec![cell("1")]));
        assert_eq!(decode(delete), Ok(Change::Delete { relation: 3, old }));
        let truncate = message(&[b"T", &2u32.to_be_bytes(), b"\0", &relation, &4u32.to_be_bytes()]);
        assert_eq!(decode(truncate), Ok(Change::Truncate { relations: vec![3, 4] }));
    }

    #[test]
    fn a_relation_has_columns_with_types() {
        let column = [b"\x01id\0".as_slice(), &23u32.to_be_bytes(), &(-1i32).to_be_bytes()].concat();
        let relation = message(&[b"R", &3u32.to_be_bytes(), b"public\0t\0d\0\x01", &column]);
        let columns = vec![RelationColumn { identifies: true, name: "id".into(), type_id: 23, modifier: -1 }];
        let expected = Relation { id: 3, schema: "public".into(), name: "t".into(), identity: b'd', columns };
        assert_eq!(decode(relation), Ok(Change::Relation(expected)));
    }

    #[test]
    fn messages_of_other_versions_and_damaged_ones_are_refused() {
        // Stream start, stop, commit and abort, and the messages of two-phase commits.
        for tag in b"SEcAbPKrp" {
            assert_eq!(decode(vec![*tag, 0, 0].into()), Err(DecodeError::Unsupported(*tag)));
        }
        assert_eq!(decode(Bytes::new()), Err(DecodeError::Damaged(b'?', "it is empty")));
        assert_eq!(decode(message(&[b"T", &[255; 4], b"\0"])), Err(DecodeError::Damaged(b'T', "it is cut")));
        let cut = message(&[b"I", &3u32.to_be_bytes(), b"N\0\x01t\0\0\0\x05ab"]);
        assert_eq!(decode(cut), Err(DecodeError::Damaged(b'I', "a value is cut")));
        let long = message(&[b"I", &3u32.to_be_bytes(), b"N\0\x01n!"]);
        assert_eq!(decode(long), Err(DecodeError::Damaged(b'I', "bytes follow its end")));
    }

    proptest! {
        #[test]
        fn no_bytes_are_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(bytes.into());
        }
    }
}
