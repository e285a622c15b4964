//! SQL statements of a step.

use std::fmt::Write;

use crate::column::{Column, GeneratedColumn};
use crate::name::{Quoted, list};
use crate::row::RowAction;
use crate::table::{RowShape, Table};

/// Returns the type of the parameter or of the staging table's column.
fn carried(column: &Column) -> &str {
    if column.kind.is_text() { "text" } else { &column.sql_type }
}

/// Returns the cast from that type to the column's type.
fn cast(column: &Column) -> String {
    if column.kind.is_text() { format!("::{}", column.sql_type) } else { String::new() }
}

/// Returns the columns of the values of a step's rows.
fn columns<'a>(table: &'a Table, shape: &'a RowShape, action: RowAction) -> impl Iterator<Item = &'a Column> + Clone {
    let used = if action == RowAction::Delete { shape.key_columns() } else { &shape.columns };
    let old_key = if action == RowAction::Move { shape.key_columns() } else { &[] };
    used.iter().chain(old_key).map(|i| table.column(*i))
}

/// Returns the names of the values of a step's rows as SQL. A row that moves has two values for each column of the key.
fn labels(table: &Table, shape: &RowShape, action: RowAction) -> Vec<String> {
    let columns = columns(table, shape, action);
    match action {
        RowAction::Move => columns.enumerate().map(|(i, _)| format!("c{i}")).collect(),
        _ => columns.map(|column| Quoted(&column.name).to_string()).collect(),
    }
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
    let columns: Vec<String> = columns(table, shape, action)
        .zip(labels(table, shape, action))
        .map(|(column, label)| format!("{label} {}", carried(column)))
        .collect();
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
    let values: Vec<String> =
        columns.zip(labels(table, shape, action)).map(|(column, label)| format!("{label}{}", cast(column))).collect();
    let rows = || format!("SELECT {} FROM {}", values.join(", "), stage(shape, action));
    match action {
        RowAction::Update => return update(table, shape, &rows()),
        RowAction::Move => return change_key(table, shape, &rows()),
        _ => {}
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
    if action == RowAction::Truncate {
        return format!("TRUNCATE {}", table.name);
    }
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
    match action {
        RowAction::Update => return update(table, shape, &format!("VALUES {tuples}")),
        RowAction::Move => return change_key(table, shape, &format!("VALUES {tuples}")),
        _ => {}
    }
    format!("{} VALUES {tuples}{}", insert_into(table, shape), conflict(table, shape))
}

/// Updates existing rows. For missing rows, PostgreSQL reports the columns that an insert would need; if the rows are
/// partial, nothing is written for a missing one.
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
    if shape.is_partial {
        return format!("WITH k({columns}) AS MATERIALIZED ({rows}) {update}");
    }
    format!(
        "WITH k({columns}) AS MATERIALIZED ({rows}), u AS ({update}) {} SELECT * FROM k \
         WHERE NOT EXISTS (SELECT FROM u WHERE {}){}",
        insert_into(table, shape),
        matches("u", "k"),
        conflict(table, shape)
    )
}

/// Gives rows another key, and updates them. A row that exists with the new key is what an earlier write of the same
/// change left, or a later one: then the row with the old key is deleted. If neither exists, the row is inserted, unless
/// it is partial.
///
/// All parts of the statement see the table before it. Each row is written by one of them.
fn change_key(table: &Table, shape: &RowShape, rows: &str) -> String {
    let labels = labels(table, shape, RowAction::Move);
    let (values, old) = labels.split_at(shape.columns.len());
    let names: Vec<String> = shape.columns.iter().map(|i| Quoted(&table.column(*i).name).to_string()).collect();
    let same = |alias: &str, labels: &[String]| -> String {
        let key = names[..shape.keys].iter().zip(labels);
        key.map(|(name, label)| format!("{alias}.{name} = k.{label}")).collect::<Vec<_>>().join(" AND ")
    };
    let set = |from: usize| -> String {
        let values = names.iter().zip(values).skip(from);
        values.map(|(name, label)| format!("{name} = k.{label}")).collect::<Vec<_>>().join(", ")
    };
    let new_key = &values[..shape.keys];
    let is_taken =
        format!("EXISTS (SELECT FROM {} AS n WHERE {} AND NOT ({}))", table.name, same("n", new_key), same("n", old));
    let moved: Vec<String> = new_key.iter().map(|label| format!("u.{label} = k.{label}")).collect();
    let is_left = format!("NOT EXISTS (SELECT FROM u WHERE {})", moved.join(" AND "));
    let write = match (shape.is_partial, shape.columns.len() > shape.keys) {
        (false, _) => format!(
            "{} SELECT {} FROM k WHERE {is_left}{}",
            insert_into(table, shape),
            values.join(", "),
            conflict(table, shape)
        ),
        (true, true) => format!(
            "UPDATE {} AS t SET {} FROM k WHERE {} AND {is_left}",
            table.name,
            set(shape.keys),
            same("t", new_key)
        ),
        (true, false) => "SELECT FROM u".to_owned(),
    };
    format!(
        "WITH k({}) AS MATERIALIZED ({rows}), \
         u AS (UPDATE {table} AS t SET {} FROM k WHERE {found} AND NOT {is_taken} RETURNING {}), \
         d AS (DELETE FROM {table} AS t USING k WHERE {found} AND {is_taken}) {write}",
        labels.join(", "),
        set(0),
        new_key.iter().map(|label| format!("k.{label}")).collect::<Vec<_>>().join(", "),
        table = table.name,
        found = same("t", old),
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
    if !matches!(shape.action, RowAction::Upsert | RowAction::Update | RowAction::Move) {
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
