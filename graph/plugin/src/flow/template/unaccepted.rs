//! Calls that fail for every record: calls of constants that fail, and functions with a value of a class that they
//! do not accept.

use std::ops::Range;

use anabranch_template::functions::Function;
use anabranch_template::tree::{Command, Literal, Operand, Pipeline, Range_, Term};
use anabranch_template::{MissingKey, Template};

use super::call::Call;
use super::classes::Classes;
use super::expression::ValueProperties;
use super::{Scope, Walk};
use crate::codes;

/// Functions that take a list of any kind, each with the number of the parameter.
const OF_LISTS: [(&str, usize); 14] = [
    ("append", 0),
    ("push", 0),
    ("prepend", 0),
    ("first", 0),
    ("last", 0),
    ("rest", 0),
    ("initial", 0),
    ("reverse", 0),
    ("compact", 0),
    ("uniq", 0),
    ("without", 0),
    ("has", 1),
    ("slice", 0),
    ("chunk", 1),
];
/// Classes of values that are not lists. Bytes are: their elements are numbers.
const NO_LIST: Classes = Classes::TEXT
    .with(Classes::BOOL)
    .with(Classes::INT)
    .with(Classes::LONG)
    .with(Classes::FLOAT)
    .with(Classes::TIME)
    .with(Classes::MAP);
/// Classes of values without a length.
const NO_LENGTH: Classes =
    Classes::BOOL.with(Classes::INT).with(Classes::LONG).with(Classes::FLOAT).with(Classes::TIME);
/// Classes of values that `range` does not accept.
const NO_RANGE: Classes = Classes::TEXT.with(Classes::BOOL).with(Classes::FLOAT).with(Classes::TIME);
/// Classes of values without fields and methods.
const NO_FIELDS: Classes =
    Classes::TEXT.with(Classes::BOOL).with(Classes::INT).with(Classes::LONG).with(Classes::FLOAT).with(Classes::LIST);

/// Functions whose failure does not depend on the value of the time, only on its type.
const OF_TYPES: [&str; 7] = ["eq", "ne", "lt", "le", "gt", "ge", "len"];

/// Returns the classes that a function does not accept as an argument, though its parameter has no type.
fn refused(function: &str, parameter: usize) -> Classes {
    // Twins such as `mustFirst` behave in the same way.
    let name = function.strip_prefix("must").map_or_else(|| function.to_owned(), str::to_ascii_lowercase);
    match (name.as_str(), parameter) {
        ("len", 0) => NO_LENGTH,
        (name, parameter) if OF_LISTS.contains(&(name, parameter)) => NO_LIST,
        _ => Classes::NONE,
    }
}

