//! Analysis of pipelines, calls and operands.

use std::ops::Range;

use anabranch_record::code::Code;
use anabranch_record::phrase::counted;
use anabranch_record::reference::Side;
use anabranch_record::text::Str;
use anabranch_template::functions::{Function, Param};
use anabranch_template::slips;
use anabranch_template::tree::{Command, Literal, Operand, Pipeline, Term};

use super::call::Call;
use super::classes::Classes;
use super::printing::GoNotation;
use super::reading::ReadPath;
use super::{Scope, Walk};
use crate::codes;
use crate::flow::{Kinds, Part, Place};

/// Known properties of a value.
#[derive(Clone, Debug)]
pub(super) enum ValueProperties {
    /// Unknown.
    Anything,
    /// The record.
    Record,
    Position,
    Operation,
    /// The name of the operation.
    OperationName,
    Metadata,
    Payload,
    /// A metadata entry; with `index`, an absent one is empty text.
    Entry {
        key: Str,
        indexed: bool,
    },
    /// The data of a side, or a field in it.
    Way(ReadPath),
    /// The literal `nil`.
    Nil,
    Literal(Literal),
    /// A value of one of these classes.
    Of(Classes),
    /// An integer from 0 up to this one.
    UpTo(u64, Classes),
    /// The result of a function whose results are of one class.
    Made(&'static str),
    /// The text of a value in a notation that is probably not intended.
    Shown(GoNotation),
}

impl Walk<'_> {
    /// Returns the known properties of a pipeline's result after it is assigned or passed on: a null then becomes a
    /// missing value.
    pub(super) fn pipeline(&mut self, pipeline: &Pipeline, scope: &Scope) -> ValueProperties {
        let value = self.unsettled(pipeline, scope);
        self.settled(value)
    }

    /// Returns the known properties of a pipeline's result before that.
    pub(super) fn unsettled(&mut self, pipeline: &Pipeline, scope: &Scope) -> ValueProperties {
        let findings = self.flow.messages().count();
        let mut last = None;
        for (i, command) in pipeline.commands.iter().enumerate() {
            if let (Some(value), Some(piped)) = (&last, i.checked_sub(1).and_then(|i| pipeline.commands.get(i))) {
                self.piped_if_there(piped, value, command);
            }
            let before = last.take().map(|value| self.settled(value));
            last = Some(self.command(command, before, scope));
        }
        self.constant_calls(pipeline, findings, scope.certain);
        let value = last.unwrap_or(ValueProperties::Anything);
        if let Some(slot) = pipeline.variable {
            let kept = self.settled(value.clone());
            if let Some(known) = self.slots.get_mut(slot) {
                *known = kept;
            }
        }
        value
    }

    /// Marks a value that may be null as settled. Reading a field of null fails, but reading a field of a missing value
    /// returns a missing value, so the fields of a settled value are unknown.
    fn settled(&self, value: ValueProperties) -> ValueProperties {
        match value {
            ValueProperties::Way(way)
                if self.classes_of_way(&way).is_none_or(|classes| classes.overlaps(Classes::NIL)) =>
            {
                ValueProperties::Way(ReadPath { settled: true, ..way })
            }
            value => value,
        }
    }

