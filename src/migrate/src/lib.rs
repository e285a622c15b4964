//! Turns configurations of other services into pipeline files: connectors of Kafka Connect, and projects of Conduit.
//!
//! The crate reads texts and returns texts: it opens nothing. [`connect`] and [`conduit`] return the pipeline files, and
//! a report with one [`Line`] or more for each setting of the source. A setting that the plugins cannot express is in the
//! report as [`Outcome::NotCarried`], with what to do about it. Credentials become variables (`${NAME}`); neither the
//! files nor the report contain them.
//!
//! ```
//! use anabranch_migrate::{Outcome, connect};
//!
//! let json = r#"{
//!     "name": "audit",
//!     "config": {
//!         "connector.class": "FileStreamSink",
//!         "topics": "audit",
//!         "file": "/var/log/audit.txt",
//!         "value.converter": "org.apache.kafka.connect.storage.StringConverter",
//!         "tasks.max": "4"
//!     }
//! }"#;
//! let connectors = connect::read("audit.json", json).unwrap();
//! let migration = connect::migrate(&connectors, &connect::Worker::default());
//! let audit = &migration.jobs[0];
//! let pipeline = audit.pipeline.as_ref().unwrap();
//! assert!(pipeline.text.contains("path: /var/log/audit.txt"));
//! assert!(audit.lines.iter().any(|line| line.setting == "tasks.max" && line.outcome == Outcome::NotCarried));
//! assert_eq!(migration.variables[0].name, "KAFKA_SERVERS");
//! ```

pub mod conduit;
pub mod connect;
mod document;
mod expression;
mod jdbc_url;
mod report;
mod setting_text;
mod variables;

pub use report::{Job, Line, MigratedPipeline, Migration, Outcome};
pub use variables::NeededVariable;
