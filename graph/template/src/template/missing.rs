//! Detection of output that is not usable as a name, because a part of it has no value.

use anabranch_record::Record;

use super::{MissingKey, Template};

/// The text that a template prints for a missing value. Names of tables, folders and objects do not contain it.
pub const NO_VALUE: &str = "<no value>";

impl Template {
    /// Returns the reason why the output for `record` contains [`NO_VALUE`]: the missing field or entry. Costs a
    /// rendering.
    pub fn why_no_value(&self, record: &Record) -> String {
        let strict = Template { tree: self.tree.clone(), missing: MissingKey::Error };
        let mut output = String::new();
        match strict.render(record, &mut output) {
            Err(error) => error.message,
            Ok(()) => "a value in it is null".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use anabranch_record::value::{Object, Value};
    use anabranch_record::{Data, Position};

    use super::*;

    #[test]
    fn the_part_without_a_value_is_named() {
        let fields: Object = [("day", Value::Null), ("map", Value::Map(Object::new().into()))].into_iter().collect();
        let record = Record::create(Position::default(), Data::Absent, fields.into());
        for (template, why) in [
            ("a={{ .Payload.After.month }}", r#"there is no entry "month" in the map"#),
            ("{{ .Payload.After.map.x }}/", r#"there is no entry "x" in the map"#),
            ("{{ .Payload.After.day }}", "a value in it is null"),
        ] {
            let template = Template::parse(template, MissingKey::NoValue).unwrap();
            let mut output = String::new();
            template.render(&record, &mut output).unwrap();
            assert!(output.contains(NO_VALUE), "{output}");
            assert_eq!(template.why_no_value(&record), why);
        }
    }
}
