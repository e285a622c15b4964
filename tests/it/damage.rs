//! A store with broken bytes, a disk that fills up, a process that may open few files: refused with a message, or gone on
//! with; never started from nothing, never a panic.

use std::collections::BTreeSet;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anabranch_plugin::state::{Commit, StateStore as _, Unit};
use anabranch_record::mark::Mark;
use anabranch_settings::Database;
use anabranch_store::{OpenError, Store};

use crate::api::{ask, get};
use crate::process::{PATIENCE, Process, Workspace, file_to_file, numbered_lines, raw_after, skip};

fn workspace(lines: usize) -> Workspace {
    let workspace = Workspace::new();
    workspace.write("in.txt", wide_lines(0..lines));
    workspace.write("pipelines/p.yaml", file_to_file("stored", ""));
    workspace
}

/// Lines of a hundred bytes, each with a number of its own.
fn wide_lines(numbers: std::ops::Range<usize>) -> String {
    numbers.map(|i| format!("line {i:0>94}\n")).collect()
}

/// `run --once` in a shell that sets a limit before it becomes the program. What fails fails at once.
fn limited(workspace: &Workspace, limit: &str) -> (Option<i32>, String) {
    let program = workspace.command(["run", "--once"]);
    let mut shell = Command::new("sh");
    // A write beyond the limit is to fail, as one on a full disk does, and not to end the process. Files that whoever
    // runs the tests has open would count.
    let inherited: String = (3..10).map(|file| format!(" {file}>&-")).collect();
    let run = "run --once --pipelines.error-recovery.max-retries=0";
    shell.args(["-c", &format!("trap '' XFSZ; exec{inherited}; ulimit {limit} && exec \"$0\" {run}")]);
    shell.arg(program.get_program()).current_dir(workspace.root()).env_clear().stdin(Stdio::null());
    shell.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = Process::spawn(&mut shell).finish();
    let text = output.both();
    assert!(!text.contains("panicked") && !text.contains("internal error"), "{limit}: {text}");
    (output.code(), text)
}

/// The lines that were delivered, each once; a line that is not whole fails the test.
fn delivered(workspace: &Workspace) -> BTreeSet<String> {
    workspace.lines("out.ndjson").iter().map(|record| raw_after(record)).collect()
}

/// Starts a service with a store of these bytes: it refuses and leaves the store, or continues where it was.
fn survives(workspace: &Workspace, what: &str, bytes: &[u8], lines: usize) -> bool {
    workspace.write("anabranch.db", bytes);
    let output = workspace.run(&["run", "--once"]);
    let text = output.both();
    assert!(!text.contains("panicked") && !text.contains("internal error"), "{what}: {text}");
    assert_eq!(workspace.lines("out.ndjson").len(), lines, "{what}: restarted from nothing: {text}");
    if output.code() == Some(0) {
        return true;
    }
    assert_eq!(output.code(), Some(3), "{what}: {text}");
    assert!(text.contains("anabranch.db"), "{what}: {text}");
    assert!(std::fs::read(workspace.path("anabranch.db")).unwrap() == bytes, "{what}: not left as it was");
    false
}

#[test]
fn a_store_that_is_cut_off_at_any_page_is_refused() {
    let workspace = workspace(10);
    workspace.once();
    let whole = std::fs::read(workspace.path("anabranch.db")).unwrap();
    let pages = whole.len() / 4096;
    // Every page where there are few, and so many of them where there are more.
    let step = pages.div_ceil(100);
    for page in (0..pages).step_by(step) {
        for length in [page * 4096, page * 4096 + 1 + page % 4095] {
            let survived = survives(&workspace, &format!("{length} bytes"), &whole[..length], 10);
            assert!(!survived, "{length} bytes of {} were taken for all", whole.len());
        }
    }
}

/// Where the bytes of a text are.
fn places(bytes: &[u8], text: &str) -> Vec<usize> {
    bytes.windows(text.len()).enumerate().filter(|(_, window)| *window == text.as_bytes()).map(|(at, _)| at).collect()
}

