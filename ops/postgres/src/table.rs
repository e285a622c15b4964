//! Tables, and the shapes of the rows that are written to them.

mod limits;

use std::sync::atomic::{AtomicU64, Ordering};

use anabranch_record::fault::Fault;
use anabranch_record::near::did_you_mean;
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};

use crate::catalog::TableLayout;
use crate::codes;
use crate::column::{Column, ColumnEncoding, GeneratedColumn};
use crate::encode::{self, EncodedValues, Mismatch};
use crate::name::{Quoted, TableName};
use crate::row::{Row, RowAction};

/// OID of the type `numeric`.
const NUMERIC: u32 = 1700;
/// Maximum number of shapes per table, so that records whose fields keep changing do not fill the memory.
const MOST_SHAPES: usize = 256;

/// A table with its layout.
pub(crate) struct Table {
    pub(crate) name: TableName,
    pub(crate) layout: TableLayout,
    shapes: Vec<RowShape>,
}

/// Common properties of rows with the same fields.
pub(crate) struct RowShape {
    /// Number that is unique in the process: key of the prepared statements.
    pub(crate) id: u64,
    /// Action on the rows.
    pub(crate) action: RowAction,
    /// Columns of the key, then of the payload: indices into the layout.
    pub(crate) columns: Vec<usize>,
    /// Number of key columns.
    pub(crate) keys: usize,
    /// True if a row can be inserted with these columns.
    complete: bool,
    /// True if rows that do not exist are not inserted, because these columns are not all that the row has.
    pub(crate) is_partial: bool,
    /// True if rows of this shape were written and recorded.
    pub(crate) written: bool,
    key_fields: Vec<Str>,
    /// Fields of the payload, without those that the key sets already.
    payload_fields: Vec<(Str, bool)>,
}

/// Reason why a row cannot be encoded.
pub(crate) enum EncodeError {
    /// A column is missing from the known layout: it may be new.
    Unknown(RowFault),
    /// Any other reason.
    Final(RowFault),
}

/// The fault of a row, and the part of the table that it lacks.
#[derive(Clone, Debug)]
pub(crate) struct RowFault {
    pub(crate) fault: Fault,
    pub(crate) missing: Option<MissingPart>,
}

/// A part of a table that rows need and that is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MissingPart {
    /// The table itself.
    Table,
    /// A column of this name.
    Column(Str),
    /// A column of this name with a type that accepts the value.
    Type(Str),
    /// A unique key over these columns, in order.
    Key(Vec<Str>),
}

impl From<Fault> for RowFault {
    fn from(fault: Fault) -> Self {
        RowFault { fault, missing: None }
    }
}

static NEXT_SHAPE: AtomicU64 = AtomicU64::new(0);

impl Table {
    pub(crate) fn new(name: TableName, layout: TableLayout) -> Self {
        Table { name, layout, shapes: Vec::new() }
    }

    pub(crate) fn shape(&self, index: usize) -> &RowShape {
        &self.shapes[index]
    }

    pub(crate) fn shape_mut(&mut self, index: usize) -> &mut RowShape {
        &mut self.shapes[index]
    }

    pub(crate) fn column(&self, index: usize) -> &Column {
        &self.layout.columns[index]
    }

    /// Forgets all shapes if there are too many. Earlier indices are invalid then.
    pub(crate) fn tidy(&mut self) {
        if self.shapes.len() > MOST_SHAPES {
            self.shapes.clear();
        }
    }

    /// Returns the shape of a row. Tries `last` first, because neighbouring rows are alike.
    pub(crate) fn shape_of(&mut self, last: usize, row: &Row<'_>) -> Result<usize, EncodeError> {
        if self.shapes.get(last).is_some_and(|shape| shape.fits(row)) {
            return Ok(last);
        }
        if let Some(found) = self.shapes.iter().position(|shape| shape.fits(row)) {
            return Ok(found);
        }
        let shape = self.make_shape(row)?;
        self.shapes.push(shape);
        Ok(self.shapes.len() - 1)
    }

    /// Appends the values of a row, those of the key first, and last those of the key that it moves from. Returns the end
    /// of the key and the start of the old key.
    pub(crate) fn encode(&self, shape: usize, row: &Row<'_>, out: &mut Vec<u8>) -> Result<(usize, usize), RowFault> {
        let Row { key, payload, .. } = row;
        let shape = &self.shapes[shape];
        let mut columns = shape.columns.iter().map(|i| &self.layout.columns[*i]);
        for ((field, value), column) in key.iter().zip(columns.by_ref()) {
            if matches!(value, Value::Null) {
                return Err(key_null(field, &self.name).into());
            }
            self.encode_field(column, value, out)?;
        }
        let key_end = out.len();
        if matches!(row.action, RowAction::Delete | RowAction::Truncate) {
            return Ok((key_end, key_end));
        }
        for ((field, value), (_, kept)) in payload.iter().zip(&shape.payload_fields) {
            if *kept {
                let Some(column) = columns.next() else { break };
                self.encode_field(column, value, out)?;
            } else if let Some(of_key) = key.get(field)
                && value != of_key
                && !matches!(value, Value::Null)
            {
                self.check_same(field, of_key, value)?;
            }
        }
        let old_key = out.len();
        if row.action == RowAction::Move {
            for ((field, value), column) in row.old_key().zip(shape.key_columns()) {
                if matches!(value, Value::Null) {
                    return Err(key_null(field, &self.name).into());
                }
                self.encode_field(self.column(*column), value, out)?;
            }
        }
        Ok((key_end, old_key))
    }

