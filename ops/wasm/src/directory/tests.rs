use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::operator::tests::wasm;

#[test]
fn what_is_no_processor_and_what_is_there_twice_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let options = Options { cache: Some(cache.clone()), ..Options::default() };
    let compiled = Mutex::new(Vec::new());
    let load = || {
        compiled.lock().unwrap().clear();
        let tell = |path: &Path, size| compiled.lock().unwrap().push((path.file_name().unwrap().to_owned(), size));
        let found = load(folder.path(), &options, &tell);
        compiled.lock().unwrap().sort();
        found
    };
    let put = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    put("a.wasm", &wasm("call $all_kept"));
    put("broken.wasm", b"\0asm\x01\0\0\0garbage");
    put("notes.txt", b"not looked at");
    let found = load();
    assert_eq!(found.operators.len(), 1, "{:?}", found.refused);
    assert_eq!(found.operators[0].specification().name, "the-test");
    assert_eq!(found.refused.len(), 1);

    let kept: Vec<_> = fs::read_dir(&cache).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(kept.len(), 1);
    assert_eq!(fs::metadata(&kept[0]).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(compiled.lock().unwrap().iter().any(|(name, size)| name == "a.wasm" && *size > 100));
    assert_eq!(load().operators.len(), 1);
    assert!(!compiled.lock().unwrap().iter().any(|(name, _)| name == "a.wasm"));

    // What was loaded lately stays when something else is compiled, and what was not goes.
    let put_aside = cache.join("0000.cwasm");
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(40 * 24 * 3600);
    for path in [&put_aside, &kept[0], &cache.join("not-ours.txt")] {
        let file = fs::File::options().create(true).append(true).open(path).unwrap();
        file.set_modified(long_ago).unwrap();
    }
    put("b.wasm", &wasm("call $keep"));
    let found = load();
    assert!(!put_aside.exists() && kept[0].exists() && cache.join("not-ours.txt").exists());
    assert!(found.operators.is_empty());
    let twice: Vec<_> =
        found.refused.iter().filter(|(_, reason)| reason.contains("a.wasm") && reason.contains("b.wasm")).collect();
    assert_eq!(twice.len(), 2, "{:?}", found.refused);
}

#[test]
fn no_directory_holds_nothing() {
    let found = load(Path::new("/nowhere/at/all"), &Options::default(), &|_, _| ());
    assert!(found.operators.is_empty() && found.refused.is_empty());
}

#[test]
fn a_file_that_is_not_a_module_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, first: &[u8], size: u64| {
        let path = folder.path().join(name);
        fs::write(&path, first).unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_len(size).unwrap();
    };
    // Larger than what a test can read.
    put("huge.wasm", b"", 1 << 40);
    put("huge-module.wasm", &MAGIC, 1 << 40);
    put("script.wasm", b"#!/bin/sh", 9);
    put("short.wasm", &MAGIC[..3], 3);
    put("empty.wasm", b"", 0);
    let found = load(folder.path(), &Options::default(), &|path, _| panic!("{} is compiled", path.display()));
    let reason = |name: &str| {
        let refused = found.refused.iter().find(|(path, _)| path.ends_with(name));
        refused.unwrap_or_else(|| panic!("{name} is not refused")).1.as_str()
    };
    for name in ["huge.wasm", "script.wasm", "short.wasm", "empty.wasm"] {
        assert_eq!(
            reason(name),
            "it is not a WebAssembly module: it does not begin with the bytes 00 61 73 6d",
            "{name}"
        );
    }
    assert_eq!(reason("huge-module.wasm"), "it is too large: 1099511627776 bytes, the limit is 268435456 bytes");
}
