//! Connections to a source: accepting, TLS, serving and closing.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::idle::{IdleConnections, IdleState};
use super::receiver::HttpReceiver;

/// Maximum time of a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Pause after a connection could not be accepted, for example because too many files are open.
const AGAIN: Duration = Duration::from_millis(100);
/// Time for the last answers when the source is closed.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// Time for the last answer on a connection that gives its place to another one.
const LAST_ANSWER: Duration = Duration::from_secs(1);

/// Limits of connections.
#[derive(Clone, Copy)]
pub(super) struct ConnectionRules {
    /// Maximum number of connections.
    pub(super) most: usize,
    /// Time limit for a handshake, for the head of a request, and for an idle connection.
    pub(super) head: Duration,
}

/// Accepts and serves connections until it is closed or dropped.
pub(super) struct Listener {
    closing: watch::Sender<bool>,
    accepting: JoinSet<()>,
}

impl Listener {
    /// Serves the connections of a socket.
    pub(super) fn start(
        socket: TcpListener,
        tls: Option<TlsAcceptor>,
        receiver: Arc<HttpReceiver>,
        rules: ConnectionRules,
    ) -> Listener {
        let (closing, closed) = watch::channel(false);
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(socket, tls, receiver, rules, closed));
        Listener { closing, accepting }
    }

    /// Accepts no more connections, and waits a short time for answers that are being sent.
    pub(super) async fn close(&mut self) {
        self.closing.send_replace(true);
        let _ = timeout(LAST_ANSWERS, self.accepting.join_next()).await;
        self.accepting.abort_all();
    }
}

async fn accept(
    socket: TcpListener,
    tls: Option<TlsAcceptor>,
    receiver: Arc<HttpReceiver>,
    rules: ConnectionRules,
    closing: watch::Receiver<bool>,
) {
    let mut http = http1::Builder::new();
    // The date of the library fails if the clock is before 1970 or after 9999.
    http.timer(TokioTimer::new()).header_read_timeout(rules.head).auto_date_header(false);
    let slots = Arc::new(Semaphore::new(rules.most));
    let idle = Arc::new(IdleConnections::default());
    let mut connections = JoinSet::new();
    let mut ending = closing.clone();
    let ended = async { ending.wait_for(|is_closing| *is_closing).await.is_ok() };
    let mut ended = pin!(ended);
    loop {
        let stream = tokio::select! {
            biased;
            _ = &mut ended => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            accepted = socket.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::debug!(%error, "a connection was not accepted");
                    tokio::time::sleep(AGAIN).await;
                    continue;
                }
            },
        };
        let slot = tokio::select! {
            biased;
            _ = &mut ended => break,
            slot = free_slot(&slots, &idle) => slot,
        };
        let serving = ServedConnection {
            http: http.clone(),
            receiver: receiver.clone(),
            closing: closing.clone(),
            activity: idle.connect(),
            head: rules.head,
        };
        let tls = tls.clone();
        connections.spawn(async move {
            serving.connect(stream, tls).await;
            drop(slot);
        });
    }
    drop(socket);
    while connections.join_next().await.is_some() {}
}

/// Waits for room for a connection. While there is none, idle connections are closed.
async fn free_slot(slots: &Arc<Semaphore>, idle: &IdleConnections) -> Option<OwnedSemaphorePermit> {
    loop {
        if let Ok(slot) = slots.clone().try_acquire_owned() {
            return Some(slot);
        }
        idle.close_longest();
        tokio::select! {
            // The semaphore is never closed.
            slot = slots.clone().acquire_owned() => return slot.ok(),
            () = idle.arrival() => {}
        }
    }
}

/// The parts that serve a connection.
struct ServedConnection {
    http: http1::Builder,
    receiver: Arc<HttpReceiver>,
    closing: watch::Receiver<bool>,
    activity: Arc<IdleState>,
    /// Time limit for a handshake.
    head: Duration,
}

impl ServedConnection {
    /// Serves a connection, after a handshake if TLS is configured.
    async fn connect(mut self, stream: TcpStream, tls: Option<TlsAcceptor>) {
        // Answers are small, and a client waits for each.
        let _ = stream.set_nodelay(true);
        let Some(tls) = tls else { return self.serve(stream).await };
        let shaken = tokio::select! {
            shaken = timeout(HANDSHAKE.min(self.head), tls.accept(stream)) => shaken,
            _ = self.closing.wait_for(|is_closing| *is_closing) => return,
            () = self.activity.closing() => return,
        };
        match shaken {
            Ok(Ok(stream)) => self.serve(stream).await,
            Ok(Err(error)) => tracing::debug!(%error, "the TLS handshake with a client failed"),
            Err(_) => tracing::debug!("the TLS handshake with a client took too long"),
        }
    }

    /// Serves a connection until it ends. When the source is closed, the request in progress is answered.
    async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(mut self, stream: S) {
        let (receiver, activity) = (self.receiver, self.activity.clone());
        let service = service_fn(move |request| {
            let (receiver, busy) = (receiver.clone(), activity.begin());
            async move {
                let answer = receiver.answer(request).await;
                drop(busy);
                Ok::<_, Infallible>(answer)
            }
        });
        let mut connection = pin!(self.http.serve_connection(TokioIo::new(stream), service));
        let is_full = tokio::select! {
            _ = &mut connection => return,
            _ = self.closing.wait_for(|is_closing| *is_closing) => false,
            () = self.activity.closing() => true,
        };
        connection.as_mut().graceful_shutdown();
        if !is_full {
            let _ = connection.await;
            return;
        }
        // A request may have arrived at the same time. The head of one that does not arrive is not awaited.
        while timeout(LAST_ANSWER, &mut connection).await.is_err() && self.activity.is_busy() {}
    }
}
