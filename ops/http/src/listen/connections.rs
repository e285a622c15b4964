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
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::receiver::HttpReceiver;

/// Time limit for the head of a request, and for an idle connection.
const HEAD: Duration = Duration::from_secs(30);
/// Time limit of a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Pause after a connection could not be accepted, for example because too many files are open.
const AGAIN: Duration = Duration::from_millis(100);
/// Time for the last answers when the source is closed.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// Accepts and serves connections until it is closed or dropped.
pub(super) struct Listener {
    closing: watch::Sender<bool>,
    accepting: JoinSet<()>,
}

impl Listener {
    /// Serves the connections of a socket, at most `most` at a time. Others wait in the queue of the system.
    pub(super) fn start(
        socket: TcpListener,
        tls: Option<TlsAcceptor>,
        receiver: Arc<HttpReceiver>,
        most: usize,
    ) -> Listener {
        let (closing, closed) = watch::channel(false);
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(socket, tls, receiver, Arc::new(Semaphore::new(most)), closed));
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
    slots: Arc<Semaphore>,
    closing: watch::Receiver<bool>,
) {
    let mut http = http1::Builder::new();
    // The date of the library fails if the clock is before 1970 or after 9999.
    http.timer(TokioTimer::new()).header_read_timeout(HEAD).auto_date_header(false);
    let mut connections = JoinSet::new();
    let mut ending = closing.clone();
    let ended = async { ending.wait_for(|is_closing| *is_closing).await.is_ok() };
    let mut ended = pin!(ended);
    loop {
        let accepted = async {
            // The semaphore is never closed.
            let slot = slots.clone().acquire_owned().await.ok();
            (slot, socket.accept().await)
        };
        tokio::select! {
            biased;
            _ = &mut ended => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            (slot, accepted) = accepted => match accepted {
                Ok((stream, _)) => {
                    let (tls, http, receiver, closing) = (tls.clone(), http.clone(), receiver.clone(), closing.clone());
                    connections.spawn(async move {
                        connect(stream, tls, http, receiver, closing).await;
                        drop(slot);
                    });
                }
                Err(error) => {
                    tracing::debug!(%error, "a connection was not accepted");
                    tokio::time::sleep(AGAIN).await;
                }
            },
        }
    }
    drop(socket);
    while connections.join_next().await.is_some() {}
}

/// Serves a connection, after a handshake if TLS is configured.
async fn connect(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    http: http1::Builder,
    receiver: Arc<HttpReceiver>,
    mut closing: watch::Receiver<bool>,
) {
    // Answers are small, and a client waits for each.
    let _ = stream.set_nodelay(true);
    let Some(tls) = tls else { return serve(stream, http, receiver, closing).await };
    let shaken = tokio::select! {
        shaken = timeout(HANDSHAKE, tls.accept(stream)) => shaken,
        _ = closing.wait_for(|is_closing| *is_closing) => return,
    };
    match shaken {
        Ok(Ok(stream)) => serve(stream, http, receiver, closing).await,
        Ok(Err(error)) => tracing::debug!(%error, "the TLS handshake with a client failed"),
        Err(_) => tracing::debug!("the TLS handshake with a client took too long"),
    }
}

/// Serves a connection until it ends. When the source is closed, the request in progress is answered.
async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    http: http1::Builder,
    receiver: Arc<HttpReceiver>,
    mut closing: watch::Receiver<bool>,
) {
    let service = service_fn(move |request| {
        let receiver = receiver.clone();
        async move { Ok::<_, Infallible>(receiver.answer(request).await) }
    });
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        _ = &mut connection => return,
        _ = closing.wait_for(|is_closing| *is_closing) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}
