//! A standby that takes over.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::chown;
use std::process::Command;
use std::time::{Duration, Instant};

use super::{PATIENCE, Server};

/// Version that took over logical slots first.
const SYNCED_SLOTS: u32 = 170_000;
/// The physical slot of the standby.
const SLOT: &str = "standby";

impl Server {
    /// Starts a standby that follows this server, with a copy of its data. From PostgreSQL 17 on, it has the logical slots
    /// that were made with `failover`, and nothing reaches their readers that the standby does not have yet.
    #[track_caller]
    pub fn standby(&self) -> Server {
        let standby = Server::prepare(self.release).expect("the server of this release runs");
        let mut backup = self.session_in("postgres");
        backup.run(&format!("SELECT pg_create_physical_replication_slot('{SLOT}', true)"));
        backup.run("SELECT pg_backup_start('standby', true)");
        // Files come and go meanwhile, of which the log knows.
        let _ = Command::new("cp").arg("-a").arg(self.data()).arg(standby.data()).output().unwrap();
        let label = backup.run("SELECT labelfile FROM pg_backup_stop(false)").join("\n");
        drop(backup);

        let data = standby.data();
        for left in ["postmaster.pid", "postmaster.opts"] {
            let _ = fs::remove_file(data.join(left));
        }
        for slot in fs::read_dir(data.join("pg_replslot")).unwrap() {
            fs::remove_dir_all(slot.unwrap().path()).unwrap();
        }
        for segment in fs::read_dir(data.join("pg_wal")).unwrap() {
            let segment = segment.unwrap().path();
            if segment.is_file() {
                fs::remove_file(segment).unwrap();
            }
        }
        let has_slots = self.version() >= SYNCED_SLOTS;
        let synced = if has_slots { "sync_replication_slots = on\n" } else { "" };
        let lines = format!(
            "unix_socket_directories = '{}'\nhot_standby_feedback = on\nwal_receiver_status_interval = 1s\n\
             primary_slot_name = '{SLOT}'\n\
             primary_conninfo = 'host=127.0.0.1 port={} user=postgres dbname=postgres'\n{synced}",
            standby.dir.path().display(),
            self.port(),
        );
        let configuration = data.join("postgresql.conf");
        fs::OpenOptions::new().append(true).open(configuration).unwrap().write_all(lines.as_bytes()).unwrap();
        for (name, text) in [("backup_label", label + "\n"), ("standby.signal", String::new())] {
            fs::write(data.join(name), text).unwrap();
            if let Some((uid, gid)) = standby.user {
                chown(data.join(name), Some(uid), Some(gid)).unwrap();
            }
        }
        standby.launch();
        if has_slots {
            self.query(&format!("ALTER SYSTEM SET synchronized_standby_slots = '{SLOT}'"));
            self.query("SELECT pg_reload_conf()");
        }
        standby
    }

    /// Waits until this standby has a logical slot of the primary. It takes over a slot when its reader has come to a
    /// place in the log after the copy of the data; `read` has a reader read that is not in the background.
    #[track_caller]
    pub fn await_slot(&self, slot: &str, primary: &Server, mut read: impl FnMut()) {
        let sql = format!(
            "SELECT count(*) FROM pg_replication_slots WHERE slot_name = '{slot}' AND synced AND NOT temporary"
        );
        let begun = Instant::now();
        while self.query(&sql) != ["1"] {
            assert!(begun.elapsed() < PATIENCE, "the standby does not take over the slot {slot}: {}", self.log());
            // A place from which decoding can start. The server itself notes one every 15 s.
            primary.query("SELECT pg_log_standby_snapshot()");
            read();
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Makes this standby a server that accepts writes.
    #[track_caller]
    pub fn promote(&self) {
        assert_eq!(self.query("SELECT pg_promote(true, 120)"), ["t"], "{}", self.log());
    }
}
