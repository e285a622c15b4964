//! What PostgreSQL says of a table.

use futures::future::try_join3;
use tokio_postgres::{Client, Error};

use crate::column::{Column, Filled, Kind, TypeRow};
use crate::name::TableName;

/// Columns and unique keys of a table.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// In the order of the table.
    pub(crate) columns: Vec<Column>,
    /// Column names, sorted, of each index that `ON CONFLICT` can use.
    pub(crate) unique: Vec<Vec<String>>,
}

const COLUMNS: &str = "SELECT a.attname::text, a.atttypid, format_type(a.atttypid, -1), \
     a.attidentity::text, a.attgenerated::text \
     FROM pg_attribute a WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped \
     ORDER BY a.attnum";

const TYPES: &str = "WITH RECURSIVE reached(oid) AS (\
     SELECT a.atttypid FROM pg_attribute a \
     WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped \
     UNION \
     SELECT leads.oid FROM reached JOIN pg_type t ON t.oid = reached.oid, \
     unnest(ARRAY[t.typbasetype, t.typelem]) AS leads(oid) WHERE leads.oid <> 0) \
     SELECT t.oid, t.typname::text, t.typtype::text, t.typcategory::text, t.typbasetype, t.typelem \
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

/// Looks a table up, in one round trip once the statements are prepared. `None` if there is no such table.
pub(crate) async fn layout(client: &Client, table: &TableName) -> Result<Option<Layout>, Error> {
    let table = table.to_string();
    let (columns, types, unique) =
        try_join3(client.query(COLUMNS, &[&table]), client.query(TYPES, &[&table]), client.query(UNIQUE, &[&table]))
            .await?;
    if columns.is_empty() {
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
            })
        })
        .collect::<Result<Vec<_>, Error>>()?;
    let columns = columns
        .iter()
        .map(|row| {
            let (identity, generated): (&str, &str) = (row.try_get(3)?, row.try_get(4)?);
            let filled = match (identity, generated) {
                (_, "s" | "v") => Filled::Generated,
                ("a", _) => Filled::Identity,
                _ => Filled::No,
            };
            let kind = Kind::of(row.try_get(1)?, &types);
            Ok(Column { name: row.try_get(0)?, sql_type: row.try_get(2)?, kind, filled })
        })
        .collect::<Result<Vec<_>, Error>>()?;
    let unique = unique.iter().map(|row| row.try_get(0)).collect::<Result<Vec<_>, Error>>()?;
    Ok(Some(Layout { columns, unique }))
}

/// Names of the tables that there are, with the schema where it is needed: for hints.
pub(crate) async fn table_names(client: &Client) -> Result<Vec<String>, Error> {
    client.query(NAMES, &[]).await?.iter().map(|row| row.try_get(0)).collect()
}
