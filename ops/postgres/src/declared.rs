//! Types of columns as the schema of a record declares them.
//!
//! The schemas of the `postgres` source have the property `sqlType` in the type of each field.

use std::collections::HashMap;

use anabranch_plugin::schema::{SchemaRegistry, SchemaVersion};
use anabranch_record::Record;
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::metadata::key;
use anabranch_record::text::Str;
use serde_json::Value;

use crate::fault::Failure;
use crate::session::Session;

/// Maximum length in bytes of the text of a type.
const LONGEST: usize = 256;

/// SQL types by field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeclaredTypes(HashMap<String, String>);

/// Returns subject and version of the schema of a record's payload.
pub(crate) fn schema_of(record: &Record) -> Option<(&Str, &Str)> {
    let entry = |key: Str| record.metadata.get(key.as_str());
    Some((entry(key::PAYLOAD_SCHEMA_SUBJECT)?, entry(key::PAYLOAD_SCHEMA_VERSION)?))
}

impl DeclaredTypes {
    /// Returns the types of the schema of a record's payload. There are none if the record has no schema, or the registry
    /// does not have it.
    ///
    /// # Errors
    /// The registry is not available.
    pub(crate) async fn of(record: &Record, schemas: &dyn SchemaRegistry) -> Result<DeclaredTypes, Fault> {
        let found =
            schema_of(record).and_then(|(subject, version)| Some((subject, version.parse::<SchemaVersion>().ok()?)));
        let Some((subject, version)) = found else { return Ok(DeclaredTypes::default()) };
        match schemas.get(subject, version).await.map_err(Fault::from) {
            Ok(schema) => Ok(DeclaredTypes::parse(&schema.text)),
            Err(fault) if fault.class() == FaultClass::Record => Ok(DeclaredTypes::default()),
            Err(fault) => Err(fault),
        }
    }

    /// Parses a schema. Fields without a type in SQL are left out.
    fn parse(schema: &str) -> DeclaredTypes {
        let schema: Value = serde_json::from_str(schema).unwrap_or_default();
        let fields = schema["fields"].as_array().map(Vec::as_slice).unwrap_or_default();
        let declared = |field: &Value| {
            let kind = &field["type"];
            let branches = kind.as_array().map_or(std::slice::from_ref(kind), Vec::as_slice);
            let sql = branches.iter().find_map(|branch| branch["sqlType"].as_str())?;
            let name = field["name"].as_str()?;
            is_harmless(sql).then(|| (name.to_owned(), sql.to_owned()))
        };
        DeclaredTypes(fields.iter().filter_map(declared).collect())
    }

    /// Returns the type of a field.
    pub(crate) fn get(&self, field: &str) -> Option<&str> {
        self.0.get(field).map(String::as_str)
    }

    /// Returns the fields with their types.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(field, sql)| (field.as_str(), sql.as_str()))
    }

    /// Keeps the fields for which a condition holds.
    pub(crate) fn retain(&mut self, holds: impl Fn(&str, &str) -> bool) {
        self.0.retain(|field, sql| holds(field, sql));
    }

    /// Removes types that the server does not have. A type that is left is safe to be a part of a statement: the server
    /// has parsed it as the name of a type and nothing else.
    pub(crate) async fn retain_known(&mut self, session: &mut Session) -> Result<(), Failure> {
        let mut known: HashMap<String, bool> = HashMap::new();
        for sql in self.0.values() {
            if !known.contains_key(sql) {
                let found = session.client().query_one("SELECT to_regtype($1) IS NOT NULL", &[&sql.as_str()]).await;
                let is_known = match found.and_then(|row| row.try_get(0)).map_err(Failure::from) {
                    Ok(is_known) => is_known,
                    // Some releases refuse a text that is not a name.
                    Err(Failure::Row(_) | Failure::Stale(_)) => false,
                    Err(other) => return Err(other),
                };
                known.insert(sql.clone(), is_known);
            }
        }
        self.0.retain(|_, sql| known.get(sql) == Some(&true));
        Ok(())
    }
}

/// Returns `true` if a text has nothing that ends or hides parts of a statement.
fn is_harmless(sql: &str) -> bool {
    let is_usual =
        |c: char| c.is_alphanumeric() || matches!(c, '_' | ' ' | '.' | ',' | '(' | ')' | '[' | ']' | '"' | '$');
    !sql.is_empty() && sql.len() <= LONGEST && sql.chars().all(is_usual)
}

