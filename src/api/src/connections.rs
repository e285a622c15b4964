//! Connections: accepting, TLS, serving and closing.

mod body;
mod slots;
mod stream;

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anabranch_ops_tls::{Identity, TlsError};
use anabranch_service::limits::open_files;
use axum::Router;
use axum::http::HeaderValue;
use axum::http::header::DATE;
use axum::response::Response;
use futures::stream::{FuturesUnordered, StreamExt as _};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::io::Errno;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream, lookup_host};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;

use body::RequestBody;
pub(crate) use slots::Slot;
use slots::Slots;
use stream::MonitoredStream;

/// Time limit for the head of a request, and for an idle connection.
const HEAD: Duration = Duration::from_secs(30);
/// Time limit of a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long responses in progress may take when the service ends.
const LAST_ANSWERS: Duration = Duration::from_secs(1);
/// How long the service waits for the first request of a connection when it ends.
const FIRST: Duration = Duration::from_millis(200);
/// Pause before the next check whether another connection can be accepted.
const AGAIN: Duration = Duration::from_millis(50);
/// Minimum time between two log lines about closed connections.
const ACCOUNT: Duration = Duration::from_secs(60);

/// Maximum length of the queue of connections that are not accepted yet. If it is full, a client retries only after a
/// second: a burst of other clients must not delay a probe that long.
const BACKLOG: u32 = 1024;

/// Opens a listener at the first usable address of the host.
///
/// # Errors
/// No address is usable.
pub(crate) async fn listen(host: &str, port: u16) -> std::io::Result<TcpListener> {
    let mut refused = None;
    for address in lookup_host((host, port)).await? {
        match listen_at(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => refused = Some(error),
        }
    }
    Err(refused.unwrap_or_else(|| std::io::ErrorKind::AddrNotAvailable.into()))
}

