//! A call of a function, as the checks of calls see it.

use std::ops::Range;

use anabranch_template::tree::Operand;

use super::expression::{ValueProperties, bytes};

/// A call, with the known properties of its arguments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call<'a> {
    /// Name of the function.
    pub(super) name: &'a str,
    /// Arguments written after the name: all but a piped one.
    pub(super) args: &'a [Operand],
    /// All arguments, a piped one last.
    pub(super) values: &'a [ValueProperties],
    /// Bytes of the call in the template.
    pub(super) at: &'a Range<usize>,
    /// Every rendering reaches the call.
    pub(super) certain: bool,
}

impl Call<'_> {
    /// Returns the place of an argument; that of the call for a piped one.
    pub(super) fn place(&self, argument: usize) -> Range<usize> {
        self.args.get(argument).map_or_else(|| self.at.clone(), bytes)
    }
}
