//! The state store: one process at a time, and never restarted from nothing.

#[cfg(feature = "postgres")]
mod network;
#[cfg(feature = "postgres")]
mod silent;

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use crate::api::{ask, get};
use crate::process::{Process, Workspace, file_to_file, numbered_lines};

fn workspace() -> Workspace {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(100));
    workspace.write("pipelines/p.yaml", file_to_file("stored", ""));
    workspace
}

#[test]
fn a_second_process_is_refused() {
    let workspace = workspace();
    let mut first = workspace.start(&["run"]);
    first.wait_until("all lines", || delivered(&workspace) == 100);
    let second = workspace.run(&["run", "--once"]);
    let text = second.expect_code(3).both();
    assert!(text.contains("anabranch.db"), "{text}");
    let owner = format!("in use by process {} anabranch on ", first.id());
    assert!(text.contains(&owner) && text.contains(" since 2") && text.contains("--db.wait"), "{text}");
    assert!(first.is_running());
    first.signal("INT");
    first.finish().expect_code(0);
    assert_eq!(workspace.lines("out.ndjson").len(), 100);
}

/// The arguments of the second service of a workspace.
fn second<'a>(database: &'a [String], wait: &'a str) -> Vec<&'a str> {
    let mut arguments = vec!["run", "--db.wait", wait];
    arguments.extend(database.iter().map(String::as_str));
    arguments
}

/// Lines of the file of the destination.
fn delivered(workspace: &Workspace) -> usize {
    workspace.lines("out.ndjson").len()
}

/// Checks that a service that has taken over delivers a line that is added, once, and ends.
#[track_caller]
fn delivers_next(workspace: &Workspace, mut service: Process, address: SocketAddr) {
    let before = delivered(workspace);
    service.wait_until("readiness", || get(address, "/readyz").status == 200);
    workspace.append("in.txt", "one more\n");
    service.wait_until("the line", || delivered(workspace) > before);
    service.signal("TERM");
    service.finish().expect_code(0);
    assert_eq!(delivered(workspace), before + 1, "a line came twice");
}

/// Waits until the positions of all that was delivered are stored: what a service delivers and does not store comes twice.
#[track_caller]
fn until_stored(service: &mut Process, address: SocketAddr) {
    let is_age = |line: &str| line.starts_with("anabranch_source_position_age_seconds{");
    service.wait_until("the position", || {
        get(address, "/metrics").body.lines().any(|line| is_age(line) && line.ends_with(" 0"))
    });
}

/// The second service waits, says why, and takes over when the first has ended; nothing is delivered twice.
fn one_after_the_other(database: &[String]) {
    let workspace = workspace();
    let mut first = workspace.start(&second(database, "0s"));
    first.wait_until("all lines", || delivered(&workspace) == 100);
    let refused = workspace.run(&second(database, "0s")).expect_code(3).both();
    let owner = format!("in use by process {} anabranch on ", first.id());
    assert!(refused.contains(&owner) && refused.contains("--db.wait"), "{refused}");

    let mut next = workspace.start(&second(database, "300s"));
    let address = next.address();
    next.wait_until("the reason", || get(address, "/readyz").body.contains(&owner));
    let ready = get(address, "/readyz");
    assert_eq!((ready.status, &ready.json()["status"]), (503, &"waiting".into()), "{}", ready.body);
    assert_eq!((get(address, "/healthz").status, get(address, "/v1/pipelines").status), (200, 503));
    let asked = workspace.run(&["pipelines", "list", &format!("--api.http.address={address}")]).expect_code(3).both();
    assert!(asked.contains("waiting for its state store") && asked.contains(&owner), "{asked}");
    workspace.append("in.txt", "one more\n");
    first.wait_until("one more line", || delivered(&workspace) == 101);
    first.signal("TERM");
    first.finish().expect_code(0);
    delivers_next(&workspace, next, address);
    assert_eq!(delivered(&workspace), 102, "a line came twice");
}

