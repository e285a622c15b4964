//! JSON that a template assembles by hand.

use serde::de::IgnoredAny;

use anabranch_record::Record;
use anabranch_template::Template;

/// Returns a message and a hint if the output of a template is not JSON. A sequence of JSON values is accepted, since
/// some servers expect it.
pub(super) fn not_json(template: &Template, record: &Record) -> Option<(String, String)> {
    let mut text = String::new();
    template.render(record, &mut text).ok()?;
    let mut values = serde_json::Deserializer::from_str(&text).into_iter::<IgnoredAny>();
    let error = values.find_map(Result::err)?;
    // Leave out the place, which differs between records.
    let why = error.to_string();
    let why = why.split_once(" at line").map_or(why.as_str(), |(why, _)| why);
    let message = format!("the output of the template is not JSON ({why})");
    let hint = "write {{ toJson … }} for each value: it puts quotes around a text, and escapes quotes within it";
    Some((message, hint.to_owned()))
}
