//! Compiled modules: one engine, and a cache on disk, since a large guest takes half a minute to compile.

use std::collections::hash_map::DefaultHasher;
use std::fs::{self, DirBuilder, Permissions};
use std::hash::{Hash as _, Hasher as _};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use sha2::{Digest as _, Sha256};
use wasmtime::{Config, Engine, Module};

/// How long what nobody loads stays in the cache.
const UNUSED: Duration = Duration::from_secs(30 * 24 * 3600);

/// The engine of this process.
pub(crate) fn engine() -> Result<&'static Engine, String> {
    static ENGINE: OnceLock<Result<Engine, String>> = OnceLock::new();
    let made = ENGINE.get_or_init(|| {
        let mut config = Config::new();
        config.epoch_interruption(true);
        Engine::new(&config).map_err(|error| format!("{error:#}"))
    });
    made.as_ref().map_err(Clone::clone)
}

/// Compiles a module, or takes it from `cache`, a directory that is made if it is not there. A cache that cannot be
/// used is no error. `compiling` is called before what may take long.
pub(crate) fn compile(wasm: &[u8], cache: Option<&Path>, compiling: impl FnOnce()) -> Result<Module, String> {
    let engine = engine()?;
    let Some(cache) = cache else {
        compiling();
        return Module::new(engine, wasm).map_err(|error| format!("{error:#}"));
    };
    let mut compatible = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut compatible);
    let digest: String = Sha256::digest(wasm).iter().map(|byte| format!("{byte:02x}")).collect();
    let path = cache.join(format!("{digest}-{:016x}.cwasm", compatible.finish()));
    if let Some(module) = cached(engine, &path) {
        // Its time is when it was last of use. One that cannot be set only makes it compile again some day.
        let _ = fs::File::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        return Ok(module);
    }
    compiling();
    let module = Module::new(engine, wasm).map_err(|error| format!("{error:#}"))?;
    if let Err(error) = keep(&module, cache, &path) {
        tracing::warn!(path = %path.display(), "cannot keep a compiled processor: {error}");
    }
    prune(cache);
    Ok(module)
}

/// Removes what was not loaded for long: code of older versions of a guest, or for another build of this program.
fn prune(cache: &Path) {
    let Ok(entries) = fs::read_dir(cache) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let used = path.symlink_metadata().and_then(|metadata| metadata.modified());
        let unused = used.is_ok_and(|used| used.elapsed().is_ok_and(|since| since > UNUSED));
        if unused && path.extension().is_some_and(|extension| extension == "cwasm") {
            let _ = fs::remove_file(path);
        }
    }
}

/// A compiled module is machine code: it is taken only from a file and a directory that nobody else can write or
/// read, which makes us their owner.
#[allow(unsafe_code, reason = "there is no safe way to load compiled code")]
fn cached(engine: &Engine, path: &Path) -> Option<Module> {
    let private = |path: &Path| {
        fs::symlink_metadata(path).is_ok_and(|m| m.permissions().mode() & 0o077 == 0 && !m.file_type().is_symlink())
    };
    if !private(path.parent()?) || !private(path) {
        return None;
    }
    // SAFETY: the file came out of `Module::serialize` of this engine's configuration (its hash is in the name), was
    // moved into place whole, and only our user can have changed it. Wasmtime checks its own header besides.
    unsafe { Module::deserialize_file(engine, path) }.ok()
}

fn keep(module: &Module, cache: &Path, path: &Path) -> Result<(), String> {
    let code = module.serialize().map_err(|error| format!("{error:#}"))?;
    let write = || -> std::io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(cache)?;
        // Made with mode 0600.
        let mut file = tempfile::NamedTempFile::new_in(cache)?;
        file.as_file().set_permissions(Permissions::from_mode(0o600))?;
        file.write_all(&code)?;
        file.as_file().sync_data()?;
        file.persist(path)?;
        Ok(())
    };
    write().map_err(|error| error.to_string())
}
