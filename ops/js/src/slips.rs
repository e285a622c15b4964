//! Errors of a script that do not depend on its records: undeclared names, results that are not records, and statements
//! without effect.

mod conditions;
mod constants;
mod copies;
mod equal;
mod failing;
mod fresh;
mod idle;
mod kinds;
mod known;
mod lost;
mod names;
mod patterns;
mod results;
mod same;
mod scopes;
mod unread;
mod unset;

use boa_engine::ast::expression::Expression;
use boa_engine::ast::expression::access::{PropertyAccess, PropertyAccessField};
use boa_engine::ast::{Script, Spanned};
use boa_engine::interner::{Interner, Sym};

use crate::position::Position;
use crate::process::Process;
use crate::spot::unparenthesized;

/// An error in a script.
#[derive(Debug, PartialEq)]
pub(crate) struct ScriptSlip {
    /// True if every record fails because of it.
    pub(crate) fails: bool,
    pub(crate) start: Position,
    pub(crate) end: Position,
    pub(crate) message: String,
    pub(crate) hint: String,
}

/// Finds the errors of a script. `reached` are the positions that every call of its function reaches.
pub(crate) fn of(
    script: &Script,
    process: Option<&Process<'_>>,
    reached: &[Position],
    text: &str,
    interner: &Interner,
) -> Vec<ScriptSlip> {
    let source = ScriptText { text, interner };
    let mut slips = names::of(script, process, reached, source);
    if let Some(process) = process {
        slips.extend(results::of(script, process, reached, source));
        slips.extend(copies::of(process.body, source));
        slips.extend(same::of(process, source));
    }
    slips.extend(idle::of(script, source));
    slips.extend(fresh::of(script, process, source));
    slips.extend(unread::of(script, source));
    if let Some(kinds) = kinds::Kinds::of(script, source) {
        slips.extend(equal::of(script, &kinds));
        slips.extend(conditions::of(script, &kinds));
        slips.extend(lost::of(script, process, &kinds));
        slips.extend(process.and_then(|process| failing::of(script, process, &kinds)));
    }
    slips.sort_by_key(|slip| (slip.start.line, slip.start.column));
    // If several checks report the same place, keep the first.
    slips.dedup_by(|next, first| next.start == first.start && next.end == first.end);
    slips
}

/// The text of a script, and its names.
#[derive(Clone, Copy)]
struct ScriptText<'i> {
    text: &'i str,
    interner: &'i Interner,
}

impl<'i> ScriptText<'i> {
    fn name(self, name: Sym) -> &'i str {
        self.interner.resolve(name).and_then(|name| name.utf8()).unwrap_or_default()
    }

    /// Returns the object and the name in `object.name`.
    fn field(self, expression: &Expression) -> Option<(&Expression, &'i str)> {
        match unparenthesized(expression) {
            Expression::PropertyAccess(access) => self.member(access),
            _ => None,
        }
    }

    fn member(self, access: &PropertyAccess) -> Option<(&Expression, &'i str)> {
        let PropertyAccess::Simple(access) = access else { return None };
        match access.field() {
            PropertyAccessField::Const(name) => Some((access.target(), self.name(name.sym()))),
            PropertyAccessField::Expr(_) => None,
        }
    }

    fn identifier(self, expression: &Expression) -> Option<&'i str> {
        match unparenthesized(expression) {
            Expression::Identifier(name) => Some(self.name(name.sym())),
            _ => None,
        }
    }

    /// Returns the text between two positions, if it is short.
    fn slice(self, from: Position, to: Position) -> Option<&'i str> {
        let slice = self.text.get(from.offset(self.text)..to.offset(self.text))?;
        (slice.len() <= 120 && !slice.contains('\n')).then_some(slice)
    }
}

/// Returns the start of an expression. The parser's position of a call is that of its parentheses.
fn start(expression: &Expression) -> Position {
    match expression {
        Expression::Call(call) => start(call.function()),
        Expression::PropertyAccess(PropertyAccess::Simple(access)) => start(access.target()),
        Expression::Binary(binary) => start(binary.lhs()),
        other => other.span().start().into(),
    }
}

fn end(expression: &Expression) -> Position {
    expression.span().end().into()
}
