//! The files of modules, and their code as far as it is needed.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::cache::{Cache, Described, Digest};
use crate::compiler::{Compiler, MachineCode};
use crate::optimiser;

/// The first bytes of every module.
pub(crate) const MAGIC: [u8; 4] = *b"\0asm";
/// Maximum size of a module in bytes. Compiling takes several times this memory.
const MAX_MODULE: u64 = 256 << 20;
/// Size in bytes from which compiling a module takes long enough to tell the user.
pub const LARGE: usize = 1 << 20;

/// A reason why a module has no code.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CodeError {
    /// The file cannot be read.
    #[error("{0}")]
    System(#[from] io::Error),
    /// The file does not contain a module.
    #[error("it is not a WebAssembly module: it does not begin with the bytes 00 61 73 6d")]
    NotAModule,
    /// The file has more than [`MAX_MODULE`] bytes.
    #[error("it is too large: {0} bytes, the limit is {MAX_MODULE} bytes")]
    TooLarge(u64),
    /// The file has another content than when its specification was read.
    #[error("the file {0} has changed since the service read it: restart the service")]
    Changed(PathBuf),
    /// The compiler refuses the module.
    #[error("{0}")]
    Invalid(String),
}

/// Progress of compiling a module to baseline code.
#[derive(Clone, Copy, Debug)]
pub enum Compiling<'a> {
    /// Compiling begins. It takes the CPU time of about half a second for each MB.
    Began {
        /// The file of the module.
        path: &'a Path,
        /// Its size in bytes.
        bytes: usize,
    },
    /// Compiling has ended.
    Ended {
        /// The file of the module.
        path: &'a Path,
        /// Its size in bytes.
        bytes: usize,
        /// How long it took.
        took: Duration,
    },
}

/// A module in a file. Its code is loaded or compiled when it is first needed, and stays in memory. The content of the
/// file does not.
pub(crate) struct ModuleFile {
    path: PathBuf,
    bytes: usize,
    digest: Digest,
    cache: Option<Cache>,
    /// The best code so far. Instances have clones of the code that they started with.
    code: Mutex<Option<MachineCode>>,
    /// True once optimised code was requested.
    requested: AtomicBool,
}

