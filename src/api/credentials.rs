//! The token and the certificate of the listener, which may change while it is open.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anabranch_ops_tls::Identity;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;

use super::access::Access;
use super::connections::acceptor;
use crate::settings::ApiSettings;

/// Time between two checks of the files.
const LOOK: Duration = Duration::from_secs(5);
/// A certificate that ends sooner is worth a warning.
const SOON: Duration = Duration::from_secs(14 * 24 * 3600);

/// Where the credentials of the listener come from, and who uses them.
pub(super) struct Credentials {
    settings: Arc<ApiSettings>,
    access: Arc<Access>,
    tls: watch::Sender<Option<TlsAcceptor>>,
}

/// Identifies one state of a file: modification time, size, inode.
type Stamp = Option<(SystemTime, u64, u64)>;

impl Credentials {
    pub(super) fn of(settings: &ApiSettings, access: &Arc<Access>, tls: &watch::Sender<Option<TlsAcceptor>>) -> Self {
        Credentials { settings: Arc::new(settings.clone()), access: access.clone(), tls: tls.clone() }
    }

    /// Says in the log what is wrong with a certificate that can be used all the same.
    pub(super) fn warn(&self) {
        if let Some(warning) = self.settings.identity.as_ref().and_then(|identity| ending(identity, SystemTime::now()))
        {
            tracing::warn!("api.http.tls: {warning}");
        }
    }

    /// Reads the files again when one changes, and when it is asked for. What cannot be used changes nothing. Never ends.
    pub(super) async fn follow(&self, mut reloads: watch::Receiver<u64>) {
        let files = self.files();
        let mut seen = stamps(files.clone()).await;
        loop {
            let asked = tokio::select! {
                changed = reloads.changed() => match changed {
                    Ok(()) => true,
                    // The service ends.
                    Err(_) => std::future::pending().await,
                },
                () = sleep(LOOK), if !files.is_empty() => false,
            };
            let now = stamps(files.clone()).await;
            if asked || now != seen {
                self.read_again().await;
            }
            seen = now;
        }
    }

    fn files(&self) -> Vec<PathBuf> {
        let ApiSettings { token, token_file, identity, .. } = &*self.settings;
        let identity = identity.iter().flat_map(|identity| [identity.certificates.clone(), identity.key.clone()]);
        token_file.iter().filter(|_| token.is_none()).cloned().chain(identity).collect()
    }

    async fn read_again(&self) {
        let settings = self.settings.clone();
        let read = spawn_blocking(move || (settings.read_token(), settings.identity.as_ref().map(acceptor)));
        let Ok((token, tls)) = read.await else { return };
        match token {
            Ok(Some(token)) if self.access.change_token(&token) => {
                tracing::info!("api.http.token-file: the token is another one; requests need it from now on");
            }
            Ok(_) => {}
            Err(error) => tracing::error!("api.http.token-file: {error}; the token stays as it was"),
        }
        match tls {
            Some(Ok(tls)) => {
                self.tls.send_replace(Some(tls));
                tracing::info!("api.http.tls: the certificate was read again; new connections are shown it");
                self.warn();
            }
            Some(Err(error)) => tracing::error!("api.http.tls: {error}; the certificate stays as it was"),
            None => {}
        }
    }
}

/// A warning about a certificate that is not valid now or expires soon; `None` if it is valid for long enough.
pub(crate) fn ending(identity: &Identity, now: SystemTime) -> Option<String> {
    let shown = identity.certificates.display();
    let validity = identity.validity().ok()?;
    let at = |time: SystemTime| chrono::DateTime::<chrono::Utc>::from(time).format("%Y-%m-%dT%H:%M:%SZ").to_string();
    if now > validity.until {
        return Some(format!("the certificate in {shown} expired at {}: clients refuse it", at(validity.until)));
    }
    if now < validity.from {
        return Some(format!(
            "the certificate in {shown} is not valid before {}: clients refuse it",
            at(validity.from)
        ));
    }
    let soon = now.checked_add(SOON).is_some_and(|soon| soon > validity.until);
    soon.then(|| format!("the certificate in {shown} expires at {}", at(validity.until)))
}

async fn stamps(files: Vec<PathBuf>) -> Vec<Stamp> {
    use std::os::unix::fs::MetadataExt as _;
    let stamp = |file: &PathBuf| {
        let metadata = std::fs::metadata(file).ok()?;
        Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
    };
    // A file may be far away.
    spawn_blocking(move || files.iter().map(stamp).collect()).await.unwrap_or_default()
}
