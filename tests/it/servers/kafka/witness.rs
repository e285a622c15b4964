//! A network between a node and a broker, which sees what the broker serves and which offsets it receives.
//!
//! It parses the requests and answers of the Kafka protocol that matter, by the definitions of Apache Kafka, and not with the
//! client of the program under test. A topic is not distinguished from another one: a node must read only one through it.

use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// An event on the network. The witness reports it before it passes the bytes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A connection began. Connections of all networks have different numbers.
    Connected(u64),
    /// A node asked for the records of a partition from an offset on, and the broker served those up to the last offset.
    Served { connection: u64, partition: i32, from: i64, to: i64 },
    /// A node committed an offset: that of the record after the last one that is acknowledged.
    Committed { partition: i32, offset: i64 },
    /// The witness does not understand a request or an answer, which it should.
    Unclear(String),
}

/// Kinds of requests.
const FETCH: i16 = 1;
const METADATA: i16 = 3;
const OFFSET_COMMIT: i16 = 8;
const FIND_COORDINATOR: i16 = 10;
const DESCRIBE_CLUSTER: i16 = 60;

type Report = dyn Fn(&[Seen]) + Send + Sync;

/// Starts a network to a broker that names this port of this machine as its own, and returns the port to use instead. The
/// network reaches the broker at the port `way`. It lives as long as the process.
pub fn start(broker: u16, way: u16, report: impl Fn(&[Seen]) + Send + Sync + 'static) -> u16 {
    static CONNECTIONS: AtomicU64 = AtomicU64::new(1);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let report: Arc<Report> = Arc::new(report);
    thread::spawn(move || {
        while let Ok((client, _)) = listener.accept() {
            let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, way)) else { continue };
            let number = CONNECTIONS.fetch_add(1, Ordering::Relaxed);
            report(&[Seen::Connected(number)]);
            let connection =
                Arc::new(Connection { number, port, broker, requests: Mutex::default(), report: report.clone() });
            let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            let requests = connection.clone();
            thread::spawn(move || pass(from, to, |message| requests.request(message)));
            thread::spawn(move || pass(server, client, |message| connection.answer(message)));
        }
    });
    port
}

struct Connection {
    number: u64,
    /// The port of the network, and that of the broker.
    port: u16,
    broker: u16,
    /// Requests without an answer, by their correlation ids.
    requests: Mutex<HashMap<i32, Request>>,
    report: Arc<Report>,
}

/// A request whose answer matters.
enum Request {
    /// The offsets from which on records are asked for, by partition.
    Fetch(HashMap<i32, i64>),
    /// The answer has the address of the broker.
    Address,
}

