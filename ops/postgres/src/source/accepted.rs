//! The columns that a source has accepted for its tables, if it is to notice others.
//!
//! They are the position of a lane of their own, so that a change is noticed too that was made while nothing was read. A
//! table may have had several: the log has rows from before a change.

use std::collections::BTreeMap;

use anabranch_plugin::source::Read;
use anabranch_record::Position;
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::config::Drift;
use super::driver::Driver;
use super::events::Ended;
use super::record::SentColumn;
use super::tables::Table;
use crate::codes;

/// Version of the form.
const VERSION: u32 = 1;
/// Maximum number of accepted forms of a table. The oldest are forgotten.
const FORMS: usize = 16;

/// The names and types of the columns of a table, in the order of their names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Columns(Vec<(Str, u32)>);

impl Columns {
    /// Returns the columns that a server sends.
    pub(super) fn of(columns: &[SentColumn]) -> Columns {
        let mut columns: Vec<_> = columns.iter().map(|column| (column.name.clone(), column.type_id)).collect();
        columns.sort();
        Columns(columns)
    }

    /// Describes the difference to the columns before.
    fn difference(&self, before: &Columns) -> String {
        let names = |of: &Columns, differs: &dyn Fn(&(Str, u32)) -> bool| {
            let names = of.0.iter().filter(|column| differs(column)).map(|(name, _)| &**name);
            names.collect::<Vec<&str>>().join(", ")
        };
        let has = |columns: &Columns, name: &Str| columns.0.iter().any(|(other, _)| other == name);
        let parts = [
            ("new", names(self, &|(name, _)| !has(before, name))),
            ("gone", names(before, &|(name, _)| !has(self, name))),
            ("with another type", names(self, &|column| has(before, &column.0) && !before.0.contains(column))),
        ];
        let parts = parts.iter().filter(|(_, names)| !names.is_empty());
        parts.map(|(what, names)| format!("{what}: {names}")).collect::<Vec<_>>().join("; ")
    }
}

/// The accepted columns of all tables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Accepted {
    /// Version of the form. No other position of the source has this field.
    columns: u32,
    /// By the object ids of the tables.
    tables: BTreeMap<u32, Vec<Columns>>,
}

/// What is known of the columns of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// They are accepted.
    Accepted,
    /// The table was not seen before.
    New,
    /// They are other ones: the difference to the last ones, in words.
    Others(String),
}

impl Default for Accepted {
    fn default() -> Accepted {
        Accepted { columns: VERSION, tables: BTreeMap::new() }
    }
}

impl Accepted {
    /// Reads the position of the lane.
    ///
    /// # Errors
    /// It is not one of this source.
    pub(super) fn decode(position: &Position) -> Result<Accepted, Fault> {
        match serde_json::from_slice::<Accepted>(&position.0) {
            Ok(accepted) if accepted.columns == VERSION => Ok(accepted),
            _ => {
                let text = "the stored columns of the tables are not those of a postgres source";
                Err(Fault::fatal(codes::POSITION_UNKNOWN, text))
            }
        }
    }

    /// Encodes it, as the position of its lane.
    pub(super) fn encode(&self) -> Position {
        Position(Bytes::from(serde_json::to_vec(self).unwrap_or_default()))
    }

    /// Compares the columns of a table with those that are accepted.
    pub(super) fn compare(&self, table: u32, columns: &Columns) -> Known {
        match self.tables.get(&table) {
            Some(forms) if forms.contains(columns) => Known::Accepted,
            Some(forms) => Known::Others(forms.last().map(|last| columns.difference(last)).unwrap_or_default()),
            None => Known::New,
        }
    }

    /// Accepts the columns of a table.
    pub(super) fn accept(&mut self, table: u32, columns: Columns) {
        let forms = self.tables.entry(table).or_default();
        forms.push(columns);
        if forms.len() > FORMS {
            forms.remove(0);
        }
    }
}

impl Driver {
    /// Compares the columns of a table with those that are accepted, and accepts those of a new table. Returns the fault of
    /// the rows if they fail.
    ///
    /// # Errors
    /// The pipeline is to stop, or the source is being closed.
    pub(super) async fn check_columns(
        &mut self,
        table: &Table,
        columns: &[SentColumn],
    ) -> Result<Option<Fault>, Ended> {
        let Some(accepted) = &mut self.accepted else { return Ok(None) };
        let columns = Columns::of(columns);
        let changed =
            |difference, advice| format!("the columns of the table {} changed ({difference}); {advice}", table.title());
        let stops = match accepted.compare(table.oid, &columns) {
            Known::Accepted => return Ok(None),
            Known::New => None,
            Known::Others(difference) if self.config.drift == Drift::DeadLetter => {
                let text = changed(difference, "to accept them, set schemaDrift: evolve, and replay the dead letters");
                return Ok(Some(Fault::record(codes::SCHEMA_DRIFT, text)));
            }
            Known::Others(difference) => Some(changed(difference, "to accept them, start the pipeline again")),
        };
        // Stored before the pipeline stops: the next start accepts them.
        accepted.accept(table.oid, columns);
        let position = accepted.encode();
        let lane = self.lanes.columns();
        self.events.send(Read::Progress(lane.clone(), position.clone())).await?;
        let reached = self.acknowledged.reaches(&lane, &position);
        tokio::select! {
            () = reached => {}
            () = self.events.0.closed() => return Err(Ended::Stopped),
        }
        match stops {
            Some(text) => Err(Fault::fatal(codes::SCHEMA_DRIFT, text).into()),
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(columns: &[(&'static str, u32)]) -> Columns {
        let column = |(name, type_id): &(&'static str, u32)| SentColumn {
            name: (*name).into(),
            type_id: *type_id,
            identifies: false,
        };
        Columns::of(&columns.iter().map(column).collect::<Vec<_>>())
    }

    #[test]
    fn other_columns_than_the_accepted_ones_are_described() {
        let mut accepted = Accepted::default();
        let first = columns(&[("id", 23), ("name", 25), ("sum", 1700)]);
        assert_eq!(accepted.compare(1, &first), Known::New);
        accepted.accept(1, first.clone());
        assert_eq!(accepted.compare(2, &first), Known::New);
        let accepted = Accepted::decode(&accepted.encode()).unwrap();
        // Their order has no meaning.
        assert_eq!(accepted.compare(1, &columns(&[("sum", 1700), ("name", 25), ("id", 23)])), Known::Accepted);
        let other = columns(&[("id", 20), ("name", 25), ("age", 23)]);
        let difference = "new: age; gone: sum; with another type: id";
        assert_eq!(accepted.compare(1, &other), Known::Others(difference.to_owned()));
        let mut both = accepted;
        both.accept(1, other.clone());
        assert_eq!((both.compare(1, &other), both.compare(1, &first)), (Known::Accepted, Known::Accepted));
        assert!(Accepted::decode(&Position::copy_from(b"{}")).is_err());
    }

    #[test]
    fn the_number_of_accepted_forms_is_bounded() {
        let mut accepted = Accepted::default();
        for type_id in 0..100 {
            accepted.accept(1, columns(&[("id", type_id)]));
        }
        assert_eq!(accepted.tables[&1].len(), FORMS);
        assert_eq!(accepted.compare(1, &columns(&[("id", 99)])), Known::Accepted);
    }
}
