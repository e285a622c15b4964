//! The cache on disk: compiled code and specifications, by the hash of their module.

use std::collections::hash_map::DefaultHasher;
use std::fs::{self, DirBuilder, File, Permissions};
use std::hash::{Hash as _, Hasher as _};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use anabranch_ops_opencdc::wire::Specified;
use anabranch_record::text::hexadecimal;
use prost::Message as _;
use rustix::fs::{Mode, OFlags};
use rustix::process::Uid;
use sha2::{Digest as _, Sha256};
use wasmtime::Module;

use crate::compiler::{Compiler, MachineCode};

/// Time after which unused entries are removed.
const UNUSED: Duration = Duration::from_secs(30 * 24 * 3600);
/// Time after which a file counts as left behind by a process that was killed while it wrote an entry.
const UNFINISHED: Duration = Duration::from_secs(3600);

/// Extension of compiled code.
const CODE: &str = "cwasm";
/// Extension of specifications.
const SPECIFICATION: &str = "specification";
/// Extension of entries that are being written.
const PARTIAL: &str = "partial";

/// Length of the hash at the end of an entry.
const HASH: usize = 32;

/// The hash of a module in hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Digest(String);

impl Digest {
    pub(crate) fn of(wasm: &[u8]) -> Self {
        Digest(hexadecimal(&Sha256::digest(wasm)))
    }
}

/// The answers about a module that need an instance of it.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Described {
    /// The specification that the module returned.
    #[prost(message, required, tag = "1")]
    pub(crate) specified: Specified,
    /// True if the module can send HTTP requests.
    #[prost(bool, tag = "2")]
    pub(crate) uses_network: bool,
    /// The memory limit in bytes under which the module answered.
    #[prost(uint64, tag = "3")]
    pub(crate) memory: u64,
}

/// A directory that is created if it is missing. An unusable directory is an empty one.
///
/// Entries are machine code or decide which settings are valid, so the directory and the entries must belong to this
/// user, and no other user may be able to read or write them. Processes share the directory: each entry is moved into
/// place as a whole, and ends with the hash of its content. An entry whose hash is wrong is not used.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    path: PathBuf,
    user: Uid,
}

impl Cache {
    /// Returns the cache of the user that this process runs as.
    pub(crate) fn new(path: PathBuf) -> Self {
        Cache { path, user: rustix::process::geteuid() }
    }

    /// Loads the code that a compiler made of a module.
    #[allow(unsafe_code, reason = "there is no safe way to load compiled code")]
    pub(crate) fn code(&self, digest: &Digest, compiler: Compiler) -> Option<MachineCode> {
        let engine = compiler.engine().ok()?;
        let mut file = self.open(&code_name(digest, compiler).ok()?)?;
        checked(&mut file, |_| ()).ok()??;
        // SAFETY: the file was written by `Module::serialize` of an engine with this configuration (its hash is in the
        // name), was moved into place as a whole, and has the hash that it had then. Only this user can have changed
        // it. Wasmtime also checks its own header, and ignores bytes after the last section.
        let module = unsafe { Module::deserialize_open_file(engine, file) }.ok()?;
        Some(MachineCode { module, compiler })
    }

    /// Keeps code. Optimised code replaces baseline code. A failure is logged.
    pub(crate) fn keep_code(&self, digest: &Digest, code: &MachineCode) {
        let kept = code_name(digest, code.compiler).and_then(|name| {
            let bytes = code.module.serialize().map_err(|error| format!("{error:#}"))?;
            self.keep(&name, bytes)
        });
        if let Err(error) = kept {
            tracing::warn!(path = %self.path.display(), "compiled processors are not cached: {error}");
            return;
        }
        if let (Compiler::Optimising, Ok(name)) = (code.compiler, code_name(digest, Compiler::Baseline)) {
            // Another process that uses the file has it open.
            let _ = fs::remove_file(self.path.join(name));
        }
        self.prune();
    }

