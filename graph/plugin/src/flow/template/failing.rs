//! Calls that a constant argument makes fail, whatever the other arguments are.

use anabranch_template::functions::{Function, Param};
use anabranch_template::tree::{Literal, Operand, Term};
use anabranch_template::{MissingKey, Template};

use super::Walk;
use super::expression::bytes;
use super::unaccepted::is_constant;
use crate::codes;

/// Functions that are tried with their constant arguments.
const TRIED: [&str; 8] = ["div", "divf", "indent", "mod", "nindent", "repeat", "semverCompare", "substr"];
/// Numbers and texts in the place of the other arguments. For each constant that some call accepts, one pair is accepted.
const OTHERS: [(&str, &str); 3] =
    [("1", "\"1.2.3\""), ("0", "(repeat 20000 \"x\")"), ("10000", "(repeat 20000 \"x\")")];
/// Largest constant for which the texts are long enough.
const LARGEST: u64 = 10_000;

impl Walk<'_> {
    /// Reports a call that fails for all values of its other arguments: `divf .Payload.After.amount 0`. `count` includes
    /// the piped argument; `known` is the number of findings before the call.
    pub(super) fn failing_constant(
        &mut self,
        function: &Function,
        args: &[Operand],
        count: usize,
        known: usize,
        certain: bool,
    ) {
        let constants = args.iter().filter(|arg| is_constant(arg, false)).count();
        let is_other = || self.flow.messages().count() != known;
        if !TRIED.contains(&function.name) || constants == 0 || constants == count || is_other() {
            return;
        }
        if function.name == "substr" && !args.iter().all(is_small) {
            return;
        }
        let mut failure = None;
        for (number, text) in OTHERS {
            let mut call = format!("{{{{ {}", function.name);
            for i in 0..count {
                let other = match function.params.get(i).copied().or(function.rest) {
                    Some(Param::Text) => text,
                    _ => number,
                };
                let arg = args.get(i).filter(|arg| is_constant(arg, false));
                call.push(' ');
                call.push_str(arg.map_or(other, |arg| self.text(&bytes(arg))));
            }
            call.push_str(" }}");
            let Ok(template) = Template::parse(&call, MissingKey::NoValue) else { return };
            match template.render_briefly() {
                // The first of the other arguments are short enough for a message.
                Some(Err(error)) => drop(failure.get_or_insert(error.message)),
                _ => return,
            }
        }
        let (Some(failure), Some(first), Some(last)) = (failure, args.first(), args.last()) else { return };
        let hint = match function.name {
            "semverCompare" => "write semverCompare RANGE VERSION, for example semverCompare \">=1.2.0\" VERSION",
            "div" | "divf" | "mod" => "divide by another number",
            _ => "correct the constant argument",
        };
        let message = format!("every record fails here: {failure}");
        let at = bytes(first).start..bytes(last).end;
        self.fails(codes::FLOW_WRONG_ARGUMENT, at, message, hint.to_owned(), certain);
    }
}

/// Returns `true` unless the operand is a number, or a call that may return one, which may be larger than the texts.
fn is_small(operand: &Operand) -> bool {
    match &operand.term {
        Term::Literal(Literal::Number(number)) => number.int.is_some_and(|number| number.unsigned_abs() <= LARGEST),
        _ => !is_constant(operand, false),
    }
}
