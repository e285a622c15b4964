//! Names that a template looks up without an error if they are missing: `get .Payload.After "mail"`,
//! `default "?" .Payload.After.mail`.

use std::ops::Range;

use anabranch_template::functions::{Function, Param};
use anabranch_template::tree::{Command, Literal, Operand, Pipeline, Term};

use super::Walk;
use super::call::Call;
use super::elsewhere::reference_to_value;
use super::expression::{ValueProperties, bytes};
use super::reading::ReadPath;
use crate::flow::walk::Access;
use crate::flow::{LookedUpField, TrialCheck};

/// Functions that report missing values, or look up names themselves.
const SAID: [&str; 14] =
    ["eq", "ne", "lt", "le", "gt", "ge", "print", "printf", "println", "index", "get", "hasKey", "pick", "omit"];

impl Walk<'_> {
    /// Checks the names that a call looks up in a map of the record.
    pub(super) fn keys(&mut self, call: &Call<'_>) {
        let Call { name, values, certain, .. } = *call;
        match (name, values) {
            ("get" | "hasKey", [map, _]) => self.key(map, 1..2, call, false),
            ("pick" | "omit", [map, keys @ ..]) => {
                for i in 1..=keys.len() {
                    self.key(map, i..i + 1, call, certain);
                }
            }
            ("dig", [keys @ .., _, map]) => {
                let literal = |known: &ValueProperties| matches!(known, ValueProperties::Literal(Literal::Text(_)));
                let known = keys.iter().take_while(|key| literal(key)).count();
                if known > 0 {
                    self.key(map, 0..known, call, false);
                }
            }
            _ => {}
        }
    }

    /// Checks nested names that are looked up in a map. `sure`: the template has no effect without them.
    fn key(&mut self, map: &ValueProperties, keys: Range<usize>, call: &Call<'_>, sure: bool) {
        let Call { args, values, at, .. } = *call;
        let ValueProperties::Way(way) = map else { return };
        let mut way = ReadPath { settled: false, ..way.clone() };
        for key in &values[keys.clone()] {
            let ValueProperties::Literal(Literal::Text(key)) = key else { return };
            // This text is reported already.
            if reference_to_value(key).is_some() {
                return;
            }
            way.names.push(key.clone());
            way.accesses.push(Access::Reference);
        }
        let at = match (args.get(keys.start), args.get(keys.end - 1)) {
            (Some(first), Some(last)) => bytes(first).start..bytes(last).end,
            _ => at.clone(),
        };
        let outcome = way.walk(&self.flow.record);
        if outcome.blocked.is_none() {
            let place = self.at(at.clone());
            self.flow.judge(&place, &outcome, false);
        }
        self.look_for(&way, at, sure);
    }

    /// Checks arguments of a call that may be missing without an error.
    pub(super) fn may_be_missing(&mut self, function: &Function, args: &[Operand], values: &[ValueProperties]) {
        if SAID.contains(&function.name) {
            return;
        }
        for (i, (arg, value)) in args.iter().zip(values).enumerate() {
            if function.params.get(i).copied().or(function.rest) == Some(Param::Any) {
                self.field_if_there(arg, value);
            }
        }
    }

    /// Checks a field that counts as false, or as empty, if it is missing.
    pub(super) fn field_if_there(&mut self, operand: &Operand, value: &ValueProperties) {
        if let (Term::Field(_) | Term::Variable { .. }, ValueProperties::Way(way)) = (&operand.term, value)
            && !way.names.is_empty()
        {
            self.look_for(way, bytes(operand), false);
        }
    }

    /// Checks a field that is piped into a call.
    pub(super) fn piped_if_there(&mut self, piped: &Command, value: &ValueProperties, command: &Command) {
        let Term::Function(function) = &command.head.term else { return };
        let param = function.params.get(command.args.len()).copied().or(function.rest);
        if piped.args.is_empty() && param == Some(Param::Any) && !SAID.contains(&function.name) {
            self.field_if_there(&piped.head, value);
        }
    }

    /// Checks a field that alone decides a branch.
    pub(super) fn field_as_truth(&mut self, pipeline: &Pipeline, value: &ValueProperties) {
        if let [command] = &*pipeline.commands
            && command.args.is_empty()
        {
            self.field_if_there(&command.head, value);
        }
    }

    fn look_for(&mut self, way: &ReadPath, at: Range<usize>, sure: bool) {
        let place = self.at(at);
        let source = &self.tree.source;
        self.flow.look(&place, || {
            TrialCheck::Named(LookedUpField { side: way.side, names: way.names.clone(), sure, source: source.clone() })
        });
    }
}
