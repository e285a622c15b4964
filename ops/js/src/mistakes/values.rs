//! Values of fields that a script uses as another type.

use anabranch_plugin::flow::{Kinds, Type};
use anabranch_record::near::did_you_mean;
use anabranch_record::reference::Side;

use super::Said;
use super::fields::named;
use crate::acts::Act;
use crate::codes;
use crate::properties::{OF_ARRAYS, OF_NUMBERS, OF_OBJECTS, OF_STRINGS};

/// Methods of every function.
const OF_FUNCTIONS: [&str; 3] = ["apply", "bind", "call"];
/// Properties commonly written for the number of elements.
const COUNTS: [&str; 5] = ["length", "len", "size", "count", "Length"];

impl Said<'_> {
    /// Returns the type of a field that every record has.
    fn value(&self, act: &Act, side: Side) -> Option<Type> {
        let shape = self.flow.record.side(side);
        let fields = shape.structured.as_ref().filter(|_| !shape.raw && !shape.absent)?;
        fields.get(&act.name).filter(|field| !field.optional).map(|field| field.ty)
    }

    /// Checks a field that is used as text.
    pub(super) fn printed(&mut self, act: &Act, side: Side) {
        if self.value(act, side).is_some_and(|value| value.kinds == Kinds::MAP) {
            let name = named(side.as_str(), &act.name);
            let message = format!("this is \"[object Object]\": {name} is a map, not text");
            let hint = format!("use one of its fields, or convert all of it to JSON: JSON.stringify(rec{name})");
            self.finding(act, false, &message, hint);
        }
    }

    /// Checks data, or a field, that is used as a property name.
    pub(super) fn as_name(&mut self, act: &Act, side: Side) {
        let shape = self.flow.record.side(side);
        let (is_map, name) = match act.name.is_empty() {
            true => (shape.structured.is_some() && !shape.raw && !shape.absent, side.as_str().to_owned()),
            false => {
                let is_map = self.value(act, side).is_some_and(|value| value.kinds == Kinds::MAP);
                (is_map, named(side.as_str(), &act.name))
            }
        };
        if is_map {
            let message = format!("this is the name \"[object Object]\" for every record: {name} is a map, not text");
            let hint =
                format!("use a field that identifies it, or convert all of it to JSON: JSON.stringify(rec{name})");
            self.finding(act, false, &message, hint);
        }
    }

    /// Checks `"word" in list`.
    pub(super) fn has(&mut self, act: &Act, side: Side) {
        if self.value(act, side).is_some_and(|value| value.kinds == Kinds::LIST) {
            let name = named(side.as_str(), &act.name);
            let message = format!("this is always false: {name} is a list, and `in` searches its indices");
            self.finding(act, false, &message, format!("write rec{name}.includes(…)"));
        }
    }

    /// Checks a field of a field's value.
    pub(super) fn inside(&mut self, act: &Act, side: Side, inner: &str) {
        // A script may add methods to all texts and lists.
        if !act.certain || OF_OBJECTS.contains(&inner) || self.program.text.contains("prototype") {
            return;
        }
        let Some(value) = self.value(act, side) else { return };
        let name = named(side.as_str(), &act.name);
        let (what, known): (_, &[&str]) = match value.kinds {
            Kinds::LIST => ("a list", &OF_ARRAYS),
            Kinds::TEXT => ("a text", &OF_STRINGS),
            Kinds::MAP => return self.inside_map(act, &name, inner, &value),
            _ => return,
        };
        if known.contains(&inner) || inner == "trimRight" {
            return;
        }
        let message = format!("this is undefined: {name} is {what}, which has no field {inner:?}");
        let hint = match did_you_mean(inner, known.iter().copied()) {
            _ if COUNTS.contains(&inner) => "write length".to_owned(),
            Some(near) => format!("did you mean {near}?"),
            None if value.kinds == Kinds::LIST => {
                format!("read it from each element: rec{name}.map(element => element.{inner})")
            }
            None => "use a field of the data, not of the text".to_owned(),
        };
        self.finding(act, false, &message, hint);
    }

    /// Checks the call of a method of a field's value, which no value of JSON has.
    pub(super) fn method_of_json(&mut self, act: &Act, side: Side, method: &str) {
        let shape = self.flow.record.side(side);
        // Raw data have bytes in `buffer`, and methods, which have methods of their own.
        let is_of_bytes = shape.raw && (act.name == "buffer" || OF_FUNCTIONS.contains(&method));
        // Absent data have no fields to call methods of either.
        let fields = shape.structured.as_ref().filter(|_| !is_of_bytes);
        let is_json =
            fields.and_then(|fields| fields.get(&act.name)).is_some_and(|field| field.ty.kinds == Type::json().kinds);
        if !act.certain || !is_json || self.program.text.contains("prototype") {
            return;
        }
        let name = named(side.as_str(), &act.name);
        let message = format!("the script fails here: {name} is a value of JSON, which has no method {method}");
        let known = [&OF_ARRAYS[..], &OF_STRINGS, &OF_NUMBERS].concat();
        let hint = match did_you_mean(method, known) {
            Some(near) => format!("did you mean {near}?"),
            None if method.starts_with("get") || method.ends_with("String") => {
                format!("JSON has no times: convert the text first, as in new Date(rec{name}).{method}()")
            }
            None => "use a method of texts, numbers or lists".to_owned(),
        };
        self.finding(act, true, &message, hint);
    }

    fn inside_map(&mut self, act: &Act, name: &str, inner: &str, value: &Type) {
        if value.fields.is_open() || value.fields.get(inner).is_some() {
            return;
        }
        let message = format!("this is undefined: {name} has no {inner:?}");
        if COUNTS.contains(&inner) {
            let hint = format!("the number of its fields is Object.keys(rec{name}).length");
            return self.finding(act, false, &message, hint);
        }
        let names: Vec<&str> = value.fields.iter().map(|(name, _)| name.as_str()).collect();
        let near = did_you_mean(inner, names.iter().copied());
        let hint = near.map(|near| format!("did you mean {}?", named(&format!("rec{name}"), near)));
        let place = self.place(act.start, act.end);
        let message = format!("{}:{}: {message}", self.program.name, act.start);
        self.flow.warn(codes::FLOW_NO_FIELD, place, message, None, hint);
    }
}
