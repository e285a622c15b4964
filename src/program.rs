//! The program as a library, for a binary with its own plugins in addition to the built-in ones.

use std::process::ExitCode;

use anabranch_plugin::registry::Plugin;

use crate::cli;

/// The service with its command line, for a program with plugins of its own.
#[derive(Clone, Copy, Debug)]
pub enum Service {}

impl Service {
    /// Starts with the built-in plugins.
    pub fn builder() -> Builder {
        Builder { plugins: Vec::new() }
    }
}

/// The plugins of a program.
#[must_use = "nothing happens before `main`"]
pub struct Builder {
    plugins: Vec<Plugin>,
}

impl Builder {
    /// Adds a source, a processor or a destination. All commands know it, as they know the built-in plugins.
    ///
    /// The name in its specification must not be that of another plugin with the same role. [`Builder::main`] reports
    /// this mistake.
    pub fn register(mut self, plugin: impl Into<Plugin>) -> Self {
        self.plugins.push(plugin.into());
        self
    }

    /// Runs the command line of this process and returns its exit code.
    ///
    /// Call it first in `main`, without threads of your own: the service starts the program again for its worker
    /// processes, and this call runs them.
    pub fn main(self) -> ExitCode {
        anabranch_allocator::settle();
        anabranch_process::panics::report();
        cli::main(self.plugins)
    }
}
