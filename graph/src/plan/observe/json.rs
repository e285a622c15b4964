//! JSON that a template puts together by hand.

use serde::de::IgnoredAny;

use anabranch_record::Record;
use anabranch_template::Template;

/// Code of output that is meant to be JSON and is not.
pub(super) const NOT_JSON: &str = "template.not_json";

/// Says that what a template makes of a record is not JSON, and what to write. Several values in a row are JSON, too: some
/// servers take them.
pub(super) fn not_json(template: &Template, record: &Record) -> Option<(String, String)> {
    let mut text = String::new();
    template.render(record, &mut text).ok()?;
    let mut values = serde_json::Deserializer::from_str(&text).into_iter::<IgnoredAny>();
    let error = values.find_map(Result::err)?;
    // A message without the place: that is another one in each record.
    let why = error.to_string();
    let why = why.split_once(" at line").map_or(why.as_str(), |(why, _)| why);
    let message = format!("what the template makes is not JSON ({why})");
    let hint = "write {{ toJson … }} for each value: a text then has its quotes, and quotes within it are escaped";
    Some((message, hint.to_owned()))
}
