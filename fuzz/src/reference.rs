//! Any text is a valid reference or is refused; reading changes nothing, and a value that was set can be read.

use anabranch_record::reference::Reference;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Position, Record};

use super::text;

pub(crate) fn check(input: &[u8]) {
    let text = text(input);
    let Ok(reference) = Reference::parse(text) else { return };
    let fields: Object = [("a", Value::Int(1)), ("b", Object::new().into())].into_iter().collect();
    let record = Record::create(Position::copy_from(b"1"), Data::text("key"), fields.into());
    let before = record.clone();
    let _ = reference.get(&record);
    assert_eq!(record, before);
    let mut changed = record.clone();
    if reference.set(&mut changed, Value::from("set")).is_err() {
        assert_eq!(changed, before, "a set that fails changes nothing");
    }
    let mut changed = record.clone();
    if reference.delete(&mut changed).is_err() {
        assert_eq!(changed, before, "a delete that fails changes nothing");
    }
}
