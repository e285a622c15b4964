//! Display of shapes in plans: `key: raw, after: {id int, name text}`.

use std::fmt;

use super::record::RecordShape;
use super::shape::{Fields, Kinds, Shape, Type};

/// Maximum number of fields that are listed.
const MOST_FIELDS: usize = 12;

impl fmt::Display for RecordShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sides = [("key", &self.key), ("before", &self.before), ("after", &self.after)];
        // An absent `before` is the normal case and not shown.
        let shown =
            sides.into_iter().filter(|(name, shape)| !(shape.is_unknown() || (*name == "before" && shape.is_absent())));
        for (i, (name, shape)) in shown.enumerate() {
            write!(f, "{}{name}: {shape}", if i > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_unknown() {
            return f.write_str("unknown");
        }
        let mut bar = "";
        if let Some(fields) = &self.structured {
            write!(f, "{fields}")?;
            bar = " | ";
        }
        if self.raw {
            write!(f, "{bar}raw")?;
            bar = " | ";
        }
        if self.absent {
            write!(f, "{bar}absent")?;
        }
        Ok(())
    }
}

impl fmt::Display for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        let mut comma = "";
        for (name, field) in self.iter().take(MOST_FIELDS) {
            let optional = if field.optional { "?" } else { "" };
            write!(
                f,
                "{comma}{name}{optional}{}{}",
                if matches!(field.ty.kinds, Kinds::ANY | Kinds::JSON) { "" } else { " " },
                field.ty
            )?;
            comma = ", ";
        }
        if self.is_open() || self.iter().nth(MOST_FIELDS).is_some() {
            write!(f, "{comma}…")?;
        }
        f.write_str("}")
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if matches!(self.kinds, Kinds::ANY | Kinds::JSON) {
            return Ok(());
        }
        for (i, kind) in self.kinds.each().enumerate() {
            f.write_str(if i > 0 { "|" } else { "" })?;
            match kind {
                Kinds::MAP if !self.fields.is_any() => write!(f, "{}", self.fields)?,
                kind => f.write_str(kind.names().next().unwrap_or_default())?,
            }
        }
        Ok(())
    }
}
