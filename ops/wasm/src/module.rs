//! Compiled modules: one engine, and a cache on disk, since a large guest takes half a minute to compile.

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
    compile_as(rustix::process::geteuid(), wasm, cache, compiling)
}

/// The same as this user.
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

/// Opens the cache, or makes it.
fn directory(cache: &Path, user: Uid) -> Result<OwnedFd, String> {
    DirBuilder::new().recursive(true).mode(0o700).create(cache).map_err(|error| error.to_string())?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::open(cache, flags, Mode::empty()).map_err(|error| error.to_string())?;
    private(&directory, user).map(|()| directory)
}

/// Checks that nobody but this user can have written a file or directory, and nobody else can read it.
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

/// A compiled module is machine code: it is taken only from a file and a directory that belong to us and that nobody
/// else can write or read. Both are checked as they are opened, so it does not matter who can rename the directories
/// above them.
#[allow(unsafe_code, reason = "there is no safe way to load compiled code")]
fn cached(engine: &Engine, directory: &OwnedFd, name: &str, user: Uid) -> Option<Module> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, name, flags, Mode::empty()).ok()?;
    private(&file, user).ok()?;
    let file = fs::File::from(file);
    // Its time is when it was last of use. One that cannot be set only makes it compile again some day.
    let _ = file.set_modified(SystemTime::now());
    // SAFETY: the file came out of `Module::serialize` of this engine's configuration (its hash is in the name), was
    // moved into place whole, and only our user can have changed it. Wasmtime checks its own header besides.
    unsafe { Module::deserialize_open_file(engine, file) }.ok()
}

fn keep(module: &Module, cache: &Path, path: &Path) -> Result<(), String> {
    let code = module.serialize().map_err(|error| format!("{error:#}"))?;
    let write = || -> std::io::Result<()> {
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

#[cfg(test)]
mod tests;
