//! An S3 server in memory that fails on demand, with a clock that tests may set.
//!
//! It speaks as much of the protocol as the connectors use, in path style, and checks no signatures. A thread serves a
//! connection; dropping the server ends it.
//!
//! It is no server framework such as `s3s`: most faults happen below one. They cut bodies, close connections before or
//! after the work, never answer, never end, or answer with what no S3 server writes. A framework would replace the
//! parsing of requests and the writing of XML, a quarter of this file, by nine more crates.

#![allow(dead_code, reason = "shared by two test binaries, of which neither uses all")]

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chrono::DateTime;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// The only bucket.
pub const BUCKET: &str = "documents";

/// Where a body ends that would go on for ever, so that a client without a bound fails the test and not the machine.
pub const TOO_LONG: u64 = 256 << 20;

/// The planted faults of the server.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Answers with a status and an S3 error code.
    Refuse(u16, &'static str),
    /// Ends the connection without an answer.
    Close,
    /// Does as it is told, and ends the connection without an answer.
    Mute,
    /// Sends half of the body and ends the connection.
    Cut,
    /// Answers late.
    Slow(Duration),
    /// Answers late, and this.
    Late(Duration, Box<Fault>),
    /// Lists nothing, says that there is more and not where.
    NoMarker,
    /// Lists nothing, and does not say whether there is more.
    NoEnd,
    /// Answers with this instead, and does nothing: a status, headers and a body, as a proxy in front of the server may.
    Instead(u16, Vec<(&'static str, String)>, Vec<u8>),
    /// Answers with this status and headers and a body that goes on until the client has had enough ([`TOO_LONG`] at
    /// most), and does nothing.
    Endless(u16, Vec<(&'static str, String)>),
    /// Takes the request and never answers.
    Silent,
}

/// A request as faults and assertions see it.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    /// Decoded; empty for the bucket.
    pub key: String,
    pub query: HashMap<String, String>,
    pub headers: HashMap<String, String>,
    body: Vec<u8>,
}

impl Request {
    pub fn is_listing(&self) -> bool {
        self.query.contains_key("list-type") || self.query.contains_key("versions")
    }

    pub fn is_versioning(&self) -> bool {
        self.query.contains_key("versioning")
    }

    pub fn is_get(&self) -> bool {
        self.method == "GET" && !self.key.is_empty()
    }
}

type Script = Box<dyn FnMut(&Request) -> Option<Fault> + Send>;

#[derive(Clone)]
struct Version {
    id: String,
    modified: i64,
    etag: String,
    body: Arc<Vec<u8>>,
    headers: Vec<(String, String)>,
    marker: bool,
}

#[derive(Default)]
struct State {
    /// The newest first.
    objects: BTreeMap<String, Vec<Version>>,
    uploads: Vec<(String, i64)>,
    versioned: bool,
    clock: Option<i64>,
    page: usize,
    versions: u64,
    script: Option<Script>,
    requests: Vec<(String, String)>,
    /// Endless answers that clients gave up, and the bytes that were taken of the longest.
    endless: usize,
    longest: u64,
}

impl State {
    fn now(&self) -> i64 {
        self.clock.unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64)
    }

    fn put(&mut self, key: &str, body: Vec<u8>, headers: Vec<(String, String)>, modified: Option<i64>) {
        self.versions += 1;
        let sum =
            body.iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, b| (sum ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3));
        let version = Version {
            id: if self.versioned { format!("v{:08}", self.versions) } else { "null".to_owned() },
            modified: modified.unwrap_or_else(|| self.now()),
            etag: format!("\"{sum:016x}\""),
            body: Arc::new(body),
            headers,
            marker: false,
        };
        self.add(key, version);
    }

    fn add(&mut self, key: &str, version: Version) {
        let versions = self.objects.entry(key.to_owned()).or_default();
        if !self.versioned {
            versions.clear();
        }
        versions.insert(0, version);
    }

    fn delete(&mut self, key: &str) {
        if self.versioned {
            self.versions += 1;
            let (id, modified) = (format!("v{:08}", self.versions), self.now());
            let marker =
                Version { id, modified, etag: String::new(), body: Arc::default(), headers: Vec::new(), marker: true };
            self.add(key, marker);
        } else {
            self.objects.remove(key);
        }
    }
}

/// The server.
pub struct Server {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub fn start() -> Server {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State { page: 1000, ..State::default() }));
        let ended = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (state, ended) = (state.clone(), ended.clone());
            move || {
                for stream in listener.incoming() {
                    if ended.load(Ordering::SeqCst) {
                        return;
                    }
                    let (state, ended) = (state.clone(), ended.clone());
                    std::thread::spawn(move || serve(stream.unwrap(), &state, &ended));
                }
            }
        });
        Server { address, state, ended, thread: Some(thread) }
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps versions from now on.
    pub fn keep_versions(&self) {
        self.state().versioned = true;
    }

    /// Stops the clock at a second.
    pub fn set_clock(&self, seconds: i64) {
        self.state().clock = Some(seconds);
    }

    pub fn now(&self) -> i64 {
        self.state().now()
    }

    /// Entries on a page of a listing.
    pub fn set_page(&self, entries: usize) {
        self.state().page = entries;
    }

    pub fn put(&self, key: &str, body: impl Into<Vec<u8>>) {
        self.state().put(key, body.into(), Vec::new(), None);
    }

    /// An object with headers (`x-amz-meta-title`), changed at a second.
    pub fn put_with(&self, key: &str, body: impl Into<Vec<u8>>, headers: &[(&str, &str)], modified: Option<i64>) {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        self.state().put(key, body.into(), headers, modified);
    }

    pub fn delete(&self, key: &str) {
        self.state().delete(key);
    }

    /// A multipart upload is begun, now.
    pub fn begin_upload(&self, key: &str) {
        let mut state = self.state();
        let now = state.now();
        state.uploads.push((key.to_owned(), now));
    }

    /// It is completed: the object is as old as its upload.
    pub fn complete_upload(&self, key: &str, body: impl Into<Vec<u8>>) {
        let mut state = self.state();
        let at = state.uploads.iter().position(|(upload, _)| upload == key).unwrap();
        let (_, begun) = state.uploads.remove(at);
        state.put(key, body.into(), Vec::new(), Some(begun));
    }

    /// Asks before each answer which fault there is to be.
    pub fn fail(&self, script: impl FnMut(&Request) -> Option<Fault> + Send + 'static) {
        self.state().script = Some(Box::new(script));
    }

    pub fn heal(&self) {
        self.state().script = None;
    }

    /// Keys with the bytes of their objects.
    pub fn objects(&self) -> BTreeMap<String, Vec<u8>> {
        let state = self.state();
        let current = |(key, versions): (&String, &Vec<Version>)| {
            let version = versions.first().filter(|version| !version.marker)?;
            Some((key.clone(), version.body.to_vec()))
        };
        state.objects.iter().filter_map(current).collect()
    }

    /// A header that an object was put with.
    pub fn header(&self, key: &str, name: &str) -> Option<String> {
        let state = self.state();
        let version = state.objects.get(key)?.first()?;
        version.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.clone())
    }

    /// The `ETag` of an object.
    pub fn etag(&self, key: &str) -> String {
        self.state().objects[key][0].etag.clone()
    }

    /// How many answers that would not have ended were given up.
    pub fn endless_answers(&self) -> usize {
        self.state().endless
    }

    /// How many bytes a client took of the longest of these.
    pub fn longest_answer(&self) -> u64 {
        self.state().longest
    }

    /// Method and key of all requests so far.
    pub fn requests(&self) -> Vec<(String, String)> {
        self.state().requests.clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        // Wakes the thread that waits for connections.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Arc<Vec<u8>>,
}