fn listen_at(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A restarted service can take the port of the previous one immediately.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Creates a TLS acceptor with a certificate. The files are read now and not again.
///
/// # Errors
/// The files cannot be used.
pub fn acceptor(identity: &Identity) -> Result<TlsAcceptor, TlsError> {
    let mut config = identity.server()?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Answers requests until `stop`, then finishes those that arrived before and waits for `farewell`. New connections use
/// the value of `tls` at the time when they arrive.
pub async fn serve<T>(
    listener: TcpListener,
    tls: watch::Receiver<Option<TlsAcceptor>>,
    router: Router,
    stop: impl Future<Output = ()>,
    farewell: impl Future<Output = T>,
) {
    let mut http = http1::Builder::new();
    // The date of the library fails if the clock is before 1970 or after 9999.
    http.timer(TokioTimer::new()).header_read_timeout(HEAD).auto_date_header(false);
    let (open, closing) = watch::channel(());
    let slots = Slots::within(open_files().unwrap_or(u64::MAX));
    let mut account = ClosedConnections::default();
    let mut connections = FuturesUnordered::new();
    let mut stop = pin!(stop);
    // Until then the system refuses connections, most likely because of its limit of open files.
    let mut exhausted_until = Instant::now();
    loop {
        let now = Instant::now();
        let accepts = now >= exhausted_until && slots.has_room(now);
        account.tell(&slots, now);
        tokio::select! {
            biased;
            () = &mut stop => break,
            Some(()) = connections.next(), if !connections.is_empty() => {}
            accepted = listener.accept(), if accepts => match accepted {
                Ok((stream, peer)) => {
                    // Dropping the stream closes it.
                    if let Some(slot) = slots.take(peer.ip().to_canonical(), Instant::now()) {
                        let tls = tls.borrow().clone();
                        connections.push(served_in_slot(stream, slot, tls, http.clone(), router.clone(), closing.clone()));
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "a connection was not accepted");
                    let has_no_files = [Errno::MFILE, Errno::NFILE].map(|errno| Some(errno.raw_os_error()));
                    if has_no_files.contains(&error.raw_os_error()) {
                        slots.close_one(Instant::now());
                        account.tell_of_files(Instant::now());
                    }
                    exhausted_until = Instant::now() + 2 * AGAIN;
                }
            },
            () = sleep(AGAIN), if !accepts => {}
            () = sleep_until(account.next), if account.is_open => {}
        }
    }
    drop(listener);
    drop(open);
    let connections = connections.for_each(async |()| {});
    let last = async { tokio::join!(connections, farewell) };
    let _ = timeout(LAST_ANSWERS, last).await;
}

/// Log lines about connections that were closed to make room for others: the first immediately, then one a minute.
struct ClosedConnections {
    next: Instant,
    /// True if a log line may be due at `next`.
    is_open: bool,
    /// Earliest time of the next log line about too few files.
    next_of_files: Instant,
}

impl Default for ClosedConnections {
    fn default() -> Self {
        ClosedConnections { next: Instant::now(), is_open: false, next_of_files: Instant::now() }
    }
}

impl ClosedConnections {
    /// Logs that a client waits because the system has no file descriptor for its connection.
    fn tell_of_files(&mut self, now: Instant) {
        if now < self.next_of_files {
            return;
        }
        self.next_of_files = now + ACCOUNT;
        let limit = open_files().map_or_else(|| "that of the system".to_owned(), |limit| limit.to_string());
        tracing::error!(
            "the HTTP server cannot accept connections: too many files are open, and each connection needs one. The \
             limit of this process is {limit}: raise it (`ulimit -n`, or LimitNOFILE of the systemd unit)"
        );
    }

    fn tell(&mut self, slots: &Slots, now: Instant) {
        if now < self.next {
            return;
        }
        let closed = slots.take_closed();
        self.is_open = closed.is_some();
        if let Some((closed, most)) = closed {
            self.next = now + ACCOUNT;
            let most = most.map_or_else(String::new, |most: IpAddr| format!("; most come from {most}"));
            tracing::warn!(
                closed,
                "too many clients are connected and do not finish their requests: the service closes the connections \
                            that have waited longest{most}"
            );
        }
    }
}

/// Serves a connection until it ends, is upgraded, or is closed to make room for another.
async fn served_in_slot(
    stream: TcpStream,
    slot: Slot,
    tls: Option<TlsAcceptor>,
    http: http1::Builder,
    router: Router,
    closing: watch::Receiver<()>,
) {
    let slot = Arc::new(slot);
    let stream = MonitoredStream::new(stream, slot.clone());
    tokio::select! {
        biased;
        () = slot.left() => {}
        () = shaken_hands(stream, slot.clone(), tls, http, router, closing) => {}
    }
}

/// Serves a connection, after a handshake if TLS is configured.
async fn shaken_hands(
    stream: MonitoredStream,
    slot: Arc<Slot>,
    tls: Option<TlsAcceptor>,
    http: http1::Builder,
    router: Router,
    mut closing: watch::Receiver<()>,
) {
    // A connection that becomes a websocket leaves the listener.
    let Some(tls) = tls else { return served(stream, slot, http, router, closing).await };
    let shaken = tokio::select! {
        shaken = timeout(HANDSHAKE, tls.accept(stream)) => shaken,
        _ = closing.changed() => return,
    };
    match shaken {
        Ok(Ok(stream)) => served(stream, slot, http, router, closing).await,
        Ok(Err(error)) => tracing::debug!(%error, "the TLS handshake with a client failed"),
        Err(_) => tracing::debug!("the TLS handshake with a client took too long"),
    }
}

/// Formats the time for a `Date` header; `None` if the clock is outside the range of the header, which is optional.
fn date(now: SystemTime) -> Option<HeaderValue> {
    const END_OF_9999: u64 = 253_402_300_800;
    let seconds = now.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs();
    let at = chrono::DateTime::from_timestamp(i64::try_from(seconds).ok()?, 0).filter(|_| seconds < END_OF_9999)?;
    HeaderValue::try_from(at.format("%a, %d %b %Y %H:%M:%S GMT").to_string()).ok()
}

/// Serves a connection until it ends or is upgraded. When the other end of `closing` is dropped, only requests that
/// arrived before are answered.
async fn served<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    slot: Arc<Slot>,
    http: http1::Builder,
    router: Router,
    mut closing: watch::Receiver<()>,
) {
    let router = TowerToHyperService::new(router);
    let asked = Arc::new(Notify::new());
    let asks = asked.clone();
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        // The permit is stored for a later wait.
        asks.notify_one();
        request.extensions_mut().insert(slot.clone());
        let (slot, answering) = (slot.clone(), router.call(request.map(|body| RequestBody::new(body, slot.clone()))));
        async move {
            let answer: Result<Response, Infallible> = answering.await;
            slot.answered();
            answer.map(|mut answer| {
                if let Some(date) = date(SystemTime::now()) {
                    answer.headers_mut().insert(DATE, date);
                }
                answer
            })
        }
    });
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service).with_upgrades());
    tokio::select! {
        _ = &mut connection => return,
        _ = closing.changed() => {}
    }
    // The first request of a connection may be in transit: a new client should get an answer.
    tokio::select! {
        biased;
        () = asked.notified() => {}
        _ = &mut connection => return,
        () = sleep(FIRST) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_no_header_can_say_gives_no_date() {
        let after = |seconds| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).unwrap();
        assert_eq!(date(after(784_111_777)).unwrap(), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(date(after(253_402_300_799)).unwrap(), "Fri, 31 Dec 9999 23:59:59 GMT");
        assert_eq!(date(after(253_402_300_800)), None);
        assert_eq!(date(SystemTime::UNIX_EPOCH - Duration::from_secs(1)), None);
    }
}
