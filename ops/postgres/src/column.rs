//! Columns, and the encoding of their values.

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    /// Name of the column.
    pub(crate) name: String,
    /// SQL name of its type, without length or precision.
    pub(crate) sql_type: String,
    /// Encoding of its values.
    pub(crate) kind: ColumnEncoding,
    /// Source of its values: the client, or PostgreSQL.
    pub(crate) filled: GeneratedColumn,
    /// Condition for two values to be equal.
    pub(crate) equality: Equality,
    /// True if an inserted row must contain the column.
    pub(crate) required: bool,
    /// `atttypid`, and `atttypmod` with its length or precision.
    pub(crate) type_of: (u32, i32),
}

/// Rule by which PostgreSQL finds two key values equal, in terms of their encoded form before they are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Equality {
    /// Equal if the bytes are the same.
    Bytes,
    /// Equal if the bytes are the same, except for values that end with a space, which may be cut.
    Trimmed,
    /// Numbers that are equal if the bytes are the same, except for those with digits after the point.
    Whole,
    /// Only PostgreSQL can decide.
    Server,
}

impl Equality {
    /// Returns the rule for a type with a modifier. The collation of text must be deterministic.
    pub(crate) fn of(oid: u32, modifier: i32, types: &[TypeRow]) -> Equality {
        match oid {
            // The types bool, bytea, int8, int2, int4, text, date and uuid.
            16 | 17 | 20 | 21 | 23 | 25 | 1082 | 2950 => Equality::Bytes,
            // The types varchar(n) and char(n) lose spaces at the end.
            1043 if modifier < 0 => Equality::Bytes,
            1042 | 1043 => Equality::Trimmed,
            // With fewer fraction digits than six, times are rounded.
            1114 | 1184 if modifier < 0 || modifier == 6 => Equality::Bytes,
            // Bit of a negative scale, which rounds integers.
            1700 if modifier < 0 || (modifier - 4) & 0x400 == 0 => Equality::Whole,
            _ => match types.iter().find(|row| row.oid == oid) {
                Some(row) if row.form == "d" => Equality::of(row.base, row.modifier, types),
                Some(row) if row.form == "e" => Equality::Bytes,
                _ => Equality::Server,
            },
        }
    }

    /// Returns `true` if an encoded value is equal only to values with the same bytes.
    pub(crate) fn is_exact(self, value: &[u8]) -> bool {
        match self {
            Equality::Bytes => true,
            Equality::Trimmed => value.last() != Some(&b' '),
            // Digits, weight, sign, then the number of digits after the point.
            Equality::Whole => value.get(6..8) == Some(&[0, 0]),
            Equality::Server => false,
        }
    }
}

/// Generation of a column's values by PostgreSQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GeneratedColumn {
    /// No generation, or a default that can be overridden.
    No,
    /// An identity column, whose values need `OVERRIDING SYSTEM VALUE`.
    Identity,
    /// A generated column, which cannot be written.
    Generated,
}

/// Encoding of a column's values: PostgreSQL's binary format of the type, or of the base type for domains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ColumnEncoding {
    Bool,
    Int2,
    Int4,
    Int8,
    Float4,
    Float8,
    Numeric,
    /// The types text, varchar, char, name, citext and enums.
    Text,
    Bytea,
    Uuid,
    Json,
    Jsonb,
    Date,
    Timestamp,
    TimestampTz,
    /// The type `vector` of pgvector.
    Vector,
    /// The type `hstore`: a map, or its text.
    Hstore,
    /// An array of elements with this kind and type OID.
    Array(Box<ColumnEncoding>, u32),
    /// Any other type: sent as text that PostgreSQL parses.
    Parsed {
        /// The character between the elements of an array literal, to which a list is converted; `None` if the type is not
        /// an array.
        array: Option<char>,
    },
}

/// A row of `pg_type`.
#[derive(Clone, Debug)]
pub(crate) struct TypeRow {
    pub(crate) oid: u32,
    pub(crate) name: String,
    /// `typtype`: `b` for base, `d` for domain, `e` for enum …
    pub(crate) form: String,
    pub(crate) category: String,
    pub(crate) base: u32,
    pub(crate) element: u32,
    /// `typtypmod`: the length or precision that a domain adds.
    pub(crate) modifier: i32,
    /// `typdelim`: the character between the elements of an array of this type.
    pub(crate) delimiter: String,
}

impl ColumnEncoding {
    /// Returns `true` if values are sent as text, which PostgreSQL parses.
    pub(crate) fn is_text(&self) -> bool {
        matches!(self, ColumnEncoding::Parsed { .. } | ColumnEncoding::Hstore)
    }

    /// Returns the encoding of a type. `types` holds the `pg_type` rows that it refers to.
    pub(crate) fn of(oid: u32, types: &[TypeRow]) -> ColumnEncoding {
        // OIDs of built-in types never change: see src/include/catalog/pg_type.dat.
        match oid {
            16 => return ColumnEncoding::Bool,
            17 => return ColumnEncoding::Bytea,
            19 | 25 | 1042 | 1043 => return ColumnEncoding::Text,
            20 => return ColumnEncoding::Int8,
            21 => return ColumnEncoding::Int2,
            23 => return ColumnEncoding::Int4,
            114 => return ColumnEncoding::Json,
            700 => return ColumnEncoding::Float4,
            701 => return ColumnEncoding::Float8,
            1082 => return ColumnEncoding::Date,
            1114 => return ColumnEncoding::Timestamp,
            1184 => return ColumnEncoding::TimestampTz,
            1700 => return ColumnEncoding::Numeric,
            2950 => return ColumnEncoding::Uuid,
            3802 => return ColumnEncoding::Jsonb,
            _ => {}
        }
        let Some(row) = types.iter().find(|row| row.oid == oid) else { return ColumnEncoding::Parsed { array: None } };
        match (row.form.as_str(), row.category.as_str(), row.name.as_str()) {
            ("d", _, _) => ColumnEncoding::of(row.base, types),
            ("e", _, _) | ("b", _, "citext") => ColumnEncoding::Text,
            ("b", "A", name) if name.starts_with('_') && row.element != 0 => {
                match ColumnEncoding::of(row.element, types) {
                    ColumnEncoding::Parsed { .. } | ColumnEncoding::Hstore => {
                        ColumnEncoding::Parsed { array: Some(row.delimiter.chars().next().unwrap_or(',')) }
                    }
                    element => ColumnEncoding::Array(Box::new(element), row.element),
                }
            }
            ("b", _, "vector") => ColumnEncoding::Vector,
            ("b", _, "hstore") => ColumnEncoding::Hstore,
            _ => ColumnEncoding::Parsed { array: None },
        }
    }
}
