//! The network between a service and its store in PostgreSQL loses everything, and another service waits.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::{delivered, second, workspace};
use crate::api::{ask, get};
use crate::process::{PATIENCE, Process, Workspace};
use crate::servers::postgres::Database;
use crate::servers::proxy::{OPEN, Proxy, SILENT};

fn through(proxy: &Proxy, database: &Database) -> [String; 2] {
    let direct = format!(":{}/", database.server.port());
    let url = database.url().replace(&direct, &format!(":{}/", proxy.port));
    assert_ne!(url, database.url(), "it goes around the proxy");
    ["--db.type=postgres".to_owned(), format!("--db.postgres.connection-string={url}")]
}

fn is_ready(process: &mut Process) -> bool {
    let address = process.address();
    get(address, "/readyz").status == 200
}

/// The position that the store has of the source.
fn position(database: &Database) -> Vec<String> {
    database.query("SELECT connector, number, encode(value, 'hex') FROM anabranch_kv_store WHERE kind = 'mark'")
}

/// How the only pipeline of a service is.
fn status(address: SocketAddr) -> String {
    get(address, "/v1/live").json()["pipelines"][0]["status"].to_string()
}

/// How often each line was delivered.
fn copies(workspace: &Workspace, line: &str) -> usize {
    workspace.lines("out.ndjson").iter().filter(|record| crate::process::raw_after(record) == line).count()
}

/// A service behind the proxy that has delivered all lines and stored their position.
fn owner(workspace: &Workspace, proxy: &Proxy, database: &Database) -> Process {
    let mut first = workspace.start(&second(&through(proxy, database), "0s"));
    first.wait_until("all lines", || delivered(workspace) == 100);
    let address = first.address();
    super::until_stored(&mut first, address);
    first
}

#[test]
fn an_owner_that_is_cut_off_stops_before_the_next_one_begins() {
    let Some(database) = Database::create() else { return };
    let proxy = Proxy::start(database.server.port());
    let workspace = workspace();
    let mut first = owner(&workspace, &proxy, &database);
    let address = first.address();
    first.wait_until("readiness", || get(address, "/readyz").status == 200);
    let mut next = workspace.start(&second(&super::of(&database), "300s"));
    let waiting = next.address();
    next.wait_until("it waits for the first", || {
        get(waiting, "/readyz").body.contains(&format!("in use by process {}", first.id()))
    });
    // The pipeline is idle. The network loses everything from here on, and nobody is told.
    proxy.set(SILENT);
    let position_before = position(&database);
    first.wait_until("the first to notice", || get(address, "/readyz").status == 503);
    assert!(!is_ready(&mut next), "the server still knows the session of the first");
    let told = get(address, "/readyz").body;
    assert!(told.contains("the state store") || told.contains("state store"), "{told}");
    // That the store does not answer is noticed before another service could have it: until then the pipeline runs.
    first.wait_until("its pipeline to stop", || status(address).contains("recovering"));
    // Nothing is read while nobody owns the store.
    workspace.append("in.txt", "while nobody owns the store\n");
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(delivered(&workspace), 100, "the first goes on without its store: {}", status(address));
    assert_eq!(position(&database), position_before);
    // The server notices that the machine of the first is gone, as its settings make it within half a minute.
    proxy.end_at_server();
    let begun = Instant::now();
    while !is_ready(&mut next) {
        assert_eq!(get(address, "/readyz").status, 503, "both own the store");
        assert!(begun.elapsed() < PATIENCE, "the next one does not begin: {}", next.printed()());
        std::thread::sleep(Duration::from_millis(20));
    }
    next.wait_until("the line", || delivered(&workspace) == 101);
    next.wait_until("its position", || position(&database) != position_before);
    let position_after = position(&database);
    // The network is there again: the first finds the store taken, and changes nothing.
    proxy.set(OPEN);
    first.wait_for_end();
    let text = first.finish().expect_code(3).both();
    assert!(text.contains(&format!("was taken by process {}", next.id())), "{text}");
    assert_eq!(position(&database), position_after);
    workspace.append("in.txt", "the last\n");
    next.wait_until("the last line", || delivered(&workspace) == 102);
    next.signal("TERM");
    next.finish().expect_code(0);
    for line in ["line 0", "line 99", "while nobody owns the store", "the last"] {
        assert_eq!(copies(&workspace, line), 1, "{line}");
    }
}

/// Lines come while the network is silent, and the first service has read some of them: those may come twice, none is lost,
/// and the positions are those of the next owner.
#[test]
fn an_owner_that_is_cut_off_at_work_overwrites_no_position() {
    let Some(database) = Database::create() else { return };
    let proxy = Proxy::start(database.server.port());
    let workspace = workspace();
    let mut first = owner(&workspace, &proxy, &database);
    let address = first.address();
    proxy.set(SILENT);
    for i in 0..50 {
        workspace.append("in.txt", &format!("late {i}\n"));
    }
    // It has some seconds for it; a slow machine may have none left.
    first.wait_until("the late lines", || delivered(&workspace) >= 101 || status(address).contains("recovering"));
    // Somebody asks for a write that is on its way for as long as the network is silent.
    let _ = std::thread::spawn(move || ask(address, "POST", "/v1/pipelines/stored/stop", "", ""));
    first.wait_until("the first to notice", || get(address, "/readyz").status == 503);
    proxy.end_at_server();
    let mut next = workspace.start(&second(&super::of(&database), "300s"));
    let ready = next.address();
    next.wait_until("readiness", || get(ready, "/readyz").status == 200);
    next.wait_until("all lines", || (0..50).all(|i| copies(&workspace, &format!("late {i}")) >= 1));
    proxy.set(OPEN);
    first.wait_for_end();
    first.finish().expect_code(3);
    workspace.append("in.txt", "the last\n");
    next.wait_until("the last line", || copies(&workspace, "the last") == 1);
    let live = status(ready);
    assert!(live.contains("running") || live.contains("idle"), "{live}");
    next.signal("TERM");
    next.finish().expect_code(0);
    let all = delivered(&workspace);
    workspace.run(&[&["run", "--once"][..], &super::of(&database).each_ref().map(String::as_str)].concat());
    assert_eq!(delivered(&workspace), all, "a position was overwritten by an older one");
    for i in 0..50 {
        let copies = copies(&workspace, &format!("late {i}"));
        assert!((1..=2).contains(&copies), "late {i}: {copies} times");
    }
}
