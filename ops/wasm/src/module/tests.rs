use std::fs;
use std::sync::Barrier;
use std::thread;

use super::*;

const MODULE: &[u8] = b"\0asm\x01\0\0\0";

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        let folder = Folder(tempfile::tempdir().unwrap());
        fs::write(folder.wasm(), MODULE).unwrap();
        folder
    }

    fn wasm(&self) -> PathBuf {
        self.0.path().join("module.wasm")
    }

    fn cache(&self) -> Option<Cache> {
        Some(Cache::new(self.0.path().join("cache")))
    }

    /// As another process sees it.
    fn module(&self) -> Arc<ModuleFile> {
        Arc::new(ModuleFile::open(&self.wasm(), self.cache()).unwrap())
    }

    /// The first words of the names in the cache.
    fn cached(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path().join("cache")).unwrap().map(|entry| entry.unwrap());
        let names = entries.map(|entry| entry.file_name().into_string().unwrap());
        let mut names: Vec<String> = names.map(|name| name.split('-').nth(1).unwrap().to_owned()).collect();
        names.sort();
        names
    }
}

/// The compiler of the code for the next instance, and whether it had to be compiled.
fn code(module: &ModuleFile) -> (Compiler, bool) {
    let compiled = AtomicBool::new(false);
    let compiling = |compiling: Compiling<'_>| {
        compiled.fetch_or(matches!(compiling, Compiling::Ended { .. }), Ordering::Relaxed);
    };
    let code = module.code(&compiling).unwrap();
    (code.compiler, compiled.into_inner())
}

#[test]
fn optimised_code_is_used_from_the_next_instance_on() {
    let folder = Folder::new();
    let module = folder.module();
    assert_eq!(code(&module), (Compiler::Baseline, true));
    assert_eq!(code(&module), (Compiler::Baseline, false));
    assert_eq!(folder.cached(), ["baseline"]);
    // A process that was started meanwhile, and one that is started later.
    let meanwhile = folder.module();
    assert_eq!(code(&meanwhile), (Compiler::Baseline, false));
    module.optimise().unwrap();
    assert_eq!(folder.cached(), ["optimised"]);
    assert_eq!(code(&module), (Compiler::Optimising, false));
    assert_eq!(code(&meanwhile), (Compiler::Optimising, false));
    assert_eq!(code(&folder.module()), (Compiler::Optimising, false));
}

#[test]
fn nothing_is_compiled_twice_by_the_workers_of_a_processor() {
    let folder = Folder::new();
    let module = folder.module();
    let (begin, compiled) = (Barrier::new(4), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                begin.wait();
                let found = code(&module);
                compiled.lock().unwrap().push(found);
            });
        }
    });
    let compiled = compiled.into_inner().unwrap();
    assert_eq!(compiled.iter().filter(|(_, compiled)| *compiled).count(), 1, "{compiled:?}");
}

#[test]
fn optimised_code_is_made_on_a_thread_when_a_pipeline_opens_baseline_code() {
    for cached in [true, false] {
        let folder = Folder::new();
        let cache = folder.cache().filter(|_| cached);
        let module = Arc::new(ModuleFile::open(&folder.wasm(), cache).unwrap());
        assert_eq!(module.code_to_run().unwrap().compiler, Compiler::Baseline);
        let begun = Instant::now();
        while module.code_to_run().unwrap().compiler == Compiler::Baseline {
            assert!(begun.elapsed() < Duration::from_secs(60));
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Code of another file would belong to another specification.
#[test]
fn a_file_that_has_changed_is_not_compiled() {
    let folder = Folder::new();
    let module = folder.module();
    fs::write(folder.wasm(), [MODULE, b"\0\x02\x01a"].concat()).unwrap();
    let error = module.code(&|_| ()).err().unwrap().to_string();
    assert!(error.contains("module.wasm has changed") && error.contains("restart the service"), "{error}");
    assert!(matches!(module.optimise(), Err(CodeError::Changed(_))));

    // Code that is there needs no file.
    let module = folder.module();
    assert_eq!(code(&module), (Compiler::Baseline, true));
    fs::remove_file(folder.wasm()).unwrap();
    assert_eq!(code(&module), (Compiler::Baseline, false));
}
