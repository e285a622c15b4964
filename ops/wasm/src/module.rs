//! Compiled modules: one engine, and a cache on disk, because compiling a large guest takes half a minute.

use std::collections::hash_map::DefaultHasher;
use std::fs::{self, DirBuilder, Permissions};
use std::hash::{Hash as _, Hasher as _};
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use rustix::fs::{Mode, OFlags};
use rustix::process::Uid;
use sha2::{Digest as _, Sha256};
use wasmtime::{Config, Engine, Module};

/// Time after which unused code is removed from the cache.
const UNUSED: Duration = Duration::from_secs(30 * 24 * 3600);

/// Returns the engine of this process.
pub(crate) fn engine() -> Result<&'static Engine, String> {
    static ENGINE: OnceLock<Result<Engine, String>> = OnceLock::new();
    let made = ENGINE.get_or_init(|| {
        let mut config = Config::new();
        config.epoch_interruption(true);
        Engine::new(&config).map_err(|error| format!("{error:#}"))
    });
    made.as_ref().map_err(Clone::clone)
}

/// Compiles a module, or loads it from `cache`, a directory that is created if it is missing. An unusable cache is not
/// an error. Calls `compiling` before compiling, which may take long.
pub(crate) fn compile(wasm: &[u8], cache: Option<&Path>, compiling: impl FnOnce()) -> Result<Module, String> {
    compile_as(rustix::process::geteuid(), wasm, cache, compiling)
}

/// Like [`compile`], as this user.
fn compile_as(user: Uid, wasm: &[u8], cache: Option<&Path>, compiling: impl FnOnce()) -> Result<Module, String> {
    let engine = engine()?;
    let Some(cache) = cache else {
        compiling();
        return Module::new(engine, wasm).map_err(|error| format!("{error:#}"));
    };
    let mut compatible = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut compatible);
    let digest: String = Sha256::digest(wasm).iter().map(|byte| format!("{byte:02x}")).collect();
    let name = format!("{digest}-{:016x}.cwasm", compatible.finish());
    let directory = directory(cache, user);
    if let Some(module) = directory.as_ref().ok().and_then(|directory| cached(engine, directory, &name, user)) {
        return Ok(module);
    }
    compiling();
    let module = Module::new(engine, wasm).map_err(|error| format!("{error:#}"))?;
    let kept = directory.and_then(|_| keep(&module, cache, &cache.join(name)));
    if let Err(error) = kept {
        tracing::warn!(path = %cache.display(), "compiled processors are not cached: {error}");
        return Ok(module);
    }
    prune(cache);
    Ok(module)
}

/// Opens or creates the cache.
fn directory(cache: &Path, user: Uid) -> Result<OwnedFd, String> {
    DirBuilder::new().recursive(true).mode(0o700).create(cache).map_err(|error| error.to_string())?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::open(cache, flags, Mode::empty()).map_err(|error| error.to_string())?;
    private(&directory, user).map(|()| directory)
}

/// Checks that a file or directory belongs to this user and that no other user can read or write it.
fn private(opened: &OwnedFd, user: Uid) -> Result<(), String> {
    let stat = rustix::fs::fstat(opened).map_err(|error| error.to_string())?;
    if stat.st_uid != user.as_raw() {
        return Err(format!(
            "the directory belongs to user {}, and the service runs as user {}",
            stat.st_uid,
            user.as_raw()
        ));
    }
    match stat.st_mode & 0o777 {
        mode if mode & 0o077 == 0 => Ok(()),
        mode => Err(format!("other users can read or write the directory (mode {mode:03o}): set its mode to 700")),
    }
}

/// Removes code that was not loaded for long: that of older versions of a guest, or of another build of this program.
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

/// Loads a compiled module. It is machine code, so its file and directory must belong to this user, and no other user
/// may be able to read or write them. Both are checked after opening, so it does not matter who can rename the parent
/// directories.
#[allow(unsafe_code, reason = "there is no safe way to load compiled code")]
fn cached(engine: &Engine, directory: &OwnedFd, name: &str, user: Uid) -> Option<Module> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, name, flags, Mode::empty()).ok()?;
    private(&file, user).ok()?;
    let file = fs::File::from(file);
    // The modification time is that of the last use. If it cannot be set, the module is compiled again some day.
    let _ = file.set_modified(SystemTime::now());
    // SAFETY: the file was written by `Module::serialize` of an engine with this configuration (its hash is in the
    // name), and was moved into place as a whole. Only this user can have changed it. Wasmtime also checks its own
    // header.
    unsafe { Module::deserialize_open_file(engine, file) }.ok()
}

fn keep(module: &Module, cache: &Path, path: &Path) -> Result<(), String> {
    let code = module.serialize().map_err(|error| format!("{error:#}"))?;
    let write = || -> std::io::Result<()> {
        // The file is created with mode 0600.
        let mut file = tempfile::NamedTempFile::new_in(cache)?;
        file.as_file().set_permissions(Permissions::from_mode(0o600))?;
        file.write_all(&code)?;
        file.as_file().sync_data()?;
        file.persist(path)?;
        Ok(())
    };
    write().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
