//! The functions of programs: those of the library that need neither the network, the environment nor files, some of
//! them with limits.

pub(crate) mod assigned;
mod bounded;
mod decompression;
mod limits;
mod log;
mod mapped;
pub(crate) mod multiply;
mod nesting;
mod redaction;
mod wrapped;

use std::sync::LazyLock;

use vrl::compiler::Function;

pub(crate) use limits::MostBytes;

/// Returns the functions that a program can call.
pub(crate) fn all() -> &'static [Box<dyn Function>] {
    static ALL: LazyLock<Vec<Box<dyn Function>>> = LazyLock::new(|| {
        limits::limit_back_tracking();
        let library = vrl::stdlib::all().into_iter().map(wrapped::adapted);
        library.chain([Box::new(multiply::Multiply) as Box<dyn Function>, Box::new(assigned::Assigned)]).collect()
    });
    &ALL
}