#[test]
fn a_store_with_a_flipped_bit_is_refused_or_holds_what_it_held() {
    let workspace = workspace(10);
    workspace.once();
    let whole = std::fs::read(workspace.path("anabranch.db")).unwrap();
    let copy = workspace.path("copy.db");
    let expected = held(&copy, &whole, "untouched").unwrap();
    let refused = |at: usize, bit: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << bit;
        !survives(&workspace, &format!("bit {bit} of byte {at}"), &bytes, 10)
    };
    // By its first bytes a file is a store.
    for at in 0..CHOICE {
        assert!(refused(at, at % 8), "byte {at} says that it is another file, and was taken for a store");
    }
    // The store has its content once, and again in pages of earlier commits, which nothing reads.
    let places = places(&whole, "stored");
    let noticed = places.iter().filter(|at| refused(**at + 3, 1)).count();
    assert!(noticed > 0, "{} places hold the id of the pipeline, and any of them may change", places.len());
    // Elsewhere a start notices what reading all that is there notices. Bits of pages that were never used say nothing.
    let used: Vec<usize> = (SLOTS..whole.len()).filter(|at| whole[*at] != 0).collect();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..30 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (at, bit) = (used[(random >> 33) as usize % used.len()], (random >> 60) as usize % 8);
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << bit;
        let found = held(&copy, &bytes, &format!("bit {bit} of byte {at}"));
        assert!(found.as_ref().is_none_or(|found| *found == expected), "bit {bit} of byte {at} changes what is read");
        assert_eq!(refused(at, bit), found.is_none(), "bit {bit} of byte {at}");
    }
}

/// Opens a store that nobody else uses. A process that another test starts holds copies of all open files, with their
/// locks, until it runs its program: meanwhile the store is said to be in use.
fn open(database: &Database) -> Result<Store, OpenError> {
    let begun = Instant::now();
    loop {
        match Store::open(database) {
            Err(OpenError::InUse { .. }) if begun.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(1)),
            opened => return opened,
        }
    }
}

/// All that is read from a store with these bytes: `None` where it is refused, or an answer says that it is damaged. A
/// store that is taken can be written, and is sound and whole after that.
fn held(path: &Path, bytes: &[u8], what: &str) -> Option<String> {
    std::fs::write(path, bytes).unwrap();
    let database = Database::Embedded(path.to_path_buf());
    let id = "stored".into();
    let unit = Unit::whole("stored");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let store = open(&database).ok()?;
        let (pipelines, detached) = (store.pipelines().await.ok()?, store.detached_marks(&id).await.ok()?);
        let epoch = store.claim(&unit).await.ok()?;
        let marks = store.load(&epoch).await.ok()?;
        let (lane, mark) = marks.iter().next().expect(what);
        let later = Mark { seq: mark.seq + 1, ..mark.clone() };
        store.commit(&epoch, Commit::of(&[(lane.clone(), later.clone())])).await.expect(what);
        drop(store);
        let store = open(&database).expect(what);
        assert_eq!(store.pipelines().await.expect(what), pipelines, "{what}");
        let epoch = store.claim(&unit).await.expect(what);
        assert_eq!(store.load(&epoch).await.expect(what).get(lane), Some(&later), "{what}");
        Some(format!("{pipelines:?} {detached:?} {epoch:?} {marks:?}"))
    })
}

/// The file begins with a header of 64 bytes and two slots of 128, of which one says where the latest state is.
const HEADER: usize = 64;
const CHOICE: usize = 9;
const SLOTS: usize = HEADER + 2 * 128;

#[test]
fn bits_that_may_flip_unnoticed_hold_nothing() {
    let workspace = workspace(10);
    workspace.once();
    let whole = std::fs::read(workspace.path("anabranch.db")).unwrap();
    let copy = workspace.path("copy.db");
    let expected = held(&copy, &whole, "untouched").unwrap();
    // Every bit of the byte that says which slot counts, and bits of some bytes of the header, the slots and the rest.
    let choice = (0..8).map(|bit| (CHOICE, bit));
    let header = (0..SLOTS).step_by(3).map(|at| (at, at % 8));
    let rest = (SLOTS..whole.len()).filter(|at| whole[*at] != 0).step_by(101).map(|at| (at, at % 8));
    let (mut refused, mut in_header, mut in_slots) = (0, 0, 0);
    let mut dead = Vec::new();
    for (at, bit) in choice.chain(header).chain(rest) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << bit;
        let what = format!("bit {bit} of byte {at}");
        match held(&copy, &bytes, &what) {
            None => refused += 1,
            Some(found) => {
                assert_eq!(found, expected, "{what} is not noticed, and changes what is read");
                assert!(at >= CHOICE, "{what} says that it is another file");
                match at {
                    0..HEADER => in_header += 1,
                    HEADER..SLOTS => in_slots += 1,
                    _ => dead.push((at, bit)),
                }
            }
        }
    }
    // Pages that are free and ends of pages that are not full: nothing reads them, whatever is there.
    let mut bytes = whole.clone();
    dead.iter().for_each(|(at, bit)| bytes[*at] ^= 1 << bit);
    assert_eq!(held(&copy, &bytes, "all together").as_ref(), Some(&expected), "together they do change what is read");
    println!(
        "{refused} bits refused; of those that were not, {in_header} in the header, {in_slots} in the slots, {} in what \
         nothing reads",
        dead.len()
    );
    // Of the places that hold the id of the pipeline the one that counts is noticed, whatever bit flips in it.
    for bit in 0..8 {
        let noticed = |at: &usize| {
            let mut bytes = whole.clone();
            bytes[*at] ^= 1 << bit;
            held(&copy, &bytes, &format!("bit {bit} of byte {at}")).is_none()
        };
        assert!(places(&whole, "stored").iter().any(noticed), "bit {bit} of the id is not noticed");
    }
}

