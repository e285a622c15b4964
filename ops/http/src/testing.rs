//! An HTTP/1.1 server on loopback whose answers come from a closure, for tests of clients.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// A request that the server received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Number of earlier requests.
    pub number: usize,
    /// Method of the request.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body of the request.
    pub body: Vec<u8>,
}

impl Received {
    /// Returns the value of a header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Returns the body as text, with invalid UTF-8 replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Reaction of the server to a request.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Sends an answer.
    Answer {
        /// Status of the answer.
        status: u16,
        /// Headers in addition to `Content-Length`.
        headers: Vec<(String, String)>,
        /// Body of the answer.
        body: Vec<u8>,
    },
    /// Sends these bytes and closes the connection.
    Bytes(Vec<u8>),
    /// Closes the connection.
    Close,
    /// Sends nothing until the client closes the connection.
    Hang,
}

impl Reply {
    /// Returns an answer with status 200.
    pub fn ok(body: impl Into<Vec<u8>>) -> Reply {
        Reply::status(200, body)
    }

    /// Returns an answer with this status.
    pub fn status(status: u16, body: impl Into<Vec<u8>>) -> Reply {
        Reply::Answer { status, headers: Vec::new(), body: body.into() }
    }

    /// Adds a header to the answer.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Reply {
        if let Reply::Answer { headers, .. } = &mut self {
            headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }
}

/// The server; stops on drop.
pub struct Server {
    address: SocketAddr,
    state: Arc<State>,
    accepting: Option<JoinHandle<()>>,
}

type Answering = dyn Fn(&Received) -> Reply + Send + Sync;

struct State {
    reply: Box<Answering>,
    seen: Mutex<Vec<Received>>,
    open: Mutex<Vec<TcpStream>>,
    stopped: AtomicBool,
    connections: AtomicUsize,
    hung_up: AtomicUsize,
    /// Number of requests without an answer, and its maximum.
    pending: Mutex<(usize, usize)>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    /// Starts on a free port. Calls `reply` on the thread of the connection; it may block.
    ///
    /// # Panics
    /// Panics if there is no free port.
    #[allow(clippy::expect_used, reason = "a test cannot continue without")]
    pub fn start(reply: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let state = Arc::new(State {
            reply: Box::new(reply),
            seen: Mutex::default(),
            open: Mutex::default(),
            stopped: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
            hung_up: AtomicUsize::new(0),
            pending: Mutex::default(),
        });
        let shared = state.clone();
        let accepting = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.stopped.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                shared.connections.fetch_add(1, Ordering::SeqCst);
                if let Ok(copy) = stream.try_clone() {
                    locked(&shared.open).push(copy);
                }
                let shared = shared.clone();
                std::thread::spawn(move || shared.serve(stream));
            }
        });
        Server { address, state, accepting: Some(accepting) }
    }

    /// Returns `http://127.0.0.1:port`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns `127.0.0.1:port`.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the requests so far.
    pub fn received(&self) -> Vec<Received> {
        locked(&self.state.seen).clone()
    }

    /// Returns the number of connections so far.
    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// Returns the number of clients that closed the connection during a [`Reply::Hang`].
    pub fn hung_up(&self) -> usize {
        self.state.hung_up.load(Ordering::SeqCst)
    }

    /// Returns the maximum number of concurrent requests.
    pub fn most_pending(&self) -> usize {
        locked(&self.state.pending).1
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.state.stopped.store(true, Ordering::SeqCst);
        for stream in locked(&self.state.open).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        // Wakes the listener.
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

impl State {
    fn serve(&self, mut stream: TcpStream) {
        let Ok(copy) = stream.try_clone() else { return };
        let mut input = BufReader::new(copy);
        while let Some(request) = read(&mut input) {
            let request = {
                let mut seen = locked(&self.seen);
                let request = Received { number: seen.len(), ..request };
                seen.push(request.clone());
                request
            };
            {
                let mut pending = locked(&self.pending);
                pending.0 += 1;
                pending.1 = pending.1.max(pending.0);
            }
            let reply = (self.reply)(&request);
            locked(&self.pending).0 -= 1;
            let written = match reply {
                Reply::Answer { status, headers, body } => {
                    let mut bytes =
                        format!("HTTP/1.1 {status} Status\r\nContent-Length: {}\r\n", body.len()).into_bytes();
                    for (name, value) in headers {
                        bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
                    }
                    bytes.extend_from_slice(b"\r\n");
                    bytes.extend_from_slice(&body);
                    stream.write_all(&bytes)
                }
                Reply::Bytes(bytes) => {
                    let _ = stream.write_all(&bytes);
                    break;
                }
                Reply::Close => break,
                Reply::Hang => {
                    let _ = input.read(&mut [0]);
                    self.hung_up.fetch_add(1, Ordering::SeqCst);
                    break;
                }
            };
            if written.is_err() {
                break;
            }
        }
        let _ = stream.shutdown(Shutdown::Both);
    }
}

/// Reads the next request; returns `None` at the end of the connection.
fn read(input: &mut BufReader<TcpStream>) -> Option<Received> {
    let mut line = || {
        let mut line = String::new();
        input.read_line(&mut line).ok().filter(|n| *n > 0)?;
        Some(line.trim_end().to_owned())
    };
    let first = line()?;
    let mut parts = first.split(' ');
    let (method, path) = (parts.next()?.to_owned(), parts.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        let line = line()?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':')?;
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let mut body = vec![0; length.map_or(Some(0), |(_, value)| value.parse().ok())?];
    input.read_exact(&mut body).ok()?;
    Some(Received { number: 0, method, path, headers, body })
}
