//! Tables: which ones a source reads, and their columns and keys.

use anabranch_record::fault::Fault;
use anabranch_record::text::{Str, matches_stars};
use serde::Deserialize;

use super::database::Database;
use super::types::TypeRow;
use super::wire::literal;
use crate::codes;
use crate::name::{NameError, PUBLIC, Quoted, TableName, resource};

/// A table, as the catalogue has it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Table {
    /// Object id.
    pub(super) oid: u32,
    /// Its schema.
    pub(super) schema: Str,
    /// Its name.
    pub(super) name: Str,
    /// `r` for a table, `p` for a partitioned one, `v` and others for what is no table.
    pub(super) kind: char,
    /// True if the log contains its rows.
    pub(super) is_logged: bool,
    /// Replica identity: `d`efault, `n`othing, `f`ull or `i`ndex.
    pub(super) identity: char,
    /// Columns of the primary key, in order.
    #[serde(default)]
    pub(super) primary: Option<Vec<Str>>,
    /// Columns of the index that is the replica identity, in order.
    #[serde(default)]
    pub(super) index: Option<Vec<Str>>,
    /// Columns, in order.
    #[serde(default)]
    pub(super) columns: Option<Vec<TableColumn>>,
}

/// A column, as the catalogue has it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct TableColumn {
    pub(super) name: Str,
    /// Object id of the type.
    pub(super) type_id: u32,
    /// The type in SQL, with its modifiers.
    pub(super) sql_type: Str,
    /// True if the column has no nulls.
    pub(super) is_required: bool,
    /// True if the server computes the column from others.
    pub(super) is_generated: bool,
    /// Number of dimensions of an array, as it was declared.
    pub(super) dimensions: u32,
}

/// The query for tables. A condition follows.
const TABLES: &str = "SELECT pg_catalog.json_build_object(
    'oid', c.oid::int8, 'schema', n.nspname, 'name', c.relname, 'kind', c.relkind,
    'is_logged', c.relpersistence = 'p', 'identity', c.relreplident,
    'primary', (SELECT pg_catalog.json_agg(a.attname ORDER BY k.at) FROM pg_catalog.pg_index i
        CROSS JOIN LATERAL pg_catalog.unnest(i.indkey::int2[]) WITH ORDINALITY k (number, at)
        JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
        WHERE i.indrelid = c.oid AND i.indisprimary AND k.at <= i.indnkeyatts),
    'index', (SELECT pg_catalog.json_agg(a.attname ORDER BY k.at) FROM pg_catalog.pg_index i
        CROSS JOIN LATERAL pg_catalog.unnest(i.indkey::int2[]) WITH ORDINALITY k (number, at)
        JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
        WHERE i.indrelid = c.oid AND i.indisreplident AND k.at <= i.indnkeyatts),
    'columns', (SELECT pg_catalog.json_agg(pg_catalog.json_build_object(
            'name', a.attname, 'type_id', a.atttypid::int8,
            'sql_type', pg_catalog.format_type(a.atttypid, a.atttypmod), 'is_required', a.attnotnull,
            'is_generated', a.attgenerated <> '', 'dimensions', a.attndims) ORDER BY a.attnum)
        FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped))
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE ";

impl Table {
    /// Returns schema and name, for messages and lanes.
    pub(super) fn title(&self) -> String {
        format!("{}.{}", self.schema, self.name)
    }

    /// Returns the name in SQL.
    pub(super) fn sql(&self) -> String {
        format!("{}.{}", Quoted(&self.schema), Quoted(&self.name))
    }

    /// Returns the columns that identify a row: those of the primary key, or else of the replica identity. Empty if there
    /// are none.
    pub(super) fn key(&self) -> &[Str] {
        self.primary.as_deref().or(self.index.as_deref()).unwrap_or_default()
    }

    /// Returns the columns of the key that the server sends with every change; empty if there are none.
    pub(super) fn identity_key(&self) -> &[Str] {
        let key = match self.identity {
            'd' | 'f' => self.primary.as_deref(),
            'i' => self.index.as_deref(),
            _ => None,
        };
        key.unwrap_or_default()
    }

    pub(super) fn columns(&self) -> &[TableColumn] {
        self.columns.as_deref().unwrap_or_default()
    }