    /// Loads what a module answered under a memory limit of at most `memory` bytes.
    pub(crate) fn described(&self, digest: &Digest, memory: usize) -> Option<Described> {
        let mut bytes = Vec::new();
        let mut file = self.open(&specification_name(digest))?;
        checked(&mut file, |part| bytes.extend_from_slice(part)).ok()??;
        let described = Described::decode(bytes.as_slice()).ok()?;
        (described.memory <= memory as u64).then_some(described)
    }

    /// Keeps what a module answered. A failure is not logged: keeping the code fails for the same reason.
    pub(crate) fn keep_described(&self, digest: &Digest, described: &Described) {
        let _ = self.keep(&specification_name(digest), described.encode_to_vec());
    }

    /// Opens an entry. The directory and the entry are checked after opening, so it does not matter who can rename the
    /// parent directories.
    fn open(&self, name: &str) -> Option<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(self.directory().ok()?, name, flags, Mode::empty()).ok()?;
        private(&file, self.user).ok()?;
        let file = File::from(file);
        // The modification time is that of the last use. If it cannot be set, the entry is made again some day.
        let _ = file.set_modified(SystemTime::now());
        Some(file)
    }

    /// Opens or creates the directory.
    fn directory(&self) -> Result<OwnedFd, String> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.path).map_err(|error| error.to_string())?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = rustix::fs::open(&self.path, flags, Mode::empty()).map_err(|error| error.to_string())?;
        private(&directory, self.user).map(|()| directory)
    }

    fn keep(&self, name: &str, mut content: Vec<u8>) -> Result<(), String> {
        self.directory()?;
        let hash = Sha256::digest(&content);
        content.extend_from_slice(&hash);
        let write = || -> io::Result<()> {
            let suffix = format!(".{PARTIAL}");
            // The file is created with mode 0600.
            let mut file = tempfile::Builder::new().suffix(&suffix).tempfile_in(&self.path)?;
            file.as_file().set_permissions(Permissions::from_mode(0o600))?;
            file.write_all(&content)?;
            file.as_file().sync_data()?;
            file.persist(self.path.join(name))?;
            Ok(())
        };
        write().map_err(|error| error.to_string())
    }

    /// Removes entries that were not used for long: those of older versions of a module, or of another build of this
    /// program.
    fn prune(&self) {
        let Ok(entries) = fs::read_dir(&self.path) else { return };
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            let limit = match path.extension().and_then(|extension| extension.to_str()) {
                Some(CODE | SPECIFICATION) => UNUSED,
                Some(PARTIAL) => UNFINISHED,
                _ => continue,
            };
            let used = path.symlink_metadata().and_then(|metadata| metadata.modified());
            if used.is_ok_and(|used| used.elapsed().is_ok_and(|since| since > limit)) {
                let _ = fs::remove_file(path);
            }
        }
    }
}

/// Returns the name of the code of a compiler with its configuration.
fn code_name(Digest(digest): &Digest, compiler: Compiler) -> Result<String, String> {
    let mut compatible = DefaultHasher::new();
    compiler.engine()?.precompile_compatibility_hash().hash(&mut compatible);
    Ok(format!("{digest}-{}-{:016x}.{CODE}", compiler.code(), compatible.finish()))
}

/// Returns the name of a specification. Another version of this program may offer other functions to modules.
fn specification_name(Digest(digest): &Digest) -> String {
    format!("{digest}-{}.{SPECIFICATION}", env!("CARGO_PKG_VERSION"))
}

/// Passes the content of an entry to `content`, part by part. Returns `None` if it does not have the hash at its end.
fn checked(file: &mut File, mut content: impl FnMut(&[u8])) -> io::Result<Option<()>> {
    let Some(length) = file.metadata()?.len().checked_sub(HASH as u64) else { return Ok(None) };
    let mut part = vec![0; 1 << 16];
    let mut hash = Sha256::new();
    let mut left = length;
    while left > 0 {
        let most = part.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = file.read(&mut part[..most])?;
        if read == 0 {
            return Ok(None);
        }
        hash.update(&part[..read]);
        content(&part[..read]);
        left -= read as u64;
    }
    let mut written = [0; HASH];
    file.read_exact(&mut written)?;
    file.rewind()?;
    Ok((hash.finalize()[..] == written).then_some(()))
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

#[cfg(test)]
mod tests;