    fn command(&mut self, command: &Command, last: Option<ValueProperties>, scope: &Scope) -> ValueProperties {
        let Command { head, args } = command;
        if let Term::Function(function) = &head.term {
            return self.call(function, head, args, last, scope);
        }
        if args.is_empty() && last.is_none() {
            return self.operand(head, scope);
        }
        let plain = self.operand(head, scope);
        self.used_with_arguments(head, &plain, scope.certain);
        let always = match (&head.term, &plain) {
            (Term::Dot | Term::Nil | Term::Literal(_) | Term::Pipeline(_), _) => true,
            (Term::Variable { fields, .. }, _) if fields.names.is_empty() => true,
            (
                _,
                ValueProperties::Position
                | ValueProperties::Operation
                | ValueProperties::Metadata
                | ValueProperties::Payload,
            ) => true,
            // For nested fields, a missing parent does not fail.
            (_, ValueProperties::Way(way)) => way.names.len() == 1,
            _ => false,
        };
        let end = args.last().map_or(&head.at, |arg| &arg.at).end as usize;
        let whole = head.at.start as usize..end;
        // An infix operator such as `.a eq 1`. Its arguments are not analysed, because they are in another order.
        let meant = slips::command(self.text(&whole)).filter(|_| always);
        if meant.is_none() {
            args.iter().for_each(|arg| drop(self.operand(arg, scope)));
        }
        if always {
            let text = self.text(&bytes(head));
            let hint = match (args.is_empty(), &meant) {
                (true, _) => "pass the value to a function".to_owned(),
                (false, Some(meant)) => format!("write {meant}"),
                (false, None) => format!("to compare, write a function first: `eq {}`", self.text(&whole)),
            };
            let message = format!("every record fails here: {text} is not a function, so it accepts no arguments");
            self.fails(codes::FLOW_WRONG_ARGUMENT, whole.clone(), message, hint, scope.certain);
            if let Some(meant) = meant {
                self.correct(whole, meant);
            }
        }
        ValueProperties::Anything
    }

    pub(super) fn operand(&mut self, operand: &Operand, scope: &Scope) -> ValueProperties {
        match &operand.term {
            Term::Dot => scope.dot.clone(),
            Term::Nil => ValueProperties::Nil,
            Term::Literal(literal) => ValueProperties::Literal(literal.clone()),
            Term::Field(fields) if scope.is_inside() && self.of_record(&fields.names, operand) => {
                ValueProperties::Anything
            }
            Term::Field(fields) => self.extend(scope.dot.clone(), &fields.names, operand, scope.certain),
            Term::Variable { slot, fields } => {
                let base = self.slots.get(*slot).cloned().unwrap_or(ValueProperties::Anything);
                self.extend(base, &fields.names, operand, scope.certain)
            }
            Term::Function(function) => self.call(function, operand, &[], None, scope),
            Term::Pipeline(pipeline) => self.pipeline(pipeline, scope),
            Term::Chain { base, fields } => {
                let base = self.operand(base, scope);
                self.extend(base, &fields.names, operand, scope.certain)
            }
        }
    }