/// Passes on whole messages until the end of the connection.
fn pass(mut from: TcpStream, mut to: TcpStream, mut look: impl FnMut(&mut [u8])) {
    let mut next = || -> io::Result<Vec<u8>> {
        let mut size = [0; 4];
        from.read_exact(&mut size)?;
        let mut message = vec![0; u32::from_be_bytes(size) as usize];
        from.read_exact(&mut message)?;
        Ok(message)
    };
    while let Ok(mut message) = next() {
        look(&mut message);
        let whole = [&(message.len() as u32).to_be_bytes()[..], &message].concat();
        if to.write_all(&whole).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

impl Connection {
    fn request(&self, message: &[u8]) {
        let mut bytes = Bytes(message);
        let parsed = bytes.request();
        match parsed {
            Some((correlation, Parsed::Expects(request))) => {
                self.requests.lock().unwrap().insert(correlation, request);
            }
            Some((_, Parsed::Commits(offsets))) => {
                let committed = |(partition, offset)| Seen::Committed { partition, offset };
                (self.report)(&offsets.into_iter().map(committed).collect::<Vec<_>>());
            }
            Some((_, Parsed::Other)) => {}
            None => (self.report)(&[Seen::Unclear(format!("a request that begins with {:?}", message.get(..8)))]),
        }
    }

    fn answer(&self, message: &mut [u8]) {
        let mut bytes = Bytes(message);
        let Some(correlation) = bytes.i32() else { return };
        match self.requests.lock().unwrap().remove(&correlation) {
            Some(Request::Fetch(asked)) => match bytes.served(&asked) {
                Some(served) if served.is_empty() => {}
                Some(served) => {
                    let seen = |(partition, from, to)| Seen::Served { connection: self.number, partition, from, to };
                    (self.report)(&served.into_iter().map(seen).collect::<Vec<_>>());
                }
                None => (self.report)(&[Seen::Unclear("an answer to a fetch".to_owned())]),
            },
            // The name of the host stays as long as it was, and so do all other bytes.
            Some(Request::Address) => {
                let address = |port: u16| [&b"127.0.0.1"[..], &u32::from(port).to_be_bytes()].concat();
                let (of_broker, of_network) = (address(self.broker), address(self.port));
                for at in 0..message.len().saturating_sub(of_broker.len() - 1) {
                    if message[at..].starts_with(&of_broker) {
                        message[at..at + of_network.len()].copy_from_slice(&of_network);
                    }
                }
            }
            None => {}
        }
    }
}

/// A request, as far as the witness reads it.
enum Parsed {
    Expects(Request),
    /// Offsets, by partition.
    Commits(Vec<(i32, i64)>),
    Other,
}

/// The rest of a message. All methods return `None` at its end.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn i16(&mut self) -> Option<i16> {
        self.array().map(i16::from_be_bytes)
    }

    fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_be_bytes)
    }

    fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_be_bytes)
    }

    /// A number of up to 32 bits, of which each byte has 7.
    fn varint(&mut self) -> Option<usize> {
        let mut number = 0;
        for shift in (0..35).step_by(7) {
            let [byte] = self.array()?;
            number |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    /// The length of a compact string, of compact bytes or of a compact array. That of `null` is 0.
    fn length(&mut self) -> Option<usize> {
        Some(self.varint()?.saturating_sub(1))
    }

    fn compact(&mut self) -> Option<&'a [u8]> {
        let length = self.length()?;
        self.take(length)
    }

    fn tags(&mut self) -> Option<()> {
        for _ in 0..self.varint()? {
            self.varint()?;
            let length = self.varint()?;
            self.take(length)?;
        }
        Some(())
    }

    /// A request with its header, and its correlation id. Fetches are parsed from version 13 on, commits from version 8 on.
    fn request(&mut self) -> Option<(i32, Parsed)> {
        let (kind, version, correlation) = (self.i16()?, self.i16()?, self.i32()?);
        let parsed = match kind {
            METADATA | FIND_COORDINATOR | DESCRIBE_CLUSTER => Parsed::Expects(Request::Address),
            FETCH if version >= 13 => Parsed::Expects(Request::Fetch(self.fetch(version)?)),
            OFFSET_COMMIT if version >= 8 => Parsed::Commits(self.commits(version)?),
            FETCH | OFFSET_COMMIT => return None,
            _ => Parsed::Other,
        };
        Some((correlation, parsed))
    }

    /// The rest of a header.
    fn header(&mut self) -> Option<()> {
        let client = self.i16()?;
        self.take(usize::try_from(client).unwrap_or(0))?;
        self.tags()
    }

    fn fetch(&mut self, version: i16) -> Option<HashMap<i32, i64>> {
        self.header()?;
        if version < 15 {
            self.i32()?;
        }
        // Longest wait, least and most bytes, isolation, session and its epoch.
        self.take(4 + 4 + 4 + 1 + 4 + 4)?;
        let mut asked = HashMap::new();
        for _ in 0..self.length()? {
            let _topic: [u8; 16] = self.array()?;
            for _ in 0..self.length()? {
                let (partition, _epoch, from) = (self.i32()?, self.i32()?, self.i64()?);
                // Epoch of the last record, start of the log, most bytes.
                self.take(4 + 8 + 4)?;
                self.tags()?;
                asked.insert(partition, from);
            }
            self.tags()?;
        }
        Some(asked)
    }

    fn commits(&mut self, version: i16) -> Option<Vec<(i32, i64)>> {
        self.header()?;
        let (_group, _generation, _member, _instance) =
            (self.compact()?, self.i32()?, self.compact()?, self.compact()?);
        let mut offsets = Vec::new();
        for _ in 0..self.length()? {
            let _topic = if version >= 10 { self.take(16)? } else { self.compact()? };
            for _ in 0..self.length()? {
                let (partition, offset, _epoch) = (self.i32()?, self.i64()?, self.i32()?);
                self.compact()?;
                self.tags()?;
                offsets.push((partition, offset));
            }
            self.tags()?;
        }
        Some(offsets)
    }

    /// The partitions of an answer to a fetch that have records, each with the offset that was asked for and the last one
    /// that is served.
    fn served(&mut self, asked: &HashMap<i32, i64>) -> Option<Vec<(i32, i64, i64)>> {
        self.tags()?;
        let (_throttled, _code, _session) = (self.i32()?, self.i16()?, self.i32()?);
        let mut served = Vec::new();
        for _ in 0..self.length()? {
            let _topic: [u8; 16] = self.array()?;
            for _ in 0..self.length()? {
                let (partition, _code) = (self.i32()?, self.i16()?);
                // The ends of the log and of what is committed, and the start.
                self.take(3 * 8)?;
                for _aborted in 0..self.length()? {
                    self.take(2 * 8)?;
                    self.tags()?;
                }
                let _replica = self.i32()?;
                let records = self.compact()?;
                self.tags()?;
                if let Some(to) = Bytes(records).last_offset() {
                    served.push((partition, *asked.get(&partition)?, to));
                }
            }
            self.tags()?;
        }
        Some(served)
    }

    /// The last offset of the batches, if there is a whole one. The last batch may be cut.
    fn last_offset(&mut self) -> Option<i64> {
        let mut last = None;
        let mut next = || {
            let (base, length) = (self.i64()?, self.i32()?);
            let mut batch = Bytes(self.take(usize::try_from(length).ok()?)?);
            // Epoch of the leader, version, checksum and attributes.
            batch.take(4 + 1 + 4 + 2)?;
            Some(base + i64::from(batch.i32()?))
        };
        while let Some(offset) = next() {
            last = Some(offset);
        }
        last
    }
}
