//! A network between a program and a server of the tests, which can go silent.
//!
//! Uses the standard library only, so that other crates of the workspace take it by its path.

#![allow(dead_code, unreachable_pub, reason = "several test binaries share it, none uses all of it")]

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// All bytes are passed on.
pub const OPEN: u8 = 0;
/// Nothing is passed on until the mode changes; then everything is.
pub const FROZEN: u8 = 1;
/// The next commit is passed on, and its connection brings no answer any more.
pub const LOSES_COMMIT: u8 = 2;
/// All bytes are lost, and no connection is closed.
pub const SILENT: u8 = 3;

/// All bytes are passed on, each piece some hundred milliseconds late.
pub const SLOW: u8 = 4;

/// Stands before a server of this machine. It lives as long as the process.
pub struct Proxy {
    pub port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    mode: AtomicU8,
    server: AtomicU16,
    accepted: AtomicUsize,
    to_server: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    pub fn start(server: u16) -> Proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let proxy = Proxy { port: listener.local_addr().unwrap().port(), state: Arc::default() };
        proxy.lead_to(server);
        let state = proxy.state.clone();
        std::thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                state.accepted.fetch_add(1, SeqCst);
                let server = (Ipv4Addr::LOCALHOST, state.server.load(SeqCst));
                let Ok(server) = TcpStream::connect(server) else { continue };
                state.to_server.lock().unwrap().push(server.try_clone().unwrap());
                state.connect(client, server);
            }
        });
        proxy
    }

    /// Leads further connections to another server.
    pub fn lead_to(&self, server: u16) {
        self.state.server.store(server, SeqCst);
    }

    pub fn set(&self, mode: u8) {
        self.state.mode.store(mode, SeqCst);
    }

    pub fn mode(&self) -> u8 {
        self.state.mode.load(SeqCst)
    }

    /// How many connections were accepted.
    pub fn accepted(&self) -> usize {
        self.state.accepted.load(SeqCst)
    }

    /// Ends all connections with the server, which notices it at once. The clients notice nothing.
    pub fn end_at_server(&self) {
        for stream in self.state.to_server.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl State {
    fn connect(self: &Arc<Self>, client: TcpStream, server: TcpStream) {
        let mute = Arc::<AtomicBool>::default();
        let (state, mutes) = (self.clone(), mute.clone());
        self.pass(client.try_clone().unwrap(), server.try_clone().unwrap(), move |bytes| {
            let commits = bytes.windows(6).any(|word| word == b"COMMIT");
            if commits && state.mode.compare_exchange(LOSES_COMMIT, OPEN, SeqCst, SeqCst).is_ok() {
                mutes.store(true, SeqCst);
            }
            true
        });
        self.pass(server, client, move |_| !mute.load(SeqCst));
    }

    /// Passes on what `wanted` says, until the end.
    fn pass(self: &Arc<Self>, mut from: TcpStream, mut to: TcpStream, wanted: impl Fn(&[u8]) -> bool + Send + 'static) {
        let state = self.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 16 << 10];
            while let Ok(read @ 1..) = from.read(&mut buffer) {
                while state.mode.load(SeqCst) == FROZEN {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                if state.mode.load(SeqCst) == SLOW {
                    // Other times for other pieces, and the same in each run.
                    std::thread::sleep(std::time::Duration::from_millis(100 + (read as u64 * 37) % 500));
                }
                let passes = state.mode.load(SeqCst) != SILENT;
                if passes && wanted(&buffer[..read]) && to.write_all(&buffer[..read]).is_err() {
                    break;
                }
            }
            // The end of a connection is lost like everything else.
            if state.mode.load(SeqCst) != SILENT {
                let _ = to.shutdown(Shutdown::Write);
            }
        });
    }
}
