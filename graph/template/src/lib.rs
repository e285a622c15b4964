//! Templates over records: the dialect of Go's `text/template` with the functions of sprig, and conditions.
//!
//! [`Template::parse`] compiles a text once; rendering borrows from the record and writes to the output. A
//! [`condition::CompiledCondition`] is a template whose output is true or false; a native predicate evaluates the usual
//! ones without building text. A [`tree`] is the compiled form of a template, for passes that analyse it. This crate
//! does no I/O and knows neither pipeline files nor plugins.
//!
//! # Example
//!
//! ```
//! use anabranch_record::{Data, Position, Record};
//! use anabranch_template::condition::CompiledCondition;
//! use anabranch_template::{MissingKey, Template};
//!
//! let record = Record::create(Position::default(), Data::text("7"), Data::text("seven"));
//!
//! let template = Template::parse(r#"{{ printf "%s" .Key }}.txt"#, MissingKey::Error).unwrap();
//! let mut name = String::new();
//! template.render(&record, &mut name).unwrap();
//! assert_eq!(name, "7.txt");
//!
//! let condition = CompiledCondition::compile(r#"{{ eq .Operation.String "create" }}"#).unwrap();
//! assert!(condition.is_native() && condition.evaluate(&record).unwrap());
//! ```

pub mod codes;
pub mod condition;
pub mod processor_time;
mod template;

pub use template::*;
