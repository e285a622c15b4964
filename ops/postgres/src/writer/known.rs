//! Cache of the tables that a writer uses.

use std::collections::{HashMap, HashSet};

use anabranch_record::fault::Fault;
use anabranch_record::text::Str;

use crate::catalog;
use crate::codes;
use crate::fault::Failure;
use crate::name::TableName;
use crate::session::Session;
use crate::table::{MissingPart, RowFault, Table};

/// Maximum number of cached tables.
const MOST_TABLES: usize = 1024;

/// Cached tables.
#[derive(Default)]
pub(super) struct KnownTables {
    pub(super) by_name: HashMap<Str, usize>,
    /// A table that is read again gets a new index, because rows of this call may refer to the old one.
    pub(super) tables: Vec<Table>,
    /// Schemas of records that the tables are known to fit: index of the table, subject and version.
    schemas: HashSet<(usize, Str, Str)>,
    /// The last of them.
    last_schema: Option<(usize, Str, Str)>,
}

impl KnownTables {
    /// Prepares for a call: forgets all tables if there are too many.
    pub(super) fn tidy(&mut self) {
        if self.tables.len() > MOST_TABLES {
            *self = KnownTables::default();
        }
        self.tables.iter_mut().for_each(Table::tidy);
    }

    /// Returns `true` if a table fits a schema of records.
    pub(super) fn has_schema(&mut self, table: usize, subject: &Str, version: &Str) -> bool {
        let is_last = |(of, last, number): &(usize, Str, Str)| (*of, last, number) == (table, subject, version);
        if self.last_schema.as_ref().is_some_and(is_last) {
            return true;
        }
        let schema = (table, subject.clone(), version.clone());
        let is_known = self.schemas.contains(&schema);
        if is_known {
            self.last_schema = Some(schema);
        }
        is_known
    }

    /// Records that a table fits a schema of records.
    pub(super) fn note_schema(&mut self, table: usize, subject: &Str, version: &Str) {
        if self.schemas.len() > MOST_TABLES {
            self.schemas.clear();
        }
        self.schemas.insert((table, subject.clone(), version.clone()));
    }

    /// Reads the layout of a table. The inner error is the record's fault.
    pub(super) async fn look_up(&mut self, session: &Session, text: &Str) -> Result<Result<usize, RowFault>, Failure> {
        let name = match TableName::parse(text) {
            Ok(name) => name,
            Err(why) => return Ok(Err(why.fault(text).into())),
        };
        let Some(layout) = catalog::layout(session.client(), &name).await? else {
            let names = catalog::table_names(session.client()).await?;
            // A table of this name that was just created, or that another role owns, is not a hint.
            let others = names.iter().map(String::as_str).filter(|other| *other != text.as_str());
            let hint = match anabranch_record::near::did_you_mean(text, others) {
                Some(near) => format!("did you mean {near:?}?"),
                None => "create it, or set createTables; names are case-sensitive".to_owned(),
            };
            let fault = Fault::record(codes::TABLE_MISSING, format!("the table {name} does not exist; {hint}"));
            return Ok(Err(RowFault { fault, missing: Some(MissingPart::Table) }));
        };
        // Rows of this call may be encoded for an earlier layout that still fits, for example before a column was
        // added.
        for earlier in self.tables.iter_mut().filter(|earlier| earlier.name == name) {
            if earlier.layout.holds_in(&layout) {
                earlier.layout.version = layout.version;
            }
        }
        self.tables.push(Table::new(name, layout));
        self.by_name.insert(text.clone(), self.tables.len() - 1);
        Ok(Ok(self.tables.len() - 1))
    }
}
