//! The kinds that fields of the record have wherever an action of a template does not fail.

use std::ops::Range;

use anabranch_record::code::Code;
use anabranch_record::reference::push_part;
use anabranch_template::functions::Param;
use anabranch_template::tree::Operand;

use super::Walk;
use super::call::Call;
use super::classes::Classes;
use super::expression::{ValueProperties, bytes};
use super::reading::ReadPath;
use crate::codes;
use crate::flow::Kinds;
use crate::flow::walk::Access;

/// Methods of times that take arguments.
const METHODS: [&str; 5] = ["Format", "Sub", "Before", "After", "Equal"];

impl Walk<'_> {
    /// Declares that a value is of one of these kinds in every record that passes.
    pub(super) fn used(&mut self, code: Code, value: &ValueProperties, kinds: Kinds, at: Range<usize>, certain: bool) {
        if let (true, ValueProperties::Way(way)) = (certain, value) {
            let place = self.at(at);
            self.flow.use_as(code, &place, way.side, &way.names, kinds);
        }
    }

    /// Declares that the value of a path is reached: each part of it before the last has fields.
    pub(super) fn used_way(&mut self, way: &ReadPath, at: &Range<usize>, certain: bool) {
        for (depth, access) in way.accesses.iter().enumerate().skip(1) {
            let kinds = match access {
                // A time has methods.
                Access::Chain | Access::Strict => Kinds::MAP | Kinds::TIME | Kinds::NULL,
                Access::Reference => Kinds::MAP | Kinds::NULL,
                Access::Index => Kinds::MAP,
            };
            let part = ReadPath { names: way.names[..depth].to_vec(), ..way.clone() };
            self.used(codes::FLOW_NOT_A_MAP, &ValueProperties::Way(part), kinds, at.clone(), certain);
        }
    }

    /// Declares that a nested name with arguments is a method, which only times have: `.at.Format "2006"`.
    pub(super) fn used_with_arguments(&mut self, head: &Operand, value: &ValueProperties, certain: bool) {
        let ValueProperties::Way(way) = value else { return };
        let Some((method, parent @ [.., _])) = way.names.split_last() else { return };
        let part = ValueProperties::Way(ReadPath { names: parent.to_vec(), ..way.clone() });
        if METHODS.contains(&method.as_str()) && self.is_of_json(&part) {
            let mut path = way.side.as_str().to_owned();
            parent.iter().for_each(|name| push_part(name, &mut path));
            let message = format!(
                "every record that has {path} fails here: JSON has no times, and only a time has the method {method}"
            );
            let hint =
                format!("write (toDate \"2006-01-02T15:04:05Z07:00\" {path}).{method}, with the layout of the text");
            let place = self.at(bytes(head));
            return self.flow.warn(codes::FLOW_WRONG_ARGUMENT, place, message, None, Some(hint));
        }
        self.used(codes::FLOW_WRONG_ARGUMENT, &part, Kinds::TIME | Kinds::NULL, bytes(head), certain);
    }

    /// Declares that an argument is of the type of its parameter.
    pub(super) fn used_as_parameter(&mut self, param: Param, value: &ValueProperties, at: Range<usize>, certain: bool) {
        let kinds = match param {
            // No field has the type of an integer parameter; that is reported where the type is known.
            Param::Any | Param::Reflect | Param::Int => return,
            Param::Text => Kinds::TEXT,
            Param::Bool => Kinds::BOOL,
            Param::Float => Kinds::FLOAT | Kinds::INT,
            Param::Map => Kinds::MAP | Kinds::NULL,
            Param::Time => Kinds::TIME,
        };
        self.used(codes::FLOW_WRONG_ARGUMENT, value, kinds, at, certain);
    }

    /// Declares that an argument is of none of these classes.
    pub(super) fn used_as_other(&mut self, refused: Classes, value: &ValueProperties, at: Range<usize>, certain: bool) {
        if !refused.is_empty() {
            self.used(codes::FLOW_WRONG_ARGUMENT, value, kinds(|class| !class.overlaps(refused)), at, certain);
        }
    }

    /// Declares that the first two operands of a comparison can be compared.
    pub(super) fn used_in_comparison(&mut self, call: &Call<'_>) {
        let Call { name, values, certain, .. } = *call;
        // The first equal operand of `eq` ends the comparison.
        let [first, other, ..] = values else { return };
        for (i, value, against) in [(0, first, other), (1, other, first)] {
            let theirs = self.classes(against).filter(|classes| !classes.is_empty()).unwrap_or(Classes::ALL);
            let fits = |class: Classes| match name {
                "eq" | "ne" => class.may_equal(theirs),
                _ => class.may_order(theirs),
            };
            let place = call.place(i);
            self.used(codes::FLOW_NEVER_COMPARABLE, value, kinds(fits), place, certain);
        }
    }
}

/// Returns the kinds of fields whose class fits.
fn kinds(fits: impl Fn(Classes) -> bool) -> Kinds {
    let fitting = Kinds::ANY.each().filter(|kind| fits(Classes::of_field(*kind, false)));
    fitting.fold(Kinds::NONE, |all, kind| all | kind)
}

