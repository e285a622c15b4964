use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use super::*;

const MODULE: &[u8] = b"\0asm\x01\0\0\0";

fn cache(path: &Path, user: Uid) -> Cache {
    Cache { path: path.to_owned(), user }
}

/// Keeps baseline code, and returns whether it is there afterwards.
fn keeps(user: Uid, path: &Path) -> bool {
    let digest = Digest::of(MODULE);
    cache(path, user).keep_code(&digest, &Compiler::Baseline.compile(MODULE).unwrap());
    has(user, path)
}

/// Returns `true` if there is baseline code.
fn has(user: Uid, path: &Path) -> bool {
    cache(path, user).code(&Digest::of(MODULE), Compiler::Baseline).is_some()
}

fn files(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn machine_code_is_taken_only_from_files_of_our_own() {
    let folder = tempfile::tempdir().unwrap();
    let (us, other) = (rustix::process::geteuid(), Uid::from_raw(rustix::process::geteuid().as_raw() + 1));
    let path = folder.path().join("a/b");
    assert!(!has(us, &path) && keeps(us, &path));

    // Directory and file belong to somebody else: not used, and nothing is put there.
    assert!(!has(other, &path) && !keeps(other, &path));
    assert_eq!(files(&path).len(), 1);

    // The file was put into our directory by somebody else.
    let entry = files(&path).remove(0);
    let opened = |user| private(&OwnedFd::from(File::open(&entry).unwrap()), user);
    assert!(opened(us).is_ok() && opened(other).is_err());

    // Others could have changed the file; it is replaced by one of which that is not so.
    fs::set_permissions(&entry, Permissions::from_mode(0o620)).unwrap();
    assert!(!has(us, &path) && keeps(us, &path));
    assert_eq!(fs::metadata(&entry).unwrap().permissions().mode() & 0o777, 0o600);

    // Others could have changed the directory.
    fs::set_permissions(&path, Permissions::from_mode(0o770)).unwrap();
    assert!(!has(us, &path) && !keeps(us, &path));
    fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
    assert!(has(us, &path));

    // Links may lead to where somebody else puts another file.
    let aside = folder.path().join("aside");
    fs::rename(&entry, &aside).unwrap();
    symlink(&aside, &entry).unwrap();
    assert!(!has(us, &path) && keeps(us, &path));
    let link = folder.path().join("link");
    symlink(&path, &link).unwrap();
    assert!(!has(us, &link) && has(us, &path));
}

#[test]
fn the_reason_for_which_a_cache_is_not_used_names_both_users() {
    let folder = tempfile::tempdir().unwrap();
    let us = rustix::process::geteuid();
    let other = Uid::from_raw(us.as_raw() + 1);
    let reason = cache(folder.path(), other).directory().unwrap_err();
    assert_eq!(
        reason,
        format!("the directory belongs to user {}, and the service runs as user {}", us.as_raw(), other.as_raw())
    );
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let reason = cache(folder.path(), us).directory().unwrap_err();
    assert_eq!(reason, "other users can read or write the directory (mode 755): set its mode to 700");
}

/// Each byte of an entry counts, also those that wasmtime does not check.
#[test]
fn a_damaged_entry_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let us = rustix::process::geteuid();
    let path = folder.path().join("cache");
    let described =
        Described { specified: Specified { name: "n".to_owned(), ..Specified::default() }, ..Described::default() };
    let (cache, digest) = (cache(&path, us), Digest::of(MODULE));
    assert!(keeps(us, &path));
    cache.keep_described(&digest, &described);
    assert_eq!(cache.described(&digest, 0).unwrap(), described);
    let damages: [fn(&mut Vec<u8>); 5] = [
        |bytes| bytes[0] ^= 1,
        |bytes| {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
        },
        |bytes| *bytes.last_mut().unwrap() ^= 1,
        |bytes| bytes.truncate(bytes.len() - 1),
        Vec::clear,
    ];
    for (number, damage) in damages.iter().enumerate() {
        let entries = files(&path);
        assert_eq!(entries.len(), 2);
        for entry in entries {
            let mut bytes = fs::read(&entry).unwrap();
            damage(&mut bytes);
            fs::write(&entry, bytes).unwrap();
        }
        assert!(!has(us, &path) && cache.described(&digest, 0).is_none(), "{number}");
        // The entry is replaced.
        assert!(keeps(us, &path), "{number}");
        cache.keep_described(&digest, &described);
        assert!(cache.described(&digest, 0).is_some(), "{number}");
    }
}

