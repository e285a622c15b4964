//! A processor without parameters is a function.

use anabranch_processor::{Error, Record, Specification, run_fn};

fn main() {
    run_fn(Specification::new("function", "v0.1.0", "Doubles lines."), |mut record: Record| {
        let text = record.payload.after.raw().ok_or_else(|| Error::new("the payload is not raw"))?.clone();
        record.payload.after = text.repeat(2).into();
        Ok::<_, Error>((!text.starts_with(b"#")).then_some(record))
    });
}