#[test]
fn a_store_on_a_full_disk_stops_the_pipeline_and_goes_on_when_there_is_room() {
    let workspace = workspace(10);
    let (code, text) = limited(&workspace, "-f 16");
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("anabranch.db") && text.to_lowercase().contains("file too large"), "{text}");
    assert!(!workspace.path("anabranch.db").exists(), "half a store is none");
    workspace.once();
    workspace.write("in.txt", wide_lines(0..20));
    let (code, text) = limited(&workspace, "-f 16");
    assert_ne!(code, Some(0), "{text}");
    assert!(text.to_lowercase().contains("file too large"), "{text}");
    workspace.once();
    let expected: BTreeSet<String> = workspace.lines("in.txt").into_iter().collect();
    assert!(delivered(&workspace) == expected, "a line is missing");
    let first = workspace.lines("in.txt").swap_remove(0);
    let copies = workspace.lines("out.ndjson").iter().filter(|record| raw_after(record) == first).count();
    assert_eq!(copies, 1, "restarted from nothing");
}

#[test]
fn too_few_open_files_end_the_run_with_a_message() {
    let mut ended_well = 0;
    // Upwards, until there are enough for sure.
    for files in 6..200 {
        let workspace = workspace(10);
        let (code, text) = limited(&workspace, &format!("-n {files}"));
        if code == Some(0) {
            assert_eq!(delivered(&workspace).len(), 10, "{files}: {text}");
            ended_well += 1;
        } else {
            assert!(text.to_lowercase().contains("open files"), "{files}: {code:?} {text}");
            ended_well = 0;
        }
        if ended_well == 10 {
            return;
        }
    }
    panic!("two hundred files are enough");
}

/// Everything was delivered, whole and once.
fn all_delivered(workspace: &Workspace) {
    let expected: BTreeSet<String> = workspace.lines("in.txt").into_iter().collect();
    let records = workspace.lines("out.ndjson");
    assert!(workspace.read("out.ndjson").ends_with('\n'), "the last line is not whole");
    assert!(delivered(workspace) == expected, "a line is missing, or is not whole");
    assert_eq!(records.len(), expected.len(), "lines came again");
}

/// A service that outlives a write beyond its limit of the size of files, and is run by `script`.
fn service(workspace: &Workspace, script: &str) -> Process {
    let mut shell = Command::new("sh");
    let program = workspace.command(["run"]);
    shell.args(["-c", &format!("trap '' XFSZ; {script}")]);
    shell.arg(program.get_program()).current_dir(workspace.root()).env_clear().stdin(Stdio::null());
    shell.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    Process::spawn(&mut shell)
}

/// The service was silent, and its probes timed out.
#[test]
fn too_few_open_files_are_told_with_their_limit() {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(3));
    for n in 0..30 {
        let text = file_to_file(&format!("p{n}"), "").replace("out.ndjson", &format!("out{n}.ndjson"));
        workspace.write(&format!("pipelines/p{n}.yaml"), text);
    }
    let mut process = service(&workspace, "ulimit -n 64 && exec \"$0\" run");
    let address = process.address();
    let printed = process.printed();
    process.wait_until("the limit", || printed().contains("can open 64 files, but the pipelines"));
    assert!(printed().contains("need at least 140"), "{}", printed());
    let mut clients = Vec::new();
    process.wait_until("why nobody is answered", || {
        if clients.len() < 100 {
            clients.extend(TcpStream::connect_timeout(&address, Duration::from_secs(1)));
        }
        printed().contains("the HTTP server cannot accept connections: too many files are open")
    });
    drop(clients);
    process.signal("TERM");
    process.finish();
}

