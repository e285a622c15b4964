//! A PostgreSQL server that accepts connections and says nothing.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::process::{PATIENCE, Process, Workspace};

/// The longest time of a start and an end, without the time limit under test, on a busy machine.
const SPARE: Duration = PATIENCE;

/// Accepts, holds the connections, and never answers.
struct Silent {
    port: u16,
    accepted: Arc<Mutex<Vec<TcpStream>>>,
}

impl Silent {
    fn start() -> Silent {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let accepted = Arc::<Mutex<Vec<TcpStream>>>::default();
        let held = accepted.clone();
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                held.lock().unwrap().push(stream);
            }
        });
        Silent { port, accepted }
    }

    fn settings(&self, patience: u64) -> [String; 2] {
        let url = format!("postgresql://u:hunter2@127.0.0.1:{}/d?connect_timeout={patience}", self.port);
        ["--db.type=postgres".to_owned(), format!("--db.postgres.connection-string={url}")]
    }

    /// A service that waits for this server.
    fn awaited(&self, workspace: &Workspace, patience: u64) -> Process {
        let [kind, url] = self.settings(patience);
        let mut process = workspace.start(&["run", &kind, &url]);
        process.wait_until("a connection", || !self.accepted.lock().unwrap().is_empty());
        process
    }
}

/// Fails the test if it goes on for longer.
#[track_caller]
fn ends_within(process: &mut Process, limit: Duration) {
    let start = Instant::now();
    while process.is_running() {
        assert!(start.elapsed() < limit, "still running: {}", process.printed()());
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn the_service_says_who_does_not_answer_and_ends() {
    let (workspace, server) = (super::workspace(), Silent::start());
    let mut process = server.awaited(&workspace, 1);
    ends_within(&mut process, Duration::from_secs(2) + SPARE);
    let text = process.finish().expect_code(3).both();
    assert!(text.contains(&format!("127.0.0.1:{}", server.port)) && text.contains("no answer in 2 s"), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
}

#[test]
fn a_signal_ends_the_wait() {
    for signal in ["TERM", "INT"] {
        let (workspace, server) = (super::workspace(), Silent::start());
        let mut process = server.awaited(&workspace, 3600);
        process.signal(signal);
        ends_within(&mut process, SPARE);
        process.finish().expect_code(0);
    }
}

#[test]
fn a_second_signal_ends_the_wait_at_once() {
    let (workspace, server) = (super::workspace(), Silent::start());
    let mut process = server.awaited(&workspace, 3600);
    process.signal("INT");
    let printed = process.printed();
    process.wait_until("the first signal", || printed().contains("a second signal ends the service at once"));
    process.signal("TERM");
    ends_within(&mut process, SPARE);
    process.finish().expect_code(143);
}

#[test]
fn doctor_says_who_does_not_answer() {
    let (workspace, server) = (super::workspace(), Silent::start());
    let [kind, url] = server.settings(1);
    let mut process = workspace.start(&["doctor", "--check", "store", &kind, &url]);
    ends_within(&mut process, Duration::from_secs(2) + SPARE);
    let text = process.finish().expect_code(3).both();
    assert!(text.contains("fail  store.reachable") && text.contains("no answer in 2 s"), "{text}");
    assert!(text.contains(&format!("127.0.0.1:{}", server.port)), "{text}");
}