impl Answer {
    fn xml(body: String) -> Answer {
        let headers = vec![("Content-Type".to_owned(), "application/xml".to_owned())];
        Answer { status: 200, headers, body: Arc::new(body.into_bytes()) }
    }

    fn empty(status: u16) -> Answer {
        Answer { status, headers: Vec::new(), body: Arc::default() }
    }

    fn refusal(status: u16, code: &str) -> Answer {
        let text = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>of the test</Message></Error>");
        Answer { status, ..Answer::xml(text) }
    }
}

fn serve(stream: TcpStream, state: &Mutex<State>, ended: &AtomicBool) {
    stream.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(stream);
    while !ended.load(Ordering::SeqCst) {
        let Some(request) = read(&mut reader) else { return };
        let (mut answer, date, fault) = {
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            state.requests.push((request.method.clone(), request.key.clone()));
            let mut script = state.script.take();
            let fault = script.as_mut().and_then(|script| script(&request));
            if state.script.is_none() {
                state.script = script;
            }
            let done = !matches!(
                fault,
                Some(
                    Fault::Refuse(..)
                        | Fault::Close
                        | Fault::Late(..)
                        | Fault::Instead(..)
                        | Fault::Endless(..)
                        | Fault::Silent
                )
            );
            let answer = if done { answer(&mut state, &request) } else { Answer::empty(500) };
            (answer, state.now(), fault)
        };
        let fault = match fault {
            Some(Fault::Late(time, fault)) => {
                std::thread::sleep(time);
                Some(*fault)
            }
            fault => fault,
        };
        match fault {
            Some(Fault::Close | Fault::Mute) => return,
            Some(Fault::Refuse(status, code)) => answer = Answer::refusal(status, code),
            Some(Fault::Slow(time)) => std::thread::sleep(time),
            Some(Fault::NoMarker) => {
                answer = Answer::xml("<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>".to_owned());
            }
            Some(Fault::NoEnd) => answer = Answer::xml("<ListBucketResult></ListBucketResult>".to_owned()),
            Some(Fault::Instead(status, ref headers, ref body)) => {
                let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
                answer = Answer { status, headers, body: Arc::new(body.clone()) };
            }
            Some(Fault::Endless(status, ref headers)) => {
                let written = endless(reader.get_mut(), status, headers);
                let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                state.endless += 1;
                state.longest = state.longest.max(written);
                return;
            }
            Some(Fault::Silent) => {
                while !ended.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(20));
                }
                return;
            }
            Some(Fault::Cut | Fault::Late(..)) | None => {}
        }
        let stream = reader.get_mut();
        let mut head = format!("HTTP/1.1 {} x\r\nDate: {}\r\n", answer.status, http_date(date));
        for (name, value) in &answer.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("Content-Length: {}\r\n\r\n", answer.body.len()));
        let mut bytes = head.into_bytes();
        if request.method != "HEAD" {
            let half = if matches!(fault, Some(Fault::Cut)) { answer.body.len() / 2 } else { answer.body.len() };
            bytes.extend_from_slice(&answer.body[..half]);
        }
        if stream.write_all(&bytes).is_err() || matches!(fault, Some(Fault::Cut)) {
            return;
        }
    }
}

