//! Creates the tables and columns that records need.

use anabranch_record::Record;
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;

use super::TableWriter;
use crate::codes;
use crate::create::NewColumns;
use crate::declared::DeclaredTypes;
use crate::fault::Failure;
use crate::name::TableName;
use crate::row::{Row, row_of};
use crate::session::Session;
use crate::table::{MissingPart, RowFault, Table};

impl TableWriter {
    /// Returns the table of a record. If the settings allow it, creates a missing table for this record and the
    /// following ones.
    pub(super) async fn find_or_create(
        &mut self,
        session: &mut Session,
        name: &Str,
        records: &[Record],
    ) -> Result<Result<usize, RowFault>, Failure> {
        // A record that cannot become a row does not define its table.
        if self.settings.create_tables
            && let Some(Err(fault)) = records.first().map(row_of)
        {
            return Ok(Err(fault.into()));
        }
        let found = self.known.look_up(session, name).await?;
        // A table without columns holds no data.
        let (missing, empty) = match &found {
            Ok(index) => (false, self.known.tables[*index].layout.columns.is_empty()),
            Err(row_fault) => (row_fault.missing == Some(MissingPart::Table), false),
        };
        if !(missing || empty) || !self.settings.create_tables {
            return Ok(found);
        }
        let Ok(table) = TableName::parse(name) else { return Ok(found) };
        let sql = |fields: &NewColumns| match empty {
            true => fields.fill_table(&table).map(Some),
            false => fields.create_table(&table).map(Some),
        };
        let made = self.make(session, name, &table, records, sql).await?;
        Ok(match (self.known.look_up(session, name).await?, made) {
            (Err(_), Err(why)) => Err(why.into()),
            (found, _) => found,
        })
    }

    /// Reads a table's layout again and, if the settings allow it, adds missing columns. Also returns why they could
    /// not be added.
    pub(super) async fn look_up_again(
        &mut self,
        session: &mut Session,
        name: &Str,
        records: &[Record],
    ) -> Result<Result<(usize, Option<Fault>), RowFault>, Failure> {
        let index = match self.known.look_up(session, name).await? {
            Ok(index) if self.settings.add_columns => index,
            found => return Ok(found.map(|index| (index, None))),
        };
        let Table { name: table, layout, .. } = &self.known.tables[index];
        let (table, columns) = (table.clone(), layout.columns.clone());
        let there: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        let made = self.make(session, name, &table, records, |fields| fields.add_columns(&table, &there)).await?;
        Ok(self.known.look_up(session, name).await?.map(|index| (index, made.err())))
    }

    /// Creates what the records of a table need, or as many of them as one table can hold, but always for the first.
    /// The inner error is returned if even the needs of the first cannot be met; another session may have created the
    /// table meanwhile.
    async fn make(
        &mut self,
        session: &mut Session,
        name: &Str,
        table: &TableName,
        records: &[Record],
        sql: impl Fn(&NewColumns) -> Result<Option<String>, Fault>,
    ) -> Result<Result<(), Fault>, Failure> {
        let mut most = if self.narrow.contains(name) { 1 } else { records.len() };
        let declared = match records.first() {
            Some(record) => self.declared(session, record).await?,
            None => DeclaredTypes::default(),
        };
        loop {
            let fields = self.fields_of(name, table, &records[..most]);
            let sql = match fields.and_then(|fields| sql(&fields.declare(&declared))) {
                Ok(Some(sql)) => sql,
                Ok(None) => return Ok(Ok(())),
                Err(fault) => return Ok(Err(fault)),
            };
            let fault = match self.alter(session, name, &sql).await {
                Ok(()) => return Ok(Ok(())),
                Err(Failure::Row(fault) | Failure::Stale(fault)) => fault,
                Err(other) => return Err(other),
            };
            let code = if fault.code() == codes::TABLE_MISSING { codes::TABLE_MISSING } else { codes::CREATE_FAILED };
            if most <= 1 || code == codes::TABLE_MISSING {
                let text = format!("{table} cannot be created or altered as the record requires: {}", fault.message());
                return Ok(Err(Fault::record(code, text)));
            }
            self.narrow.insert(name.clone());
            most /= 2;
        }
    }

    /// Returns the fields of the records of a table. Leaves out records with a field that cannot be a column name; for
    /// the first record, that is an error.
    fn fields_of(&self, name: &Str, table: &TableName, records: &[Record]) -> Result<NewColumns, Fault> {
        let mut fields = NewColumns::default();
        let mut rendered = String::new();
        for (at, record) in records.iter().enumerate() {
            if self.settings.table.of(record, &mut rendered).is_ok_and(|of| of == name.as_str())
                && let Ok(Row { key, payload, .. }) = row_of(record)
            {
                match NewColumns::check(&key, payload, table) {
                    Ok(()) => fields.add(&key, payload),
                    Err(fault) if at == 0 => return Err(fault),
                    Err(_) => {}
                }
            }
        }
        Ok(fields)
    }
}
