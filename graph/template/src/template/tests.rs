use anabranch_record::Record;

use crate::template::{EvalError, MissingKey, Template};

mod conformance;
mod doubts;
mod failures;
mod language;
mod limits;

/// Output over a record without content.
fn render(text: &str) -> Result<String, EvalError> {
    render_over(text, &Record::default())
}

fn render_over(text: &str, record: &Record) -> Result<String, EvalError> {
    let mut out = String::new();
    Template::parse(text, MissingKey::NoValue).unwrap().render(record, &mut out)?;
    Ok(out)
}