fn has_prlimit() -> bool {
    let there = Command::new("prlimit").arg("--version").output().is_ok();
    if !there {
        skip("prlimit is not there to change a limit");
    }
    there
}

/// How large a file may be that the process writes to. Only the soft limit: it can be lifted again.
fn allow(process: &Process, bytes: &str) {
    let change = [format!("--fsize={bytes}:"), "--pid".to_owned(), process.id().to_string()];
    let changed = Command::new("prlimit").args(change).output().unwrap();
    assert!(changed.status.success(), "{changed:?}");
}

#[test]
fn a_destination_on_a_full_disk_is_tried_again_and_goes_on_when_there_is_room() {
    if !has_prlimit() {
        return;
    }
    let workspace = workspace(20_000);
    // Two megabytes, of eight that are needed.
    let mut process = service(&workspace, "ulimit -S -f 4096 && exec \"$0\" run >log.txt 2>&1");
    process.wait_until("the reason", || {
        let said = |line: &String| {
            line.contains("retries continue")
                && line.to_lowercase().contains("file too large")
                && line.contains("out.ndjson")
        };
        workspace.lines("log.txt").iter().any(said)
    });
    assert!(workspace.lines("out.ndjson").len() < 20_000, "it was full");
    allow(&process, "unlimited");
    process.wait_until("the last line", || workspace.lines("out.ndjson").len() == 20_000);
    process.signal("INT");
    let output = process.finish().expect_code(0);
    assert!(!output.both().contains("panicked"));
    all_delivered(&workspace);
}

/// A service whose recovery does not wait long, and what it prints.
const SOON: &str =
    "exec \"$0\" run --pipelines.error-recovery.min-delay=20ms --pipelines.error-recovery.max-delay=100ms";

/// Less than the store has, and more than the lines need.
const ROOM: &str = "16384";

#[test]
fn the_same_process_goes_on_when_the_disk_of_its_store_was_full() {
    if !has_prlimit() {
        return;
    }
    let workspace = workspace(5);
    let mut process = service(&workspace, SOON);
    let (address, printed) = (process.address(), process.printed());
    process.wait_until("the first lines", || workspace.lines("out.ndjson").len() == 5);
    process.wait_until("readiness", || get(address, "/readyz").status == 200);
    allow(&process, ROOM);
    workspace.append("in.txt", &wide_lines(5..8));
    process.wait_until("the error", || {
        let said = printed().to_lowercase();
        said.contains("state store") && said.contains("file too large")
    });
    process.wait_until("it to be unready", || get(address, "/readyz").status == 503);
    allow(&process, "unlimited");
    workspace.append("in.txt", &wide_lines(8..20));
    let expected: BTreeSet<String> = workspace.lines("in.txt").into_iter().collect();
    process.wait_until("the last line", || delivered(&workspace) == expected);
    process.wait_until("readiness", || get(address, "/readyz").status == 200);
    process.signal("INT");
    let text = process.finish().expect_code(0).both();
    assert!(!text.contains("panicked") && !text.contains("internal error"), "{text}");
    assert!(text.contains("the state store can be written again"), "{text}");
    assert!(!text.contains("re-open"), "advice for programmers, in the place of the cause: {text}");
    let lines = workspace.lines("out.ndjson").len();
    workspace.once();
    assert_eq!(workspace.lines("out.ndjson").len(), lines, "the position was not stored");
}

