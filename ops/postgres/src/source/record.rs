//! Rows as records.

use std::sync::Arc;

use anabranch_plugin::schema::SchemaRegistry;
use anabranch_record::fault::Fault;
use anabranch_record::metadata::{Metadata, key};
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Operation, Position, Record};

use super::lsn::Lsn;
use super::pgoutput::{Cell, OldTuple, Relation, RelationColumn, Tuple};
use super::schema::{self, Part, SchemaName};
use super::tables::{Table, TableColumn};
use super::types::{ColumnType, TypeRow};

/// Names of the metadata that this source adds.
pub(super) mod name {
    use anabranch_record::text::Str;

    /// The schema of the table.
    pub(in super::super) const SCHEMA: Str = Str::from_static("postgres.schema");
    /// The place of the commit in the log.
    pub(in super::super) const LSN: Str = Str::from_static("postgres.lsn");
    /// Id of the transaction.
    pub(in super::super) const XID: Str = Str::from_static("postgres.xid");
    /// The columns that were not changed and whose values the log does not contain, with commas between them.
    pub(in super::super) const UNCHANGED: Str = Str::from_static("postgres.unchanged");
    /// `true` if all rows of the table were removed.
    pub(in super::super) const TRUNCATE: Str = Str::from_static("postgres.truncate");
    /// `true` if a row of a snapshot was read after the first attempt.
    pub(in super::super) const RESUMED: Str = Str::from_static("postgres.snapshot.resumed");
}

/// Microseconds from 1970-01-01 to 2000-01-01, where the times of the log begin.
const EPOCH: i64 = 946_684_800_000_000;

/// A column whose values are in a record.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    name: Str,
    kind: ColumnType,
    /// Number of the value in a row.
    at: usize,
    /// True if the data before a change has the column.
    identifies: bool,
}

/// A column of a row, in the order in which the server sends its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SentColumn {
    pub(super) name: Str,
    /// Object id of its type.
    pub(super) type_id: u32,
    /// True if it is part of the replica identity.
    pub(super) identifies: bool,
}

/// How the rows of a table become records.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    table: Str,
    /// The columns, in the order of their names.
    fields: Vec<Field>,
    /// The columns of the key among them, in the same order.
    key: Vec<usize>,
    /// Metadata of all records.
    metadata: Vec<(Str, Str)>,
    /// Metadata of the records of a transaction.
    recent: Option<(Origin, Metadata)>,
}

/// Where a record comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A transaction.
    Transaction {
        /// The place of its commit.
        commit: Lsn,
        /// Time of the commit, in microseconds since 2000-01-01.
        time: i64,
        /// Its id.
        xid: u32,
    },
    /// A snapshot.
    Snapshot {
        /// The place in the log.
        at: Lsn,
        /// True after the first attempt.
        is_resumed: bool,
    },
}

/// Where the schemas of records are registered.
pub(super) struct Schemas {
    pub(super) registry: Arc<dyn SchemaRegistry>,
    /// The text before subjects: the name of the schema context and a colon, or nothing.
    pub(super) context: String,
}

impl Schemas {
    async fn register(
        &self,
        table: &Table,
        part: Part,
        columns: &[(&TableColumn, &ColumnType)],
    ) -> Result<Option<SchemaName>, Fault> {
        let Some(text) = schema::text(part, columns) else {
            tracing::warn!(table = table.title(), "records get no schema: the name of a column is not a name in Avro");
            return Ok(None);
        };
        let schema = if table.schema == "public" { String::new() } else { format!("{}.", table.schema) };
        let suffix = match part {
            Part::Key => "key",
            Part::Payload => "payload",
        };
        let subject = format!("{}{schema}{}_{suffix}", self.context, table.name);
        schema::register(&*self.registry, subject.into(), &text).await.map(Some)
    }
}

impl Layout {
    /// Creates the layout of a table whose rows have these columns.
    pub(super) fn new(table: &Table, columns: &[SentColumn], types: &[TypeRow]) -> Layout {
        let field = |(at, column): (usize, &SentColumn)| Field {
            name: column.name.clone(),
            kind: ColumnType::of(column.type_id, types),
            at,
            identifies: column.identifies,
        };
        let mut fields: Vec<Field> = columns.iter().enumerate().map(field).collect();
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        let mut key: Vec<usize> =
            table.key().iter().filter_map(|name| fields.iter().position(|field| field.name == *name)).collect();
        key.sort_unstable();
        let metadata = vec![(key::COLLECTION, table.name.clone()), (name::SCHEMA, table.schema.clone())];
        Layout { table: table.title().into(), fields, key, metadata, recent: None }
    }