impl Walk<'_> {
    /// Reports arguments of a class that the function does not accept.
    pub(super) fn unaccepted(&mut self, call: &Call<'_>) {
        let Call { name, values, certain, .. } = *call;
        for (i, value) in values.iter().enumerate() {
            let refused = refused(name, i);
            let place = call.place(i);
            self.used_as_other(refused, value, place.clone(), certain);
            let Some(classes) = self.classes(value).filter(|classes| !classes.is_empty() && classes.within(refused))
            else {
                continue;
            };
            let (takes, hint) = match name {
                "len" => ("a text, a list or a map", "compare the value itself".to_owned()),
                _ if classes.within(Classes::TEXT) => (
                    "a list",
                    match name.trim_start_matches("must").to_ascii_lowercase().as_str() {
                        "has" => "for a part of a text there is contains",
                        "first" | "initial" | "rest" | "last" | "slice" => {
                            "for a part of a text there is substr, and splitList makes a list of it"
                        }
                        "append" | "push" | "prepend" => "to join texts, write print",
                        _ => "splitList makes a list of a text",
                    }
                    .to_owned(),
                ),
                _ => ("a list", format!("give {name} a list")),
            };
            let message = format!("every record fails here: {name} takes {takes}, not {}", classes.names());
            return self.fails(codes::FLOW_WRONG_ARGUMENT, place, message, hint, certain);
        }
        if let ("chunk" | "mustChunk", Some(ValueProperties::Literal(Literal::Number(size)))) = (name, values.first())
            && size.int.is_some_and(|size| size < 1)
        {
            let place = call.place(0);
            let message = format!("every record fails here: the parts of {name} have at least 1 element");
            self.fails(codes::FLOW_WRONG_ARGUMENT, place, message, "write 1 or more".to_owned(), certain);
        }
    }

    /// Reports `index` of a value that has no elements.
    pub(super) fn no_elements(&mut self, known: &ValueProperties, at: Range<usize>, certain: bool) {
        let Some(classes) = self.classes(known).filter(|it| !it.is_empty() && it.within(NO_LENGTH)) else { return };
        let message = format!("every record fails here: index takes a list, a map or a text, not {}", classes.names());
        self.fails(codes::FLOW_WRONG_ARGUMENT, at, message, "use the value itself".to_owned(), certain);
    }

    /// Reports a loop over a value without elements.
    pub(super) fn no_loop(&mut self, range: &Range_, value: &ValueProperties, scope: &Scope) {
        let at = range.pipeline.at.start as usize..range.pipeline.at.end as usize;
        let at = at.start..at.start + self.text(&at).trim_end_matches(['-', ' ', '\n', '\t', '\r']).len();
        self.used_as_other(NO_RANGE, value, at.clone(), scope.certain);
        let Some(classes) = self.classes(value).filter(|classes| !classes.is_empty()) else { return };
        let whole = Classes::INT.with(Classes::LONG);
        let (what, hint) = if classes.within(NO_RANGE) {
            let hint = match classes.within(Classes::TEXT) {
                true => "make a list of the text, as splitList \",\" …",
                false => "give range a list, a map or a whole number",
            };
            (format!("range takes a list, a map or a whole number, not {}", classes.names()), hint)
        } else if classes.within(whole) && range.key.is_some() {
            ("range over a number has one variable, not two".to_owned(), "write range $i := …")
        } else {
            return;
        };
        let message = format!("every record fails here: {what}");
        self.fails(codes::FLOW_WRONG_ARGUMENT, at, message, hint.to_owned(), scope.certain);
    }

    /// Returns the known properties of the elements of a list that a call makes.
    pub(super) fn element(&mut self, pipeline: &Pipeline, scope: &Scope) -> ValueProperties {
        let [command] = &*pipeline.commands else { return ValueProperties::Anything };
        let Term::Function(function) = &command.head.term else { return ValueProperties::Anything };
        let classes = match function.name {
            "splitList" | "toStrings" => Some(Classes::TEXT),
            "until" | "untilStep" => Some(Classes::INT),
            "list" | "tuple" if !command.args.is_empty() => {
                let each = command.args.iter().map(|arg| match &arg.term {
                    Term::Literal(_) => {
                        let known = self.operand(arg, scope);
                        self.classes(&known)
                    }
                    _ => None,
                });
                each.collect::<Option<Vec<_>>>().map(|all| all.into_iter().fold(Classes::NONE, |a, b| a | b))
            }
            _ => None,
        };
        classes.map_or(ValueProperties::Anything, ValueProperties::Of)
    }

    /// Reports a field of a value that has none.
    pub(super) fn no_fields(&mut self, base: &ValueProperties, name: &str, at: Range<usize>, certain: bool) {
        let Some(classes) = self.classes(base).filter(|it| !it.is_empty() && it.within(NO_FIELDS)) else { return };
        let message = format!("every record fails here: {} has no field {name:?}", classes.names());
        let hint = match self.text(&at).strip_prefix('.').is_some_and(|path| path.starts_with(name)) {
            true => {
                "inside `with` and `range`, `.` is their value: write $ for the record, for example $.Payload.After.name"
            }
            false => "use the value itself",
        };
        self.fails(codes::FLOW_WRONG_ARGUMENT, at, message, hint.to_owned(), certain);
    }

    /// Reports a call of constants that fails. `known` is the number of findings before the pipeline: a failure that is
    /// already reported is not reported again.
    pub(super) fn constant_calls(&mut self, pipeline: &Pipeline, known: usize, certain: bool) {
        if self.flow.messages().count() != known {
            return;
        }
        let constant = pipeline.commands.iter().take_while(|command| is_constant_command(command)).count();
        let Some((first, last)) = pipeline.commands[..constant].first().zip(pipeline.commands[..constant].last())
        else {
            return;
        };
        let is_call = |command: &Command| match &command.head.term {
            Term::Function(_) => true,
            Term::Chain { .. } => command.args.is_empty() || constant == 1,
            _ => false,
        };
        if !pipeline.commands[..constant].iter().any(is_call) {
            return;
        }
        let range = first.head.at.start as usize..end(last);
        let text = format!("{{{{ {} }}}}", self.text(&range));
        let Ok(template) = Template::parse(&text, MissingKey::NoValue) else { return };
        let Some(Err(error)) = template.render_briefly() else { return };
        let offset = (error.offset + range.start).saturating_sub("{{ ".len());
        let failed = pipeline.commands[..constant]
            .iter()
            .find(|command| (command.head.at.start as usize..end(command)).contains(&offset));
        let place = failed.map_or(range, |command| command.head.at.start as usize..end(command));
        let message = format!("every record fails here: {}", error.message);
        let hint = "correct the value, or leave the call out".to_owned();
        self.fails(codes::FLOW_WRONG_ARGUMENT, place, message, hint, certain);
    }
}