/// Writes until the client has had enough: how many bytes it took.
fn endless(stream: &mut TcpStream, status: u16, headers: &[(&str, String)]) -> u64 {
    let mut head = format!("HTTP/1.1 {status} x\r\nTransfer-Encoding: chunked\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    let chunk = [b"10000\r\n".as_slice(), &[b'z'; 0x10000], b"\r\n"].concat();
    let (mut going, mut written) = (stream.write_all(head.as_bytes()).is_ok(), 0);
    while going && written < TOO_LONG {
        going = stream.write_all(&chunk).is_ok();
        written += chunk.len() as u64;
    }
    written
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    if headers.contains_key("expect") {
        reader.get_mut().write_all(b"HTTP/1.1 100 Continue\r\n\r\n").ok()?;
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let query = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(name), decode(value))
    });
    let path = path.trim_start_matches('/');
    let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
    let mut request = Request { method, key: decode(key), query: query.collect(), headers, body };
    if bucket != BUCKET {
        request.query.insert("no such bucket".to_owned(), String::new());
    }
    Some(request)
}

fn answer(state: &mut State, request: &Request) -> Answer {
    let has = |name| request.query.contains_key(name);
    if has("no such bucket") {
        return Answer::refusal(404, "NoSuchBucket");
    }
    match (request.method.as_str(), request.key.as_str()) {
        ("HEAD", "") => Answer::empty(200),
        ("GET", "") if has("versioning") => {
            let status = if state.versioned { "<Status>Enabled</Status>" } else { "" };
            Answer::xml(format!("<VersioningConfiguration>{status}</VersioningConfiguration>"))
        }
        ("GET", "") if has("uploads") => uploads(state),
        ("GET", "") if has("versions") => versions(state, request),
        ("GET", "") => objects(state, request),
        ("GET", key) => get(state, request, key),
        ("PUT", key) => {
            let kept = |name: &str| name.starts_with("x-amz-meta-") || name.starts_with("content-");
            let headers = request.headers.iter().filter(|(name, _)| kept(name) && *name != "content-length");
            let headers = headers.map(|(name, value)| (name.clone(), value.clone())).collect();
            state.put(key, request.body.clone(), headers, None);
            let etag = state.objects[key][0].etag.clone();
            Answer { headers: vec![("ETag".to_owned(), etag)], ..Answer::empty(200) }
        }
        ("DELETE", key) => {
            state.delete(key);
            Answer::empty(204)
        }
        _ => Answer::refusal(501, "NotImplemented"),
    }
}

