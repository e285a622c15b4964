//! Returns of the same object several times.

use std::ops::ControlFlow::{self, Continue};

use boa_engine::ast::StatementListItem;
use boa_engine::ast::expression::{Call, Expression};
use boa_engine::ast::statement::{Return, Statement};
use boa_engine::interner::Sym;

use super::{ScriptSlip, ScriptText, end, start};
use crate::inner::visit_inner_functions;
use crate::process::{Bindings, Process};
use crate::spot::unparenthesized;
use crate::visitor::{VisitWith, Visitor};

/// Finds calls, returned from `process`, that give a list with the record itself for each element.
pub(super) fn of(process: &Process<'_>, text: ScriptText<'_>) -> Vec<ScriptSlip> {
    let Some(record) = process.record() else { return Vec::new() };
    let mut bindings = Bindings::default();
    let _ = process.body.visit_with(&mut bindings);
    if bindings.is_bound(record) {
        return Vec::new();
    }
    let mut same = Same { text, record, slips: Vec::new() };
    let _ = process.body.visit_with(&mut same);
    same.slips
}

struct Same<'a> {
    text: ScriptText<'a>,
    record: Sym,
    slips: Vec<ScriptSlip>,
}

impl Same<'_> {
    fn outside<N>(&mut self, _: &N) -> ControlFlow<()> {
        Continue(())
    }

    fn is_record(&self, value: &Expression) -> bool {
        matches!(unparenthesized(value), Expression::Identifier(name) if name.sym() == self.record)
    }

    /// Returns the result of the callback of `elements.map(…)`, if it is the record.
    fn mapped<'e>(&self, call: &'e Call) -> Option<&'e Expression> {
        let (_, method) = self.text.field(call.function())?;
        let function = unparenthesized(call.args().first()?);
        let body = match (method, function) {
            ("map", Expression::ArrowFunction(function)) => function.body(),
            ("map", Expression::FunctionExpression(function)) => function.body(),
            _ => return None,
        };
        let StatementListItem::Statement(last) = body.statements().last()? else { return None };
        let Statement::Return(last) = &**last else { return None };
        last.target().filter(|value| self.is_record(value))
    }
}

impl<'ast> Visitor<'ast> for Same<'_> {
    type BreakTy = ();

    visit_inner_functions!(ControlFlow<()>, outside);

    fn visit_return(&mut self, node: &'ast Return) -> ControlFlow<()> {
        if let Some(Expression::Call(call)) = node.target().map(unparenthesized)
            && let Some(value) = self.mapped(call)
        {
            let name = self.text.name(self.record);
            self.slips.push(ScriptSlip {
                fails: false,
                start: start(value),
                end: end(value),
                message: format!(
                    "each element becomes `{name}` itself: all records that process returns are the same record"
                ),
                hint: "create a record for each element: const out = Record(); out.Payload.After = {...}; return out"
                    .to_owned(),
            });
        }
        Continue(())
    }
}
