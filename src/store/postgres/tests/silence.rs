//! A server that was there and went silent: what was asked may have been done, and is asked again.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::SeqCst};
use std::time::Instant;

use super::super::connection::Limits;
use super::*;
use crate::store::Place;

/// All is passed on.
const OPEN: u8 = 0;
/// Nothing is passed on until it is again.
const FROZEN: u8 = 1;
/// The next commit is passed on, and its connection brings no answer any more.
const LOSES_COMMIT: u8 = 2;

const PATIENCE: Duration = Duration::from_secs(60);

/// Stands before a server.
struct Proxy {
    port: u16,
    mode: Arc<AtomicU8>,
    accepted: Arc<AtomicUsize>,
}

impl Proxy {
    fn start(server: u16) -> Proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (mode, accepted) = (Arc::<AtomicU8>::default(), Arc::<AtomicUsize>::default());
        let proxy = Proxy { port, mode: mode.clone(), accepted: accepted.clone() };
        std::thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                accepted.fetch_add(1, SeqCst);
                let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)) else { continue };
                let mute = Arc::<AtomicBool>::default();
                pass(client.try_clone().unwrap(), server.try_clone().unwrap(), {
                    let (mode, mute) = (mode.clone(), mute.clone());
                    move |bytes| {
                        thawed(&mode);
                        let commits = bytes.windows(6).any(|word| word == b"COMMIT");
                        if commits && mode.compare_exchange(LOSES_COMMIT, OPEN, SeqCst, SeqCst).is_ok() {
                            mute.store(true, SeqCst);
                        }
                        true
                    }
                });
                let mode = mode.clone();
                pass(server, client, move |_| {
                    thawed(&mode);
                    !mute.load(SeqCst)
                });
            }
        });
        proxy
    }

    fn set(&self, mode: u8) {
        self.mode.store(mode, SeqCst);
    }

    fn store(&self) -> Store {
        let url = format!("postgresql://postgres@127.0.0.1:{}/postgres", self.port);
        let (Ok(mut address), Ok(table)) = (Address::parse(&url.clone().into()), Table::parse("kv")) else {
            panic!("{url}")
        };
        address.limits = Limits { opening: Duration::from_secs(1), statement: Duration::from_secs(1) };
        let Ok(postgres) = Postgres::start(address, table) else { panic!("it is not opened") };
        Store::at(Place::Postgres(postgres))
    }
}

fn thawed(mode: &AtomicU8) {
    while mode.load(SeqCst) == FROZEN {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Passes on what `wanted` says, until the end.
fn pass(mut from: TcpStream, mut to: TcpStream, wanted: impl Fn(&[u8]) -> bool + Send + 'static) {
    std::thread::spawn(move || {
        let mut buffer = [0; 16 << 10];
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            if wanted(&buffer[..read]) && to.write_all(&buffer[..read]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_went_silent_is_asked_again() {
    let Some(server) = Server::start(&[]) else { return };
    let proxy = Proxy::start(server.port());
    let store = proxy.store();
    let epoch = store.claim(&"p".into()).await.unwrap();
    for round in 0..3 {
        store.commit(&epoch, &[(lane(), mark(3 * round + 1))]).await.unwrap();
        let before = proxy.accepted.load(SeqCst);
        proxy.set(FROZEN);
        let (asking, at) = (store.clone(), epoch.clone());
        #[expect(clippy::disallowed_methods, reason = "the test joins it")]
        let asked = tokio::spawn(async move { asking.commit(&at, &[(lane(), mark(3 * round + 2))]).await });
        let start = Instant::now();
        while proxy.accepted.load(SeqCst) == before {
            assert!(start.elapsed() < PATIENCE, "it waits for ever");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        // Now the server also gets what was asked in the connection that was given up.
        proxy.set(OPEN);
        asked.await.unwrap().unwrap();
        assert_eq!(store.load(&epoch).await.unwrap()[&lane()], mark(3 * round + 2));
        store.commit(&epoch, &[(lane(), mark(3 * round + 3))]).await.unwrap();
        assert_eq!(store.load(&epoch).await.unwrap()[&lane()], mark(3 * round + 3));
    }
}

#[tokio::test]
async fn a_commit_without_an_answer_is_repeated() {
    let Some(server) = Server::start(&[]) else { return };
    let proxy = Proxy::start(server.port());
    let store = proxy.store();
    proxy.set(LOSES_COMMIT);
    let epoch = store.claim(&"p".into()).await.unwrap();
    assert_eq!(epoch.number, 2, "the first was taken, and nobody was told");
    for seq in 1..=2 {
        proxy.set(LOSES_COMMIT);
        store.commit(&epoch, &[(lane(), mark(seq))]).await.unwrap();
        assert_eq!(proxy.mode.load(SeqCst), OPEN);
        assert_eq!(store.load(&epoch).await.unwrap()[&lane()], mark(seq));
    }
    let later = store.claim(&"p".into()).await.unwrap();
    let fenced = store.commit(&epoch, &[(lane(), mark(9))]).await.unwrap_err();
    assert!(matches!(fenced, StoreError::Fenced { .. }), "{fenced}");
    assert_eq!(store.load(&later).await.unwrap()[&lane()], mark(2));
}

#[test]
fn a_server_that_stops_in_the_middle_of_opening_is_not_waited_for() {
    let Some(server) = Server::start(&[]) else { return };
    let proxy = Proxy::start(server.port());
    let url = format!("postgresql://postgres@127.0.0.1:{}/postgres?connect_timeout=1", proxy.port);
    // The transaction that makes the tables is never answered.
    proxy.set(LOSES_COMMIT);
    let error = refused(open(url.clone(), "kv"));
    assert!(matches!(&error, Refused::Server { what, .. } if what == "no answer in 2 s"), "{error}");
    drop(open(url, "kv").unwrap());
}
