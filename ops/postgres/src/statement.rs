//! SQL statements of a step.

use std::fmt::Write;

use crate::column::{Column, ColumnEncoding, GeneratedColumn};
use crate::name::{Quoted, list};
use crate::table::{RowAction, RowShape, Table};

/// Returns the type of the parameter or of the staging table's column.
fn carried(column: &Column) -> &str {
    match column.kind {
        ColumnEncoding::Parsed { .. } => "text",
        _ => &column.sql_type,
    }
}

/// Returns the cast from that type to the column's type.
fn cast(column: &Column) -> String {
    match column.kind {
        ColumnEncoding::Parsed { .. } => format!("::{}", column.sql_type),
        _ => String::new(),
    }
}

fn columns<'a>(table: &'a Table, shape: &'a RowShape, action: RowAction) -> impl Iterator<Item = &'a Column> + Clone {
    let used = if action == RowAction::Delete { shape.key_columns() } else { &shape.columns };
    used.iter().map(|i| table.column(*i))
}

fn names<'a>(columns: impl Iterator<Item = &'a Column>) -> String {
    list(columns.map(|column| column.name.as_str()))
}

/// Returns the name of a shape's staging table.
pub(crate) fn stage(shape: &RowShape, action: RowAction) -> String {
    let suffix = if action == RowAction::Delete { "_keys" } else { "" };
    format!("pg_temp.anabranch_stage_{}{suffix}", shape.id)
}

/// Creates the staging table, which each commit empties and which is not logged.
pub(crate) fn create_stage(table: &Table, shape: &RowShape, action: RowAction) -> String {
    let columns: Vec<String> =
        columns(table, shape, action).map(|column| format!("{} {}", Quoted(&column.name), carried(column))).collect();
    format!("CREATE TEMPORARY TABLE {} ({}) ON COMMIT DELETE ROWS", stage(shape, action), columns.join(", "))
}

/// Fills the staging table.
pub(crate) fn copy(shape: &RowShape, action: RowAction) -> String {
    format!("COPY {} FROM STDIN (FORMAT binary)", stage(shape, action))
}

/// Writes the rows of the staging table to the table.
pub(crate) fn merge(table: &Table, shape: &RowShape, action: RowAction) -> String {
    let columns = columns(table, shape, action);
    if action == RowAction::Delete {
        let matches: Vec<String> =
            columns.map(|column| format!("t.{0} = k.{0}{1}", Quoted(&column.name), cast(column))).collect();
        return format!(
            "DELETE FROM {} AS t USING {} AS k WHERE {}",
            table.name,
            stage(shape, action),
            matches.join(" AND ")
        );
    }
    let values: Vec<String> = columns.map(|column| format!("{}{}", Quoted(&column.name), cast(column))).collect();
    if action == RowAction::Update {
        let rows = format!("SELECT {} FROM {}", values.join(", "), stage(shape, action));
        return update(table, shape, &rows);
    }
    format!(
        "{} SELECT {} FROM {}{}",
        insert_into(table, shape),
        values.join(", "),
        stage(shape, action),
        conflict(table, shape)
    )
}

/// Writes `rows` rows of parameters.
pub(crate) fn values(table: &Table, shape: &RowShape, action: RowAction, rows: usize) -> String {
    let columns: Vec<&Column> = columns(table, shape, action).collect();
    let mut tuples = String::new();
    let mut parameter = 0;
    for row in 0..rows {
        tuples.push_str(if row == 0 { "(" } else { ", (" });
        for (i, column) in columns.iter().enumerate() {
            parameter += 1;
            let comma = if i == 0 { "" } else { ", " };
            // Writing to a `String` cannot fail.
            let _ = write!(tuples, "{comma}${parameter}::{}{}", carried(column), cast(column));
        }
        tuples.push(')');
    }
    if action == RowAction::Delete {
        let names = names(columns.iter().copied());
        let matches: Vec<String> =
            columns.iter().map(|column| format!("t.{0} = k.{0}", Quoted(&column.name))).collect();
        return format!(
            "DELETE FROM {} AS t USING (VALUES {tuples}) AS k({names}) WHERE {}",
            table.name,
            matches.join(" AND ")
        );
    }
    if action == RowAction::Update {
        return update(table, shape, &format!("VALUES {tuples}"));
    }
    format!("{} VALUES {tuples}{}", insert_into(table, shape), conflict(table, shape))
}

/// Updates existing rows. For missing rows, PostgreSQL reports the columns that an insert would need.
fn update(table: &Table, shape: &RowShape, rows: &str) -> String {
    let columns = names(columns(table, shape, RowAction::Update));
    let key = || shape.key_columns().iter().map(|i| Quoted(&table.column(*i).name));
    let matches = |one: &str, other: &str| {
        key().map(|name| format!("{one}.{name} = {other}.{name}")).collect::<Vec<_>>().join(" AND ")
    };
    let found = key().map(|name| format!("k.{name}")).collect::<Vec<_>>().join(", ");
    let set: Vec<String> = shape.columns[shape.keys..]
        .iter()
        .map(|i| Quoted(&table.column(*i).name))
        .map(|name| format!("{name} = k.{name}"))
        .collect();
    let update = match set.is_empty() {
        true => format!("SELECT {found} FROM {} AS t JOIN k ON {}", table.name, matches("t", "k")),
        false => format!(
            "UPDATE {} AS t SET {} FROM k WHERE {} RETURNING {found}",
            table.name,
            set.join(", "),
            matches("t", "k")
        ),
    };
    format!(
        "WITH k({columns}) AS MATERIALIZED ({rows}), u AS ({update}) {} SELECT * FROM k \
         WHERE NOT EXISTS (SELECT FROM u WHERE {}){}",
        insert_into(table, shape),
        matches("u", "k"),
        conflict(table, shape)
    )
}

fn insert_into(table: &Table, shape: &RowShape) -> String {
    let columns = columns(table, shape, RowAction::Upsert);
    let overriding = match columns.clone().any(|column| column.filled == GeneratedColumn::Identity) {
        true => " OVERRIDING SYSTEM VALUE",
        false => "",
    };
    format!("INSERT INTO {} ({}){overriding}", table.name, names(columns))
}

fn conflict(table: &Table, shape: &RowShape) -> String {
    if !matches!(shape.action, RowAction::Upsert | RowAction::Update) {
        return String::new();
    }
    let key = names(shape.key_columns().iter().map(|i| table.column(*i)));
    let rest: Vec<String> = shape.columns[shape.keys..]
        .iter()
        .map(|i| format!("{0} = EXCLUDED.{0}", Quoted(&table.column(*i).name)))
        .collect();
    match rest.is_empty() {
        true => format!(" ON CONFLICT ({key}) DO NOTHING"),
        false => format!(" ON CONFLICT ({key}) DO UPDATE SET {}", rest.join(", ")),
    }
}