    fn call(
        &mut self,
        function: &'static Function,
        head: &Operand,
        args: &[Operand],
        last: Option<ValueProperties>,
        scope: &Scope,
    ) -> ValueProperties {
        let findings = self.flow.messages().count();
        let count = args.len() + usize::from(last.is_some());
        let wanted = function.params.len();
        let end = args.last().map_or(&head.at, |arg| &arg.at).end as usize;
        let at = head.at.start as usize..end;
        let least = match function.name {
            // `eq` has no result for a single value.
            "eq" => 2,
            // Keys, a default and the map.
            "dig" => 3,
            _ => wanted,
        };
        if count < least || (function.rest.is_none() && count > wanted) {
            args.iter().for_each(|arg| drop(self.operand(arg, scope)));
            let takes = match (function.rest, least) {
                (Some(_), n) => format!("at least {}", counted(n, "argument")),
                (None, n) => counted(n, "argument"),
            };
            let message = format!("every record fails here: {} accepts {takes}, not {count}", function.name);
            let inner = self.action(at.start);
            let meant = slips::compiled(self.text(&inner));
            let hint = match function.name {
                _ if meant.is_some() => format!("write {}", meant.unwrap_or_default()),
                "ne" if args.len() > 2 => {
                    let [first, others @ ..] = args else { return ValueProperties::Anything };
                    let first = self.text(&bytes(first));
                    let each = others.iter().map(|other| format!("(ne {first} {})", self.text(&bytes(other))));
                    format!("write and {}", each.collect::<Vec<_>>().join(" "))
                }
                "eq" | "ne" | "lt" | "le" | "gt" | "ge" => {
                    format!("write, for example, `{} .Payload.After.price 10`", function.name)
                }
                _ => {
                    "write the arguments after its name, and put each argument that is a call in parentheses".to_owned()
                }
            };
            self.fails(codes::FLOW_WRONG_ARGUMENT, at, message, hint, scope.certain);
            return ValueProperties::Anything;
        }
        match function.name {
            "index" => return self.index(head, args, last.is_some(), scope),
            "and" | "or" => return self.logic(function.name == "or", args, last, scope),
            _ => {}
        }
        let param = |i: usize| function.params.get(i).copied().or(function.rest).unwrap_or(Param::Any);
        let mut values = Vec::with_capacity(count);
        for (i, arg) in args.iter().enumerate() {
            let value = self.operand(arg, scope);
            self.fits(function, param(i), &value, Some(arg), &at, scope);
            values.push(value);
        }
        if let Some(last) = last {
            self.fits(function, param(args.len()), &last, None, &at, scope);
            values.push(last);
        }
        if let ("dig", Some(ValueProperties::Metadata)) = (function.name, values.last()) {
            let place = args.last().filter(|_| args.len() == values.len()).map_or_else(|| at.clone(), bytes);
            self.no_map(function.name, place, &at, scope);
        }
        let call = Call { name: function.name, args, values: &values, at: &at, certain: scope.certain };
        if matches!(function.name, "eq" | "ne" | "lt" | "le" | "gt" | "ge") {
            self.comparison(&call);
            self.used_in_comparison(&call);
            self.durations_as_texts(&call);
        }
        self.piped_order(&call);
        if !self.reversed(&call) {
            self.suspect(&call);
            self.never(&call);
            self.constants(&call);
            self.counted_as_zero(&call);
            self.raw_as_json(&call);
            self.first_of_text(&call);
            self.no_regex(&call);
            self.unaccepted(&call);
        }
        self.in_quotes(&call);
        self.keys(&call);
        self.failing_constant(function, args, values.len(), findings, scope.certain);
        self.may_be_missing(function, args, &values);
        match (function.name, &values[..]) {
            ("ternary", [yes, no, _]) => match (self.classes(yes), self.classes(no)) {
                (Some(yes), Some(no)) => ValueProperties::Of(yes | no),
                _ => ValueProperties::Anything,
            },
            _ => match self.shown(&call) {
                Some(shown) => ValueProperties::Shown(shown),
                None => self.result_of(function.name, &values),
            },
        }
    }

    /// Returns the text between the braces around a place, without a leading keyword.
    fn action(&self, at: usize) -> Range<usize> {
        let source = self.tree.source.clone();
        let start = source[..at].rfind("{{").map_or(0, |start| start + 2);
        let end = source[start..].find("}}").map_or(source.len(), |end| start + end);
        let mut inner = source[start..end].trim_start_matches('-').trim_start();
        for keyword in ["else if ", "if ", "with "] {
            if let Some(rest) = inner.strip_prefix(keyword) {
                inner = rest;
                break;
            }
        }
        let start = end - inner.len();
        let inner = inner.strip_suffix('-').unwrap_or(inner).trim_end();
        start..start + inner.len()
    }

    /// Analyses `and` and `or`, whose result is the first argument that decides, otherwise the last.
    fn logic(&mut self, or: bool, args: &[Operand], last: Option<ValueProperties>, scope: &Scope) -> ValueProperties {
        let mut scope = scope.clone();
        let mut may_be = Classes::NONE;
        let mut values: Vec<ValueProperties> = Vec::new();
        for arg in args {
            let branching = self.branching;
            self.branching |= or;
            let value = self.operand(arg, &scope);
            self.branching = branching;
            self.field_if_there(arg, &value);
            // In a condition, a text is reported for the whole expression.
            if self.place.part != Part::Condition {
                let (args, values) = (std::slice::from_ref(arg), std::slice::from_ref(&value));
                let name = if or { "or" } else { "and" };
                self.in_quotes(&Call { name, args, values, at: &bytes(arg), certain: scope.certain });
            }
            let decides = self.truth(&value).map(|truth| truth == or);
            if decides != Some(false) {
                may_be = may_be | self.classes(&value).unwrap_or(Classes::ALL);
            }
            values.push(value);
            match decides {
                // The other arguments are not evaluated.
                Some(true) => return ValueProperties::Of(may_be),
                Some(false) => {}
                None => scope.certain = false,
            }
        }
        if !or && !self.native {
            self.bounds(args);
        }
        if !self.native {
            self.opposites(or, args);
        }
        let last = last.or_else(|| values.pop());
        ValueProperties::Of(may_be | last.and_then(|value| self.classes(&value)).unwrap_or(Classes::ALL))
    }

