//! Functions that accept values of any type, applied to unsuitable values: for numbers, for lists.

use std::ops::Range;

use anabranch_record::code::Code;
use anabranch_template::functions::conversion::{Numeric, gives_element, numeric};

use super::Walk;
use super::call::Call;
use super::classes::Classes;
use super::expression::ValueProperties;
use crate::codes;

const CODE: Code = codes::FLOW_SUSPECT;

/// Returns the classes that a function converts to a number. All others count as 0.
fn good(function: &str) -> Classes {
    let other = Classes::OTHER | Classes::NIL | Classes::TEXT | Classes::LONG;
    match function {
        "toDecimal" => other | Classes::INT | Classes::FLOAT,
        "duration" => other,
        "durationRound" => other | Classes::TIME,
        _ => other | Classes::INT | Classes::FLOAT | Classes::BOOL | Classes::OPERATION,
    }
}

impl Walk<'_> {
    /// Reports `int .Key` of raw data, `add .Payload.After 1`.
    pub(super) fn counted_as_zero(&mut self, call: &Call<'_>) {
        let Call { name, args, values, .. } = *call;
        let Some(Numeric { from, to, .. }) = numeric(name) else { return };
        // The parameter of `atoi` is a text.
        if name == "atoi" {
            return;
        }
        for (i, value) in values.iter().enumerate().take(to).skip(from) {
            let Some(classes) = self.usual_classes(value) else { continue };
            if classes.is_empty() || classes.overlaps(good(name)) {
                continue;
            }
            let at = call.place(i);
            let written = args.get(i).map_or("VALUE", |_| self.text(&at)).to_owned();
            let raw = classes.within(Classes::RAW | Classes::BYTES);
            let hint = match classes {
                _ if raw => format!("write (printf \"%s\" {written}) for its text"),
                Classes::TIME => format!("write (int64 (unixEpoch {written})), the seconds since 1970"),
                Classes::LIST => format!("write (len {written}) for the number of its elements, or name one of them"),
                Classes::MAP | Classes::STRUCT => "name one of its fields".to_owned(),
                classes if classes.within(Classes::INT | Classes::FLOAT) => format!("write (int64 {written})"),
                _ => "pass a number".to_owned(),
            };
            let what = match classes {
                Classes::TIME => "a time".to_owned(),
                classes => classes.names(),
            };
            let place = self.at(at.clone());
            self.flow.warn(CODE, place, format!("{name} treats {what} as 0"), None, Some(hint));
            if raw && i < args.len() {
                self.correct(at, format!("(printf \"%s\" {written})"));
            }
        }
    }

    /// Reports `first .Key` of raw data.
    pub(super) fn first_of_text(&mut self, call: &Call<'_>) {
        let Call { name, args, values, .. } = *call;
        let Some(value) = values.first().filter(|_| gives_element(name)) else { return };
        let at = call.place(0);
        let written = args.first().map_or("VALUE", |_| self.text(&at)).to_owned();
        // List functions do not accept texts.
        if self.usual_classes(value).is_some_and(|classes| classes.within(Classes::RAW)) {
            self.element_of_text(name, value, at, &written);
        }
    }

    /// Reports `index .Payload.After.name 0` of a text.
    pub(super) fn element_of_text(&mut self, name: &str, value: &ValueProperties, at: Range<usize>, written: &str) {
        let Some(classes) = self.usual_classes(value).filter(|classes| !classes.is_empty()) else { return };
        let (what, text) = if classes.within(Classes::TEXT) {
            ("a text", written.to_owned())
        } else if classes.within(Classes::RAW) {
            ("raw data", format!("(printf \"%s\" {written})"))
        } else {
            return;
        };
        let message = format!("{name} of {what} returns the number of a byte, for example 97: {written} is not a list");
        let hint = format!("write {text} for the whole text, or substr 0 1 {text} for its first letter");
        let place = self.at(at);
        self.flow.warn(CODE, place, message, None, Some(hint));
    }
}
