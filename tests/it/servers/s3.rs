//! An S3 server in memory that fails on demand, with a clock that tests may set.
//!
//! It speaks as much of the protocol as the connectors use, in path style, and checks no signatures. A thread serves a
//! connection; dropping the server ends it.

#![allow(dead_code, reason = "shared by two test binaries, of which neither uses all")]

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The only bucket.
pub const BUCKET: &str = "documents";

/// What the server does instead of answering well.
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
    /// Lists nothing, says that there is more and not where.
    NoMarker,
    /// Lists nothing, and does not say whether there is more.
    NoEnd,
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
            let done = !matches!(fault, Some(Fault::Refuse(..) | Fault::Close));
            let answer = if done { answer(&mut state, &request) } else { Answer::empty(500) };
            (answer, state.now(), fault)
        };
        match fault {
            Some(Fault::Close | Fault::Mute) => return,
            Some(Fault::Refuse(status, code)) => answer = Answer::refusal(status, code),
            Some(Fault::Slow(time)) => std::thread::sleep(time),
            Some(Fault::NoMarker) => {
                answer = Answer::xml("<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>".to_owned());
            }
            Some(Fault::NoEnd) => answer = Answer::xml("<ListBucketResult></ListBucketResult>".to_owned()),
            Some(Fault::Cut) | None => {}
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
            Answer::empty(200)
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

fn encode(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'*' | b'/' => out.push(char::from(byte)),
            b' ' => out.push('+'),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        if bytes[at] == b'%' {
            out.push(u8::from_str_radix(&text[at + 1..at + 3], 16).unwrap());
            at += 3;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8(out).unwrap()
}

/// Year, month, day of a day since the epoch (Hinnant, "chrono-compatible low-level date algorithms").
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

fn time_of(seconds: i64) -> (i64, i64, i64) {
    let of_day = seconds.rem_euclid(86_400);
    (of_day / 3600, of_day / 60 % 60, of_day % 60)
}

fn iso_date(seconds: i64) -> String {
    let (year, month, day) = civil(seconds.div_euclid(86_400));
    let (hour, minute, second) = time_of(seconds);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.000Z")
}

fn http_date(seconds: i64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let days = seconds.div_euclid(86_400);
    let ((year, month, day), (hour, minute, second)) = (civil(days), time_of(seconds));
    let (weekday, month) = (DAYS[days.rem_euclid(7) as usize], MONTHS[month as usize - 1]);
    format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT")
}
