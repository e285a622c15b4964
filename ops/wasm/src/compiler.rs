//! The two compilers, and the code that they make.

use std::sync::OnceLock;

use wasmtime::{Config, Engine, Module, OptLevel, RegallocAlgorithm};

/// Largest stack of a guest in bytes. The optimised code of wasmtime's default limit of 512 KiB fits as baseline code,
/// whose stack frames are larger.
const GUEST_STACK: usize = 2 << 20;

/// A compiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compiler {
    /// Takes the CPU time of 9 s for a module of 20 MB, on all CPUs. Its code is slower.
    Baseline,
    /// Takes 20 s for a module of 20 MB, on the calling thread only.
    Optimising,
}

impl Compiler {
    /// Returns the name of this compiler's code.
    pub(crate) const fn code(self) -> &'static str {
        match self {
            Compiler::Baseline => "baseline",
            Compiler::Optimising => "optimised",
        }
    }

    /// Returns the engine of this process that runs the code of this compiler. Interruption, limits of memory and stack,
    /// and the features of modules do not depend on the compiler.
    pub(crate) fn engine(self) -> Result<&'static Engine, String> {
        static BASELINE: OnceLock<Result<Engine, String>> = OnceLock::new();
        static OPTIMISED: OnceLock<Result<Engine, String>> = OnceLock::new();
        let made = match self {
            Compiler::Baseline => &BASELINE,
            Compiler::Optimising => &OPTIMISED,
        };
        let make = || Engine::new(&self.configuration()).map_err(|error| format!("{error:#}"));
        made.get_or_init(make).as_ref().map_err(Clone::clone)
    }

    fn configuration(self) -> Config {
        let mut config = Config::new();
        config.epoch_interruption(true).max_wasm_stack(GUEST_STACK);
        match self {
            Compiler::Baseline => {
                config.cranelift_opt_level(OptLevel::None).cranelift_regalloc_algorithm(RegallocAlgorithm::SinglePass)
            }
            // The pipelines that run meanwhile need the other CPUs.
            Compiler::Optimising => config.parallel_compilation(false),
        };
        config
    }

    /// Compiles a module.
    pub(crate) fn compile(self, wasm: &[u8]) -> Result<MachineCode, String> {
        let module = Module::new(self.engine()?, wasm).map_err(|error| format!("{error:#}"))?;
        Ok(MachineCode { module, compiler: self })
    }
}

/// A compiled module. A clone shares the code.
#[derive(Clone)]
pub(crate) struct MachineCode {
    pub(crate) module: Module,
    /// The compiler that made it.
    pub(crate) compiler: Compiler,
}

impl MachineCode {
    /// Returns `true` if the module can send HTTP requests.
    pub(crate) fn uses_network(&self) -> bool {
        self.module.imports().any(|import| (import.module(), import.name()) == ("conduit", "http_request"))
    }
}