    /// Checks that key and payload give a column the same value. Otherwise the key's value would replace the payload's
    /// silently.
    fn check_same(&self, field: &Str, of_key: &Value, of_payload: &Value) -> Result<(), RowFault> {
        let Some(column) = self.layout.columns.iter().find(|column| *column.name == **field) else { return Ok(()) };
        let (mut one, mut other) = (Vec::new(), Vec::new());
        self.encode_field(column, of_key, &mut one)?;
        if encode::encode(&column.kind, of_payload, &mut other).is_ok() && one == other {
            return Ok(());
        }
        Err(key_differs(field, &self.name).into())
    }

    fn encode_field(&self, column: &Column, value: &Value, out: &mut Vec<u8>) -> Result<(), RowFault> {
        encode::encode(&column.kind, value, out).map_err(|Mismatch(why)| {
            let text = format!("column {} ({}) of {}: {why}", Quoted(&column.name), column.sql_type, self.name);
            let missing = Some(MissingPart::Type(column.name.as_str().into()));
            RowFault { fault: Fault::record(codes::VALUE_MISMATCH, text), missing }
        })
    }

    fn make_shape(&self, row: &Row<'_>) -> Result<RowShape, EncodeError> {
        let Row { action, key, payload, is_partial, .. } = row;
        let (action, is_partial) = (*action, *is_partial);
        let key_fields: Vec<Str> = key.iter().map(|(field, _)| field.clone()).collect();
        let payload_fields: Vec<(Str, bool)> = match action {
            RowAction::Delete | RowAction::Truncate => Vec::new(),
            _ => payload.iter().map(|(field, _)| (field.clone(), key.get(field).is_none())).collect(),
        };
        let kept = payload_fields.iter().filter(|(_, kept)| *kept).map(|(field, _)| field);
        let columns =
            key_fields.iter().chain(kept).map(|field| self.find(field)).collect::<Result<Vec<usize>, EncodeError>>()?;
        if !matches!(action, RowAction::Insert | RowAction::Truncate) {
            self.check_unique(&key_fields).map_err(EncodeError::Final)?;
        }
        let complete =
            self.layout.columns.iter().enumerate().all(|(i, column)| !column.required || columns.contains(&i));
        let inserts = action == RowAction::Update && complete && !is_partial;
        let action = if inserts { RowAction::Upsert } else { action };
        let id = NEXT_SHAPE.fetch_add(1, Ordering::Relaxed);
        Ok(RowShape {
            id,
            action,
            columns,
            keys: key_fields.len(),
            complete,
            is_partial,
            written: false,
            key_fields,
            payload_fields,
        })
    }

    /// Returns the column that a misspelt field may mean.
    pub(crate) fn near(&self, field: &Str) -> Option<&str> {
        did_you_mean(field, self.layout.columns.iter().map(|column| column.name.as_str()))
    }

    fn find(&self, field: &Str) -> Result<usize, EncodeError> {
        let columns = &self.layout.columns;
        let Some(found) = columns.iter().position(|column| *column.name == **field) else {
            let names = || columns.iter().map(|column| column.name.as_str());
            let hint = match self.near(field) {
                None if columns.is_empty() => "it has no columns".to_owned(),
                Some(near) => format!("did you mean {near:?}?"),
                None => format!("it has {}", names().collect::<Vec<_>>().join(", ")),
            };
            let text = format!("{} has no column {:?}; {hint}", self.name, field.as_str());
            let missing = Some(MissingPart::Column(field.clone()));
            return Err(EncodeError::Unknown(RowFault { fault: Fault::record(codes::COLUMN_MISSING, text), missing }));
        };
        if columns[found].filled == GeneratedColumn::Generated {
            let text = format!("column {} of {} is generated: remove the field", Quoted(field), self.name);
            let missing = Some(MissingPart::Type(field.clone()));
            return Err(EncodeError::Final(RowFault { fault: Fault::record(codes::COLUMN_GENERATED, text), missing }));
        }
        Ok(found)
    }

