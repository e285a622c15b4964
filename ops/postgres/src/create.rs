//! Creates tables and columns for incoming records.

use std::collections::BTreeMap;

use anabranch_record::fault::Fault;
use anabranch_record::value::{Object, Value};

use crate::codes;
use crate::declared::DeclaredTypes;
use crate::name::{Quoted, TableName, check, list};

/// Kinds of the values seen in a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ValueKinds {
    bool: bool,
    int: bool,
    large: bool,
    float: bool,
    time: bool,
    bytes: bool,
    nested: bool,
    text: bool,
}

/// Columns for the fields of records, in name order, keys first.
#[derive(Debug, Default)]
pub(crate) struct NewColumns {
    /// Types that the schema of a record declares; the types of other columns are inferred from values.
    declared: DeclaredTypes,
    keys: BTreeMap<String, ValueKinds>,
    rest: BTreeMap<String, ValueKinds>,
}

impl NewColumns {
    /// Sets the types that the schema of a record declares.
    pub(crate) fn declare(self, declared: &DeclaredTypes) -> Self {
        NewColumns { declared: declared.clone(), ..self }
    }

    /// Adds the fields of a record.
    pub(crate) fn add(&mut self, key: &Object, payload: &Object) {
        for (field, value) in key.iter() {
            self.keys.entry(field.as_str().to_owned()).or_default().add(value);
        }
        for (field, value) in payload.iter().filter(|(field, _)| key.get(field).is_none()) {
            self.rest.entry(field.as_str().to_owned()).or_default().add(value);
        }
    }

    /// Checks that each field of a record can be the name of a column.
    pub(crate) fn check(key: &Object, payload: &Object, table: &TableName) -> Result<(), Fault> {
        key.iter().chain(payload.iter()).try_for_each(|(field, _)| checked(field, table).map(drop))
    }

    /// Returns the `CREATE TABLE` statement, with the key's columns as primary key.
    pub(crate) fn create_table(&self, table: &TableName) -> Result<String, Fault> {
        let both = self.keys.iter().chain(self.rest.iter().filter(|(field, _)| !self.keys.contains_key(*field)));
        let mut lines = both
            .map(|(field, seen)| Ok(format!("{} {}", checked(field, table)?, self.sql_type(field, *seen))))
            .collect::<Result<Vec<_>, Fault>>()?;
        if !self.keys.is_empty() {
            lines.push(format!("PRIMARY KEY ({})", list(self.keys.keys().map(String::as_str))));
        }
        Ok(format!("CREATE TABLE IF NOT EXISTS {table} ({})", lines.join(", ")))
    }

    /// Returns the `ALTER TABLE` statement that turns a table without columns into the one of
    /// [`NewColumns::create_table`].
    pub(crate) fn fill_table(&self, table: &TableName) -> Result<String, Fault> {
        let both = self.keys.iter().chain(self.rest.iter().filter(|(field, _)| !self.keys.contains_key(*field)));
        let mut lines =
            both.map(|(field, seen)| self.addition(field, *seen, table)).collect::<Result<Vec<_>, Fault>>()?;
        if !self.keys.is_empty() {
            lines.push(format!("ADD PRIMARY KEY ({})", list(self.keys.keys().map(String::as_str))));
        }
        Ok(format!("ALTER TABLE {table} {}", lines.join(", ")))
    }

    /// Returns the `ALTER TABLE` statement for fields without a column, or `None` if all have one.
    pub(crate) fn add_columns(&self, table: &TableName, there: &[&str]) -> Result<Option<String>, Fault> {
        let new = self.keys.iter().chain(&self.rest).filter(|(field, _)| !there.contains(&field.as_str()));
        let lines = new.map(|(field, seen)| self.addition(field, *seen, table)).collect::<Result<Vec<_>, Fault>>()?;
        Ok((!lines.is_empty()).then(|| format!("ALTER TABLE {table} {}", lines.join(", "))))
    }
}

impl NewColumns {
    fn sql_type(&self, field: &str, seen: ValueKinds) -> &str {
        self.declared.get(field).unwrap_or(seen.sql_type())
    }

    fn addition(&self, field: &str, seen: ValueKinds, table: &TableName) -> Result<String, Fault> {
        Ok(format!("ADD COLUMN IF NOT EXISTS {} {}", checked(field, table)?, self.sql_type(field, seen)))
    }
}

/// Names of the system columns, which every table has and which cannot be written.
const SYSTEM_COLUMNS: [&str; 6] = ["tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"];

fn checked(field: &str, table: &TableName) -> Result<String, Fault> {
    let refused = |why: &dyn std::fmt::Display| {
        Fault::record(codes::COLUMN_NAME, format!("the field {field:?} cannot be a column of {table}: {why}"))
    };
    check(field).map_err(|why| refused(&why))?;
    match SYSTEM_COLUMNS.contains(&field) {
        true => Err(refused(&"PostgreSQL has a system column of this name")),
        false => Ok(Quoted(field).to_string()),
    }
}

impl ValueKinds {
    fn add(&mut self, value: &Value) {
        match value {
            Value::Null => {}
            Value::Bool(_) => self.bool = true,
            Value::Int(_) => self.int = true,
            Value::UInt(_) => self.large = true,
            Value::Float(_) => self.float = true,
            Value::Text(_) => self.text = true,
            Value::Bytes(_) => self.bytes = true,
            Value::Time(_) => self.time = true,
            Value::List(_) | Value::Map(_) => self.nested = true,
        }
    }

    /// Returns the narrowest type that holds all seen values, or text if there are none.
    fn sql_type(self) -> &'static str {
        let ValueKinds { bool, int, large, float, time, bytes, nested, text } = self;
        let number = int || large || float;
        match (number, [bool, time, bytes, nested, text]) {
            (true, [false, false, false, false, false]) => match (float, large) {
                (true, false) => "double precision",
                (false, false) => "bigint",
                (_, true) => "numeric",
            },
            (false, [true, false, false, false, false]) => "boolean",
            (false, [false, true, false, false, false]) => "timestamp with time zone",
            (false, [false, false, true, false, false]) => "bytea",
            (false, [false, false, false, true, false]) => "jsonb",
            _ => "text",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> Object {
        [("x", value)].into_iter().collect()
    }

    #[test]
    fn types_hold_all_that_was_seen() {
        let list = || Value::from(vec![Value::Int(1)]);
        for (values, sql) in [
            (vec![Value::Null], "text"),
            (vec![Value::Int(1), Value::Null], "bigint"),
            (vec![Value::Int(1), Value::Float(0.5)], "double precision"),
            (vec![Value::Int(1), Value::UInt(u64::MAX)], "numeric"),
            (vec![Value::Bool(true)], "boolean"),
            (vec![Value::Bool(true), Value::Int(1)], "text"),
            (vec![list()], "jsonb"),
            (vec![list(), Value::from("x")], "text"),
        ] {
            let mut fields = NewColumns::default();
            for value in values {
                fields.add(&Object::new(), &object(value));
            }
            let table = TableName::parse("t").unwrap();
            assert_eq!(fields.create_table(&table).unwrap(), format!("CREATE TABLE IF NOT EXISTS \"t\" (\"x\" {sql})"));
        }
    }
}
