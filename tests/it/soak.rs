//! Fifty pipelines for a while, looked at, changed and stopped all the time: nothing is lost, nothing comes twice, and
//! memory does not grow.
//!
//! A check soaks for half a minute. `ANABRANCH_SOAK=600 cargo test --workspace --test it -- --nocapture soak` does so for
//! ten; `ANABRANCH_SEED` repeats the choices of another time.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::api::{ask, get};
use crate::fault_plan::{number, seed};
use crate::process::{PATIENCE, Workspace, base64_decode};

const PIPELINES: usize = 50;
/// The first so many write files, of which every record is counted in the end.
const COUNTED: usize = 10;
/// Records a second of one pipeline.
const RATE: usize = 100;

/// A pipeline with a branch; `version` is what an apply changes.
fn pipeline(id: usize, version: usize) -> String {
    let destination = match id {
        0..COUNTED => format!("{{ id: out, type: destination, plugin: file, settings: {{ path: out/{id}.ndjson }} }}"),
        _ => "{ id: out, type: destination, plugin: drop }".to_owned(),
    };
    format!(
        r#"version: "2.2"
pipelines:
  - id: p{id}
    connectors:
      - id: in
        type: source
        plugin: generator
        settings: {{ rate: "{RATE}", format.type: structured, format.options.id: int, operations: "create,delete" }}
      - {destination}
    processors:
      - {{ id: mark, plugin: field.set, settings: {{ field: .Metadata.version, value: "{version}" }} }}
      - {{ id: some, plugin: field.set, condition: '{{{{ eq .Operation.String "delete" }}}}',
          settings: {{ field: .Metadata.gone, value: "yes" }} }}
"#
    )
}

/// Resident memory in bytes.
fn resident(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) << 10
}

/// Samples of the memory of the service, since the start of the soak.
struct Memory {
    third: Duration,
    samples: Vec<(Duration, u64)>,
}

impl Memory {
    /// The medians of the third before the last one, and of the last one.
    fn of_the_last_thirds(&self) -> (u64, u64) {
        let end = self.samples.last().map_or(Duration::ZERO, |(at, _)| *at);
        let median = |from: Duration, to: Duration| {
            let mut part: Vec<u64> =
                self.samples.iter().filter(|(at, _)| (from..=to).contains(at)).map(|(_, bytes)| *bytes).collect();
            part.sort_unstable();
            part.get(part.len() / 2).copied().unwrap_or_default()
        };
        let (middle, begin) = (end.saturating_sub(self.third), end.saturating_sub(2 * self.third));
        (median(begin, middle), median(middle, end))
    }

    /// Returns `true` if the last third needed more than the one before, as nothing does that has been there for a
    /// while.
    fn grows(&self) -> bool {
        let (early, late) = self.of_the_last_thirds();
        late >= early + early / 8 + (4 << 20)
    }
}

/// Watches a pipeline over a websocket for a moment, and hangs up. Bytes of what it was shown.
fn inspect(address: SocketAddr, path: &str, moment: Duration) -> usize {
    let Ok(mut stream) = TcpStream::connect(address) else { return 0 };
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let (begin, mut seen, mut buffer) = (Instant::now(), Vec::new(), [0; 16384]);
    while begin.elapsed() < moment {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => seen.extend_from_slice(&buffer[..read]),
            Err(_) => {}
        }
    }
    let text = String::from_utf8_lossy(&seen);
    assert!(seen.is_empty() || text.starts_with("HTTP/1.1 101 "), "{path}: {text}");
    text.split_once("\r\n\r\n").map_or(0, |(_, frames)| frames.len())
}

/// Plans and applies another version of a pipeline.
fn apply(address: SocketAddr, id: usize, version: usize) {
    let yaml = pipeline(id, version);
    let plan = ask(
        address,
        "POST",
        "/v1/pipelines/plan",
        "Content-Type: application/json\r\n",
        &json!({ "yaml": yaml }).to_string(),
    );
    assert_eq!(plan.status, 200, "{}", plan.body);
    let body = json!({ "yaml": yaml, "hash": plan.json()["hash"] }).to_string();
    let applied = ask(address, "POST", "/v1/pipelines/apply", "Content-Type: application/json\r\n", &body);
    assert_eq!(applied.status, 200, "{}", applied.body);
}

fn word(address: SocketAddr, id: usize) -> String {
    let pipeline = get(address, &format!("/v1/pipelines/p{id}")).json();
    pipeline["state"]["word"].as_str().unwrap_or_default().to_owned()
}

fn start_or_stop(address: SocketAddr, id: usize, what: &str) -> u16 {
    ask(address, "POST", &format!("/v1/pipelines/p{id}/{what}"), "Content-Type: application/json\r\n", "{}").status
}

