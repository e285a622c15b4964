//! pgbouncer of the distribution, which gives each transaction some connection of the server.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::Port;
use super::postgres::Database;
use super::postgres::installed::user_for;
use crate::process::skip;

/// A pooler in front of the server of a database, which ends on drop.
pub struct Pooler {
    child: Child,
    port: Port,
    url: String,
    _dir: TempDir,
}

impl Pooler {
    /// Starts one; `None`, and a word about it, where pgbouncer is not installed.
    pub fn start(database: &Database) -> Option<Pooler> {
        let program = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer"].into_iter().find(|path| fs::exists(path).unwrap());
        let Some(program) = program else {
            skip("pgbouncer is not installed");
            return None;
        };
        let dir = tempfile::Builder::new().prefix("anabranch-pgbouncer-").tempdir().unwrap();
        let user = user_for(dir.path()).unwrap();
        let port = Port::hold();
        let url = database.url();
        let server = url.rsplit_once('@').unwrap().1.split_once('/').unwrap().0.rsplit_once(':').unwrap().1;
        let settings = dir.path().join("pgbouncer.ini");
        let log = dir.path().join("log").display().to_string();
        // Fewer connections than clients: sessions share them.
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={server}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {}\n\
             unix_socket_dir =\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 4\nmax_client_conn = 200\n\
             logfile = {log}\n",
            port.number()
        );
        // With `auth_type = any` every client is this user.
        let text = text.replace("* = host", "* = user=postgres host");
        fs::write(&settings, text).unwrap();
        let mut command = Command::new(program);
        command.arg("-q").arg(&settings).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if let Some((uid, gid)) = user {
            command.uid(uid).gid(gid);
        }
        let child = command.spawn().unwrap();
        let pooled = url.replace(&format!(":{server}/"), &format!(":{}/", port.number()));
        Some(Pooler { child, port, url: pooled, _dir: dir })
    }

    /// Address of the database through the pooler.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port.number()
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
