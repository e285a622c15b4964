//! Values that a part of the record cannot hold.

use std::ops::ControlFlow::{self, Break, Continue};

use boa_engine::ast::StatementListItem;
use boa_engine::ast::expression::Expression;
use boa_engine::ast::expression::access::PropertyAccess;
use boa_engine::ast::expression::operator::assign::{AssignOp, AssignTarget};
use boa_engine::ast::expression::operator::unary::UnaryOp;
use boa_engine::ast::expression::operator::{Assign, Unary};

use super::CallOf;
use crate::slips::ScriptSlip;
use crate::slips::constants;
use crate::spot::{ExpressionMeaning, RecordObject, spot, step, unparenthesized};
use crate::visitor::{VisitWith, Visitor};

/// A part of the record that was assigned a value that it cannot hold.
pub(super) struct Unfit {
    place: RecordObject,
    /// The entry; `None` for the whole object.
    entry: Option<String>,
    pub(super) slip: ScriptSlip,
}

impl CallOf<'_, '_> {
    /// Notes a value that no record can hold.
    pub(super) fn assigned(&mut self, assign: &Assign) {
        let (AssignOp::Assign, AssignTarget::Access(PropertyAccess::Simple(access))) = (assign.op(), assign.lhs())
        else {
            return;
        };
        let target = step(&spot(access.target(), self), access.field(), self);
        let unfit = match (target.object(), target) {
            (Some(place), _) if place.is_data() => {
                self.unfit_data(assign.rhs()).map(|slip| Unfit { place, entry: None, slip })
            }
            (None, ExpressionMeaning::Field(RecordObject::Metadata, Some(entry))) => {
                let value = self.value(assign.rhs());
                let hint = match value.nothing() {
                    Some(_) => "to remove the entry, write delete rec.Metadata[\"name\"]",
                    None => "convert it to text: JSON.stringify(…), or list.join(\",\")",
                };
                (value.nothing().is_some() || value.is_object()).then(|| {
                    let message = format!("a metadata entry is text, not {}", value.named());
                    let slip = Self::slip(assign.rhs(), &message, hint);
                    Unfit { place: RecordObject::Metadata, entry: Some(entry), slip }
                })
            }
            _ => None,
        };
        self.unfit = self.unfit.take().or(unfit);
    }

    /// Checks a value for a key or a payload side.
    fn unfit_data(&self, value: &Expression) -> Option<ScriptSlip> {
        match unparenthesized(value) {
            Expression::ObjectLiteral(_) => {
                let (start, end, what) = constants::unfit(value, self.kinds, &self.values)?;
                let message = format!("{}, which a record cannot hold", self.at(start, end, what));
                let hint = "assign a value that a record can hold, or check the value before";
                Some(Self::slip_at(start, end, &message, hint))
            }
            // The check of the accesses reports them.
            Expression::Literal(_) | Expression::ArrayLiteral(_) | Expression::New(_) => None,
            Expression::Call(call)
                if self.kinds.called(call).is_some_and(|(target, ..)| spot(target, self).object().is_some()) =>
            {
                None
            }
            _ => self.value(value).is_no_data().then(|| {
                let what = self.value(value).named();
                let message = format!("a key or a payload is an object, a text or bytes, not {what}");
                Self::slip(value, &message, "write { value: … }, or JSON.stringify(…) for raw data")
            }),
        }
    }

    /// Returns `true` if the statement may change the part of the record again.
    pub(super) fn may_undo(&self, unfit: &Unfit, item: &StatementListItem) -> bool {
        item.visit_with(&mut Undoing { call: self, unfit }).is_break()
    }
}

/// Searches for code that may change a part of the record again: anything but reads and writes of other parts by name.
struct Undoing<'c, 'a, 'k> {
    call: &'c CallOf<'a, 'k>,
    unfit: &'c Unfit,
}

impl<'ast> Visitor<'ast> for Undoing<'_, '_, '_> {
    type BreakTy = ();

    fn visit_expression(&mut self, expression: &'ast Expression) -> ControlFlow<()> {
        match expression {
            // A variable may be the record or a function that changes it.
            Expression::Identifier(_) => match self.call.kinds.global(expression) {
                None | Some("arguments") => Break(()),
                Some(_) => Continue(()),
            },
            other => other.visit_with(self),
        }
    }

    fn visit_unary(&mut self, unary: &'ast Unary) -> ControlFlow<()> {
        if unary.op() == UnaryOp::Delete { Break(()) } else { unary.visit_with(self) }
    }

    fn visit_property_access(&mut self, access: &'ast PropertyAccess) -> ControlFlow<()> {
        let PropertyAccess::Simple(simple) = access else { return Break(()) };
        match step(&spot(simple.target(), self.call), simple.field(), self.call) {
            ExpressionMeaning::Field(place, Some(name)) if place.child(&name).is_none() => {
                let is_other = self.unfit.entry.as_ref().is_some_and(|entry| *entry != name);
                if place != self.unfit.place || is_other { Continue(()) } else { Break(()) }
            }
            ExpressionMeaning::Other => access.visit_with(self),
            _ => Break(()),
        }
    }
}
