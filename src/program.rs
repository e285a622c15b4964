//! The program as a library, for a binary with its own plugins in addition to the built-in ones.

mod inside;

use std::process::ExitCode;

use anabranch_plugin::registry::Plugin;
use anabranch_registry::worker;

use crate::cli;

pub use inside::{InProcess, Running, StartError};

/// The service, for a program with plugins of its own.
#[derive(Clone, Copy, Debug)]
pub enum Service {}

impl Service {
    /// Starts with the built-in plugins.
    pub fn builder() -> Builder {
        Builder { plugins: Vec::new() }
    }

    /// Runs this process as a worker, if a service started it as one. Returns the exit code when the work is done, and
    /// `None` in any other process.
    ///
    /// A program that runs the service in process calls it first in `main`, without threads of its own. Otherwise scripts
    /// run inside the program, without a limit of memory, and there are no standalone connectors. [`Builder::main`] calls
    /// it.
    pub fn worker() -> Option<ExitCode> {
        let code = worker::requested();
        if code.is_none() {
            worker::is_program();
        }
        code
    }
}

/// The plugins of a program.
#[must_use = "nothing happens before `main` or `InProcess::start`"]
pub struct Builder {
    plugins: Vec<Plugin>,
}

impl Builder {
    /// Adds a source, a processor or a destination. All commands know it, as they know the built-in plugins.
    ///
    /// The name in its specification must not be that of another plugin with the same role. [`Builder::main`] and
    /// [`InProcess::start`] report this mistake.
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

    /// Continues with a service that runs inside this program, without the command line.
    pub fn in_process(self) -> InProcess {
        InProcess::new(self.plugins)
    }
}