    /// Creates the layout of a table of which only the stream is known. All columns of the replica identity are its key.
    pub(super) fn of_relation(relation: &Relation) -> Layout {
        let column = |column: &RelationColumn| SentColumn {
            name: column.name.as_str().into(),
            type_id: column.type_id,
            identifies: column.identifies,
        };
        let columns: Vec<SentColumn> = relation.columns.iter().map(column).collect();
        let key = columns.iter().filter(|column| column.identifies).map(|column| column.name.clone()).collect();
        let table = Table {
            oid: relation.id,
            schema: relation.schema.as_str().into(),
            name: relation.name.as_str().into(),
            kind: 'r',
            is_logged: true,
            identity: char::from(relation.identity),
            primary: Some(key),
            index: None,
            columns: None,
        };
        Layout::new(&table, &columns, &[])
    }

    /// Registers the schemas of the records and adds their names to the metadata.
    ///
    /// # Errors
    /// The registry is not available, or refuses a schema.
    pub(super) async fn register(&mut self, table: &Table, schemas: &Schemas) -> Result<(), Fault> {
        // A column that was dropped meanwhile has no entry in the catalogue; its values are as they were sent.
        let unknown = |field: &Field| TableColumn {
            name: field.name.clone(),
            type_id: 0,
            sql_type: Str::default(),
            is_required: false,
            is_generated: false,
            dimensions: 0,
        };
        let of = |field: &Field| {
            let found = table.columns().iter().find(|column| column.name == field.name);
            found.cloned().unwrap_or_else(|| unknown(field))
        };
        let known: Vec<TableColumn> = self.fields.iter().map(of).collect();
        let all: Vec<(&TableColumn, &ColumnType)> =
            known.iter().zip(&self.fields).map(|(column, field)| (column, &field.kind)).collect();
        let mut names = Vec::new();
        if !self.key.is_empty() {
            let columns: Vec<_> = self.key.iter().map(|at| all[*at]).collect();
            if let Some(found) = schemas.register(table, Part::Key, &columns).await? {
                names.push((key::KEY_SCHEMA_SUBJECT, found.subject));
                names.push((key::KEY_SCHEMA_VERSION, found.version));
            }
        }
        if let Some(found) = schemas.register(table, Part::Payload, &all).await? {
            names.push((key::PAYLOAD_SCHEMA_SUBJECT, found.subject));
            names.push((key::PAYLOAD_SCHEMA_VERSION, found.version));
        }
        self.metadata.truncate(2);
        self.metadata.extend(names);
        self.recent = None;
        Ok(())
    }

    /// Returns schema and name of the table.
    pub(super) fn table(&self) -> &Str {
        &self.table
    }

