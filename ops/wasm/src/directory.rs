//! The directory of guests and their specifications.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anabranch_ops_opencdc::specification::parameters;
use anabranch_ops_opencdc::wire::{Empty, Request, Response};
use anabranch_plugin::operator::OperatorKind;
use anabranch_plugin::parameters::declared;
use anabranch_plugin::schema::MemoryRegistry;
use anabranch_plugin::specification::{Parameter, ParameterKind, Specification};
use anabranch_record::text::Str;
use wasmtime::Module;

use crate::egress::{self, Ceiling};
use crate::guest::{Guest, Limits, Setting};
use crate::module;
use crate::operator::Kind;

/// Time limit for the specification of a compiled guest.
const SPECIFY: Duration = Duration::from_secs(5);

/// The first bytes of every module.
const MAGIC: [u8; 4] = *b"\0asm";
/// Maximum size of a module in bytes. Compiling takes several times this memory.
const MAX_MODULE: u64 = 256 << 20;

/// Settings for loading and running guests.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Directory of the compiled code; `None` for no cache.
    pub cache: Option<PathBuf>,
    /// Resource limits of each guest.
    pub limits: Limits,
    /// Upper limit of the network access of each guest.
    pub ceiling: Ceiling,
}

/// Content of a directory.
#[derive(Default)]
pub struct Found {
    /// The processors; versions of the same name are in ascending order.
    pub operators: Vec<Arc<dyn OperatorKind>>,
    /// Unusable files with the reason, and processors that exist twice.
    pub refused: Vec<(PathBuf, String)>,
}

struct Loaded {
    path: PathBuf,
    specification: Specification,
    module: Module,
}

/// Loads every `.wasm` file of a directory, as many at a time as there are CPUs. A missing directory is empty.
/// Compiling a large guest that is not cached takes half a minute: `compiling` is called before, with its path and size
/// in bytes.
pub fn load(directory: &Path, options: &Options, compiling: &(dyn Fn(&Path, usize) + Sync)) -> Found {
    let mut found = Found::default();
    let mut paths: Vec<PathBuf> = match fs::read_dir(directory) {
        Ok(entries) => entries.filter_map(|entry| Some(entry.ok()?.path())).collect(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return found,
        Err(error) => {
            found.refused.push((directory.to_owned(), error.to_string()));
            return found;
        }
    };
    paths.retain(|path| path.extension().is_some_and(|e| e == "wasm") && path.is_file());
    paths.sort();

    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    let threads = thread::available_parallelism().map_or(1, usize::from).min(paths.len());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
                    tracing::debug!(path = %path.display(), "loading a processor");
                    let loaded = load_file(path, options, compiling);
                    results.lock().unwrap_or_else(PoisonError::into_inner).push((path.clone(), loaded));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by(|a, b| a.0.cmp(&b.0));

    let mut by_identity: BTreeMap<(Str, Str), Vec<Loaded>> = BTreeMap::new();
    for (path, result) in results {
        match result {
            Ok(loaded) => {
                let Specification { name, version, .. } = &loaded.specification;
                by_identity.entry((name.clone(), version.trim_start_matches('v').into())).or_default().push(loaded);
            }
            Err(reason) => found.refused.push((path, reason)),
        }
    }
    let ceiling = Arc::new(options.ceiling.clone());
    let mut kinds = Vec::new();
    for ((name, version), mut same) in by_identity {
        if same.len() == 1 {
            // Invalid versions sort before valid ones.
            let order = semver::Version::parse(&version).ok();
            let kind = |loaded: Loaded| {
                Arc::new(Kind::new(loaded.specification, loaded.module, options.limits, ceiling.clone()))
            };
            kinds.extend(same.pop().map(|loaded| (name, order, kind(loaded))));
            continue;
        }
        // The files are ambiguous.
        let names: Vec<String> = same.iter().map(|loaded| loaded.path.display().to_string()).collect();
        let reason = format!("{name}@{version} is in several files: {}", names.join(", "));
        found.refused.extend(same.into_iter().map(|loaded| (loaded.path, reason.clone())));
    }
    kinds.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
    found.operators = kinds.into_iter().map(|(_, _, kind)| kind as Arc<dyn OperatorKind>).collect();
    found
}

fn load_file(path: &Path, options: &Options, compiling: &(dyn Fn(&Path, usize) + Sync)) -> Result<Loaded, String> {
    let wasm = read(path)?;
    let module = module::compile(&wasm, options.cache.as_deref(), || compiling(path, wasm.len()))?;
    let mut specification = specify(&module, options.limits)?;
    if specification.parameters.is_empty() {
        // The first guests declare no parameters and accept any.
        specification.parameters.push(Parameter::new("*", ParameterKind::Text, "Passed to the processor unchanged."));
    }
    if module.imports().any(|import| (import.module(), import.name()) == ("conduit", "http_request")) {
        specification.parameters.extend(declared::<egress::Settings>());
    }
    Ok(Loaded { path: path.to_owned(), specification, module })
}

/// Returns the content of a module. Reads only the first bytes of other files, and of a file above [`MAX_MODULE`].
fn read(path: &Path) -> Result<Vec<u8>, String> {
    let system = |error: io::Error| error.to_string();
    let mut file = File::open(path).map_err(system)?;
    let mut wasm = vec![0; MAGIC.len()];
    let started = file.read_exact(&mut wasm);
    if started.as_ref().is_err_and(|error| error.kind() == ErrorKind::UnexpectedEof) || wasm != MAGIC {
        return Err("it is not a WebAssembly module: it does not begin with the bytes 00 61 73 6d".to_owned());
    }
    started.map_err(system)?;
    let too_large = |bytes: u64| format!("it is too large: {bytes} bytes, the limit is {MAX_MODULE} bytes");
    let bytes = file.metadata().map_err(system)?.len();
    if bytes > MAX_MODULE {
        return Err(too_large(bytes));
    }
    // The file may grow meanwhile.
    file.take(MAX_MODULE + 1 - MAGIC.len() as u64).read_to_end(&mut wasm).map_err(system)?;
    match wasm.len() as u64 {
        bytes if bytes > MAX_MODULE => Err(too_large(bytes)),
        _ => Ok(wasm),
    }
}

/// Requests the specification of a guest.
fn specify(module: &Module, limits: Limits) -> Result<Specification, String> {
    let node = Str::from_static("init-processor");
    let schemas = Arc::new(MemoryRegistry::new());
    let setting = Setting { node: &node, schemas, network: None, limits: Limits { time: Some(SPECIFY), ..limits } };
    let mut guest = Guest::start(module, &setting).map_err(|death| death.to_string())?;
    let given = match guest.ask(Request::Specify(Empty {})).map_err(|death| death.to_string())? {
        Response::Specify(given) => given,
        Response::Error(error) => return Err(format!("it does not return its specification: {}", error.message)),
        _ => return Err("it answers the request for its specification with something else".to_owned()),
    };
    // The answer does not matter.
    let _ = guest.ask(Request::Teardown(Empty {}));
    if given.name.trim().is_empty() {
        return Err("it has no name".to_owned());
    }
    Ok(Specification {
        name: given.name.as_str().into(),
        version: given.version.as_str().into(),
        summary: given.summary.as_str().into(),
        description: given.description.as_str().into(),
        author: given.author.as_str().into(),
        parameters: parameters(&given.parameters),
    })
}

#[cfg(test)]
mod tests;