#[test]
fn a_service_that_cannot_write_its_store_is_not_ready_until_it_can() {
    if !has_prlimit() {
        return;
    }
    let workspace = workspace(5);
    let mut process = service(&workspace, SOON);
    let address = process.address();
    process.wait_until("the first lines", || workspace.lines("out.ndjson").len() == 5);
    let change = |verb: &str| ask(address, "POST", &format!("/v1/pipelines/stored/{verb}"), "", "");
    assert_eq!(change("stop").status, 200);
    process.wait_until("the end", || get(address, "/v1/pipelines/stored").body.contains("STATUS_STOPPED"));
    assert_eq!(get(address, "/readyz").status, 200);
    allow(&process, ROOM);
    let make = || ask(address, "POST", "/v1/pipelines", "", r#"{"id": "other", "config": {"name": "other"}}"#);
    for _ in 0..3 {
        let refused = make();
        assert_eq!((refused.status, refused.reason().as_str()), (503, "store.unavailable"), "{}", refused.body);
        assert!(refused.body.to_lowercase().contains("file too large"), "{}", refused.body);
    }
    // Longer than a failure is told before it is tried whether it is over.
    let asked = Instant::now();
    while asked.elapsed() < Duration::from_millis(1500) {
        let ready = get(address, "/readyz");
        assert!(ready.status == 503 && ready.body.to_lowercase().contains("file too large"), "{}", ready.body);
    }
    assert_eq!(get(address, "/v1/pipelines/stored").status, 200, "it can be read");
    // Nothing writes by itself now: asking is what finds out that there is room.
    allow(&process, "unlimited");
    process.wait_until("readiness", || get(address, "/readyz").status == 200);
    assert_eq!((make().status, change("start").status), (200, 200));
    workspace.append("in.txt", &wide_lines(5..10));
    process.wait_until("the last line", || workspace.lines("out.ndjson").len() == 10);
    process.signal("INT");
    process.finish().expect_code(0);
    all_delivered(&workspace);
}

/// Dead letters of several sizes find the disk full, and are written again at once or seldom. However small the writes are
/// that find room meanwhile, no probe says that the service is ready.
#[test]
fn every_probe_says_503_while_dead_letters_find_the_disk_full() {
    if !has_prlimit() {
        return;
    }
    const SELDOM: &str =
        "exec \"$0\" run --pipelines.error-recovery.min-delay=3s --pipelines.error-recovery.max-delay=3s";
    probe_while_full(SOON, 40, 512 << 10, 6 << 20);
    probe_while_full(SELDOM, 2, 14_000_000, 20 << 20);
}

/// Probes while `count` records of so many bytes all become dead letters, and the store may grow by `room` bytes.
fn probe_while_full(script: &str, count: usize, bytes: usize, room: u64) {
    let workspace = Workspace::new();
    let queue = "    dead-letter-queue: { plugin: store, window-size: 0, settings: { max-bytes: 1GiB } }\n";
    let processors = "      - { id: fail, plugin: error, settings: { message: no } }\n";
    workspace.write("in.txt", "");
    workspace.write("pipelines/p.yaml", file_to_file("stored", processors) + queue);
    let mut process = service(&workspace, script);
    let (address, printed) = (process.address(), process.printed());
    process.wait_until("readiness", || get(address, "/readyz").status == 200);
    let size = std::fs::metadata(workspace.path("anabranch.db")).unwrap().len();
    allow(&process, &(size + room).to_string());
    let lines: String = (0..count).map(|i| format!("{i:0>6}{}\n", "x".repeat(bytes))).collect();
    workspace.append("in.txt", &lines);
    process.wait_until("it to be unready", || get(address, "/readyz").status == 503);
    for probe in 1..=60 {
        let ready = get(address, "/readyz");
        assert_eq!(ready.status, 503, "probe {probe} of 60, {bytes} bytes: {}\n{}", ready.body, printed());
        assert!(ready.body.to_lowercase().contains("file too large"), "{}", ready.body);
        std::thread::sleep(Duration::from_millis(100));
    }
    allow(&process, "unlimited");
    let kept = format!("anabranch_dead_letters{{pipeline=\"stored\"}} {count}\n");
    process.wait_until("all letters", || get(address, "/metrics").body.contains(&kept));
    process.wait_until("readiness", || get(address, "/readyz").status == 200);
    process.signal("INT");
    let text = process.finish().expect_code(0).both();
    assert!(!text.contains("panicked") && !text.contains("internal error"), "{text}");
}

#[cfg(target_os = "linux")]
#[test]
fn what_a_full_device_did_not_take_is_delivered_elsewhere() {
    let workspace = workspace(100);
    let to = |path: &str| workspace.write("pipelines/p.yaml", file_to_file("stored", "").replace("out.ndjson", path));
    to("/dev/full");
    let output = workspace.run(&["run", "--once", "--pipelines.error-recovery.max-retries=0"]).expect_code(1);
    let text = output.both();
    assert!(text.contains("No space left on device") && text.contains("retries continue"), "{text}");
    to("out.ndjson");
    workspace.once();
    all_delivered(&workspace);
}
