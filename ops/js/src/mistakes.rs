//! Reports accesses of a script that are wrong for the input records: missing fields, fields of raw data, unknown
//! operations.

mod fields;
mod values;

use std::ops::Range;

use anabranch_plugin::flow::{Flow, Place as Setting};
use anabranch_record::Operation;
use anabranch_record::near::did_you_mean;
use anabranch_record::reference::Side;

use crate::acts::{Act, Inside, RecordAct};
use crate::codes;
use crate::position::Position;
use crate::program::{Findings, Program};
use crate::properties::{OF_BYTES, OF_OBJECTS};
use crate::properties::{PAYLOAD, RECORD};
use crate::spot::RecordObject;

/// Reports the errors of a script for records of the flow's shape.
pub(crate) fn say(findings: &Findings, program: &Program, setting: &'static str, inline: bool, flow: &mut Flow) {
    let mut said = Said { program, setting, inline, flow };
    said.fields(&findings.fields);
    for slip in &findings.slips {
        said.at(slip.start, slip.end, slip.fails, &slip.message, slip.hint.clone());
    }
    for act in &findings.acts {
        match act.place {
            RecordObject::Record | RecordObject::Payload => said.part(act),
            RecordObject::Key => said.data(act, Side::Key),
            RecordObject::Before => said.data(act, Side::Before),
            RecordObject::After => said.data(act, Side::After),
            RecordObject::Metadata => said.metadata(act),
        }
    }
}

struct Said<'a> {
    program: &'a Program,
    setting: &'static str,
    /// True if the script is in the pipeline file.
    inline: bool,
    flow: &'a mut Flow,
}

