//! Fields and metadata entries that a script reads and that the input records do not have.

use anabranch_record::code::Code;
use anabranch_record::metadata::own_key;
use anabranch_record::near::did_you_mean;
use anabranch_record::reference::Side;
use anabranch_record::text::Str;

use super::Said;
use crate::acts::FieldRead;
use crate::codes;
use crate::properties::OF_OBJECTS;
use crate::spot::RecordObject;

impl Said<'_> {
    /// Checks the fields that the script reads.
    pub(super) fn fields(&mut self, reads: &[FieldRead]) {
        for read in reads {
            if OF_OBJECTS.contains(&read.name.as_str()) {
                continue;
            }
            let side = match read.place {
                RecordObject::Key => Side::Key,
                RecordObject::Before => Side::Before,
                RecordObject::After => Side::After,
                RecordObject::Metadata => {
                    self.entry(read, reads);
                    continue;
                }
                RecordObject::Record | RecordObject::Payload => continue,
            };
            self.field(read, side, reads);
        }
    }

    fn field(&mut self, read: &FieldRead, side: Side, reads: &[FieldRead]) {
        let shape = self.flow.record.side(side);
        let Some(fields) = shape.structured.as_ref().filter(|_| !shape.raw) else { return };
        if fields.get(&read.name).is_some() || fields.is_open() {
            return;
        }
        let names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
        let near = meant(read, &names, reads);
        let hint = match near {
            Some(near) => Some(format!("did you mean {}?", named(&format!("rec{}", side.as_str()), near))),
            // Records that are not observed yet may have it.
            None if self.flow.is_observed() => None,
            None if names.is_empty() => Some("it has no fields".to_owned()),
            None => Some(format!("it has: {}", listed(&names))),
        };
        if near.is_none() && !read.needed {
            return;
        }
        let fails = read.below && read.needed && !shape.absent;
        let but = if fails { "the script fails here, because this is undefined" } else { "this is undefined" };
        let message = format!("{but}: {} has no {:?}", side.as_str(), read.name);
        self.nothing(codes::FLOW_NO_FIELD, read, fails, &message, hint);
    }

    /// Checks a metadata entry. Records of one source may lack it while those of another have it.
    fn entry(&mut self, read: &FieldRead, reads: &[FieldRead]) {
        let keys = &self.flow.record.metadata;
        if keys.may_have(&read.name) || own_key(&read.name).is_some() {
            return;
        }
        let names: Vec<&str> = keys.named().map(Str::as_str).collect();
        let Some(near) = meant(read, &names, reads) else { return };
        let hint = format!("did you mean {}?", named("rec.Metadata", near));
        let message = format!("this is undefined: no record has the metadata {:?} here", read.name);
        self.nothing(codes::FLOW_NO_METADATA, read, false, &message, Some(hint));
    }

    fn nothing(&mut self, code: Code, read: &FieldRead, fails: bool, message: &str, hint: Option<String>) {
        let place = self.place(read.start, read.end);
        let message = format!("{}:{}: {message}", self.program.name, read.start);
        match fails {
            true => self.flow.fail(code, place, message, None, hint),
            false => self.flow.warn(code, place, message, None, hint),
        }
    }
}

/// Returns the field that is probably meant. A field that the script reads elsewhere is not a candidate.
fn meant<'a>(read: &FieldRead, names: &[&'a str], reads: &[FieldRead]) -> Option<&'a str> {
    let is_read = |name: &str| reads.iter().any(|other| other.place == read.place && other.name == name);
    did_you_mean(&read.name, names.iter().copied().filter(|name| !is_read(name)))
}

/// Returns the expression of a field in a script.
pub(super) fn named(object: &str, name: &str) -> String {
    let plain = !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '$');
    if plain { format!("{object}.{name}") } else { format!("{object}[{name:?}]") }
}

fn listed(names: &[&str]) -> String {
    const MOST: usize = 8;
    let mut text = names.iter().take(MOST).copied().collect::<Vec<_>>().join(", ");
    if names.len() > MOST {
        text.push_str(", …");
    }
    text
}