/// Both are to serve the same address: the second one says why its probes are not answered, and serves it later.
#[test]
fn a_second_service_that_waits_says_that_the_first_has_its_port() {
    let mut workspace = workspace();
    let mut first = workspace.start(&["run"]);
    let address = first.address();
    first.wait_until("all lines", || delivered(&workspace) == 100);
    workspace.env("ANABRANCH_API_HTTP_ADDRESS", &address.to_string());
    let mut next = workspace.start(&["run", "--db.wait", "300s"]);
    let printed = next.printed();
    next.wait_until("the reason", || printed().contains("this service does not answer probes while it waits"));
    let text = printed();
    assert!(text.contains(&format!("{address} is in use")) && text.contains("in use by process"), "{text}");
    assert_eq!(get(address, "/readyz").status, 200, "the first answers");
    first.signal("TERM");
    first.finish().expect_code(0);
    assert_eq!(next.address(), address);
    next.wait_until("readiness", || get(address, "/readyz").status == 200);
    next.signal("TERM");
    next.finish().expect_code(0);
}

#[test]
fn a_second_service_waits_for_the_file() {
    one_after_the_other(&[]);
}

#[cfg(feature = "postgres")]
fn of(database: &crate::servers::postgres::Database) -> [String; 2] {
    ["--db.type=postgres".to_owned(), format!("--db.postgres.connection-string={}", database.url())]
}

#[test]
#[cfg(feature = "postgres")]
fn a_second_service_waits_for_the_table() {
    let Some(database) = crate::servers::postgres::Database::create() else { return };
    one_after_the_other(&of(&database));
}

#[test]
#[cfg(feature = "postgres")]
fn a_service_that_was_killed_is_followed_and_commands_do_not_write_beside_one() {
    let Some(database) = crate::servers::postgres::Database::create() else { return };
    let workspace = workspace();
    let database = of(&database);
    let mut first = workspace.start(&second(&database, "0s"));
    first.wait_until("all lines", || delivered(&workspace) == 100);
    let address = first.address();
    until_stored(&mut first, address);
    let mut purge = vec!["dlq", "purge", "stored", "--all", "--yes", "--api.enabled=false"];
    purge.extend(database.iter().map(String::as_str));
    let text = workspace.run(&purge).expect_code(3).both();
    assert!(text.contains(&format!("in use by process {}", first.id())), "{text}");
    first.signal("KILL");
    first.finish();
    let mut next = workspace.start(&second(&database, "300s"));
    let address = next.address();
    delivers_next(&workspace, next, address);
}