    /// Analyses `index .Payload.After "x"`.
    fn index(&mut self, head: &Operand, args: &[Operand], piped: bool, scope: &Scope) -> ValueProperties {
        let [item, keys @ ..] = args else { return ValueProperties::Anything };
        let findings = self.flow.messages().count();
        let negative = keys.iter().find(|key| {
            matches!(&key.term, Term::Literal(Literal::Number(number)) if number.int.is_some_and(|index| index < 0))
        });
        let mut known = self.operand(item, scope);
        let mut end = item.at.end as usize;
        let mut keys = keys.iter().peekable();
        while let Some(key) = keys.next_if(|key| matches!(&key.term, Term::Literal(Literal::Text(_)))) {
            let Term::Literal(Literal::Text(text)) = &key.term else { break };
            end = key.at.end as usize;
            known = self.indexed(known, text);
        }
        if let Some(number) = keys.peek().filter(|key| matches!(&key.term, Term::Literal(Literal::Number(_)))) {
            self.numbered(item, number, &known, scope.certain);
            self.no_elements(&known, bytes(item), scope.certain);
            let listed = Kinds::LIST | Kinds::TEXT | Kinds::BYTES;
            self.used(codes::FLOW_WRONG_ARGUMENT, &known, listed, bytes(item), scope.certain);
            let at = item.at.start as usize..end;
            let written = match end == item.at.end as usize {
                true => self.text(&at).to_owned(),
                false => format!("(index {})", self.text(&at)),
            };
            self.element_of_text("index", &known, at, &written);
        }
        let more = keys.map(|key| self.operand(key, scope)).count() > 0 || piped;
        let known = self.judged(known, head.at.start as usize..end, scope.certain);
        if let Some(negative) = negative.filter(|_| self.flow.messages().count() == findings) {
            let message = "every record fails here: an index below 0 does not count from the end".to_owned();
            let hint = format!("for the last element, write (last {})", self.text(&bytes(item)));
            self.fails(codes::FLOW_WRONG_ARGUMENT, bytes(negative), message, hint, scope.certain);
        }
        if more { ValueProperties::Anything } else { known }
    }

    /// Reports a numeric index into a map: the keys of maps, and of the result of `split`, are names.
    fn numbered(&mut self, item: &Operand, number: &Operand, known: &ValueProperties, certain: bool) {
        let source = self.text(&bytes(item)).to_owned();
        let inner = source.trim_start_matches('(').trim_start();
        let is_split = ["split ", "splitn "].iter().any(|name| inner.starts_with(name)) && !inner.contains('|');
        let is_map = is_split || self.classes(known) == Some(Classes::MAP);
        if !is_map {
            return;
        }
        let message = "every record fails here: the keys of a map are texts, not numbers".to_owned();
        let key = self.text(&bytes(number));
        let hint = match is_split {
            true if inner.starts_with("split ") => {
                format!("split returns a map with the keys \"_0\", \"_1\": write (splitList{}", &inner["split".len()..])
            }
            _ => format!("write the key as a text: \"{key}\" or \"_{key}\""),
        };
        self.fails(codes::FLOW_WRONG_ARGUMENT, bytes(number), message, hint, certain);
    }

    /// Returns the truth of a value for `if`, if it is certain.
    pub(super) fn truth(&self, value: &ValueProperties) -> Option<bool> {
        match value {
            ValueProperties::Literal(Literal::Bool(truth)) => Some(*truth),
            ValueProperties::Literal(Literal::Number(number)) => Some(number.float != 0.0),
            ValueProperties::Literal(Literal::Text(text)) => Some(!text.is_empty()),
            value => {
                let classes = self.classes(value)?;
                let certain = Classes::OPERATION | Classes::STRUCT | Classes::TIME;
                match classes {
                    Classes::NONE => None,
                    Classes::NIL => Some(false),
                    classes => classes.within(certain).then_some(true),
                }
            }
        }
    }

