//! The registry of plugins: those of this build, and the standalone plugins of the user.
//!
//! A program that links this crate can [`register`] its own plugins in addition to the built-in ones.
//!
//! Only this crate depends on every crate of plugins. Plugins with heavy dependencies are behind Cargo features. If a
//! pipeline uses a plugin that a build does not contain, the error names its feature.
//!
//! ```
//! let registry = anabranch_registry::registry();
//! assert!(registry.operators().any(|kind| kind.specification().name == "filter"));
//! assert!(registry.sources().any(|kind| kind.specification().name == "file"));
//! ```

mod builtin;
mod registered;
mod standalone;
pub mod worker;

pub use builtin::codes;
pub use registered::{RegisterError, register, registry};
pub use standalone::{registry_inside, registry_with};