impl ModuleFile {
    /// Reads and hashes a file.
    pub(crate) fn open(path: &Path, cache: Option<Cache>) -> Result<Self, CodeError> {
        let wasm = read(path)?;
        let (bytes, digest) = (wasm.len(), Digest::of(&wasm));
        Ok(ModuleFile { path: path.to_owned(), bytes, digest, cache, code: Mutex::default(), requested: false.into() })
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns what this module answered an earlier process, under a memory limit of at most `memory` bytes.
    pub(crate) fn described(&self, memory: usize) -> Option<Described> {
        self.cache.as_ref()?.described(&self.digest, memory)
    }

    /// Keeps what this module answered for later processes.
    pub(crate) fn keep_described(&self, described: &Described) {
        if let Some(cache) = &self.cache {
            cache.keep_described(&self.digest, described);
        }
    }

    /// Returns code for a new instance: optimised code if there is any, otherwise baseline code, which is compiled if
    /// there is none. Calls `compiling` before and after compiling, during which other callers wait.
    pub(crate) fn code(&self, compiling: &dyn Fn(Compiling<'_>)) -> Result<MachineCode, CodeError> {
        let mut best = self.best();
        if best.as_ref().is_none_or(|code| code.compiler != Compiler::Optimising) {
            // Another process may have compiled it.
            let cached = |compiler| self.cache.as_ref()?.code(&self.digest, compiler);
            let found = cached(Compiler::Optimising).or_else(|| best.take()).or_else(|| cached(Compiler::Baseline));
            *best = found;
        }
        if let Some(code) = &*best {
            return Ok(code.clone());
        }
        let wasm = self.read()?;
        let (path, bytes) = (self.path.as_path(), self.bytes);
        compiling(Compiling::Began { path, bytes });
        let began = Instant::now();
        let code = Compiler::Baseline.compile(&wasm).map_err(CodeError::Invalid)?;
        compiling(Compiling::Ended { path, bytes, took: began.elapsed() });
        self.keep(&code);
        Ok(best.insert(code).clone())
    }

    /// Returns code for a new instance of a pipeline, and requests optimised code if this is not. Logs that it compiles.
    pub(crate) fn code_to_run(self: &Arc<Self>) -> Result<MachineCode, CodeError> {
        let code = self.code(&|compiling| self.log(compiling))?;
        if code.compiler == Compiler::Baseline && !self.requested.swap(true, Ordering::Relaxed) {
            let module = Arc::downgrade(self);
            let optimise = move || {
                let Some(module) = module.upgrade() else { return };
                if let Err(error) = module.optimise() {
                    tracing::warn!("{} is not optimised: {error}", module.path.display());
                }
            };
            optimiser::request(self.path.display().to_string(), Box::new(optimise));
        }
        Ok(code)
    }

    /// Compiles optimised code, unless another process has done so. Takes long. Later instances use the code.
    pub(crate) fn optimise(&self) -> Result<(), CodeError> {
        let found = self.cache.as_ref().and_then(|cache| cache.code(&self.digest, Compiler::Optimising));
        let code = match found {
            Some(code) => code,
            None => {
                let wasm = self.read()?;
                let (path, megabytes) = (self.path.display(), self.megabytes());
                self.say(format_args!("compiling {path} ({megabytes}) in the background: optimised code"));
                let began = Instant::now();
                let code = Compiler::Optimising.compile(&wasm).map_err(CodeError::Invalid)?;
                let took = began.elapsed().as_secs_f64();
                self.keep(&code);
                self.say(format_args!(
                    "compiled {path} in {took:.1} s: a pipeline uses the optimised code when it is started again"
                ));
                code
            }
        };
        *self.best() = Some(code);
        Ok(())
    }

    fn best(&self) -> MutexGuard<'_, Option<MachineCode>> {
        self.code.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, code: &MachineCode) {
        if let Some(cache) = &self.cache {
            cache.keep_code(&self.digest, code);
        }
    }

    /// Reads the file again.
    fn read(&self) -> Result<Vec<u8>, CodeError> {
        let wasm = read(&self.path)?;
        match Digest::of(&wasm) == self.digest {
            true => Ok(wasm),
            false => Err(CodeError::Changed(self.path.clone())),
        }
    }

    fn megabytes(&self) -> String {
        format!("{:.1} MB", self.bytes as f64 / 1e6)
    }

    fn log(&self, compiling: Compiling<'_>) {
        let path = self.path.display();
        match compiling {
            Compiling::Began { .. } => {
                self.say(format_args!("compiling {path} ({}): baseline code", self.megabytes()));
            }
            Compiling::Ended { took, .. } => self.say(format_args!("compiled {path} in {:.1} s", took.as_secs_f64())),
        }
    }

    fn say(&self, text: std::fmt::Arguments<'_>) {
        match self.bytes {
            LARGE.. => tracing::info!("{text}"),
            _ => tracing::debug!("{text}"),
        }
    }
}

/// Returns the content of a module. Reads only the first bytes of other files, and of a file above [`MAX_MODULE`].
fn read(path: &Path) -> Result<Vec<u8>, CodeError> {
    let mut file = File::open(path)?;
    let mut wasm = vec![0; MAGIC.len()];
    let started = file.read_exact(&mut wasm);
    if started.as_ref().is_err_and(|error| error.kind() == ErrorKind::UnexpectedEof) || wasm != MAGIC {
        return Err(CodeError::NotAModule);
    }
    started?;
    let bytes = file.metadata()?.len();
    if bytes > MAX_MODULE {
        return Err(CodeError::TooLarge(bytes));
    }
    // The file may grow meanwhile.
    file.take(MAX_MODULE + 1 - MAGIC.len() as u64).read_to_end(&mut wasm)?;
    match wasm.len() as u64 {
        bytes if bytes > MAX_MODULE => Err(CodeError::TooLarge(bytes)),
        _ => Ok(wasm),
    }
}

#[cfg(test)]
mod tests;