impl Said<'_> {
    /// Adds an error if every record fails or loses data through the access, otherwise a warning.
    fn finding(&mut self, act: &Act, error: bool, message: &str, hint: String) {
        self.at(act.start, act.end, error && act.certain, message, hint);
    }

    fn place(&self, start: Position, end: Position) -> Setting {
        let bytes: Range<usize> = start.offset(&self.program.text)..end.offset(&self.program.text);
        match self.inline {
            true => Setting::within(self.setting, bytes),
            false => Setting::from(self.setting),
        }
    }

    fn at(&mut self, start: Position, end: Position, error: bool, message: &str, hint: String) {
        let place = self.place(start, end);
        let message = format!("{}:{start}: {message}", self.program.name);
        match error {
            true => self.flow.fail(codes::SCRIPT_MISTAKE, place, message, None, Some(hint)),
            false => self.flow.warn(codes::SCRIPT_MISTAKE, place, message, None, Some(hint)),
        }
    }

    /// Checks a field of the record or its payload.
    fn part(&mut self, act: &Act) {
        let (what, fields): (_, &[&str]) =
            if act.place == RecordObject::Record { ("a record", &RECORD) } else { ("a payload", &PAYLOAD) };
        let name = act.name.as_str();
        if fields.contains(&name) {
            match (name, &act.doing) {
                ("Operation", _) => self.operation(act),
                ("Position", RecordAct::Assign(_) | RecordAct::Unfit(_)) => {
                    let message =
                        "the script fails here: a record keeps its Position, which only the source can interpret";
                    let hint = "store the identifier of the record in rec.Key or in metadata".to_owned();
                    self.finding(act, true, message, hint);
                }
                _ => {}
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
            None if act.place == RecordObject::Record => {
                "read a field of the data as rec.Payload.After.name, and metadata as rec.Metadata[\"name\"]".to_owned()
            }
            None => "read a field of the data as rec.Payload.After.name".to_owned(),
        };
        let has = format!("{what} has no {name:?}, only {}", fields.join(", "));
        match act.doing {
            RecordAct::Write | RecordAct::Assign(_) => {
                self.finding(act, true, &format!("the script fails here: {has}"), hint);
            }
            RecordAct::Below => {
                self.finding(act, true, &format!("the script fails here: {has}, and undefined has no fields"), hint);
            }
            RecordAct::Call => {
                self.finding(
                    act,
                    true,
                    &format!("the script fails here: {has}, and undefined is not a function"),
                    hint,
                );
            }
            _ => {
                self.finding(act, false, &format!("this is always undefined: {has}"), hint);
            }
        }
    }

    /// Checks the name of an operation.
    fn operation(&mut self, act: &Act) {
        let (RecordAct::Assign(text) | RecordAct::Compare(text)) = &act.doing else { return };
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
            RecordAct::Assign(_) => {
                self.finding(act, true, &format!("the script fails here: {text:?} is not an operation"), hint);
            }
            _ => self.finding(act, false, &format!("no record has the operation {text:?}"), hint),
        }
    }

    /// Checks an access to a key or payload side.
    fn data(&mut self, act: &Act, side: Side) {
        let shape = self.flow.record.side(side);
        let name = act.name.as_str();
        let data = side.as_str();
        match &act.doing {
            RecordAct::Inside(inner, _) => return self.inside(act, side, inner),
            RecordAct::Method(method) => return self.method_of_json(act, side, method),
            RecordAct::Name => return self.as_name(act, side),
            RecordAct::Has => return self.has(act, side),
            RecordAct::Text if !name.is_empty() => return self.printed(act, side),
            RecordAct::Parse => return self.parse(act, side),
            RecordAct::Text | RecordAct::Spread | RecordAct::Iterate | RecordAct::ToMetadata | RecordAct::Unfit(_) => {
                return self.whole(act, side);
            }
            RecordAct::Call | RecordAct::Search if !shape.is_absent() => return self.method(act, side),
            _ => {}
        }
        if act.name.is_empty() {
            if shape.is_raw() {
                let message = format!("this is always false: {data} is raw data, and bytes never equal a text");
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
            Side::Key => "to read JSON, put json.decode with field: .Key before the script".to_owned(),
            _ => format!("to read JSON, put json.decode with field: {data} before the script"),
        };
        match act.doing {
            RecordAct::Write | RecordAct::Assign(_) => {
                let message = format!("this is lost: {data} is raw data, which cannot store a field {name:?}");
                self.finding(act, true, &message, decode);
            }
            RecordAct::Below => {
                let message = format!(
                    "the script fails here: {data} is raw data, so its field {name:?} is undefined and has no fields"
                );
                self.finding(act, true, &message, decode);
            }
            _ => {
                let message = format!("this is always undefined: {data} is raw data, which has no field {name:?}");
                self.finding(act, false, &message, decode);
            }
        }
    }

    /// Checks data that is used as a whole.
    fn whole(&mut self, act: &Act, side: Side) {
        let shape = self.flow.record.side(side);
        let (raw, structured) = (shape.raw, shape.structured.is_some());
        let data = side.as_str();
        match (&act.doing, raw, structured) {
            (RecordAct::Text, true, false) => {
                let message = format!("this is a text of byte values, for example \"123,34,105\": {data} is raw data");
                self.finding(act, false, &message, text_of(side));
            }
            (RecordAct::Text, false, true) => {
                let message = format!("this is \"[object Object]\": {data} is structured data, not text");
                let hint = format!("use one of its fields, or convert all of it to JSON: JSON.stringify(rec{data})");
                self.finding(act, false, &message, hint);
            }
            (RecordAct::Spread, true, false) => {
                let message = format!("this creates a field for each byte: {data} is raw data, bytes without fields");
                self.finding(act, false, &message, text_of(side));
            }
            // A script may make an object iterable.
            (RecordAct::Iterate, false, true) if !shape.absent && !self.program.text.contains("Symbol") => {
                let message = format!(
                    "the script fails here: {data} is structured data, fields, which have no elements to iterate over"
                );
                self.finding(act, true, &message, format!("write Object.entries(rec{data}) or Object.keys(rec{data})"));
            }
            (RecordAct::ToMetadata, true, false) => {
                let message = format!("the script fails here: metadata is text, and {data} is raw data, bytes");
                self.finding(act, true, &message, format!("write new TextDecoder().decode(rec{data})"));
            }
            (RecordAct::ToMetadata, false, true) => {
                let message = format!("the script fails here: metadata is text, and {data} is structured data, fields");
                self.finding(act, true, &message, format!("write JSON.stringify(rec{data})"));
            }
            (RecordAct::Unfit(what), ..) => {
                let message = format!("the script fails here: {data} accepts an object, a text or bytes, not {what}");
                let hint = format!("write rec{data} = {{ value: … }}, or JSON.stringify(…) for raw data");
                self.finding(act, true, &message, hint);
            }
            _ => {}
        }
    }

    /// Checks a method call on data. Bytes have methods, maps of fields do not.
    fn method(&mut self, act: &Act, side: Side) {
        let shape = self.flow.record.side(side);
        let (raw, structured) = (shape.raw, shape.structured.is_some());
        let (data, name) = (side.as_str(), act.name.as_str());
        if act.doing == RecordAct::Search && raw && !structured {
            let always = if name == "includes" { "false" } else { "-1" };
            let message = format!("this is always {always}: {data} is raw data, bytes that contain no text");
            return self.finding(act, false, &message, text_of(side));
        }
        if OF_OBJECTS.contains(&name) {
            return;
        }
        if raw && !structured && !OF_BYTES.contains(&name) {
            let message = format!("the script fails here: {data} is raw data, bytes, which have no method {name:?}");
            self.finding(act, true, &message, text_of(side));
        } else if structured && !raw {
            let message =
                format!("the script fails here: {data} is structured data, fields, which have no method {name:?}");
            let hint = format!("call it on a field: rec{data}.name.{name}(…)");
            self.finding(act, true, &message, hint);
        } else if structured && act.certain && !OF_BYTES.contains(&name) {
            let message = format!("the script fails here: neither raw nor structured data has a method {name:?}");
            self.finding(act, true, &message, format!("read a field as rec{data}.name"));
        }
    }

    /// Checks an access to metadata, a map of names to texts.
    fn metadata(&mut self, act: &Act) {
        match &act.doing {
            RecordAct::Inside(field, used) => {
                let whole = format!("{}.{field}", act.name);
                let hint = format!("to read the entry of that name, write rec.Metadata[{whole:?}]");
                let (fails, error) = match used {
                    Inside::Put => ("the script fails here: ", true),
                    Inside::Taken => ("", false),
                };
                let message = format!("{fails}metadata is text, and rec.Metadata.{} has no field {field:?}", act.name);
                self.finding(act, error, &message, hint);
            }
            RecordAct::Append(number) => {
                let entry = fields::named("rec.Metadata", &act.name);
                let message = format!("this appends: metadata is text, and \"1\" + {number} is \"1{number}\"");
                self.finding(act, false, &message, format!("write Number({entry}) + {number}"));
            }
            RecordAct::CompareNumber(number, equal) => {
                let always = if *equal { "false" } else { "true" };
                let message = format!("this is always {always}: metadata is text, and {number} is a number");
                self.finding(act, false, &message, format!("compare it with a text: {number:?}"));
            }
            RecordAct::Call if !OF_OBJECTS.contains(&act.name.as_str()) => {
                let message =
                    format!("the script fails here: metadata is text, and rec.Metadata.{} is not a function", act.name);
                self.finding(act, true, &message, "read an entry as rec.Metadata[\"name\"]".to_owned());
            }
            _ => {}
        }
    }

    /// Checks `JSON.parse`: it takes text, but data is bytes or fields.
    fn parse(&mut self, act: &Act, side: Side) {
        let shape = self.flow.record.side(side);
        let data = side.as_str();
        if shape.raw && shape.structured.is_none() {
            let message = format!("the script fails here: {data} is raw data, bytes, not text");
            let hint = format!(
                "write JSON.parse(new TextDecoder().decode(rec{data})), or put json.decode with field: {data} \
                 before the script"
            );
            self.finding(act, true, &message, hint);
        } else if shape.structured.is_some() && !shape.raw {
            let message = format!("the script fails here: {data} is already structured data, not JSON text");
            self.finding(act, true, &message, format!("use rec{data} as it is"));
        }
    }
}

/// Returns the hint for converting raw data to text.
fn text_of(side: Side) -> String {
    let data = side.as_str();
    format!(
        "decode their text: new TextDecoder().decode(rec{data}); or put json.decode with field: {data} before the \
         script"
    )
}

#[cfg(test)]
mod tests;
