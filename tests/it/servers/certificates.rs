//! Certificates of the test's own, made by `openssl`.
//!
//! Uses the standard library only, so that other crates of the workspace take it by its path.

#![allow(dead_code, unreachable_pub, reason = "several test binaries share it, none uses all of it")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An authority and what it signed, in a directory.
pub struct Certificates {
    dir: PathBuf,
}

impl Certificates {
    /// Makes the authority. `None`, and a word about it, where `openssl` is not installed.
    pub fn create(dir: &Path) -> Option<Certificates> {
        let certificates = Certificates { dir: dir.to_owned() };
        if Command::new("openssl").arg("version").output().is_err() {
            let reason = "openssl is missing";
            assert!(std::env::var_os("ANABRANCH_TEST_REQUIRE").is_none(), "{reason}");
            let _ = writeln!(std::io::stderr(), "skipped: {reason}");
            return None;
        }
        certificates.make("ca", "the authority", &["-addext", "keyUsage=critical,keyCertSign"]);
        Some(certificates)
    }

    /// Has it sign a certificate `NAME.crt` with the key `NAME.key`, for this name and these hosts (`DNS:localhost`).
    pub fn sign(&self, name: &str, common: &str, hosts: &str) {
        let hosts = format!("subjectAltName={hosts}");
        let plain = ["-addext", "basicConstraints=critical,CA:FALSE", "-CA", "ca.crt", "-CAkey", "ca.key"];
        let more = if hosts.ends_with('=') { Vec::new() } else { vec!["-addext", &*hosts] };
        self.make(name, common, &[&plain[..], &more].concat());
    }

    /// One that is its own authority.
    pub fn self_signed(&self, name: &str, common: &str, hosts: &str) {
        self.make(name, common, &["-addext", &format!("subjectAltName={hosts}")]);
    }

    /// Path of the certificate of this name.
    pub fn certificate(&self, name: &str) -> String {
        self.dir.join(format!("{name}.crt")).display().to_string()
    }

    /// Path of its key.
    pub fn key(&self, name: &str) -> String {
        self.dir.join(format!("{name}.key")).display().to_string()
    }

    fn make(&self, name: &str, common: &str, more: &[&str]) {
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
            .args(["-subj", &format!("/CN={common}"), "-keyout", &format!("{name}.key")])
            .args(["-out", &format!("{name}.crt")])
            .args(more)
            .current_dir(&self.dir)
            .output()
            .unwrap();
        assert!(made.status.success(), "openssl: {}", String::from_utf8_lossy(&made.stderr));
    }
}