    /// Returns the reason why changes of the table cannot be read, and what to do.
    fn unreadable(&self) -> Option<String> {
        let title = self.title();
        match self.kind {
            'r' | 'p' if self.is_logged => None,
            'r' | 'p' => Some(format!(
                "the log does not contain the rows of the unlogged table {title}; run `ALTER TABLE {} SET LOGGED`",
                self.sql()
            )),
            'v' | 'm' => Some(format!("{title} is a view, which has no changes; name the tables that it reads")),
            'f' => Some(format!("{title} is a foreign table; read it where it is stored")),
            _ => Some(format!("{title} is not a table")),
        }
    }

    /// Returns the fault of a table whose updates and deletes the server would refuse if they were published.
    pub(super) fn check_identity(&self) -> Result<(), Fault> {
        let has_one = match self.identity {
            'd' => self.primary.is_some(),
            'i' => self.index.is_some(),
            'f' => true,
            _ => false,
        };
        if has_one {
            return Ok(());
        }
        let (title, sql) = (self.title(), self.sql());
        let text = format!(
            "the table {title} has no primary key and no replica identity: if it is published, the server refuses its \
             updates and deletes; add a primary key, or run `ALTER TABLE {sql} REPLICA IDENTITY FULL`"
        );
        Err(Fault::fatal(codes::IDENTITY_MISSING, text))
    }
}

/// One entry of the setting `tables`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Selector {
    /// A table.
    Named {
        /// Its schema.
        schema: String,
        /// Its name.
        name: String,
    },
    /// All tables of a schema whose names match a pattern, in which `*` stands for any text.
    Matching {
        /// Pattern of the schema.
        schema: String,
        /// Pattern of the name.
        name: String,
    },
}

impl Selector {
    /// Parses `table`, `schema.table`, or a pattern such as `sales.*`.
    ///
    /// # Errors
    /// It is not the name of a table.
    pub(super) fn parse(text: &str) -> Result<Selector, NameError> {
        let parsed = TableName::parse(text)?;
        let schema = parsed.schema().unwrap_or(PUBLIC).to_owned();
        let name = parsed.table().to_owned();
        match text.contains('*') && !text.contains('"') {
            true => Ok(Selector::Matching { schema, name }),
            false => Ok(Selector::Named { schema, name }),
        }
    }

    fn selects(&self, table: &Table) -> bool {
        self.selects_named(&table.schema, &table.name)
    }

    fn selects_named(&self, of_schema: &str, named: &str) -> bool {
        match self {
            Selector::Named { schema, name } => schema == of_schema && name == named,
            Selector::Matching { schema, name } => matches_stars(schema, of_schema) && matches_stars(name, named),
        }
    }

    /// Returns `true` if the table with this name as a resource is selected.
    pub(super) fn selects_resource(&self, resource: &str) -> bool {
        resource.split_once('\0').is_some_and(|(schema, name)| self.selects_named(schema, name))
    }

    /// Returns the only table that is selected, as a resource; `None` for a pattern.
    pub(super) fn resource(&self) -> Option<String> {
        match self {
            Selector::Named { schema, name } => Some(resource(Some(schema), name)),
            Selector::Matching { .. } => None,
        }
    }

    /// Returns `true` if all tables that are selected are in the schema [`PUBLIC`].
    pub(super) fn is_public(&self) -> bool {
        let (Selector::Named { schema, .. } | Selector::Matching { schema, .. }) = self;
        schema == PUBLIC
    }

    /// Returns the condition for the catalogue, which may select more.
    fn condition(&self) -> String {
        match self {
            Selector::Named { schema, name } => {
                format!("n.nspname = {} AND c.relname = {}", literal(schema), literal(name))
            }
            // Partitions are read as their table, and those of other programs are not meant.
            Selector::Matching { .. } => "c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND NOT c.relispartition \
                 AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\\_%' \
                 AND c.relname NOT IN ('anabranch_marks', 'anabranch_writers')"
                .to_owned(),
        }
    }
}

/// Returns the tables that are selected, in the order of their names.
///
/// # Errors
/// A named table does not exist or cannot be read, or no table is selected.
pub(super) async fn select(database: &mut Database, selectors: &[Selector]) -> Result<Vec<Table>, Fault> {
    let condition = selectors.iter().map(|one| format!("({})", one.condition())).collect::<Vec<_>>().join(" OR ");
    let found: Vec<Table> = database.read("looking up the tables", &format!("{TABLES} ({condition})")).await?;
    for selector in selectors {
        if let Selector::Named { schema, name } = selector {
            let table = found.iter().find(|table| selector.selects(table)).ok_or_else(|| {
                let text = format!(
                    "{}: the table {schema}.{name} does not exist, or its schema may not be used; names are \
                     case-sensitive",
                    database.place()
                );
                Fault::fatal(codes::SOURCE_TABLE, text)
            })?;
            if let Some(why) = table.unreadable() {
                return Err(Fault::fatal(codes::SOURCE_TABLE, why));
            }
        }
    }
    let mut tables: Vec<Table> =
        found.into_iter().filter(|table| selectors.iter().any(|selector| selector.selects(table))).collect();
    tables.sort_by(|a, b| (&a.schema, &a.name).cmp(&(&b.schema, &b.name)));
    if tables.is_empty() {
        let text = format!("{}: no table matches the setting tables", database.place());
        return Err(Fault::fatal(codes::SOURCE_TABLE, text));
    }
    Ok(tables)
}

