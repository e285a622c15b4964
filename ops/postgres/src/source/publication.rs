//! The publication: which changes the server sends.

use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use serde::Deserialize;

use super::database::Database;
use super::record::SentColumn;
use super::tables::Table;
use super::wire::literal;
use crate::codes;
use crate::name::Quoted;

/// Version from which a publication may contain some columns or rows of a table.
const FILTERS: u32 = 150_000;
/// Version from which a publication may contain generated columns.
const GENERATED: u32 = 180_000;

/// A publication.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Publication {
    insert: bool,
    update: bool,
    delete: bool,
    truncate: bool,
    /// True if changes of partitions are sent as those of their table.
    pub(super) via_root: bool,
    /// True if the list of columns contains generated columns only if they are sent.
    lists_generated: bool,
    #[serde(default)]
    tables: Option<Vec<PublishedTable>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct PublishedTable {
    schema: Str,
    name: Str,
    /// The columns that are published; `None` if all are.
    #[serde(default)]
    columns: Option<Vec<Str>>,
    /// The condition of the rows that are published.
    #[serde(default)]
    filter: Option<Str>,
}

/// Reads a publication; `None` if there is none of the name.
///
/// # Errors
/// The server cannot answer.
pub(super) async fn find(database: &mut Database, name: &str, version: u32) -> Result<Option<Publication>, Fault> {
    let filters = match version >= FILTERS {
        true => ", 'columns', t.attnames, 'filter', t.rowfilter",
        false => "",
    };
    let sql = format!(
        "SELECT pg_catalog.json_build_object('insert', p.pubinsert, 'update', p.pubupdate, 'delete', p.pubdelete,
            'truncate', p.pubtruncate, 'via_root', p.pubviaroot, 'lists_generated', {},
            'tables', (SELECT pg_catalog.json_agg(pg_catalog.json_build_object(
                'schema', t.schemaname, 'name', t.tablename{filters}))
                FROM pg_catalog.pg_publication_tables t WHERE t.pubname = p.pubname))
        FROM pg_catalog.pg_publication p WHERE p.pubname = {}",
        version >= GENERATED,
        literal(name)
    );
    Ok(database.read(&format!("reading the publication {name}"), &sql).await?.into_iter().next())
}

/// Creates a publication of tables.
///
/// # Errors
/// The server refuses it.
pub(super) async fn create(database: &mut Database, name: &str, slot: &str, tables: &[Table]) -> Result<(), Fault> {
    // Tables that inherit from another are tables of their own.
    let named = |table: &Table| match table.kind {
        'p' => table.sql(),
        _ => format!("ONLY {}", table.sql()),
    };
    let list = tables.iter().map(named).collect::<Vec<_>>().join(", ");
    let sql = format!("CREATE PUBLICATION {} FOR TABLE {list} WITH (publish_via_partition_root = true)", Quoted(name));
    let comment = format!("COMMENT ON PUBLICATION {} IS {}", Quoted(name), literal(&created_for(slot)));
    database.rows(&format!("creating the publication {name}"), &format!("{sql}; {comment}")).await?;
    tracing::info!(publication = name, tables = tables.len(), "created a publication");
    Ok(())
}

/// Returns the comment of a publication that a source created. Only such a publication is dropped with the source.
pub(super) fn created_for(slot: &str) -> String {
    format!("Created by Anabranch for the slot {slot}.")
}

impl Publication {
    /// Checks that the publication contains all changes of the tables.
    ///
    /// # Errors
    /// It does not; the fault has the statement that corrects it.
    pub(super) fn check(&self, name: &str, tables: &[Table], allows_parts: bool) -> Result<(), Fault> {
        let narrowed = |text: String| Err(Fault::fatal(codes::PUBLICATION_NARROWED, text));
        let quoted = Quoted(name);
        let operations =
            [("insert", self.insert), ("update", self.update), ("delete", self.delete), ("truncate", self.truncate)];
        let missing: Vec<&str> =
            operations.iter().filter(|(_, is_on)| !is_on).map(|(operation, _)| *operation).collect();
        if !missing.is_empty() && !allows_parts {
            return narrowed(format!(
                "the publication {name} does not contain the operations {}, so that their changes are lost; run \
                 `ALTER PUBLICATION {quoted} SET (publish = 'insert, update, delete, truncate')`, or set \
                 publication.partial: accept",
                missing.join(", ")
            ));
        }
        let published = self.tables.as_deref().unwrap_or_default();
        for table in tables {
            let title = table.title();
            let found = published.iter().find(|one| one.schema == table.schema && one.name == table.name);
            let Some(found) = found else {
                // Then the partitions are in the publication instead, and their changes are those of their table.
                if table.kind == 'p' && !self.via_root {
                    continue;
                }
                return narrowed(format!(
                    "the table {title} is not in the publication {name}, so that its changes are lost; run \
                     `ALTER PUBLICATION {quoted} ADD TABLE {}`, or remove the table from the setting tables; rows that \
                     were written while it was missing are read only by a new snapshot",
                    table.sql()
                ));
            };
            if allows_parts {
                continue;
            }
            if let Some(filter) = &found.filter {
                return narrowed(format!(
                    "the publication {name} contains only the rows of {title} with {filter}; remove the condition, or \
                     set publication.partial: accept"
                ));
            }
            let hidden: Vec<&str> = match &found.columns {
                None => Vec::new(),
                Some(columns) => table
                    .columns()
                    .iter()
                    .filter(|column| !column.is_generated && !columns.contains(&column.name))
                    .map(|column| column.name.as_str())
                    .collect(),
            };
            if !hidden.is_empty() {
                return narrowed(format!(
                    "the publication {name} does not contain the columns {} of {title}; remove its list of columns, or \
                     set publication.partial: accept",
                    hidden.join(", ")
                ));
            }
        }
        Ok(())
    }