    /// Returns the value of a column of a row; `None` if the row does not have it.
    pub(super) fn cell<'a>(&self, row: &'a Tuple, name: &str) -> Option<&'a Cell> {
        row.0.get(self.fields.iter().find(|field| field.name == name)?.at)
    }

    /// Returns the number of values of a row.
    pub(super) fn width(&self) -> usize {
        self.fields.len()
    }

    /// Returns `true` if a layout has the same columns.
    pub(super) fn has_fields_of(&self, other: &Layout) -> bool {
        self.fields.len() == other.fields.len()
            && self.fields.iter().zip(&other.fields).all(|(a, b)| (&a.name, &a.kind) == (&b.name, &b.kind))
    }

    /// Returns the record of a row of a snapshot.
    pub(super) fn snapshot(&mut self, position: Position, origin: Origin, row: &Tuple) -> Record {
        let mut record = Record::create(position, self.key_of(row, None), Data::from(self.object(row)));
        record.operation = Operation::Snapshot;
        record.metadata = self.metadata(origin);
        record
    }

    /// Returns the record of an inserted row.
    pub(super) fn insert(&mut self, origin: Origin, new: &Tuple) -> Record {
        let mut record = Record::create(Position::default(), self.key_of(new, None), Data::from(self.object(new)));
        record.metadata = self.metadata(origin);
        record
    }

    /// Returns the record of an updated row. A value that the log does not contain comes from the row before, or else is
    /// absent and named in the metadata.
    pub(super) fn update(&mut self, origin: Origin, old: Option<&OldTuple>, mut new: Tuple) -> Record {
        if let Some(OldTuple::Full(old)) = old {
            for (cell, before) in new.0.iter_mut().zip(&old.0) {
                if *cell == Cell::Unchanged {
                    *cell = before.clone();
                }
            }
        }
        let before = match old {
            None => Data::Absent,
            Some(old) => self.before(old),
        };
        let old_key = old.map(|(OldTuple::Key(tuple) | OldTuple::Full(tuple))| tuple);
        let mut record = Record::create(Position::default(), self.key_of(&new, old_key), Data::from(self.object(&new)));
        record.operation = Operation::Update;
        record.payload.before = before;
        record.metadata = self.metadata(origin);
        let unchanged: Vec<&str> = self
            .fields
            .iter()
            .filter(|field| new.0.get(field.at) == Some(&Cell::Unchanged))
            .map(|field| field.name.as_str())
            .collect();
        if !unchanged.is_empty() {
            record.metadata.insert(name::UNCHANGED, unchanged.join(","));
        }
        record
    }

    /// Returns the record of a deleted row.
    pub(super) fn delete(&mut self, origin: Origin, old: &OldTuple) -> Record {
        let (OldTuple::Key(row) | OldTuple::Full(row)) = old;
        let mut record = Record::create(Position::default(), self.key_of(row, None), Data::Absent);
        record.operation = Operation::Delete;
        record.payload.before = self.before(old);
        record.metadata = self.metadata(origin);
        record
    }

    /// Returns the record of the removal of all rows: a delete without a key.
    pub(super) fn truncate(&mut self, origin: Origin) -> Record {
        let mut record = Record::at(Position::default());
        record.operation = Operation::Delete;
        record.metadata = self.metadata(origin);
        record.metadata.insert(name::TRUNCATE, Str::from_static("true"));
        record
    }

    fn before(&self, old: &OldTuple) -> Data {
        match old {
            OldTuple::Full(row) => Data::from(self.object(row)),
            OldTuple::Key(row) => {
                let fields = self.fields.iter().filter(|field| field.identifies);
                Data::from(Object::from_entries(fields.filter_map(|field| field.entry(row)).collect()))
            }
        }
    }

    fn object(&self, row: &Tuple) -> Object {
        let mut entries = Vec::with_capacity(self.fields.len());
        entries.extend(self.fields.iter().filter_map(|field| field.entry(row)));
        Object::from_entries(entries)
    }

    /// Returns the key of a row. A column whose value the log does not contain has that of the row before.
    fn key_of(&self, row: &Tuple, before: Option<&Tuple>) -> Data {
        if self.key.is_empty() {
            return Data::Absent;
        }
        let fields = self.key.iter().map(|at| &self.fields[*at]);
        let entry = |field: &Field| field.entry(row).or_else(|| field.entry(before?));
        Data::from(Object::from_entries(fields.filter_map(entry).collect()))
    }

    /// Returns the metadata of a record. The records of a transaction share it.
    fn metadata(&mut self, origin: Origin) -> Metadata {
        if let Some((recent, metadata)) = &self.recent
            && *recent == origin
        {
            return metadata.clone();
        }
        let mut entries = Vec::with_capacity(self.metadata.len() + 3);
        entries.extend_from_slice(&self.metadata);
        match origin {
            Origin::Transaction { commit, time, xid } => {
                let mut number = itoa::Buffer::new();
                let nanoseconds = i128::from(time.saturating_add(EPOCH)) * 1000;
                entries.push((key::CREATED_AT, Str::from(number.format(nanoseconds))));
                entries.push((name::LSN, commit.to_string().into()));
                entries.push((name::XID, Str::from(number.format(xid))));
            }
            Origin::Snapshot { at, is_resumed } => {
                entries.push((name::LSN, at.to_string().into()));
                if is_resumed {
                    entries.push((name::RESUMED, Str::from_static("true")));
                }
            }
        }
        let metadata = Metadata::from_entries(entries);
        self.recent = Some((origin, metadata.clone()));
        metadata
    }
}

impl Field {
    /// Returns name and value in a row; `None` if the log does not contain the value.
    fn entry(&self, row: &Tuple) -> Option<(Str, Value)> {
        let value = match row.0.get(self.at)? {
            Cell::Text(text) => self.kind.value(text),
            Cell::Null => Value::Null,
            Cell::Unchanged => return None,
        };
        Some((self.name.clone(), value))
    }
}

#[cfg(test)]
mod tests {
    use anabranch_record::json;
    use bytes::Bytes;

    use super::*;

