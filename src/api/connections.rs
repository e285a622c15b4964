//! Connections: accepted, with or without TLS, served, and closed.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anabranch_ops_tls::{Identity, TlsError};
use axum::Router;
use futures::stream::{FuturesUnordered, StreamExt as _};
use hyper::server::conn::http1::{self, UpgradeableConnection};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

/// Connections at a time; more wait to be accepted. A pipeline must not lack files because of them.
const CONNECTIONS: usize = 256;
/// How long a client may take for the head of a request, and leave a connection unused.
const HEAD: Duration = Duration::from_secs(30);
/// How long a client may take to agree on how TLS is spoken.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long answers that are under way have when the service ends.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

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
pub(crate) async fn serve<T>(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    router: Router,
    stop: impl Future<Output = ()>,
    farewell: impl Future<Output = T>,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD);
    let (open, closing) = watch::channel(());
    let mut connections = FuturesUnordered::new();
    let mut stop = pin!(stop);
    loop {
        tokio::select! {
            biased;
            () = &mut stop => break,
            Some(_) = connections.next(), if !connections.is_empty() => {}
            accepted = listener.accept(), if connections.len() < CONNECTIONS => match accepted {
                Ok((stream, _)) => {
                    connections.push(shaken_hands(stream, tls.clone(), http.clone(), router.clone(), closing.clone()));
                }
                Err(error) => {
                    tracing::debug!(%error, "a connection was not accepted");
                    // Most likely there is no file left, which the next moment does not change.
                    sleep(Duration::from_millis(100)).await;
                }
            },
        }
    }
    drop(listener);
    drop(open);
    let connections = connections.for_each(async |_| {});
    let last = async { tokio::join!(connections, farewell) };
    let _ = timeout(LAST_ANSWERS, last).await;
}

/// Serves a connection, after a handshake where there is to be one.
async fn shaken_hands(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    http: http1::Builder,
    router: Router,
    mut closing: watch::Receiver<()>,
) {
    let service = TowerToHyperService::new(router);
    // What becomes a websocket is no connection of the listener any more.
    let Some(tls) = tls else {
        let connection = http.serve_connection(TokioIo::new(stream), service).with_upgrades();
        return served(connection, closing).await;
    };
    let shaken = tokio::select! {
        shaken = timeout(HANDSHAKE, tls.accept(stream)) => shaken,
        _ = closing.changed() => return,
    };
    match shaken {
        Ok(Ok(stream)) => {
            let connection = http.serve_connection(TokioIo::new(stream), service).with_upgrades();
            served(connection, closing).await;
        }
        Ok(Err(error)) => tracing::debug!(%error, "a client does not speak TLS as it should"),
        Err(_) => tracing::debug!("a client took too long for the handshake of TLS"),
    }
}

/// Serves a connection until it ends or becomes something else; when nobody holds the other end of `closing` any more,
/// only what was asked before is answered.
async fn served<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    connection: UpgradeableConnection<TokioIo<S>, TowerToHyperService<Router>>,
    mut closing: watch::Receiver<()>,
) {
    let mut connection = pin!(connection);
    tokio::select! {
        _ = &mut connection => return,
        _ = closing.changed() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}