    /// Returns the possible classes of a value; `None` if they are unknown.
    pub(super) fn classes(&self, value: &ValueProperties) -> Option<Classes> {
        Some(match value {
            ValueProperties::Anything => return None,
            ValueProperties::Record | ValueProperties::Payload => Classes::STRUCT,
            ValueProperties::Position => Classes::POSITION,
            ValueProperties::Operation => Classes::OPERATION,
            ValueProperties::OperationName => Classes::TEXT,
            ValueProperties::Metadata => Classes::MAP,
            ValueProperties::Entry { key, indexed } => match (indexed, self.flow.record.metadata.has(key)) {
                (true, _) | (_, true) => Classes::TEXT,
                _ if !self.flow.record.metadata.may_have(key) => Classes::NIL,
                _ => Classes::TEXT | Classes::NIL,
            },
            ValueProperties::Way(way) => return self.classes_of_way(way),
            ValueProperties::Nil => Classes::NIL,
            ValueProperties::Literal(literal) => match literal {
                Literal::Bool(_) => Classes::BOOL,
                Literal::Text(_) | Literal::Bytes(_) => Classes::TEXT,
                Literal::Number(number) if number.int.is_some() && !number.is_float => Classes::INT,
                Literal::Number(_) => Classes::FLOAT,
            },
            ValueProperties::Of(classes) | ValueProperties::UpTo(_, classes) => *classes,
            ValueProperties::Shown(_) => Classes::TEXT,
            ValueProperties::Made(function) => return super::results::classes(function),
        })
    }

    fn classes_of_way(&self, way: &ReadPath) -> Option<Classes> {
        if way.names.is_empty() {
            let shape = self.flow.record.side(way.side);
            let of = |may, class| if may { class } else { Classes::NONE };
            return Some(
                of(shape.absent, Classes::NIL)
                    | of(shape.raw, Classes::RAW)
                    | of(shape.structured.is_some(), Classes::MAP),
            );
        }
        let outcome = way.walk(&self.flow.record);
        match outcome.ty.kinds {
            // The value is unknown, or the result of a method.
            Kinds::ANY | Kinds::JSON => None,
            kinds => Some(Classes::of_field(kinds, outcome.missing)),
        }
    }

    /// Returns `true` if the value is a field of JSON data, which has no times.
    pub(super) fn is_of_json(&self, value: &ValueProperties) -> bool {
        match value {
            ValueProperties::Way(way) if !way.names.is_empty() => way.walk(&self.flow.record).ty.kinds == Kinds::JSON,
            _ => false,
        }
    }

    /// Returns the text of the template at a place.
    pub(super) fn text(&self, at: &Range<usize>) -> &str {
        self.tree.source.get(at.clone()).unwrap_or_default()
    }

    pub(super) fn at(&self, range: Range<usize>) -> Place {
        self.place.at(range)
    }

    /// Adds a correction to the last finding.
    pub(super) fn correct(&mut self, at: Range<usize>, becomes: String) {
        let place = self.at(at);
        self.flow.correct(place, becomes);
    }

    /// Reports that every record that reaches the place fails: an error if all records reach it.
    pub(super) fn fails(&mut self, code: Code, at: Range<usize>, message: String, hint: String, certain: bool) {
        let place = self.at(at);
        let message = match self.looping && !certain {
            true => message.replacen("every record fails here", "every record that has an element fails here", 1),
            false => message,
        };
        match certain {
            true => self.flow.fail(code, place, message, None, Some(hint)),
            false => self.flow.warn(code, place, message, None, Some(hint)),
        }
    }
}

/// Returns the place of an operand.
pub(super) fn bytes(operand: &Operand) -> Range<usize> {
    operand.at.start as usize..operand.at.end as usize
}

impl ReadPath {
    /// Creates the path to the data of a side.
    pub(super) fn of(side: Side) -> ReadPath {
        ReadPath { side, names: Vec::new(), accesses: Vec::new(), settled: false }
    }
}