#[cfg(test)]
mod tests {
    use anabranch_record::value::{Object, Timestamp, Value};
    use anabranch_record::{Data, Position, Record};
    use anabranch_template::reference::FUNCTIONS;
    use anabranch_template::{MissingKey, Template, functions};

    use super::*;
    use crate::flow::{Flow, RecordShape};

    /// Values of each kind, and a missing one.
    fn values() -> Vec<(Kinds, Option<Value>)> {
        let map: Object = [("a", Value::from(1i64)), ("_0", Value::from("x"))].into_iter().collect();
        let list = |value: Value| Value::from(vec![value]);
        let values = [
            Value::Null,
            Value::from(true),
            Value::from(0i64),
            Value::from(1i64),
            Value::from(1.5),
            Value::from(""),
            Value::from("a"),
            Value::from("1"),
            Value::Bytes(b"a".as_slice().into()),
            Value::Time(Timestamp::from_timestamp_nanos(1)),
            Value::from(Vec::new()),
            list(Value::from("a")),
            list(Value::from(map.clone())),
            Value::from(Object::new()),
            Value::from(map),
        ];
        let known = values.into_iter().map(|value| (Kinds::of(&value), Some(value)));
        known.chain([(Kinds::NULL, None)]).collect()
    }

    fn calls() -> Vec<String> {
        let of_type = |param: Param| match param {
            Param::Any | Param::Reflect | Param::Int => "1",
            Param::Text => "\"a\"",
            Param::Bool => "true",
            Param::Float => "1.5",
            Param::Map => "(dict \"a\" 1)",
            Param::Time => "now",
        };
        let mut calls = Vec::new();
        for name in FUNCTIONS.iter().flat_map(|group| group.entries).flat_map(|entry| entry.names) {
            let function = functions::find(name).unwrap();
            let params: Vec<Param> = function.params.iter().copied().chain(function.rest).collect();
            for at in 0..params.len() {
                let arg = |(i, param): (usize, &Param)| if i == at { ".Payload.After.v" } else { of_type(*param) };
                let args: Vec<&str> = params.iter().enumerate().map(arg).collect();
                calls.push(format!("{{{{ {name} {} }}}}", args.join(" ")));
                if let Some((&".Payload.After.v", before)) = args.split_last() {
                    calls.push(format!("{{{{ .Payload.After.v | {name} {} }}}}", before.join(" ")));
                }
            }
        }
        for comparison in ["eq", "ne", "lt", "le", "gt", "ge"] {
            for other in ["1", "1.5", "\"a\"", "true", "now", "nil", "(list 1)", "(dict)", "(len \"a\")", "(add 1 2)"] {
                calls.push(format!("{{{{ {comparison} .Payload.After.v {other} }}}}"));
                calls.push(format!("{{{{ {comparison} {other} .Payload.After.v }}}}"));
            }
        }
        calls.push("{{ eq .Payload.After.v 1 \"a\" }}".to_owned());
        for action in [
            "{{ .Payload.After.v.a }}",
            "{{ .Payload.After.v.a.b }}",
            "{{ .Payload.After.v.Year }}",
            "{{ .Payload.After.v.Format \"2006\" }}",
            "{{ index .Payload.After.v 0 }}",
            "{{ index .Payload.After.v \"a\" }}",
            "{{ index .Payload.After \"v\" \"a\" }}",
            "{{ index .Payload.After \"v\" 0 }}",
            "{{ range .Payload.After.v }}x{{ end }}",
            "{{ range $i, $v := .Payload.After.v }}x{{ end }}",
            "{{ with .Payload.After.v }}{{ upper . }}{{ end }}",
            "{{ if .Payload.After.v }}{{ upper .Payload.After.v }}{{ end }}",
            "{{ $v := .Payload.After.v }}{{ upper $v }}",
            "{{ $v := .Payload.After.v }}{{ $v.a }}",
            "{{ .Payload.After.v | default \"a\" | upper }}",
            "{{ and .Payload.After.v (upper .Payload.After.v) }}",
            "{{ or (kindIs \"map\" .Payload.After.v) (lt .Payload.After.v 2.0) }}",
        ] {
            calls.push(action.to_owned());
        }
        calls
    }

    #[test]
    fn records_with_another_kind_than_the_used_ones_fail() {
        let (mut restricting, mut excluded) = (0, 0);
        for text in calls() {
            let Ok(template) = Template::parse(&text, MissingKey::NoValue) else { continue };
            let mut flow = Flow::new(RecordShape::unknown());
            flow.template("value", &template);
            let kinds = flow.record.uses.kinds(&["Payload", "After", "v"]);
            restricting += usize::from(kinds != Kinds::ANY);
            for (kind, value) in values() {
                if kind.within(kinds) {
                    continue;
                }
                excluded += 1;
                let fields: Object = value.clone().map(|value| ("v", value)).into_iter().collect();
                let record = Record::create(Position::default(), Data::Absent, fields.into());
                let rendered = template.render(&record, &mut String::new());
                assert!(rendered.is_err(), "{text} accepts {value:?}, not only {kinds:?}");
            }
        }
        assert!(restricting > 150 && excluded > 1500, "{restricting} {excluded}");
    }
}
