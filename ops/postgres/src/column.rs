//! Columns, and how values get into them.

/// A column of a table.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    /// Its name.
    pub(crate) name: String,
    /// Its type as SQL writes it, without length or precision.
    pub(crate) sql_type: String,
    /// How values are encoded.
    pub(crate) kind: Kind,
    /// What PostgreSQL fills in itself.
    pub(crate) filled: Filled,
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
