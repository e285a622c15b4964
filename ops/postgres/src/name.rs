//! SQL identifiers.

use std::fmt;

use anabranch_record::fault::Fault;

use crate::codes;

/// Maximum length of an identifier in bytes: PostgreSQL truncates longer ones.
const LONGEST: usize = 63;

/// Name of a table, with or without its schema.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TableName {
    schema: Option<String>,
    table: String,
}

/// The kind of resources that tables are.
pub(crate) const TABLES: &str = "tables";
/// Schema of tables that are written without one, unless the user has another search path.
pub(crate) const PUBLIC: &str = "public";

/// Returns the name of a table as a resource of its database: schema and name, with a NUL character between them, which
/// neither contains. A name without a schema is in [`PUBLIC`].
pub(crate) fn resource(schema: Option<&str>, table: &str) -> String {
    format!("{}\0{table}", schema.unwrap_or(PUBLIC))
}

/// Reason why a text is not the name of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NameError {
    #[error("it is empty")]
    Empty,
    #[error(
        "it has more than two parts; write it as table or schema.table, and put a name with a dot in double quotes"
    )]
    Parts,
    #[error("a double quote is not closed")]
    Quote,
    #[error("a name is longer than 63 bytes")]
    Long,
    #[error("a name contains a NUL character")]
    Nul,
}

impl NameError {
    /// Returns the fault of a record with this table name.
    pub(crate) fn fault(self, name: &str) -> Fault {
        Fault::record(codes::TABLE_NAME, format!("{name:?} is not a table name: {self}"))
    }
}

impl TableName {
    /// Parses `table` or `schema.table`. A part in double quotes may contain dots, and `""` for a quote. Keeps the
    /// case.
    pub(crate) fn parse(text: &str) -> Result<TableName, NameError> {
        let mut parts = Vec::new();
        let mut rest = text.trim();
        loop {
            let (part, after) = match rest.strip_prefix('"') {
                Some(quoted) => quoted_part(quoted)?,
                None => {
                    let end = rest.find('.').unwrap_or(rest.len());
                    (rest[..end].to_owned(), &rest[end..])
                }
            };
            check(&part)?;
            parts.push(part);
            match after.strip_prefix('.') {
                Some(next) => rest = next,
                None if after.is_empty() => break,
                None => return Err(NameError::Quote),
            }
        }
        let table = parts.pop().ok_or(NameError::Empty)?;
        let schema = parts.pop();
        if parts.is_empty() { Ok(TableName { schema, table }) } else { Err(NameError::Parts) }
    }

    /// Returns the schema, if the name has one.
    pub(crate) fn schema(&self) -> Option<&str> {
        self.schema.as_deref()
    }

    /// Returns the name of the table in its schema.
    pub(crate) fn table(&self) -> &str {
        &self.table
    }

    /// Returns the reason why text with an action in it, `None`, is never a name, whatever the action prints: it has an
    /// empty part or too many.
    pub(crate) fn never<'a>(pieces: impl Iterator<Item = Option<&'a str>>) -> Option<NameError> {
        let pieces: Vec<Option<&str>> = pieces.collect();
        let actions = pieces.iter().filter(|piece| piece.is_none()).count();
        // Quotation marks that one action opens and another closes make one part of what is between them.
        if actions != 1 || pieces.iter().flatten().any(|text| text.contains('"')) {
            return None;
        }
        let text: String = pieces.iter().map(|piece| piece.unwrap_or("x")).collect();
        TableName::parse(&text).err().filter(|why| matches!(why, NameError::Empty | NameError::Parts))
    }
}

impl fmt::Display for TableName {
    /// Writes the name as SQL: quoted.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(schema) = &self.schema {
            write!(f, "{}.", Quoted(schema))?;
        }
        write!(f, "{}", Quoted(&self.table))
    }
}

/// Displays an identifier as SQL: quoted.
pub(crate) struct Quoted<'a>(pub(crate) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.replace('"', "\"\""))
    }
}

/// Returns identifiers as an SQL list.
pub(crate) fn list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(|name| Quoted(name).to_string()).collect::<Vec<_>>().join(", ")
}

/// Checks that a text can be an identifier.
pub(crate) fn check(name: &str) -> Result<(), NameError> {
    match name {
        "" => Err(NameError::Empty),
        _ if name.len() > LONGEST => Err(NameError::Long),
        _ if name.contains('\0') => Err(NameError::Nul),
        _ => Ok(()),
    }
}

/// Returns the part before the closing quote, and the text after it.
fn quoted_part(text: &str) -> Result<(String, &str), NameError> {
    let mut part = String::new();
    let mut rest = text;
    loop {
        let end = rest.find('"').ok_or(NameError::Quote)?;
        part.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('"') {
            Some(more) => {
                part.push('"');
                rest = more;
            }
            None => return Ok((part, rest)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted() {
        for (text, sql) in [
            ("users", r#""users""#),
            ("Public.Users ", r#""Public"."Users""#),
            (r#""a.b""#, r#""a.b""#),
            (r#"s."a""b.c""#, r#""s"."a""b.c""#),
            ("robert\"; drop table x", r#""robert""; drop table x""#),
        ] {
            assert_eq!(TableName::parse(text).map(|name| name.to_string()).as_deref(), Ok(sql), "{text}");
        }
        for (text, error) in [
            ("", NameError::Empty),
            ("a.", NameError::Empty),
            ("a.b.c", NameError::Parts),
            (r#""a"#, NameError::Quote),
            (r#""a"b"#, NameError::Quote),
            ("a\0", NameError::Nul),
        ] {
            assert_eq!(TableName::parse(text), Err(error), "{text}");
        }
        assert_eq!(TableName::parse(&"é".repeat(32)), Err(NameError::Long));
    }
}
