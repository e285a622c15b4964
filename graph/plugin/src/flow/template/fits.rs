//! Checks of arguments against the parameters of functions.

use std::ops::Range;

use anabranch_template::functions::{Function, Param};
use anabranch_template::slips;
use anabranch_template::tree::{Literal, Operand, Term};

use super::classes::Classes;
use super::expression::{ValueProperties, bytes};
use super::{Scope, Walk};
use crate::codes;

impl Walk<'_> {
    /// Checks whether an argument can have the type of a parameter.
    pub(super) fn fits(
        &mut self,
        function: &Function,
        param: Param,
        value: &ValueProperties,
        arg: Option<&Operand>,
        at: &Range<usize>,
        scope: &Scope,
    ) {
        let (takes, what) = match param {
            Param::Any | Param::Reflect => return,
            Param::Text => (Classes::TEXT, "text"),
            Param::Bool => (Classes::BOOL, "true or false"),
            Param::Int => (Classes::INT, "a whole number"),
            Param::Float => (Classes::FLOAT | Classes::LONG, "a number"),
            Param::Map => (Classes::MAP | Classes::NIL, "a map"),
            Param::Time => (Classes::TIME, "a time"),
        };
        if let (Param::Map, ValueProperties::Metadata) = (param, value) {
            let place = arg.map_or_else(|| at.clone(), bytes);
            return self.no_map(function.name, place, at, scope);
        }
        let place = arg.map_or_else(|| at.clone(), bytes);
        let Some(classes) = self.classes(value) else {
            return self.used_as_parameter(param, value, place, scope.certain);
        };
        // A literal number has the requested type, if that is possible.
        let literal = match (param, value) {
            (Param::Float, ValueProperties::Literal(Literal::Number(_))) => true,
            (Param::Int, ValueProperties::Literal(Literal::Number(number))) => number.int.is_some(),
            _ => false,
        };
        if classes.is_empty() || literal || classes.overlaps(takes | Classes::OTHER) {
            return self.used_as_parameter(param, value, place, scope.certain);
        }
        let shown = arg.map(|arg| self.text(&bytes(arg)).to_owned());
        let plain = arg.is_some_and(|arg| matches!(arg.term, Term::Field(_) | Term::Variable { .. }));
        let convert = |how: &str| match &shown {
            Some(shown) if plain => (format!("write ({how} {shown})"), Some(format!("({how} {shown})"))),
            _ => (format!("convert it with `{how}`"), None),
        };
        let (hint, becomes) = match param {
            _ if arg.is_some()
                && matches!(value, ValueProperties::Literal(_))
                && slips::in_order(self.text(at)).is_some() =>
            {
                let call = slips::in_order(self.text(at)).unwrap_or_default();
                (format!("{} needs its data as the last argument: write {call}", function.name), None)
            }
            Param::Text if classes.within(Classes::RAW | Classes::BYTES) => convert("printf \"%s\""),
            Param::Text if !classes.overlaps(Classes::NIL) => convert("toString"),
            Param::Int if classes.within(Classes::LONG | Classes::FLOAT) => convert("int"),
            Param::Float if classes.within(Classes::INT) => convert("float64"),
            _ => (format!("{} needs {what} here", function.name), None),
        };
        let message = format!("every record fails here: {} accepts {what}, not {}", function.name, classes.names());
        self.fails(codes::FLOW_WRONG_ARGUMENT, place.clone(), message, hint, scope.certain);
        if let Some(becomes) = becomes {
            self.correct(place, becomes);
        }
    }

    /// Reports metadata as an argument of a function that takes a map of any values.
    pub(super) fn no_map(&mut self, name: &str, place: Range<usize>, at: &Range<usize>, scope: &Scope) {
        let message = format!("every record fails here: {name} accepts a map of any values, not metadata");
        let text = self.text(at);
        let key = text.split('"').nth(1).filter(|_| text.matches('"').count() == 2);
        let meant = match (name, key) {
            ("hasKey", Some(key)) => Some(format!("ne (index .Metadata {key:?}) \"\"")),
            ("get", Some(key)) => Some(format!("index .Metadata {key:?}")),
            _ => None,
        };
        let hint = match (&meant, name) {
            (Some(meant), _) => format!("write {meant}"),
            (None, "hasKey") => "write ne (index .Metadata \"name\") \"\"".to_owned(),
            (None, _) => "write (index .Metadata \"name\"), which reads one entry".to_owned(),
        };
        self.fails(codes::FLOW_WRONG_ARGUMENT, place, message, hint, scope.certain);
        if let Some(meant) = meant {
            self.correct(at.clone(), meant);
        }
    }
}
