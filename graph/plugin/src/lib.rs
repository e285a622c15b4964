//! The plugin interface of Anabranch: the contracts that plugins implement, and their environment.
//!
//! A plugin is a kind ([`source::SourceKind`], [`operator::OperatorKind`], [`destination::DestinationKind`]) with a
//! [`specification::Specification`] of its parameters. The compiler checks the settings of a pipeline file against it
//! and passes them to the plugin as [`arguments::Arguments`]. A [`host::Host`] contains the other resources that a
//! plugin may use. With [`flow`], a plugin declares its effect on the shape of records, so that mistakes are found
//! before the first record. A [`registry::Registry`] finds plugins by their names. This crate does no I/O, and knows
//! neither the compiler nor the executor.
//!
//! # Example
//!
//! A processor that filters records without a key:
//!
//! ```
//! use std::sync::Arc;
//!
//! use anabranch_plugin::arguments::Arguments;
//! use anabranch_plugin::diagnostic::Diagnostics;
//! use anabranch_plugin::host::Host;
//! use anabranch_plugin::operator::{BuiltOperator, ConfiguredOperator, Decision, Fan, Operator, Rows, Signature};
//! use anabranch_plugin::registry::Registry;
//! use anabranch_plugin::specification::{Specification, shared};
//! use anabranch_record::Data;
//! use anabranch_record::fault::Fault;
//!
//! struct Keyed;
//!
//! impl ConfiguredOperator for Keyed {
//!     fn signature(&self) -> Signature {
//!         Signature { fan: Fan::AtMostOne, ..Signature::inline() }
//!     }
//!
//!     fn build(&self, _worker: usize, _host: &Host) -> Result<BuiltOperator, Fault> {
//!         Ok(BuiltOperator::Inline(Box::new(Keyed)))
//!     }
//! }
//!
//! impl Operator for Keyed {
//!     fn process(&mut self, rows: &mut Rows<'_>) {
//!         rows.for_each(|record| {
//!             Ok(if record.key == Data::Absent { Decision::Filter } else { Decision::Keep })
//!         });
//!     }
//! }
//!
//! fn configure(_: &Arguments) -> Result<Arc<dyn ConfiguredOperator>, Diagnostics> {
//!     Ok(Arc::new(Keyed))
//! }
//!
//! let specification = Specification::builtin("keyed", "Drops records without a key.").with_all(shared::processor());
//! let mut registry = Registry::new();
//! registry.add_operator(anabranch_plugin::kind::operator(specification, configure));
//! assert!(registry.operator("keyed").is_ok());
//! ```

pub mod arguments;
pub mod backoff;
pub mod destination;
pub mod diagnostic;
pub mod flow;
pub mod format;
pub mod host;
pub mod kind;
pub mod letter;
pub mod operator;
pub mod registry;
pub mod schema;
pub mod secret;
pub mod settings;
pub mod source;
pub mod specification;
pub mod state;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod trace;
pub mod written;