#[track_caller]
fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < PATIENCE, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_busy_service_stays_as_it_is() {
    let time = Duration::from_secs(number("ANABRANCH_SOAK").unwrap_or(30));
    let seed = seed();
    let workspace = Workspace::new();
    std::fs::create_dir(workspace.path("out")).unwrap();
    for id in 0..PIPELINES {
        workspace.write(&format!("pipelines/p{id}.yaml"), pipeline(id, 0));
    }
    let mut process = workspace.start(&["run"]);
    let address = process.address();
    process.wait_until("all pipelines", || get(address, "/readyz").json()["pipelines"]["running"] == PIPELINES);

    let ended = AtomicBool::new(false);
    let (seen, applied, stopped) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let mut memory = Memory { third: time / 3, samples: Vec::new() };
    std::thread::scope(|scope| {
        for watcher in 0..3 {
            let (ended, seen) = (&ended, &seen);
            let mut random = fastrand::Rng::with_seed(seed ^ watcher);
            scope.spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    let at = random
                        .choice(["", "?at=mark&side=before", "?at=some&side=after", "?at=out&sample=5"])
                        .unwrap_or("");
                    let path = format!("/v1/pipelines/p{}/inspect{at}", random.usize(..PIPELINES));
                    seen.fetch_add(
                        inspect(address, &path, Duration::from_millis(random.u64(..400))),
                        Ordering::Relaxed,
                    );
                }
            });
        }
        // Even ones are changed, odd ones stopped and started: neither gets into the way of the other.
        let mut random = fastrand::Rng::with_seed(seed ^ 10);
        let (ended_, applied, stopped) = (&ended, &applied, &stopped);
        scope.spawn(move || {
            while !ended_.load(Ordering::Relaxed) {
                apply(address, 2 * random.usize(..PIPELINES / 2), 1 + applied.fetch_add(1, Ordering::Relaxed));
                std::thread::sleep(Duration::from_millis(random.u64(..100)));
            }
        });
        let mut random = fastrand::Rng::with_seed(seed ^ 11);
        scope.spawn(move || {
            while !ended_.load(Ordering::Relaxed) {
                let id = 2 * random.usize(..PIPELINES / 2) + 1;
                assert_eq!(start_or_stop(address, id, "stop"), 200);
                wait_for("a stop", || word(address, id) == "stopped");
                assert_eq!(start_or_stop(address, id, "start"), 200);
                wait_for("a start", || word(address, id) == "running");
                stopped.fetch_add(1, Ordering::Relaxed);
            }
        });
        let begin = Instant::now();
        let mut thirds = 3;
        while begin.elapsed() < memory.third * thirds && process.is_running() {
            memory.samples.push((begin.elapsed(), resident(process.id())));
            assert_eq!(get(address, "/metrics").status, 200);
            std::thread::sleep(time / 60);
            // A slow machine may not have come to all that takes memory once. What comes without end goes on coming.
            if begin.elapsed() >= memory.third * thirds && memory.grows() && thirds < 12 {
                thirds += 1;
            }
        }
        ended.store(true, Ordering::Relaxed);
    });
    assert!(process.is_running());
    let live = get(address, "/v1/live").json();
    let pipelines = live["pipelines"].as_array().unwrap();
    assert_eq!(pipelines.len(), PIPELINES);
    let ill: Vec<&Value> = pipelines.iter().filter(|pipeline| pipeline["failed"] != 0).collect();
    assert!(ill.is_empty(), "{ill:?}");
    for id in 0..PIPELINES {
        let _ = start_or_stop(address, id, "stop");
    }
    for id in 0..PIPELINES {
        wait_for("the last stop", || word(address, id) == "stopped");
    }
    process.signal("TERM");
    // A long soak has used up the time that a process has in all.
    process.wait_for_end();
    process.finish().expect_code(0);

    let (seen, applied, stopped) = (seen.into_inner(), applied.into_inner(), stopped.into_inner());
    let mut rows = 0;
    for id in 0..COUNTED {
        let lines = workspace.lines(&format!("out/{id}.ndjson"));
        let position = |line: &String| {
            let record: Value = serde_json::from_str(line).unwrap();
            String::from_utf8(base64_decode(record["position"].as_str().unwrap())).unwrap().parse::<usize>().unwrap()
        };
        let positions: Vec<usize> = lines.iter().map(position).collect();
        assert_eq!(positions, (1..=lines.len()).collect::<Vec<_>>(), "p{id}: in order, each once");
        rows += lines.len();
    }
    let (early, late) = memory.of_the_last_thirds();
    let mut report = String::new();
    let _ = write!(
        report,
        "{rows} records counted, {applied} applies, {stopped} stops, {seen} bytes inspected; {} MB, then {} MB",
        early >> 20,
        late >> 20
    );
    println!("{report}");
    assert!(rows > COUNTED * RATE && applied > 0 && stopped > 0 && seen > 0, "{report}");
    assert!(!memory.grows(), "memory grows: {report}");
}