    /// Checks for a unique index over exactly the key's columns: `ON CONFLICT` needs it, and a deletion must find a
    /// single row.
    fn check_unique(&self, key: &[Str]) -> Result<(), RowFault> {
        let unique = &self.layout.unique;
        if unique.iter().any(|columns| columns.iter().map(String::as_str).eq(key.iter().map(Str::as_str))) {
            return Ok(());
        }
        let list = |names: &[String]| format!("({})", names.join(", "));
        let there = match unique.as_slice() {
            [] => "it has no unique key".to_owned(),
            some => format!("its unique keys are {}", some.iter().map(|c| list(c)).collect::<Vec<_>>().join(", ")),
        };
        let wanted: Vec<String> = key.iter().map(|field| field.as_str().to_owned()).collect();
        let text = format!("{} has no primary key or unique constraint on {}: {there}", self.name, list(&wanted));
        Err(RowFault {
            fault: Fault::record(codes::KEY_NOT_UNIQUE, text),
            missing: Some(MissingPart::Key(key.to_vec())),
        })
    }

    /// Describes the columns whose value PostgreSQL may have rejected with `message`, for the end of an error message:
    /// the columns whose value does not fit, otherwise those that only PostgreSQL checks.
    pub(crate) fn refused_columns(&self, shape: usize, values: &[u8], message: &str) -> String {
        let columns = || self.shapes[shape].columns.iter().map(|i| &self.layout.columns[*i]);
        let exceeded = columns().zip(EncodedValues(values));
        let exceeded: Vec<String> = exceeded.filter_map(|(column, field)| limits::exceeded(column, field.0?)).collect();
        match exceeded.as_slice() {
            [] => {}
            [one] => return format!("; the value is too large for column {one}"),
            some => return format!("; the values are too large for columns {}", some.join(", ")),
        }
        // A domain may have a precision that its columns do not show.
        let checked: Vec<String> = columns()
            .filter(|column| match column.kind {
                ColumnEncoding::Text | ColumnEncoding::Json | ColumnEncoding::Jsonb => true,
                ColumnEncoding::Numeric => column.type_of.0 != NUMERIC,
                _ => column.kind.is_text(),
            })
            // For JSON, PostgreSQL's message identifies the type that it cannot parse.
            .filter(|column| {
                matches!(column.kind, ColumnEncoding::Json | ColumnEncoding::Jsonb)
                    || !message.contains("invalid input syntax for type json")
            })
            .map(|column| format!("{} ({})", Quoted(&column.name), column.sql_type))
            .collect();
        match checked.as_slice() {
            [] => String::new(),
            [one] => format!("; in column {one}"),
            some => format!("; PostgreSQL does not report the column: perhaps {}", some.join(", ")),
        }
    }
}

/// Returns the fault of a key with a null field, which finds no row; `None` for other keys.
pub(crate) fn key_has_nulls(key: &Object, table: &TableName) -> Option<Fault> {
    let null = key.iter().find(|(_, value)| matches!(value, Value::Null));
    null.map(|(field, _)| key_null(field, table))
}

/// Returns the fault for a column with different values in key and payload.
pub(crate) fn key_differs(field: &Str, table: &TableName) -> Fault {
    let text = format!(
        "the column {} of {table} has one value in the key and another in .Payload.After: derive the key from the \
         field, or exclude one of them (to change the key of a row, delete the row and insert a new one)",
        Quoted(field)
    );
    Fault::record(codes::KEY_DIFFERS, text)
}

fn key_null(field: &Str, table: &TableName) -> Fault {
    let text = format!("the field {field:?} of the key is null: it identifies no row of {table}");
    Fault::record(codes::KEY_NULL, text)
}

impl RowShape {
    fn fits(&self, row: &Row<'_>) -> bool {
        let Row { action, key, payload, is_partial, .. } = row;
        let action = *action;
        // An update with all required columns is written as an upsert.
        (self.action == action || (action == RowAction::Update && self.action == RowAction::Upsert && self.complete))
            && self.is_partial == *is_partial
            && self.key_fields.len() == key.len()
            && self.key_fields.iter().zip(key.iter()).all(|(a, (b, _))| a == b)
            && (matches!(action, RowAction::Delete | RowAction::Truncate)
                || (self.payload_fields.len() == payload.len()
                    && self.payload_fields.iter().zip(payload.iter()).all(|((a, _), (b, _))| a == b)))
    }

    /// Returns `true` if PostgreSQL finds an encoded key equal only to keys with the same bytes.
    pub(crate) fn is_exact(&self, columns: &[Column], key: &[u8]) -> bool {
        self.key_columns()
            .iter()
            .zip(EncodedValues(key))
            .all(|(i, field)| field.0.is_some_and(|value| columns[*i].equality.is_exact(value)))
    }

    /// Returns the columns of the key.
    pub(crate) fn key_columns(&self) -> &[usize] {
        &self.columns[..self.keys]
    }
}
