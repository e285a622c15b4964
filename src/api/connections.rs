//! Connections: accepted, with or without TLS, served, and closed.

mod asked;
mod seats;
mod watched;

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anabranch_ops_tls::{Identity, TlsError};
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

use crate::service::limits::open_files;
use asked::Asked;
pub(crate) use seats::Seat;
use seats::Seats;
use watched::Watched;

/// How long a client may take for the head of a request, and leave a connection unused.
const HEAD: Duration = Duration::from_secs(30);
/// How long a client may take to agree on how TLS is spoken.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long answers that are under way have when the service ends.
const LAST_ANSWERS: Duration = Duration::from_secs(1);
/// How long the first request of a connection is waited for when the service ends.
const FIRST: Duration = Duration::from_millis(200);
/// How soon it is looked again whether one more connection can be accepted.
const AGAIN: Duration = Duration::from_millis(50);
/// How often the log says that connections were closed.
const ACCOUNT: Duration = Duration::from_secs(60);

/// Most connections that the system keeps until they are accepted. When there are more, a client tries again after a second
/// only: a probe must not wait for that because many others came at once.
const BACKLOG: u32 = 1024;

/// Opens a listener at the first address of the host that can be had.
///
/// # Errors
/// None can.
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
    // A service that starts again takes the port of the one before at once.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// How TLS is spoken with this certificate. The files are read now, and not again.
///
/// # Errors
/// They are of no use.
pub(crate) fn acceptor(identity: &Identity) -> Result<TlsAcceptor, TlsError> {
    let mut config = identity.server()?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Answers what comes to the listener until `stop`, and then only what was asked before; `farewell` is waited for as well.
/// New connections speak TLS as `tls` says when they come.
pub(crate) async fn serve<T>(
    listener: TcpListener,
    tls: watch::Receiver<Option<TlsAcceptor>>,
    router: Router,
    stop: impl Future<Output = ()>,
    farewell: impl Future<Output = T>,
) {
    let mut http = http1::Builder::new();
    // The library's own date fails where the clock is before 1970 or after 9999.
    http.timer(TokioTimer::new()).header_read_timeout(HEAD).auto_date_header(false);
    let (open, closing) = watch::channel(());
    let seats = Seats::within(open_files().unwrap_or(u64::MAX));
    let mut account = Account::default();
    let mut connections = FuturesUnordered::new();
    let mut stop = pin!(stop);
    // The system refuses more connections until then, most likely because there is no file left.
    let mut exhausted_until = Instant::now();
    loop {
        let now = Instant::now();
        let accepts = now >= exhausted_until && seats.has_room(now);
        account.tell(&seats, now);
        tokio::select! {
            biased;
            () = &mut stop => break,
            Some(()) = connections.next(), if !connections.is_empty() => {}
            accepted = listener.accept(), if accepts => match accepted {
                Ok((stream, peer)) => {
                    // Dropping the stream closes it.
                    if let Some(seat) = seats.take(peer.ip().to_canonical(), Instant::now()) {
                        let tls = tls.borrow().clone();
                        connections.push(seated(stream, seat, tls, http.clone(), router.clone(), closing.clone()));
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "a connection was not accepted");
                    let has_no_files = [Errno::MFILE, Errno::NFILE].map(|errno| Some(errno.raw_os_error()));
                    if has_no_files.contains(&error.raw_os_error()) {
                        seats.close_one(Instant::now());
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

/// Log lines about connections that were closed in favour of others: one at once, then one a minute while there are
/// more.
struct Account {
    next: Instant,
    /// Whether something may have to be said at that time.
    is_open: bool,
    /// When it may be said next that there are too few files.
    next_of_files: Instant,
}

impl Default for Account {
    fn default() -> Self {
        Account { next: Instant::now(), is_open: false, next_of_files: Instant::now() }
    }
}

impl Account {
    /// A client waits, and the system gives no file for its connection.
    fn tell_of_files(&mut self, now: Instant) {
        if now < self.next_of_files {
            return;
        }
        self.next_of_files = now + ACCOUNT;
        let limit = open_files().map_or_else(|| "as many as the system has".to_owned(), |limit| limit.to_string());
        tracing::error!(
            "HTTP cannot be answered: too many files are open, and a connection needs one. This process may have {limit} \
             open: raise the limit (`ulimit -n`, or LimitNOFILE of the systemd unit)"
        );
    }

    fn tell(&mut self, seats: &Seats, now: Instant) {
        if now < self.next {
            return;
        }
        let closed = seats.take_closed();
        self.is_open = closed.is_some();
        if let Some((closed, most)) = closed {
            self.next = now + ACCOUNT;
            let most = most.map_or_else(String::new, |most: IpAddr| format!("; most come from {most}"));
            tracing::warn!(
                closed,
                "too many clients are connected and do not finish their requests: those that wait \
                            longest are closed{most}"
            );
        }
    }
}

/// Serves a connection until it ends, becomes something else, or has to leave for another.
async fn seated(
    stream: TcpStream,
    seat: Seat,
    tls: Option<TlsAcceptor>,
    http: http1::Builder,
    router: Router,
    closing: watch::Receiver<()>,
) {
    let seat = Arc::new(seat);
    let stream = Watched::new(stream, seat.clone());
    tokio::select! {
        biased;
        () = seat.left() => {}
        () = shaken_hands(stream, seat.clone(), tls, http, router, closing) => {}
    }
}

/// Serves a connection, after a handshake where there is to be one.
async fn shaken_hands(
    stream: Watched,
    seat: Arc<Seat>,
    tls: Option<TlsAcceptor>,
    http: http1::Builder,
    router: Router,
    mut closing: watch::Receiver<()>,
) {
    // What becomes a websocket is no connection of the listener any more.
    let Some(tls) = tls else { return served(stream, seat, http, router, closing).await };
    let shaken = tokio::select! {
        shaken = timeout(HANDSHAKE, tls.accept(stream)) => shaken,
        _ = closing.changed() => return,
    };
    match shaken {
        Ok(Ok(stream)) => served(stream, seat, http, router, closing).await,
        Ok(Err(error)) => tracing::debug!(%error, "a client does not speak TLS as it should"),
        Err(_) => tracing::debug!("a client took too long for the handshake of TLS"),
    }
}

/// The time as a header says it; `None` where the clock is so wrong that no header can: an answer needs none.
fn date(now: SystemTime) -> Option<HeaderValue> {
    const END_OF_9999: u64 = 253_402_300_800;
    let seconds = now.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs();
    let at = chrono::DateTime::from_timestamp(i64::try_from(seconds).ok()?, 0).filter(|_| seconds < END_OF_9999)?;
    HeaderValue::try_from(at.format("%a, %d %b %Y %H:%M:%S GMT").to_string()).ok()
}

/// Serves a connection until it ends or becomes something else; when nobody holds the other end of `closing` any more,
/// only what was asked before is answered.
async fn served<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    seat: Arc<Seat>,
    http: http1::Builder,
    router: Router,
    mut closing: watch::Receiver<()>,
) {
    let router = TowerToHyperService::new(router);
    let asked = Arc::new(Notify::new());
    let asks = asked.clone();
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        // Kept for who waits for it later.
        asks.notify_one();
        request.extensions_mut().insert(seat.clone());
        let (seat, answering) = (seat.clone(), router.call(request.map(|body| Asked::new(body, seat.clone()))));
        async move {
            let answer: Result<Response, Infallible> = answering.await;
            seat.answered();
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
    // The first request of a connection may be on its way: a client that has just come is not to be sent away unheard.
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