fn get(state: &State, request: &Request, key: &str) -> Answer {
    let Some(versions) = state.objects.get(key) else { return Answer::refusal(404, "NoSuchKey") };
    let version = match request.query.get("versionId") {
        Some(id) => versions.iter().find(|version| version.id == *id),
        None => versions.first().filter(|version| !version.marker),
    };
    let Some(version) = version else { return Answer::refusal(404, "NoSuchVersion") };
    if request.headers.get("if-match").is_some_and(|etag| *etag != version.etag) {
        return Answer::refusal(412, "PreconditionFailed");
    }
    let mut headers = version.headers.clone();
    headers.push(("ETag".to_owned(), version.etag.clone()));
    headers.push(("Last-Modified".to_owned(), http_date(version.modified)));
    Answer { status: 200, headers, body: version.body.clone() }
}

fn objects(state: &State, request: &Request) -> Answer {
    let query = |name: &str| request.query.get(name).cloned().unwrap_or_default();
    let (prefix, after) = (query("prefix"), query("start-after"));
    let mut current = state.objects.iter().filter_map(|(key, versions)| {
        let version = versions.first().filter(|version| !version.marker)?;
        (key.starts_with(&prefix) && *key > after).then_some((key, version))
    });
    let mut text = String::from("<ListBucketResult><EncodingType>url</EncodingType>");
    for (key, version) in current.by_ref().take(state.page) {
        text.push_str(&format!("<Contents>{}<Size>{}</Size></Contents>", described(key, version), version.body.len()));
    }
    let more = current.next().is_some();
    text.push_str(&format!("<IsTruncated>{more}</IsTruncated></ListBucketResult>"));
    Answer::xml(text)
}

fn versions(state: &State, request: &Request) -> Answer {
    let query = |name: &str| request.query.get(name).cloned().unwrap_or_default();
    let (prefix, marker, version_marker) = (query("prefix"), query("key-marker"), query("version-id-marker"));
    let mut all = Vec::new();
    for (key, versions) in state.objects.iter().filter(|(key, _)| key.starts_with(&prefix) && **key >= marker) {
        let behind = match (*key == marker, version_marker.as_str()) {
            (true, "") => versions.len(),
            (true, id) => versions.iter().position(|version| version.id == id).map_or(0, |at| at + 1),
            (false, _) => 0,
        };
        all.extend(versions.iter().enumerate().skip(behind).map(|(at, version)| (key, version, at == 0)));
    }
    let more = all.len() > state.page;
    all.truncate(state.page);
    let mut text = String::from("<ListVersionsResult><EncodingType>url</EncodingType>");
    for (key, version, latest) in &all {
        let tag = if version.marker { "DeleteMarker" } else { "Version" };
        text.push_str(&format!(
            "<{tag}>{}<VersionId>{}</VersionId><IsLatest>{latest}</IsLatest><Size>{}</Size></{tag}>",
            described(key, version),
            version.id,
            version.body.len()
        ));
    }
    if let (true, Some((key, version, _))) = (more, all.last()) {
        let (key, id) = (encode(key), &version.id);
        text.push_str(&format!("<NextKeyMarker>{key}</NextKeyMarker><NextVersionIdMarker>{id}</NextVersionIdMarker>"));
    }
    text.push_str(&format!("<IsTruncated>{more}</IsTruncated></ListVersionsResult>"));
    Answer::xml(text)
}

fn uploads(state: &State) -> Answer {
    let mut text = String::from("<ListMultipartUploadsResult><EncodingType>url</EncodingType>");
    for (key, begun) in &state.uploads {
        let (key, begun) = (encode(key), iso_date(*begun));
        text.push_str(&format!(
            "<Upload><Key>{key}</Key><UploadId>u</UploadId><Initiated>{begun}</Initiated></Upload>"
        ));
    }
    text.push_str("</ListMultipartUploadsResult>");
    Answer::xml(text)
}

fn described(key: &str, version: &Version) -> String {
    let (key, modified, etag) = (encode(key), iso_date(version.modified), version.etag.replace('"', "&quot;"));
    format!("<Key>{key}</Key><LastModified>{modified}</LastModified><ETag>{etag}</ETag>")
}

/// The encoding of keys in listings (`EncodingType` is `url`).
fn encode(text: &str) -> String {
    const ENCODED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'*').remove(b'/');
    utf8_percent_encode(text, &ENCODED).to_string().replace("%20", "+")
}

fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8().unwrap().into_owned()
}

fn iso_date(seconds: i64) -> String {
    DateTime::from_timestamp(seconds, 0).unwrap().format("%Y-%m-%dT%H:%M:%S.000Z").to_string()
}

fn http_date(seconds: i64) -> String {
    DateTime::from_timestamp(seconds, 0).unwrap().format("%a, %d %b %Y %H:%M:%S GMT").to_string()
}
