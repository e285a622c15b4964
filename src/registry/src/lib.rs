//! The registry of plugins: those of this build, and the standalone plugins of the user.
//!
//! A program that links this crate can [`register`] plugins of its own beside the built-in ones.
//!
//! This crate alone knows every crate of plugins. Plugins with heavy dependencies are behind cargo features; a plugin that
//! was left out of a build names its feature when it is asked for.
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
