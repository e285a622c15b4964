use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::module::MAGIC;
use crate::operator::tests::wasm;

#[test]
fn what_is_no_processor_and_what_is_there_twice_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let options = Options { cache: Some(cache.clone()), ..Options::default() };
    let compiled = Mutex::new(Vec::new());
    let load = || {
        compiled.lock().unwrap().clear();
        let tell = |compiling: Compiling<'_>| {
            if let Compiling::Ended { path, bytes, .. } = compiling {
                compiled.lock().unwrap().push((path.file_name().unwrap().to_owned(), bytes));
            }
        };
        load(folder.path(), &options, &tell)
    };
    let put = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    put("a.wasm", &wasm("call $all_kept"));
    put("broken.wasm", b"\0asm\x01\0\0\0garbage");
    put("notes.txt", b"not looked at");
    let found = load();
    assert_eq!(found.operators.len(), 1, "{:?}", found.refused);
    assert_eq!(found.operators[0].specification().name, "the-test");
    assert_eq!(found.refused.len(), 1);

    let kept = || fs::read_dir(&cache).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    assert_eq!(kept().len(), 2);
    for path in kept() {
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    assert!(compiled.lock().unwrap().iter().any(|(name, size)| name == "a.wasm" && *size > 100));

    // The specification alone is enough to know a processor.
    let code = kept().into_iter().find(|path| path.extension().is_some_and(|extension| extension == "cwasm"));
    fs::remove_file(code.unwrap()).unwrap();
    let again = load();
    assert_eq!(again.operators[0].specification(), found.operators[0].specification());
    assert!(compiled.lock().unwrap().is_empty());
    assert_eq!(kept().len(), 1);

    put("b.wasm", &wasm("call $keep"));
    let found = load();
    assert!(found.operators.is_empty());
    let twice: Vec<_> =
        found.refused.iter().filter(|(_, reason)| reason.contains("a.wasm") && reason.contains("b.wasm")).collect();
    assert_eq!(twice.len(), 2, "{:?}", found.refused);
}

#[test]
fn no_directory_holds_nothing() {
    let found = load(Path::new("/nowhere/at/all"), &Options::default(), &|_| ());
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
    let found = load(folder.path(), &Options::default(), &|compiling| panic!("{compiling:?}"));
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
