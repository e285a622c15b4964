//! The plugin interface of Anabranch: the contracts that plugins implement, and their environment.
//!
//! A plugin is a kind ([`source::SourceKind`], [`operator::OperatorKind`], [`destination::DestinationKind`]) with a
//! [`specification::Specification`]. It declares its [`parameters`] as a struct. The compiler checks the settings of a
//! pipeline file against the declarations, and the plugin receives the struct. A [`host::Host`] contains the other resources that a
//! plugin may use. With [`flow`], a plugin declares its effect on the shape of records, so that mistakes are found
//! before the first record. A [`registry::Registry`] finds plugins by their names. This crate does no I/O, and knows
//! neither the compiler nor the executor.
//!
//! The page `docs/write-a-connector.md` builds a plugin of each role. The module `testing` is a test kit, which checks
//! the promises of sources and destinations.
//!
//! # Example
//!
//! A processor that filters records without a key:
//!
//! ```
//! use anabranch_plugin::diagnostic::Diagnostics;
//! use anabranch_plugin::kind;
//! use anabranch_plugin::operator::{Decision, Fan, InlineOperator, OperatorContext, Rows, Signature};
//! use anabranch_plugin::parameters::{Parameters, shared};
//! use anabranch_plugin::registry::Registry;
//! use anabranch_plugin::specification::Specification;
//! use anabranch_record::Data;
//!
//! #[derive(Clone, Parameters)]
//! struct Settings {
//!     /// Whether records without a key are dropped, and not those with one.
//!     #[parameter(default = true)]
//!     missing: bool,
//! }
//!
//! #[derive(Clone)]
//! struct Keyed(Settings);
//!
//! impl InlineOperator for Keyed {
//!     type Parameters = Settings;
//!
//!     fn specification() -> Specification {
//!         Specification::builtin("keyed", "Drops records without a key.").with_all(shared::processor())
//!     }
//!
//!     fn configure(settings: Settings) -> Result<Self, Diagnostics> {
//!         Ok(Keyed(settings))
//!     }
//!
//!     fn signature(&self) -> Signature {
//!         Signature::new().fan(Fan::AtMostOne)
//!     }
//!
//!     fn process(&mut self, rows: &mut Rows<'_>, _: &OperatorContext) {
//!         rows.for_each(|record| {
//!             let is_missing = record.key == Data::Absent;
//!             Ok(if is_missing == self.0.missing { Decision::Filter } else { Decision::Keep })
//!         });
//!     }
//! }
//!
//! let mut registry = Registry::new();
//! registry.add_operator(kind::inline::<Keyed>());
//! assert!(registry.operator("keyed").is_ok());
//! ```

pub mod arguments;
pub mod backoff;
pub mod codes;
pub mod current;
pub mod destination;
pub mod diagnostic;
pub mod flow;
pub mod format;
pub mod histogram;
pub mod host;
pub mod kind;
pub mod letter;
pub mod naming;
pub mod operator;
pub mod parameters;
pub mod registry;
pub mod schema;
pub mod secret;
pub mod settings;
pub mod source;
pub mod state;
pub mod testing;
pub mod trace;
pub mod written;

pub use anabranch_record::specification;

// The derive macro names this crate, in this crate too.
extern crate self as anabranch_plugin;
