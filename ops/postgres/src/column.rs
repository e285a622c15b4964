//! Columns, and how values get into them.

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    /// Its name.
    pub(crate) name: String,
    /// Its type as SQL writes it, without length or precision.
    pub(crate) sql_type: String,
    /// How values are encoded.
    pub(crate) kind: Kind,
    /// What PostgreSQL fills in itself.
    pub(crate) filled: Filled,
    /// What two equal values have in common.
    pub(crate) equality: Equality,
    /// Whether a row cannot be inserted without it.
    pub(crate) required: bool,
    /// `atttypid`, and `atttypmod` with its length or precision.
    pub(crate) type_of: (u32, i32),
}

/// Which values PostgreSQL takes for one key, in the encoded form that they have before they are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Equality {
    /// Those of the same bytes.
    Bytes,
    /// Those of the same bytes, unless one ends with a space: those may be cut off.
    Trimmed,
    /// Numbers of the same bytes, unless there are digits after the point.
    Whole,
    /// Only PostgreSQL knows.
    Server,
}

impl Equality {
    /// For a column of a type with a modifier, whose text has a collation for which equal is the same.
    pub(crate) fn of(oid: u32, modifier: i32, types: &[TypeRow]) -> Equality {
        match oid {
            // bool, bytea, int8, int2, int4, text, date, uuid.
            16 | 17 | 20 | 21 | 23 | 25 | 1082 | 2950 => Equality::Bytes,
            // varchar(n) and char(n) lose spaces at the end.
            1043 if modifier < 0 => Equality::Bytes,
            1042 | 1043 => Equality::Trimmed,
            // Fewer digits than microseconds are rounded to.
            1114 | 1184 if modifier < 0 || modifier == 6 => Equality::Bytes,
            // The bit of a negative scale, which rounds whole numbers.
            1700 if modifier < 0 || (modifier - 4) & 0x400 == 0 => Equality::Whole,
            _ => match types.iter().find(|row| row.oid == oid) {
                Some(row) if row.form == "d" => Equality::of(row.base, row.modifier, types),
                Some(row) if row.form == "e" => Equality::Bytes,
                _ => Equality::Server,
            },
        }
    }

    /// Whether an encoded value is equal to none of other bytes.
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

/// What PostgreSQL fills in itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    /// Nothing, or a default that gives way.
    No,
    /// An identity column that insists on its own values unless told otherwise.
    Identity,
    /// A generated column, which cannot be written.
    Generated,
}

/// How a value is encoded for a column: PostgreSQL's binary form of the type, of the base type for domains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Bool,
    Int2,
    Int4,
    Int8,
    Float4,
    Float8,
    Numeric,
    /// text, varchar, char, name, citext, enums.
    Text,
    Bytea,
    Uuid,
    Json,
    Jsonb,
    Date,
    Timestamp,
    TimestampTz,
    /// pgvector's.
    Vector,
    /// Elements of a type with this number.
    Array(Box<Kind>, u32),
    /// Any other type: text that PostgreSQL reads.
    Parsed {
        /// Whether a list becomes an array literal.
        array: bool,
    },
}

/// A row of `pg_type`.
#[derive(Clone, Debug)]
pub(crate) struct TypeRow {
    pub(crate) oid: u32,
    pub(crate) name: String,
    /// `typtype`: `b`ase, `d`omain, `e`num …
    pub(crate) form: String,
    pub(crate) category: String,
    pub(crate) base: u32,
    pub(crate) element: u32,
    /// `typtypmod`: the length or precision that a domain adds.
    pub(crate) modifier: i32,
}

impl Kind {
    /// How values of a type are encoded, from the rows of `pg_type` that it leads to.
    pub(crate) fn of(oid: u32, types: &[TypeRow]) -> Kind {
        // Numbers of built-in types never change: src/include/catalog/pg_type.dat.
        match oid {
            16 => return Kind::Bool,
            17 => return Kind::Bytea,
            19 | 25 | 1042 | 1043 => return Kind::Text,
            20 => return Kind::Int8,
            21 => return Kind::Int2,
            23 => return Kind::Int4,
            114 => return Kind::Json,
            700 => return Kind::Float4,
            701 => return Kind::Float8,
            1082 => return Kind::Date,
            1114 => return Kind::Timestamp,
            1184 => return Kind::TimestampTz,
            1700 => return Kind::Numeric,
            2950 => return Kind::Uuid,
            3802 => return Kind::Jsonb,
            _ => {}
        }
        let Some(row) = types.iter().find(|row| row.oid == oid) else { return Kind::Parsed { array: false } };
        match (row.form.as_str(), row.category.as_str(), row.name.as_str()) {
            ("d", _, _) => Kind::of(row.base, types),
            ("e", _, _) | ("b", _, "citext") => Kind::Text,
            ("b", "A", name) if name.starts_with('_') && row.element != 0 => match Kind::of(row.element, types) {
                Kind::Parsed { .. } => Kind::Parsed { array: true },
                element => Kind::Array(Box::new(element), row.element),
            },
            ("b", _, "vector") => Kind::Vector,
            _ => Kind::Parsed { array: false },
        }
    }
}