/// A module that answers with 1 GiB of memory may not answer with less.
#[test]
fn a_specification_counts_for_no_smaller_limit() {
    let folder = tempfile::tempdir().unwrap();
    let cache = cache(&folder.path().join("cache"), rustix::process::geteuid());
    let digest = Digest::of(MODULE);
    cache.keep_described(&digest, &Described { memory: 100, ..Described::default() });
    assert!(cache.described(&digest, 99).is_none());
    assert!(cache.described(&digest, 100).is_some() && cache.described(&digest, 101).is_some());
}

/// Two processes may compile the same module at the same time, and each may end before the other.
#[test]
fn code_that_is_replaced_or_removed_stays_usable() {
    let folder = tempfile::tempdir().unwrap();
    let cache = cache(&folder.path().join("cache"), rustix::process::geteuid());
    let wasm = wat::parse_str(r#"(module (func (export "f") (result i32) (i32.const 7)))"#).unwrap();
    let digest = Digest::of(&wasm);
    cache.keep_code(&digest, &Compiler::Baseline.compile(&wasm).unwrap());
    let loaded = cache.code(&digest, Compiler::Baseline).unwrap();
    let call = |code: &MachineCode| {
        let mut store = wasmtime::Store::new(code.compiler.engine().unwrap(), ());
        store.set_epoch_deadline(1);
        let instance = wasmtime::Instance::new(&mut store, &code.module, &[]).unwrap();
        instance.get_typed_func::<(), i32>(&mut store, "f").unwrap().call(&mut store, ()).unwrap()
    };
    cache.keep_code(&digest, &Compiler::Baseline.compile(&wasm).unwrap());
    assert_eq!(call(&loaded), 7);
    cache.keep_code(&digest, &Compiler::Optimising.compile(&wasm).unwrap());
    assert!(cache.code(&digest, Compiler::Baseline).is_none());
    assert_eq!([call(&loaded), call(&cache.code(&digest, Compiler::Optimising).unwrap())], [7, 7]);
    assert_eq!(files(&cache.path).len(), 1);
}

#[test]
fn what_was_not_used_for_long_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let us = rustix::process::geteuid();
    let path = folder.path().join("cache");
    assert!(keeps(us, &path));
    let aged = |name: &str, age: Duration| {
        let path = path.join(name);
        let file = File::options().create(true).append(true).open(&path).unwrap();
        file.set_modified(SystemTime::now() - age).unwrap();
        path
    };
    let day = Duration::from_secs(24 * 3600);
    let removed = [aged("0.cwasm", 40 * day), aged("0.specification", 40 * day), aged("0.partial", day)];
    let entry = files(&path).into_iter().find(|path| path.to_str().unwrap().contains("baseline")).unwrap();
    let kept = [
        aged("1.cwasm", 20 * day),
        aged("1.specification", 20 * day),
        aged("1.partial", Duration::ZERO),
        aged("not-ours.txt", 40 * day),
    ];
    // Using an entry sets its time.
    File::options().append(true).open(&entry).unwrap().set_modified(SystemTime::now() - 40 * day).unwrap();
    assert!(has(us, &path) && keeps(us, &path));
    assert!(removed.iter().all(|path| !path.exists()));
    assert!(kept.iter().all(|path| path.exists()) && entry.exists());
}
