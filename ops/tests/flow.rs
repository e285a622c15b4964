//! Flow types: what the compiler says of pipelines before the first record, and whether it is true.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "flow/ends.rs"]
mod ends;
#[path = "flow/generated.rs"]
mod generated;
#[path = "flow/good.rs"]
mod good;
#[path = "flow/rendered.rs"]
mod rendered;
#[path = "flow/wrong.rs"]
mod wrong;
