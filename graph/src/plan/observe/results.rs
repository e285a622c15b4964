//! Scripts that use an object as text, detected in their results.

use anabranch_record::reference::{Side, push_part};
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Record};

use super::{ObservedNode, Observer, plugin};
use crate::codes;
use crate::plan::stage::StageId;

/// Text that JavaScript produces for any object.
pub(super) const OF_OBJECT: &str = "[object Object]";

impl Observer {
    /// Returns whether a record that enters a script already contains that text; `None` for processors whose results
    /// are not checked.
    pub fn look_for_objects(&self, stage: StageId, step: usize, record: &Record) -> Option<bool> {
        let ObservedNode { node, .. } = self.step(stage, step)?;
        (*plugin(node) == *"custom.javascript").then(|| place(record).is_some())
    }

    /// Checks the results of a script for a record that did not contain that text.
    pub fn look_at_results<'r>(&self, stage: StageId, step: usize, results: impl IntoIterator<Item = &'r Record>) {
        let Some(ObservedNode { looks, .. }) = self.step(stage, step) else { return };
        let found = results.into_iter().find_map(place).map(|place| {
            let message = format!("the script converts an object to the text {OF_OBJECT:?}, in {place}");
            let hint = "use a field of the object, or the whole object as JSON: JSON.stringify(…)".to_owned();
            (0..0, codes::SCRIPT_MISTAKE, message, Some(hint))
        });
        // The part index after those of the condition and the pieces.
        self.note(stage, step, looks.len() + 2, found);
    }
}

/// Returns the place of the text in a record.
fn place(record: &Record) -> Option<String> {
    for side in [Side::After, Side::Key, Side::Before] {
        let found = match side.of(record) {
            Data::Absent => None,
            Data::Raw(bytes) => {
                let holds = bytes.windows(OF_OBJECT.len()).any(|part| part == OF_OBJECT.as_bytes());
                holds.then(|| side.as_str().to_owned())
            }
            Data::Structured(object) => in_object(object, side.as_str()),
        };
        if found.is_some() {
            return found;
        }
    }
    let (name, _) = record.metadata.iter().find(|(name, text)| name.contains(OF_OBJECT) || text.contains(OF_OBJECT))?;
    let mut place = ".Metadata".to_owned();
    push_part(name, &mut place);
    Some(place)
}

fn in_object(object: &Object, parent: &str) -> Option<String> {
    object.iter().find_map(|(name, value)| {
        let mut place = parent.to_owned();
        push_part(name, &mut place);
        if name.contains(OF_OBJECT) { Some(place) } else { in_value(value, place) }
    })
}

fn in_value(value: &Value, place: String) -> Option<String> {
    match value {
        Value::Text(text) => text.contains(OF_OBJECT).then_some(place),
        Value::List(list) => list.iter().find_map(|value| in_value(value, place.clone())),
        Value::Map(object) => in_object(object, &place),
        _ => None,
    }
}
