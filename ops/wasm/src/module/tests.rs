use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;

use super::*;

const MODULE: &[u8] = b"\0asm\x01\0\0\0";

/// Whether it had to be compiled.
fn compiles(user: Uid, cache: &Path) -> bool {
    let mut compiled = false;
    compile_as(user, MODULE, Some(cache), || compiled = true).unwrap();
    compiled
}

fn files(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn machine_code_is_taken_only_from_files_of_our_own() {
    let folder = tempfile::tempdir().unwrap();
    let (us, other) = (rustix::process::geteuid(), Uid::from_raw(rustix::process::geteuid().as_raw() + 1));
    let cache = folder.path().join("a/b");
    assert!(compiles(us, &cache) && !compiles(us, &cache));

    // Directory and file belong to somebody else: not used, and nothing is put there.
    assert!(compiles(other, &cache) && compiles(other, &cache));
    assert_eq!(files(&cache).len(), 1);

    // The directory is ours, and the file was put there by somebody else.
    let opened = |path: &Path| OwnedFd::from(fs::File::open(path).unwrap());
    let name = files(&cache).remove(0).file_name().unwrap().to_str().unwrap().to_owned();
    assert!(cached(engine().unwrap(), &opened(&cache), &name, us).is_some());
    assert!(cached(engine().unwrap(), &opened(&cache), &name, other).is_none());

    // Others could have changed the file; it is replaced by one of which that is not so.
    fs::set_permissions(cache.join(&name), Permissions::from_mode(0o620)).unwrap();
    assert!(compiles(us, &cache) && !compiles(us, &cache));
    assert_eq!(fs::metadata(cache.join(&name)).unwrap().permissions().mode() & 0o777, 0o600);

    // Others could have changed the directory.
    fs::set_permissions(&cache, Permissions::from_mode(0o770)).unwrap();
    assert!(compiles(us, &cache) && compiles(us, &cache));
    fs::set_permissions(&cache, Permissions::from_mode(0o700)).unwrap();
    assert!(!compiles(us, &cache));

    // Links may lead to where somebody else puts another file.
    let aside = folder.path().join("aside");
    fs::rename(cache.join(&name), &aside).unwrap();
    symlink(&aside, cache.join(&name)).unwrap();
    assert!(compiles(us, &cache));
    let link = folder.path().join("link");
    symlink(&cache, &link).unwrap();
    assert!(compiles(us, &link) && !compiles(us, &cache));
}

#[test]
fn the_reason_for_which_a_cache_is_not_used_names_both_users() {
    let folder = tempfile::tempdir().unwrap();
    let us = rustix::process::geteuid();
    let other = Uid::from_raw(us.as_raw() + 1);
    let reason = directory(folder.path(), other).unwrap_err();
    assert_eq!(
        reason,
        format!("the directory belongs to user {}, and the service runs as user {}", us.as_raw(), other.as_raw())
    );
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let reason = directory(folder.path(), us).unwrap_err();
    assert_eq!(reason, "other users can read or write the directory (mode 755): set its mode to 700");
}
