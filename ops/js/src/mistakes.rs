//! What of a script can never be meant: fields that a record does not have, fields of raw data, operations that there
//! are not.

use std::ops::Range;

use anabranch_graph::diagnostic::did_you_mean;
use anabranch_graph::flow::{Flow, Place as Setting};
use anabranch_graph::record::Operation;
use anabranch_graph::reference::Side;

use crate::acts::{Act, Doing};
use crate::envelope::{PAYLOAD, RECORD};
use crate::program::Program;
use crate::spot::Place;

/// What every object has.
const OF_OBJECTS: [&str; 9] = [
    "constructor",
    "hasOwnProperty",
    "isPrototypeOf",
    "propertyIsEnumerable",
    "toLocaleString",
    "toString",
    "valueOf",
    "__proto__",
    "toJSON",
];
/// What the bytes of raw data have besides.
const OF_BYTES: [&str; 41] = [
    "BYTES_PER_ELEMENT",
    "at",
    "buffer",
    "byteLength",
    "byteOffset",
    "copyWithin",
    "entries",
    "every",
    "fill",
    "filter",
    "find",
    "findIndex",
    "findLast",
    "findLastIndex",
    "forEach",
    "fromBase64",
    "fromHex",
    "includes",
    "indexOf",
    "join",
    "keys",
    "lastIndexOf",
    "length",
    "map",
    "reduce",
    "reduceRight",
    "reverse",
    "set",
    "setFromBase64",
    "setFromHex",
    "slice",
    "some",
    "sort",
    "subarray",
    "toBase64",
    "toHex",
    "toReversed",
    "toSorted",
    "values",
    "with",
    "toLocaleString",
];

/// Says what is wrong with what a script does, where records are as the flow says.
pub(crate) fn say(acts: &[Act], program: &Program, setting: &'static str, inline: bool, flow: &mut Flow) {
    let mut said = Said { program, setting, inline, flow };
    for act in acts {
        match act.place {
            Place::Record | Place::Payload => said.part(act),
            Place::Key => said.data(act, Side::Key),
            Place::Before => said.data(act, Side::Before),
            Place::After => said.data(act, Side::After),
            Place::Metadata => {}
        }
    }
}

struct Said<'a> {
    program: &'a Program,
    setting: &'static str,
    /// Whether the script stands in the pipeline file.
    inline: bool,
    flow: &'a mut Flow,
}

impl Said<'_> {
    /// An error where every record fails or loses what the script does to it, else a warning.
    fn finding(&mut self, act: &Act, error: bool, message: &str, hint: String) {
        let bytes: Range<usize> = act.start.offset(&self.program.text)..act.end.offset(&self.program.text);
        let place = match self.inline {
            true => Setting::within(self.setting, bytes),
            false => Setting::from(self.setting),
        };
        let message = format!("{}:{}: {message}", self.program.name, act.start);
        match error && act.certain {
            true => self.flow.fail("script.mistake", place, message, None, Some(hint)),
            false => self.flow.warn("script.mistake", place, message, None, Some(hint)),
        }
    }

    /// A field of the record or its payload.
    fn part(&mut self, act: &Act) {
        let (what, fields): (_, &[&str]) =
            if act.place == Place::Record { ("a record", &RECORD) } else { ("a payload", &PAYLOAD) };
        let name = act.name.as_str();
        if fields.contains(&name) {
            if name == "Operation" {
                self.operation(act);
            }
            return;
        }
        if OF_OBJECTS.contains(&name) {
            return;
        }
        let near = fields.iter().find(|field| field.eq_ignore_ascii_case(name)).copied();
        let near = near.or_else(|| did_you_mean(name, fields.iter().copied()));
        let hint = match near {
            Some(near) => format!("write {near}"),
            None if act.place == Place::Record => {
                "a field of the data is read as rec.Payload.After.name, metadata as rec.Metadata[\"name\"]".to_owned()
            }
            None => "a field of the data is read as rec.Payload.After.name".to_owned(),
        };
        let has = format!("{what} has no {name:?}, only {}", fields.join(", "));
        match act.doing {
            Doing::Write | Doing::Assign(_) => self.finding(act, true, &format!("the script fails here: {has}"), hint),
            Doing::Below => {
                self.finding(act, true, &format!("the script fails here: {has}, and nothing has no fields"), hint);
            }
            Doing::Read | Doing::Compare(_) | Doing::Parse => {
                self.finding(act, false, &format!("this is always undefined: {has}"), hint);
            }
        }
    }

    /// A text that is no operation.
    fn operation(&mut self, act: &Act) {
        let (Doing::Assign(text) | Doing::Compare(text)) = &act.doing else { return };
        let names = Operation::ALL.map(Operation::as_str);
        if names.contains(&text.as_str()) {
            return;
        }
        let near = Operation::meant_by(text).map(Operation::as_str);
        let hint = match near.or_else(|| did_you_mean(text, names)) {
            Some(near) => format!("write {near:?}"),
            None => format!("the operations are {}", names.join(", ")),
        };
        match act.doing {
            Doing::Assign(_) => {
                self.finding(act, true, &format!("the script fails here: {text:?} is no operation"), hint);
            }
            _ => self.finding(act, false, &format!("no record has the operation {text:?}"), hint),
        }
    }

    /// A key or a side of the payload.
    fn data(&mut self, act: &Act, side: Side) {
        let shape = self.flow.record.side(side);
        let name = act.name.as_str();
        let data = side.as_str();
        if act.doing == Doing::Parse {
            return self.parse(act, side);
        }
        if act.name.is_empty() {
            if shape.is_raw() {
                let message = format!("this is always false: {data} is raw data, bytes that equal no text");
                let hint = format!("compare its text: new TextDecoder().decode(rec{data})");
                self.finding(act, false, &message, hint);
            }
            return;
        }
        if shape.is_absent() {
            if act.certain {
                let message = format!("the script fails here: {data} is absent, and null has no fields");
                self.finding(act, true, &message, format!("no record has {data} here: read another part"));
            }
            return;
        }
        let known = OF_OBJECTS.contains(&name) || OF_BYTES.contains(&name) || name.parse::<u32>().is_ok();
        if !shape.raw || shape.structured.is_some() || known {
            return;
        }
        let decode = match side {
            Side::Key => "to read JSON, put json.decode with field: .Key before it".to_owned(),
            _ => format!("to read JSON, put json.decode with field: {data} before it"),
        };
        match act.doing {
            Doing::Write | Doing::Assign(_) => {
                let message = format!("this is lost: {data} is raw data, which keep no field {name:?}");
                self.finding(act, true, &message, decode);
            }
            Doing::Below => {
                let message = format!(
                    "the script fails here: {data} is raw data, so its field {name:?} is undefined and has no fields"
                );
                self.finding(act, true, &message, decode);
            }
            _ => {
                let message = format!("this is always undefined: {data} is raw data, which have no field {name:?}");
                self.finding(act, false, &message, decode);
            }
        }
    }

    /// JSON is text, and data are bytes or fields.
    fn parse(&mut self, act: &Act, side: Side) {
        let shape = self.flow.record.side(side);
        let data = side.as_str();
        if shape.raw && shape.structured.is_none() {
            let message = format!("the script fails here: {data} is raw data, bytes and no text");
            let hint = format!(
                "write JSON.parse(new TextDecoder().decode(rec{data})), or put json.decode with field: {data} before it"
            );
            self.finding(act, true, &message, hint);
        } else if shape.structured.is_some() && !shape.raw {
            let message = format!("the script fails here: {data} is structured data already, no JSON text");
            self.finding(act, true, &message, format!("use rec{data} as it is"));
        }
    }
}