/// Returns `true` if every value of a column, with `atttypid` and `atttypmod`, is a value of another type, with the same
/// text.
pub(crate) fn widens((oid, modifier): (u32, i32), sql: &str) -> bool {
    let (name, modifiers) = match sql.split_once('(') {
        None => (sql, Vec::new()),
        Some((name, rest)) => {
            let numbers = rest.strip_suffix(')').map(|rest| rest.split(',').map(|number| number.trim().parse::<i32>()));
            match numbers.and_then(|numbers| numbers.collect::<Result<Vec<_>, _>>().ok()) {
                Some(numbers) => (name, numbers),
                None => return false,
            }
        }
    };
    // `atttypmod` includes the header of a value.
    let length = modifier.checked_sub(4).filter(|length| *length >= 0);
    match (oid, name, modifiers.as_slice()) {
        // smallint, integer, bigint, real.
        (21, "integer" | "bigint" | "numeric", []) | (23, "bigint" | "numeric", []) | (20, "numeric", []) => true,
        (700, "double precision", []) => true,
        // varchar(n), char(n).
        (1043, "text" | "character varying", []) => length.is_some(),
        (1043, "character varying", [longer]) | (1042, "character", [longer]) => {
            length.is_some_and(|length| *longer > length)
        }
        // numeric(p,s). The scale is a signed number of eleven bits.
        (1700, "numeric", []) => length.is_some(),
        (1700, "numeric", [precision, rest @ ..]) => length.is_some_and(|now| {
            let (digits, scale) = (now >> 16 & 0xffff, ((now & 0x7ff) ^ 0x400) - 0x400);
            let more = rest.first().copied().unwrap_or(0);
            more >= scale && precision - more >= digits - scale && (*precision, more) != (digits, scale)
        }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_those_of_the_fields() {
        let schema = r#"{"type": "record", "name": "record", "fields": [
            {"name": "id", "type": {"type": "long", "sqlType": "bigint"}},
            {"name": "sum", "type": ["null", {"type": "string", "sqlType": "numeric(10,2)"}], "default": null},
            {"name": "plain", "type": "int"},
            {"name": "odd", "type": {"type": "int", "sqlType": "int; DROP TABLE t"}},
            {"name": "hides", "type": {"type": "int", "sqlType": "int --"}}
        ]}"#;
        let types = DeclaredTypes::parse(schema);
        assert_eq!(types.get("id"), Some("bigint"));
        assert_eq!(types.get("sum"), Some("numeric(10,2)"));
        assert_eq!(types.iter().count(), 2);
        for other in ["", "7", "\"string\"", r#"{"fields": 7}"#, r#"{"fields": [7, {}]}"#] {
            assert_eq!(DeclaredTypes::parse(other), DeclaredTypes::default(), "{other}");
        }
    }

    #[test]
    fn a_wider_type_holds_all_values() {
        let numeric = |precision: i32, scale: i32| (1700, (precision << 16 | (scale & 0x7ff)) + 4);
        for (from, to, is_wider) in [
            ((21, -1), "integer", true),
            ((21, -1), "smallint", false),
            ((23, -1), "bigint", true),
            ((23, -1), "smallint", false),
            ((23, -1), "double precision", false),
            ((23, -1), "numeric", true),
            ((23, -1), "numeric(3,0)", false),
            ((20, -1), "integer", false),
            ((20, -1), "numeric", true),
            ((700, -1), "double precision", true),
            ((701, -1), "real", false),
            ((1043, 14), "character varying(11)", true),
            ((1043, 14), "character varying(10)", false),
            ((1043, 14), "character varying", true),
            ((1043, 14), "text", true),
            ((1043, -1), "text", false),
            ((1042, 14), "character(11)", true),
            ((25, -1), "character varying(11)", false),
            (numeric(10, 2), "numeric(12,2)", true),
            (numeric(10, 2), "numeric(12,4)", true),
            (numeric(10, 2), "numeric(11,4)", false),
            (numeric(10, 2), "numeric(10,2)", false),
            (numeric(10, 2), "numeric(12,1)", false),
            (numeric(3, -2), "numeric(5)", true),
            (numeric(10, 2), "numeric", true),
            ((1700, -1), "numeric(12,2)", false),
            ((1043, 14), "character varying(x)", false),
            ((1114, 3), "timestamp(6) without time zone", false),
        ] {
            assert_eq!(widens(from, to), is_wider, "{from:?} {to}");
        }
    }
}
