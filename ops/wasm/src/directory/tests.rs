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
