//! The kinds that fields of the record have wherever an action of a template does not fail.

use std::ops::Range;

use anabranch_template::functions::Param;
use anabranch_template::tree::Operand;

use super::Walk;
use super::classes::Classes;
use super::expression::{Known, bytes};
use super::reading::Way;
use crate::flow::Kinds;
use crate::flow::walk::Access;

impl Walk<'_> {
    /// Declares that a value is of one of these kinds in every record that passes.
    pub(super) fn used(&mut self, code: &'static str, value: &Known, kinds: Kinds, at: Range<usize>, certain: bool) {
        if let (true, Known::Way(way)) = (certain, value) {
            let place = self.at(at);
            self.flow.use_as(code, &place, way.side, &way.names, kinds);
        }
    }

    /// Declares that the value of a path is reached: each part of it before the last has fields.
    pub(super) fn used_way(&mut self, way: &Way, at: &Range<usize>, certain: bool) {
        for (depth, access) in way.accesses.iter().enumerate().skip(1) {
            let kinds = match access {
                // A time has methods.
                Access::Chain | Access::Strict => Kinds::MAP | Kinds::TIME | Kinds::NULL,
                Access::Reference => Kinds::MAP | Kinds::NULL,
                Access::Index => Kinds::MAP,
            };
            let part = Way { names: way.names[..depth].to_vec(), ..way.clone() };
            self.used("flow.not_a_map", &Known::Way(part), kinds, at.clone(), certain);
        }
    }

    /// Declares that an argument is of the type of its parameter.
    pub(super) fn used_as_parameter(&mut self, param: Param, value: &Known, at: Range<usize>, certain: bool) {
        let kinds = match param {
            // No field has the type of an integer parameter; that is reported where the type is known.
            Param::Any | Param::Reflect | Param::Int => return,
            Param::Text => Kinds::TEXT,
            Param::Bool => Kinds::BOOL,
            Param::Float => Kinds::FLOAT | Kinds::INT,
            Param::Map => Kinds::MAP | Kinds::NULL,
            Param::Time => Kinds::TIME,
        };
        self.used("flow.wrong_argument", value, kinds, at, certain);
    }

    /// Declares that an argument is of none of these classes.
    pub(super) fn used_as_other(&mut self, refused: Classes, value: &Known, at: Range<usize>, certain: bool) {
        if !refused.is_empty() {
            self.used("flow.wrong_argument", value, kinds(|class| !class.overlaps(refused)), at, certain);
        }
    }

    /// Declares that the first two operands of a comparison can be compared.
    pub(super) fn used_in_comparison(
        &mut self,
        name: &str,
        args: &[Operand],
        values: &[Known],
        at: &Range<usize>,
        certain: bool,
    ) {
        // The first equal operand of `eq` ends the comparison.
        let [first, other, ..] = values else { return };
        for (i, value, against) in [(0, first, other), (1, other, first)] {
            let theirs = self.classes(against).filter(|classes| !classes.is_empty()).unwrap_or(Classes::ALL);
            let fits = |class: Classes| match name {
                "eq" | "ne" => class.may_equal(theirs),
                _ => class.may_order(theirs),
            };
            let place = args.get(i).map_or_else(|| at.clone(), bytes);
            self.used("flow.never_comparable", value, kinds(fits), place, certain);
        }
    }
}

/// Returns the kinds of fields whose class fits.
fn kinds(fits: impl Fn(Classes) -> bool) -> Kinds {
    let fitting = Kinds::ANY.each().filter(|kind| fits(Classes::of_field(*kind, false)));
    fitting.fold(Kinds::NONE, |all, kind| all | kind)
}