/// Returns a table by its object id; `None` if it does not exist any more.
///
/// # Errors
/// The server cannot answer.
pub(super) async fn by_oid(database: &mut Database, oid: u32) -> Result<Option<Table>, Fault> {
    let found = database.read("looking up a table", &format!("{TABLES} c.oid = {oid}")).await?;
    Ok(found.into_iter().next())
}

/// Returns the object id of the partitioned table to which a partition belongs; its own if it is none.
///
/// # Errors
/// The server cannot answer.
pub(super) async fn root_of(database: &mut Database, oid: u32) -> Result<u32, Fault> {
    let sql = format!("SELECT coalesce(pg_catalog.pg_partition_root({oid}::pg_catalog.oid)::oid, {oid})");
    let found = database.value("looking up a partition", &sql).await?;
    Ok(found.and_then(|text| text.parse().ok()).unwrap_or(oid))
}

/// Returns the rows of `pg_type` for these types and all types that they consist of.
///
/// # Errors
/// The server cannot answer.
pub(super) async fn types(database: &mut Database, oids: &[u32]) -> Result<Vec<TypeRow>, Fault> {
    if oids.is_empty() {
        return Ok(Vec::new());
    }
    let list = oids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let sql = format!(
        "WITH RECURSIVE used (oid) AS (
            SELECT oid FROM pg_catalog.pg_type WHERE oid IN ({list})
            UNION SELECT other FROM used JOIN pg_catalog.pg_type t ON t.oid = used.oid
            CROSS JOIN LATERAL (VALUES (t.typbasetype), (CASE WHEN t.typcategory = 'A' THEN t.typelem ELSE 0 END))
                AS others (other) WHERE other <> 0)
        SELECT pg_catalog.json_build_object('oid', t.oid::int8, 'name', t.typname, 'form', t.typtype,
            'base', t.typbasetype::int8, 'element', CASE WHEN t.typcategory = 'A' THEN t.typelem::int8 ELSE 0 END,
            'delimiter', coalesce(e.typdelim, ','))
        FROM used JOIN pg_catalog.pg_type t ON t.oid = used.oid
        LEFT JOIN pg_catalog.pg_type e ON e.oid = t.typelem"
    );
    database.read("looking up the types of columns", &sql).await
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns an ordinary table of `public` with the key `id`.
    pub(in super::super) fn keyed(oid: u32, name: &str) -> Table {
        Table {
            oid,
            schema: "public".into(),
            name: name.into(),
            kind: 'r',
            is_logged: true,
            identity: 'd',
            primary: Some(vec!["id".into()]),
            index: None,
            columns: None,
        }
    }

    #[test]
    fn selectors_name_tables_or_match_them() {
        let named = |schema: &str, name: &str| Selector::Named { schema: schema.into(), name: name.into() };
        let matching = |schema: &str, name: &str| Selector::Matching { schema: schema.into(), name: name.into() };
        for (text, selector) in [
            ("orders", named("public", "orders")),
            ("Sales.Orders", named("Sales", "Orders")),
            (r#"sales."a.b""#, named("sales", "a.b")),
            (r#""*""#, named("public", "*")),
            ("*", matching("public", "*")),
            ("sales.*", matching("sales", "*")),
        ] {
            assert_eq!(Selector::parse(text), Ok(selector), "{text}");
        }
        assert_eq!(Selector::parse("a.b.c"), Err(NameError::Parts));
    }

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, text, matched) in [
            ("*", "", true),
            ("order_*", "order_1", true),
            ("order_*", "orders", false),
            ("*_log", "a_log", true),
            ("*_log", "a_logs", false),
            ("a*b*c", "abbc", true),
            ("a*b*c", "ac", false),
            ("é*", "éa", true),
        ] {
            assert_eq!(matches_stars(pattern, text), matched, "{pattern} {text}");
        }
    }
}
