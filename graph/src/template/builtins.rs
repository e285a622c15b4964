//! The functions of text/template itself.

use super::functions::Function;

/// The table.
pub(crate) static TABLE: &[Function] = &[];
