//! A processor without parameters is a function.

use anabranch_processor::{Error, Record, Specification, run_fn};

fn main() {
    run_fn(Specification::new("function", "v0.1.0"), |record: Record| {
        let text = record.payload.after.as_raw().ok_or_else(|| Error::new("the payload is not raw"))?.to_owned();
        let keep = !text.starts_with(b"#");
        Ok::<_, Error>(keep.then(|| Record { payload: anabranch_processor::Change { after: text.repeat(2).into(), ..record.payload }, ..record }))
    });
}