fn end(command: &Command) -> usize {
    command.args.last().map_or(&command.head.at, |arg| &arg.at).end as usize
}

/// Returns `true` if a call fails for every record or for none.
fn is_constant_command(command: &Command) -> bool {
    match &command.head.term {
        Term::Function(function) => {
            is_settled(function) && command.args.iter().all(|arg| is_constant(arg, OF_TYPES.contains(&function.name)))
        }
        // `now.Foo`, `now.Add 5`.
        _ => is_constant(&command.head, true) && command.args.iter().all(|arg| is_constant(arg, false)),
    }
}

/// Returns `true` if the failure of a function depends only on its arguments. `fail` is used to fail.
fn is_settled(function: &Function) -> bool {
    (function.pure || matches!(function.name, "randInt")) && function.name != "fail"
}

/// Returns `true` for a value that is the same for every record; with `time`, also for a value made of the present
/// time.
pub(super) fn is_constant(operand: &Operand, time: bool) -> bool {
    match &operand.term {
        Term::Nil | Term::Literal(_) => true,
        Term::Function(function) => function.pure && function.name != "fail" || time && function.name == "now",
        Term::Chain { base, .. } => is_constant(base, time),
        Term::Pipeline(pipeline) => pipeline.variable.is_none() && pipeline.commands.iter().all(is_constant_command),
        Term::Dot | Term::Field(_) | Term::Variable { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use anabranch_record::Record;

    use super::*;

    /// A value of each class that a call can make.
    const OF_CLASSES: [(&str, Classes); 8] = [
        ("\"abc\"", Classes::TEXT),
        ("true", Classes::BOOL),
        ("(len \"abc\")", Classes::INT),
        ("(add 1 2)", Classes::LONG),
        ("(addf 1 2)", Classes::FLOAT),
        ("now", Classes::TIME),
        ("(dict \"a\" 1)", Classes::MAP),
        ("(list 1 2 3)", Classes::LIST),
    ];

    fn fails(text: &str) -> bool {
        let template = Template::parse(text, MissingKey::NoValue).unwrap();
        template.render(&Record::default(), &mut String::new()).is_err()
    }

    #[test]
    fn functions_refuse_exactly_the_classes_that_are_reported() {
        let calls = [
            ("append", "append VALUE 1"),
            ("mustAppend", "mustAppend VALUE 1"),
            ("push", "push VALUE 1"),
            ("prepend", "prepend VALUE 1"),
            ("first", "first VALUE"),
            ("mustFirst", "mustFirst VALUE"),
            ("last", "last VALUE"),
            ("rest", "rest VALUE"),
            ("initial", "initial VALUE"),
            ("reverse", "reverse VALUE"),
            ("compact", "compact VALUE"),
            ("uniq", "uniq VALUE"),
            ("without", "without VALUE 1"),
            ("has", "has 1 VALUE"),
            ("slice", "slice VALUE 0 1"),
            ("chunk", "chunk 1 VALUE"),
            ("len", "len VALUE"),
        ];
        for (function, call) in calls {
            let parameter = call.split(' ').skip(1).position(|word| word == "VALUE").unwrap();
            for (value, class) in OF_CLASSES {
                let text = format!("{{{{ {} }}}}", call.replace("VALUE", value));
                assert_eq!(fails(&text), class.within(refused(function, parameter)), "{text}");
            }
        }
        for (value, class) in OF_CLASSES {
            let text = format!("{{{{ range {value} }}}}x{{{{ end }}}}");
            assert_eq!(fails(&text), class.within(NO_RANGE), "{text}");
            // A time has methods, and a map may lack the entry.
            let text = format!("{{{{ ({value}).name }}}}");
            assert!(fails(&text) || !class.within(NO_FIELDS), "{text}");
            let text = format!("{{{{ index {value} 0 }}}}");
            assert!(fails(&text) || !class.within(NO_LENGTH), "{text}");
        }
    }
}