/// The session that shows who owns the store ends: with nobody waiting the service goes on, otherwise the next takes the
/// store, and the first ends before that. A pipeline that is idle never runs in both.
#[test]
#[cfg(feature = "postgres")]
fn an_owner_that_loses_its_session_is_followed_by_one_service_at_most() {
    let Some(server) = crate::servers::postgres::Database::create() else { return };
    let workspace = workspace();
    let database = of(&server);
    let mut first = workspace.start(&second(&database, "0s"));
    first.wait_until("all lines", || delivered(&workspace) == 100);
    let address = first.address();
    until_stored(&mut first, address);
    let name = format!("application_name = 'anabranch owner {}' AND datname = current_database()", first.id());
    let cut = || server.query(&format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {name}"));
    assert_eq!(cut(), ["t"]);
    first.wait_until("the session again", || {
        server.query(&format!("SELECT count(*) FROM pg_stat_activity WHERE {name}")) == ["1"]
    });
    workspace.append("in.txt", "one more\n");
    first.wait_until("one more line", || delivered(&workspace) == 101);
    until_stored(&mut first, address);

    let mut next = workspace.start(&second(&database, "300s"));
    let address = next.address();
    next.wait_until("it waits", || get(address, "/readyz").status == 503);
    // Whoever is faster has the lock then: the first is cut off until it is the one that waits.
    let printed = first.printed();
    first.wait_until("the first to lose the store", || {
        cut();
        std::thread::sleep(std::time::Duration::from_millis(200));
        printed().contains("was taken by process")
    });
    let text = first.finish().expect_code(3).both();
    assert!(text.contains(&format!("was taken by process {}", next.id())), "{text}");
    delivers_next(&workspace, next, address);
    assert_eq!(delivered(&workspace), 102, "a line came twice");
}

#[test]
#[cfg(feature = "postgres")]
fn a_start_waits_for_a_server_that_is_away_and_a_running_service_still_lists() {
    let Some(server) = crate::servers::postgres::Server::start(&[]) else { return };
    let workspace = workspace();
    let database = ["--db.type=postgres".to_owned(), format!("--db.postgres.connection-string={}", server.url())];
    server.stop();
    let mut service = workspace.start(&second(&database, "300s"));
    let address = service.address();
    service.wait_until("it waits", || get(address, "/readyz").body.contains("cannot be opened"));
    server.resume();
    service.wait_until("all lines", || delivered(&workspace) == 100);
    until_stored(&mut service, address);
    service.wait_until("readiness", || get(address, "/readyz").status == 200);

    server.stop();
    service.wait_until("it is unready", || get(address, "/readyz").status == 503);
    let asked = [format!("--api.http.address={address}")];
    let command = |words: &[&str]| {
        let all: Vec<&str> = words.iter().copied().chain(asked.iter().map(String::as_str)).collect();
        workspace.run(&all)
    };
    let listed = command(&["pipelines", "list"]).expect_code(0).both();
    assert!(listed.contains("stored") && listed.contains("state store"), "{listed}");
    for words in [&["dlq", "list", "stored"][..], &["positions", "show", "stored"]] {
        let refused = command(words).expect_code(3).both();
        assert!(refused.contains("state store"), "{refused}");
    }
    server.resume();
    delivers_next(&workspace, service, address);
}

/// Before the service has read its pipelines, the answer would be that there are none.
#[test]
#[cfg(feature = "postgres")]
fn a_request_that_comes_at_the_start_waits_for_the_pipelines() {
    let Some(database) = crate::servers::postgres::Database::create() else { return };
    let workspace = workspace();
    let store = of(&database);
    let with_store = |first: &[&str]| first.iter().map(|&s| s.to_owned()).chain(store.clone()).collect::<Vec<_>>();
    let arguments = with_store(&["run", "--once"]);
    workspace.run(&arguments.iter().map(String::as_str).collect::<Vec<_>>()).expect_code(0);

    // The start writes to this row.
    let session = database.hold("SELECT FROM anabranch_kv_store WHERE kind = 'pipeline' FOR UPDATE");
    let mut service = workspace.start(&second(&store, "0s"));
    let address = service.address();
    let blocked =
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
    service.wait_until("it writes to the row", || database.query(blocked) == ["1"]);
    let mut asked = TcpStream::connect(address).unwrap();
    write!(asked, "GET /v1/pipelines HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    // Probes are answered, also those that come later.
    assert_eq!(get(address, "/readyz").status, 503);
    asked.set_nonblocking(true).unwrap();
    let answered = asked.read(&mut [0]);
    assert!(answered.is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "the request waits");
    drop(session);
    asked.set_nonblocking(false).unwrap();
    let mut answer = String::new();
    asked.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("\"stored\""), "{answer}");
    crate::api::end(service);
}

#[test]
fn a_file_that_is_removed_or_replaced_stops_the_pipelines() {
    let workspace = workspace();
    let mut service = workspace.start(&["run"]);
    let address = service.address();
    service.wait_until("all lines", || delivered(&workspace) == 100);
    service.wait_until("readiness", || get(address, "/readyz").status == 200);
    until_stored(&mut service, address);
    let (store, aside) = (workspace.path("anabranch.db"), workspace.path("aside.db"));
    std::fs::rename(&store, &aside).unwrap();
    let status = || get(address, "/v1/live").json()["pipelines"][0]["status"].to_string();
    service
        .wait_until("it is degraded", || status().contains("degraded") && status().contains("anabranch.db, is gone"));
    let ready = get(address, "/readyz");
    assert!(ready.status == 503 && ready.body.contains("put it back"), "{}", ready.body);
    workspace.append("in.txt", "one more\n");
    let refused = ask(address, "POST", "/v1/pipelines", "", r#"{"id": "other", "config": {"name": "other"}}"#);
    assert_eq!(refused.status, 503, "{}", refused.body);
    // Another file of this name is not taken for it.
    std::fs::copy(&aside, &store).unwrap();
    assert_eq!(get(address, "/readyz").status, 503);
    std::fs::rename(&aside, &store).unwrap();
    service.wait_until("readiness", || get(address, "/readyz").status == 200);
    assert_eq!(delivered(&workspace), 100, "nothing was read without a store");
    assert_eq!(ask(address, "POST", "/v1/pipelines/stored/start", "", "").status, 200);
    service.wait_until("one more line", || delivered(&workspace) == 101);
    service.signal("TERM");
    service.finish().expect_code(0);
}

/// Readiness said that all is well, and the next start that the store is damaged.
#[test]
fn a_file_that_another_program_writes_to_stops_the_pipelines() {
    type Change = fn(&std::path::Path, &std::path::Path);
    let changes: [(&str, Change); 3] = [
        ("emptied", |store, _| drop(std::fs::File::create(store).unwrap())),
        ("cut", |store, _| std::fs::File::options().write(true).open(store).unwrap().set_len(8192).unwrap()),
        // In place, as `cat old.db > anabranch.db` does.
        ("an older copy", |store, old| std::fs::write(store, std::fs::read(old).unwrap()).unwrap()),
    ];
    for (what, change) in changes {
        let workspace = workspace();
        let mut service = workspace.start(&["run"]);
        let address = service.address();
        service.wait_until("readiness", || get(address, "/readyz").status == 200);
        let (store, old) = (workspace.path("anabranch.db"), workspace.path("old.db"));
        std::fs::copy(&store, &old).unwrap();
        service.wait_until("all lines", || delivered(&workspace) == 100);
        until_stored(&mut service, address);
        workspace.append("in.txt", "one more\n");
        service.wait_until("one more line", || delivered(&workspace) == 101);
        let records = || get(address, "/v1/pipelines/stored/positions").json()["positions"][0]["records"].clone();
        service.wait_until("its position", || records() == 101);
        // The position can be read just before the service looks at the file that it wrote. The answer to this comes after.
        workspace.write("zero.yaml", file_to_file("zero", "").replacen("status: running", "status: stopped", 1));
        let flag = format!("--api.http.address={address}");
        workspace.run(&["pipelines", "apply", "zero.yaml", "--yes", &flag]).expect_code(0);
        change(&store, &old);
        service.wait_until(what, || get(address, "/readyz").body.contains("truncated or overwrote"));
        assert_eq!(get(address, "/readyz").status, 503);
        let status = || get(address, "/v1/live").json()["pipelines"][0]["status"].to_string();
        service.wait_until("it is degraded", || status().contains("degraded") && status().contains("overwrote"));
        service.signal("TERM");
        let log = service.finish().both();
        assert!(log.contains("truncated or overwrote"), "{what}: {log}");
    }
}

/// Without a pipeline, nothing uses the store but the probes: readiness failed, and the metric said that all is well.
#[test]
fn the_metric_says_what_readiness_says_while_no_pipeline_runs() {
    let workspace = Workspace::new();
    let stopped = file_to_file("idle", "").replacen("status: running", "status: stopped", 1);
    workspace.write("pipelines/p.yaml", stopped);
    let mut service = workspace.start(&["run"]);
    let address = service.address();
    let is_up = || get(address, "/metrics").body.lines().any(|line| line == "anabranch_store_up 1");
    service.wait_until("readiness", || get(address, "/readyz").status == 200);
    assert!(is_up());
    let (store, aside) = (workspace.path("anabranch.db"), workspace.path("aside.db"));
    std::fs::rename(&store, &aside).unwrap();
    // The metric is right without a probe, too.
    let metrics = get(address, "/metrics").body;
    assert!(metrics.lines().any(|line| line == "anabranch_store_up 0"), "{metrics}");
    assert_eq!(get(address, "/readyz").status, 503);
    std::fs::rename(&aside, &store).unwrap();
    service.wait_until("readiness", || get(address, "/readyz").status == 200);
    assert!(is_up());
    std::fs::File::create(&store).unwrap();
    service.wait_until("it is unready", || get(address, "/readyz").status == 503);
    assert!(!is_up());
    service.signal("TERM");
    service.finish();
}

/// Backed up while the service writes, restored, and run: nothing is lost, and nothing from before comes twice.
#[test]
fn a_backup_is_made_beside_the_service_and_goes_on_when_it_is_restored() {
    let workspace = workspace();
    let mut service = workspace.start(&["run"]);
    let asked = format!("--api.http.address={}", service.address());
    service.wait_until("all lines", || delivered(&workspace) == 100);
    let position = || workspace.run(&["positions", "show", "stored", &asked]).stdout;
    service.wait_until("the position", || position().contains("100"));
    let backup = ["backup", "--to", "copy.db", &asked];
    let text = workspace.run(&backup).expect_code(0).stdout;
    assert!(text.contains("copy.db") && text.contains("http://"), "{text}");
    let again = workspace.run(&backup).expect_code(2).both();
    assert!(again.contains("copy.db already exists"), "{again}");
    // A second one, in the middle of commits.
    for _ in 0..20 {
        workspace.append("in.txt", &numbered_lines(50));
    }
    workspace.run(&["backup", "--to", "busy.db", &asked]).expect_code(0);
    service.wait_until("all lines", || delivered(&workspace) == 1_100);
    service.signal("TERM");
    service.finish().expect_code(0);
    let here: Vec<String> = std::fs::read_dir(workspace.root())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(!here.iter().any(|name| name.starts_with(".copy") || name.starts_with(".busy")), "{here:?}");

    for copy in ["copy.db", "busy.db"] {
        let is_private =
            std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(workspace.path(copy)).unwrap().permissions());
        assert_eq!(is_private & 0o077, 0, "{copy}");
        let before = delivered(&workspace);
        std::fs::copy(workspace.path(copy), workspace.path("anabranch.db")).unwrap();
        workspace.once();
        let after = delivered(&workspace);
        // Records delivered after the backup are delivered again, and none from before it.
        match copy {
            "copy.db" => assert_eq!(after - before, 1_000),
            _ => assert!(after - before <= 1_000, "{}", after - before),
        }
    }
    // Without a service the command copies the file itself.
    workspace.run(&["backup", "--to", "idle.db"]).expect_code(0);
    std::fs::rename(workspace.path("idle.db"), workspace.path("anabranch.db")).unwrap();
    let before = delivered(&workspace);
    workspace.once();
    assert_eq!(delivered(&workspace), before);
    let text = workspace.run(&["backup", "--db.type=inmemory"]).expect_code(2).both();
    assert!(text.contains("db.type is not embedded"), "{text}");
}

#[test]
fn a_damaged_store_is_refused() {
    let workspace = workspace();
    workspace.once();
    let whole = std::fs::read(workspace.path("anabranch.db")).unwrap();
    let mut foreign = whole.clone();
    foreign[..64].fill(0x5a);
    for (what, bytes) in [
        ("truncated", whole[..whole.len() / 3].to_vec()),
        ("foreign", foreign),
        ("text", b"this is no database\n".to_vec()),
    ] {
        workspace.write("anabranch.db", &bytes);
        let output = workspace.run(&["run", "--once"]);
        let text = output.both();
        assert_ne!(output.code(), Some(0), "{what}: {text}");
        assert!(text.contains("anabranch.db") && !text.contains("panicked"), "{what}: {text}");
        assert_eq!(std::fs::read(workspace.path("anabranch.db")).unwrap(), bytes, "{what}: left as it was");
        assert_eq!(workspace.lines("out.ndjson").len(), 100, "{what}: not restarted from nothing");
    }
    workspace.write("anabranch.db", &whole);
    workspace.once();
    assert_eq!(workspace.lines("out.ndjson").len(), 100);
}

#[test]
fn a_store_in_memory_starts_anew() {
    let workspace = workspace();
    for copies in 1..=2 {
        workspace.run(&["run", "--once", "--db.type=inmemory"]).expect_code(0);
        assert_eq!(workspace.lines("out.ndjson").len(), 100 * copies);
    }
    assert!(!workspace.path("anabranch.db").exists());
}

#[test]
fn other_kinds_of_store_are_refused_with_a_replacement() {
    let workspace = workspace();
    for kind in ["badger", "sqlite"] {
        let text = workspace.run(&["run", "--once", &format!("--db.type={kind}")]).expect_code(2).both();
        assert!(text.contains(kind) && text.contains("embedded"), "{text}");
    }
    let text = workspace.run(&["run", "--once", "--db.type=oracle"]).expect_code(2).both();
    assert!(text.contains("db.type") && text.contains("embedded"), "{text}");
}

#[test]
#[cfg(feature = "postgres")]
fn a_store_in_postgresql_goes_on_where_it_stopped() {
    let Some(database) = crate::servers::postgres::Database::create() else { return };
    let workspace = workspace();
    let url = format!("--db.postgres.connection-string={}", database.url());
    let once = ["run", "--once", "--db.type=postgres", &url];
    for _ in 0..2 {
        workspace.run(&once).expect_code(0);
        assert_eq!(workspace.lines("out.ndjson").len(), 100, "nothing comes twice");
    }
    assert!(!workspace.path("anabranch.db").exists());
    let marks = database.query("SELECT pipeline, connector, number FROM anabranch_kv_store WHERE kind = 'mark'");
    assert_eq!(marks, ["stored|in|0"]);
    let listed = workspace.run(&["pipelines", "list", "--db.type=postgres", &url]).expect_code(0).both();
    assert!(listed.contains("stored") && listed.contains("finished"), "{listed}");

    database.query("UPDATE anabranch_kv_store SET number = 9 WHERE kind = 'schema'");
    let text = workspace.run(&once).expect_code(3).both();
    assert!(text.contains("anabranch_kv_store has version 9"), "{text}");
    assert_eq!(workspace.lines("out.ndjson").len(), 100, "not restarted from nothing");
}

#[test]
#[cfg(feature = "postgres")]
fn a_server_that_is_away_ends_the_start_with_a_message() {
    let workspace = workspace();
    let text = workspace.run(&["run", "--once", "--db.type=postgres"]).expect_code(2).both();
    assert!(text.contains("db.postgres.connection-string config value is required"), "{text}");
    let free = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let url = format!("--db.postgres.connection-string=postgresql://u:hunter2@127.0.0.1:{free}/d");
    let text = workspace.run(&["run", "--once", "--db.type=postgres", &url]).expect_code(3).both();
    assert!(text.contains(&format!("127.0.0.1:{free}")) && !text.contains("hunter2"), "{text}");
}

/// A disk that is full, as far as the command can tell: its files may have no more than 20 KiB.
#[test]
fn a_backup_that_finds_no_room_names_the_file_that_was_asked_for() {
    let workspace = workspace();
    workspace.once();
    let script = "trap '' XFSZ; ulimit -f 40; exec \"$0\" backup --to copy.db";
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_anabranch")]).current_dir(workspace.root());
    let output = shell.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("copy.db: ") && !text.contains("/proc/"), "{text}");
    assert!(!workspace.path("copy.db").exists());
}