    /// Returns the columns of a table that are published.
    pub(super) fn columns<'a>(&self, table: &'a Table) -> Vec<&'a Str> {
        let published = self.tables.as_deref().unwrap_or_default();
        let found = published.iter().find(|one| one.schema == table.schema && one.name == table.name);
        let listed = found.and_then(|found| found.columns.as_ref());
        let is_sent = |name: &Str, is_generated: bool| {
            (!is_generated || self.lists_generated) && listed.map_or(!is_generated, |columns| columns.contains(name))
        };
        let columns = table.columns().iter().filter(|column| is_sent(&column.name, column.is_generated));
        columns.map(|column| &column.name).collect()
    }

    /// Returns the condition of the rows of a table that are published.
    pub(super) fn filter(&self, table: &Table) -> Option<&Str> {
        let published = self.tables.as_deref().unwrap_or_default();
        published.iter().find(|one| one.schema == table.schema && one.name == table.name)?.filter.as_ref()
    }
}

/// Returns the columns that are read of a table: the published ones, or all if there is no publication.
pub(super) fn sent(publication: Option<&Publication>, table: &Table) -> Vec<SentColumn> {
    let names = match publication {
        Some(publication) => publication.columns(table),
        None => table.columns().iter().map(|column| &column.name).collect(),
    };
    let columns = table.columns().iter().filter(|column| names.contains(&&column.name));
    columns.map(|column| SentColumn { name: column.name.clone(), type_id: column.type_id, identifies: false }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::tables::TableColumn;

    fn table(columns: &[(&'static str, bool)]) -> Table {
        let column = |(name, is_generated): &(&'static str, bool)| TableColumn {
            name: Str::from_static(name),
            type_id: 23,
            sql_type: "integer".into(),
            is_required: false,
            is_generated: *is_generated,
            dimensions: 0,
        };
        Table {
            oid: 1,
            schema: "public".into(),
            name: "t".into(),
            kind: 'r',
            is_logged: true,
            identity: 'd',
            primary: Some(vec!["a".into()]),
            index: None,
            columns: Some(columns.iter().map(column).collect()),
        }
    }

    fn publication(columns: Option<&[&'static str]>, filter: Option<&'static str>) -> Publication {
        let columns = columns.map(|columns| columns.iter().map(|name| Str::from_static(name)).collect());
        let table =
            PublishedTable { schema: "public".into(), name: "t".into(), columns, filter: filter.map(Str::from) };
        let tables = Some(vec![table]);
        Publication {
            insert: true,
            update: true,
            delete: true,
            truncate: true,
            via_root: true,
            lists_generated: true,
            tables,
        }
    }

    #[test]
    fn what_a_publication_hides_is_a_fault() {
        let tables = [table(&[("a", false), ("b", false), ("c", true)])];
        let check = |publication: &Publication, allows_parts| {
            publication.check("p", &tables, allows_parts).map_err(|fault| fault.message())
        };
        for complete in [publication(None, None), publication(Some(&["a", "b"]), None)] {
            assert_eq!(check(&complete, false), Ok(()));
            assert_eq!(complete.columns(&tables[0]), ["a", "b"]);
        }
        let everything = publication(Some(&["a", "b", "c"]), None);
        assert_eq!(everything.columns(&tables[0]), ["a", "b", "c"]);
        let earlier = Publication { lists_generated: false, ..everything };
        assert_eq!(earlier.columns(&tables[0]), ["a", "b"]);
        for (partial, part) in [
            (publication(Some(&["a"]), None), "the columns b of public.t"),
            (publication(None, Some("a > 1")), "with a > 1"),
            (Publication { delete: false, ..publication(None, None) }, "the operations delete"),
        ] {
            assert!(check(&partial, false).unwrap_err().contains(part), "{part}");
            assert_eq!(check(&partial, true), Ok(()));
        }
        let empty = Publication { tables: None, ..publication(None, None) };
        assert!(check(&empty, true).unwrap_err().contains(r#"`ALTER PUBLICATION "p" ADD TABLE "public"."t"`"#));
    }
}