    fn layout(key: &[&'static str]) -> Layout {
        let table = Table {
            oid: 1,
            schema: "sales".into(),
            name: "orders".into(),
            kind: 'r',
            is_logged: true,
            identity: 'd',
            primary: Some(key.iter().map(|name| Str::from_static(name)).collect())
                .filter(|key: &Vec<_>| !key.is_empty()),
            index: None,
            columns: None,
        };
        let column =
            |name: &'static str, type_id| SentColumn { name: name.into(), type_id, identifies: key.contains(&name) };
        Layout::new(&table, &[column("id", 20), column("note", 25), column("city", 25)], &[])
    }

    fn tuple<const N: usize>(cells: [Option<&'static str>; N]) -> Tuple {
        // A question mark stands for a value that was not changed.
        let cell = |cell: Option<&'static str>| match cell {
            Some("?") => Cell::Unchanged,
            Some(text) => Cell::Text(Bytes::from_static(text.as_bytes())),
            None => Cell::Null,
        };
        Tuple(cells.into_iter().map(cell).collect())
    }

    fn shown(data: &Data) -> String {
        let Some(fields) = data.fields() else { return data.type_name().to_owned() };
        let mut out = Vec::new();
        json::write_value(&Value::from(fields.clone()), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    const ORIGIN: Origin = Origin::Transaction { commit: Lsn(16), time: 0, xid: 7 };

    #[test]
    fn an_inserted_row_has_its_key_and_its_transaction() {
        let record = layout(&["id"]).insert(ORIGIN, &tuple([Some("5"), None, Some("Ulm")]));
        assert_eq!(record.operation, Operation::Create);
        assert_eq!(shown(&record.key), r#"{"id":5}"#);
        assert_eq!(shown(&record.payload.after), r#"{"city":"Ulm","id":5,"note":null}"#);
        let entry = |key: &str| record.metadata.get(key).map(Str::as_str);
        assert_eq!(entry("recfmt.collection"), Some("orders"));
        assert_eq!(entry("recfmt.createdAt"), Some("946684800000000000"));
        assert_eq!(entry("postgres.schema"), Some("sales"));
        assert_eq!((entry("postgres.lsn"), entry("postgres.xid")), (Some("0/10"), Some("7")));
    }

    #[test]
    fn a_value_that_was_not_changed_is_absent_and_named() {
        let mut layout = layout(&["id"]);
        let record = layout.update(ORIGIN, None, tuple([Some("5"), Some("?"), Some("Ulm")]));
        assert_eq!(shown(&record.payload.after), r#"{"city":"Ulm","id":5}"#);
        assert_eq!(shown(&record.payload.before), "absent");
        assert_eq!(record.metadata.get("postgres.unchanged").map(Str::as_str), Some("note"));
        let old = OldTuple::Full(tuple([Some("5"), Some("long"), Some("Bonn")]));
        let record = layout.update(ORIGIN, Some(&old), tuple([Some("5"), Some("?"), Some("Ulm")]));
        assert_eq!(shown(&record.payload.after), r#"{"city":"Ulm","id":5,"note":"long"}"#);
        assert_eq!(shown(&record.payload.before), r#"{"city":"Bonn","id":5,"note":"long"}"#);
        assert_eq!(record.metadata.get("postgres.unchanged"), None);
    }

    #[test]
    fn a_changed_key_has_the_old_one_before() {
        let mut layout = layout(&["id"]);
        let old = OldTuple::Key(tuple([Some("4"), None, None]));
        let record = layout.update(ORIGIN, Some(&old), tuple([Some("5"), None, None]));
        assert_eq!((shown(&record.key), shown(&record.payload.before)), (r#"{"id":5}"#.into(), r#"{"id":4}"#.into()));
        let record = layout.delete(ORIGIN, &old);
        assert_eq!((shown(&record.key), shown(&record.payload.before)), (r#"{"id":4}"#.into(), r#"{"id":4}"#.into()));
        assert_eq!((record.operation, shown(&record.payload.after).as_str()), (Operation::Delete, "absent"));
    }

    #[test]
    fn a_table_without_a_key_has_records_without_one() {
        let mut layout = layout(&[]);
        assert_eq!(layout.insert(ORIGIN, &tuple([Some("5"), None, None])).key, Data::Absent);
        let old = OldTuple::Full(tuple([Some("5"), None, None]));
        let record = layout.delete(ORIGIN, &old);
        assert_eq!(
            (record.key, shown(&record.payload.before)),
            (Data::Absent, r#"{"city":null,"id":5,"note":null}"#.into())
        );
        let record = layout.truncate(ORIGIN);
        assert_eq!(record.metadata.get("postgres.truncate").map(Str::as_str), Some("true"));
    }

    #[test]
    fn keys_of_several_columns_are_in_the_order_of_their_names() {
        let record = layout(&["id", "city"]).insert(ORIGIN, &tuple([Some("5"), None, Some("Ulm")]));
        assert_eq!(shown(&record.key), r#"{"city":"Ulm","id":5}"#);
    }
}
