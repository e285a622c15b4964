//! Reads the layout of tables from the catalog of PostgreSQL.

use futures::future::try_join3;
use tokio_postgres::{Client, Error};

use crate::column::{Column, ColumnEncoding, Equality, GeneratedColumn, TypeRow};
use crate::name::TableName;

/// Columns and unique keys of a table.
#[derive(Clone, Debug)]
pub(crate) struct TableLayout {
    /// Columns in the order of the table.
    pub(crate) columns: Vec<Column>,
    /// Sorted column names of each index that `ON CONFLICT` can use.
    pub(crate) unique: Vec<Vec<String>>,
    /// Result of [`VERSIONS`] before the rest was read. The layout is valid as long as the result is the same.
    pub(crate) version: i64,
}

impl TableLayout {
    /// Returns `true` if rows encoded for this layout can be written to a table with the other one.
    pub(crate) fn holds_in(&self, other: &TableLayout) -> bool {
        self.columns.iter().all(|column| other.columns.contains(column))
            && self.unique.iter().all(|unique| other.unique.contains(unique))
    }
}

/// Query for a hash of each table that changes with every part of its layout.
pub(crate) const VERSIONS: &str = "SELECT hashtextextended(concat(n.oid, ' ', \
     (SELECT string_agg(concat_ws(' ', a.attnum, a.attname, a.atttypid, a.atttypmod, a.attcollation, a.attidentity, \
     a.attgenerated, a.attnotnull, a.atthasdef), ',' ORDER BY a.attnum) FROM pg_attribute a \
     WHERE a.attrelid = n.oid AND a.attnum > 0 AND NOT a.attisdropped), ' ', \
     (SELECT string_agg(concat_ws(' ', i.indexrelid, i.indimmediate, i.indisvalid), ',' ORDER BY i.indexrelid) \
     FROM pg_index i WHERE i.indrelid = n.oid AND i.indisunique)), 0) \
     FROM (SELECT to_regclass(t.name)::oid AS oid, t.place \
     FROM unnest($1::text[]) WITH ORDINALITY AS t(name, place) OFFSET 0) n \
     ORDER BY n.place";

const COLUMNS: &str = "SELECT a.attname::text, a.atttypid, format_type(a.atttypid, -1), \
     a.attidentity::text, a.attgenerated::text, a.atttypmod, a.attnotnull AND NOT a.atthasdef, \
     NOT EXISTS (SELECT FROM pg_collation c WHERE NOT c.collisdeterministic AND (c.oid = a.attcollation OR EXISTS \
     (SELECT FROM pg_index i WHERE i.indrelid = a.attrelid AND c.oid = ANY (i.indcollation)))) \
     FROM pg_attribute a WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped \
     ORDER BY a.attnum";

const EXISTS: &str = "SELECT to_regclass($1) IS NOT NULL";

const TYPES: &str = "WITH RECURSIVE reached(oid) AS (\
     SELECT a.atttypid FROM pg_attribute a \
     WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped \
     UNION \
     SELECT leads.oid FROM reached JOIN pg_type t ON t.oid = reached.oid, \
     unnest(ARRAY[t.typbasetype, t.typelem]) AS leads(oid) WHERE leads.oid <> 0) \
     SELECT t.oid, t.typname::text, t.typtype::text, t.typcategory::text, t.typbasetype, t.typelem, t.typtypmod, \
     t.typdelim::text \
     FROM reached JOIN pg_type t ON t.oid = reached.oid";

const UNIQUE: &str = "SELECT array_agg(a.attname::text ORDER BY a.attname::text COLLATE \"C\") \
     FROM pg_index i JOIN pg_attribute a \
     ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1]) \
     WHERE i.indrelid = to_regclass($1) AND i.indisunique AND i.indimmediate AND i.indisvalid \
     AND i.indpred IS NULL AND i.indexprs IS NULL \
     GROUP BY i.indexrelid";

const NAMES: &str = "SELECT CASE WHEN pg_table_is_visible(c.oid) THEN c.relname::text \
     ELSE n.nspname || '.' || c.relname END \
     FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
     WHERE c.relkind IN ('r', 'p', 'v', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema') LIMIT 10000";

/// Reads the layout of a table, in one round trip once the statements are prepared. Returns `None` if the table does
/// not exist; a table without columns has an empty layout.
pub(crate) async fn layout(client: &Client, table: &TableName) -> Result<Option<TableLayout>, Error> {
    let table = table.to_string();
    // Read the version first: if the table changes meanwhile, the layout is newer than its version.
    let version = client.query_one(VERSIONS, &[&[&table].as_slice()]).await?.try_get(0)?;
    let (columns, types, unique) =
        try_join3(client.query(COLUMNS, &[&table]), client.query(TYPES, &[&table]), client.query(UNIQUE, &[&table]))
            .await?;
    if columns.is_empty() && !client.query_one(EXISTS, &[&table]).await?.try_get::<_, bool>(0)? {
        return Ok(None);
    }
    let types = types
        .iter()
        .map(|row| {
            Ok(TypeRow {
                oid: row.try_get(0)?,
                name: row.try_get(1)?,
                form: row.try_get(2)?,
                category: row.try_get(3)?,
                base: row.try_get(4)?,
                element: row.try_get(5)?,
                modifier: row.try_get(6)?,
                delimiter: row.try_get(7)?,
            })
        })
        .collect::<Result<Vec<_>, Error>>()?;
    let columns = columns
        .iter()
        .map(|row| {
            let (identity, generated): (&str, &str) = (row.try_get(3)?, row.try_get(4)?);
            let filled = match (identity, generated) {
                (_, "s" | "v") => GeneratedColumn::Generated,
                ("a", _) => GeneratedColumn::Identity,
                _ => GeneratedColumn::No,
            };
            let type_of @ (oid, modifier): (u32, i32) = (row.try_get(1)?, row.try_get(5)?);
            let (without_default, deterministic): (bool, bool) = (row.try_get(6)?, row.try_get(7)?);
            let equality = match deterministic {
                true => Equality::of(oid, modifier, &types),
                false => Equality::Server,
            };
            Ok(Column {
                name: row.try_get(0)?,
                sql_type: row.try_get(2)?,
                kind: ColumnEncoding::of(oid, &types),
                filled,
                equality,
                required: without_default && identity.is_empty() && filled == GeneratedColumn::No,
                type_of,
            })
        })
        .collect::<Result<Vec<_>, Error>>()?;
    let unique = unique.iter().map(|row| row.try_get(0)).collect::<Result<Vec<_>, Error>>()?;
    Ok(Some(TableLayout { columns, unique, version }))
}

/// Returns the names of the existing tables, with the schema if needed, for hints.
pub(crate) async fn table_names(client: &Client) -> Result<Vec<String>, Error> {
    client.query(NAMES, &[]).await?.iter().map(|row| row.try_get(0)).collect()
}
