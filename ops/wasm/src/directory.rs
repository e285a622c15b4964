//! The directory of guests and their specifications.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anabranch_ops_opencdc::specification::parameters;
use anabranch_ops_opencdc::wire::{Empty, Request, Response, Specified};
use anabranch_plugin::operator::OperatorKind;
use anabranch_plugin::parameters::declared;
use anabranch_plugin::schema::MemoryRegistry;
use anabranch_plugin::specification::{Parameter, ParameterKind, Specification};
use anabranch_record::text::Str;

use crate::cache::{Cache, Described};
use crate::compiler::MachineCode;
use crate::egress::{self, Ceiling};
use crate::guest::{Guest, GuestEnd, Limits, Setting};
use crate::module::{CodeError, Compiling, ModuleFile};
use crate::operator::ModuleKind;

/// Time limit for the specification of a compiled guest.
const SPECIFY: Duration = Duration::from_secs(5);

/// Settings for loading and running guests.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Directory of compiled code and specifications; `None` for no cache.
    pub cache: Option<PathBuf>,
    /// Resource limits of each guest.
    pub limits: Limits,
    /// Upper limit of the network access of each guest.
    pub ceiling: Ceiling,
}

/// Content of a directory.
#[derive(Default)]
pub struct DirectoryContent {
    /// The processors; versions of the same name are in ascending order.
    pub operators: Vec<Arc<dyn OperatorKind>>,
    /// Unusable files with the reason, and processors that exist twice.
    pub refused: Vec<(PathBuf, String)>,
}

struct Loaded {
    specification: Specification,
    module: Arc<ModuleFile>,
}

/// A reason why a file is not used.
#[derive(Debug, thiserror::Error)]
enum LoadError {
    #[error(transparent)]
    Code(#[from] CodeError),
    #[error(transparent)]
    Ended(#[from] GuestEnd),
    #[error("it does not return its specification: {0}")]
    Refused(String),
    #[error("it answers the request for its specification with something else")]
    OtherAnswer,
    #[error("it has no name")]
    Nameless,
}

/// Loads the specification of every `.wasm` file of a directory, as many at a time as there are CPUs. A missing
/// directory is empty. A module whose specification is not cached is compiled to baseline code, because only an instance
/// of it knows the specification: `compiling` is called before and after. The code of other modules is loaded or
/// compiled when a pipeline opens them.
pub fn load(directory: &Path, options: &Options, compiling: &(dyn Fn(Compiling<'_>) + Sync)) -> DirectoryContent {
    let mut found = DirectoryContent::default();
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
            Err(error) => found.refused.push((path, error.to_string())),
        }
    }
    let ceiling = Arc::new(options.ceiling.clone());
    let mut kinds = Vec::new();
    for ((name, version), mut same) in by_identity {
        if same.len() == 1 {
            // Invalid versions sort before valid ones.
            let order = semver::Version::parse(&version).ok();
            let kind = |loaded: Loaded| {
                Arc::new(ModuleKind::new(loaded.specification, loaded.module, options.limits, ceiling.clone()))
            };
            kinds.extend(same.pop().map(|loaded| (name, order, kind(loaded))));
            continue;
        }
        // The files are ambiguous.
        let names: Vec<String> = same.iter().map(|loaded| loaded.module.path().display().to_string()).collect();
        let reason = format!("{name}@{version} is in several files: {}", names.join(", "));
        found.refused.extend(same.into_iter().map(|loaded| (loaded.module.path().to_owned(), reason.clone())));
    }
    kinds.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
    found.operators = kinds.into_iter().map(|(_, _, kind)| kind as Arc<dyn OperatorKind>).collect();
    found
}

fn load_file(path: &Path, options: &Options, compiling: &(dyn Fn(Compiling<'_>) + Sync)) -> Result<Loaded, LoadError> {
    let module = ModuleFile::open(path, options.cache.clone().map(Cache::new))?;
    let described = match module.described(options.limits.memory) {
        Some(described) => described,
        None => {
            let code = module.code(compiling)?;
            let specified = specify(&code, options.limits)?;
            let (uses_network, memory) = (code.uses_network(), options.limits.memory as u64);
            let described = Described { specified, uses_network, memory };
            module.keep_described(&described);
            described
        }
    };
    Ok(Loaded { specification: specification(&described), module: Arc::new(module) })
}

/// Returns the specification of a processor, with the parameters that the service adds.
fn specification(described: &Described) -> Specification {
    let given = &described.specified;
    let mut parameters = parameters(&given.parameters);
    if parameters.is_empty() {
        // The first guests declare no parameters and accept any.
        parameters.push(Parameter::new("*", ParameterKind::Text, "Passed to the processor unchanged."));
    }
    if described.uses_network {
        parameters.extend(declared::<egress::Settings>());
    }
    Specification {
        name: given.name.as_str().into(),
        version: given.version.as_str().into(),
        summary: given.summary.as_str().into(),
        description: given.description.as_str().into(),
        author: given.author.as_str().into(),
        parameters,
    }
}

/// Requests the specification of a guest.
fn specify(code: &MachineCode, limits: Limits) -> Result<Specified, LoadError> {
    let node = Str::from_static("init-processor");
    let schemas = Arc::new(MemoryRegistry::new());
    let setting = Setting { node: &node, schemas, network: None, limits: Limits { time: Some(SPECIFY), ..limits } };
    let mut guest = Guest::start(code, &setting)?;
    let given = match guest.ask(Request::Specify(Empty {}))? {
        Response::Specify(given) => given,
        Response::Error(error) => return Err(LoadError::Refused(error.message)),
        _ => return Err(LoadError::OtherAnswer),
    };
    // The answer does not matter.
    let _ = guest.ask(Request::Teardown(Empty {}));
    match given.name.trim().is_empty() {
        true => Err(LoadError::Nameless),
        false => Ok(given),
    }
}

#[cfg(test)]
mod tests;
