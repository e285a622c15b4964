//! The token and the certificate of the listener, which may change while it is open.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anabranch_ops_tls::Identity;
use anabranch_settings::ApiSettings;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::access::Access;
use crate::connections::acceptor;

/// Time between two checks of the files.
const LOOK: Duration = Duration::from_secs(5);
/// A read that takes longer is logged.
const LONGEST: Duration = Duration::from_secs(10);
/// A certificate that expires sooner causes a warning.
const SOON: Duration = Duration::from_secs(14 * 24 * 3600);

/// The setting with the file of the token.
const TOKEN_FILE: &str = "api.http.token-file";

/// The sources of the listener's credentials, and their users.
pub(super) struct Credentials {
    settings: Arc<ApiSettings>,
    access: Arc<Access>,
    tls: watch::Sender<Option<TlsAcceptor>>,
    seen: FileStamps,
}

/// The state of the files before they are read for the first time: any later difference is a change.
#[derive(Clone)]
pub(super) struct FileStamps {
    token: Vec<FileStamp>,
    certificate: Vec<FileStamp>,
}

impl FileStamps {
    /// Reads the state of the files. Blocks.
    pub(super) fn now(settings: &ApiSettings) -> FileStamps {
        let certificate = settings.identity.iter().flat_map(files_of);
        FileStamps {
            token: settings.token_file.iter().map(stamp).collect(),
            certificate: certificate.map(|file| stamp(&file)).collect(),
        }
    }
}

fn files_of(identity: &Identity) -> [PathBuf; 2] {
    [identity.certificates.clone(), identity.key.clone()]
}

/// One state of a file: modification time, size, inode.
type FileStamp = Option<(SystemTime, u64, u64)>;

impl Credentials {
    pub(super) fn of(
        settings: &ApiSettings,
        seen: FileStamps,
        access: &Arc<Access>,
        tls: &watch::Sender<Option<TlsAcceptor>>,
    ) -> Self {
        Credentials { settings: Arc::new(settings.clone()), access: access.clone(), tls: tls.clone(), seen }
    }

    /// Logs warnings about a certificate that is still usable.
    pub(super) fn warn(&self) {
        if let Some(warning) = self.settings.identity.as_ref().and_then(|identity| ending(identity, SystemTime::now()))
        {
            tracing::warn!("api.http.tls: {warning}");
        }
    }

    /// Reloads the files when one changes and when a reload is requested. Invalid files change nothing. Never ends.
    pub(super) async fn follow(&self, reloads: watch::Receiver<u64>) {
        // Separately, so that a file system that hangs for one does not delay the other.
        tokio::join!(self.follow_token(reloads.clone()), self.follow_certificate(reloads));
        // Neither credential comes from a file.
        std::future::pending::<()>().await;
    }

    async fn follow_token(&self, reloads: watch::Receiver<u64>) {
        let ApiSettings { token, token_file, .. } = &*self.settings;
        let Some(file) = token_file.as_ref().filter(|_| token.is_none()) else { return };
        let seen = Some(self.seen.token.clone());
        let mut followed = CredentialFiles::new(TOKEN_FILE, vec![file.clone()], seen, reloads);
        loop {
            let asked = followed.changed().await;
            let settings = self.settings.clone();
            let Some(token) = followed.read(asked, move || settings.read_token()).await else { continue };
            let is_other = token.is_some_and(|token| self.access.change_token(&token));
            if is_other {
                tracing::info!("api.http.token-file: the token changed; requests need the new one");
            } else if asked || followed.is_good_again {
                tracing::info!("api.http.token-file: the token was read again; it did not change");
            }
        }
    }

    async fn follow_certificate(&self, reloads: watch::Receiver<u64>) {
        let Some(identity) = self.settings.identity.clone() else { return };
        let seen = Some(self.seen.certificate.clone());
        let mut followed = CredentialFiles::new("api.http.tls", files_of(&identity).into(), seen, reloads);
        loop {
            let asked = followed.changed().await;
            let identity = identity.clone();
            let read = followed.read(asked, move || acceptor(&identity).map_err(|error| error.to_string()));
            let Some(tls) = read.await else { continue };
            self.tls.send_replace(Some(tls));
            tracing::info!("api.http.tls: the certificate was read again; new connections use it");
            self.warn();
        }
    }
}

/// Files that are read together.
struct CredentialFiles {
    /// The setting that names them.
    setting: &'static str,
    files: Vec<PathBuf>,
    reloads: watch::Receiver<u64>,
    /// Their state when they were last read.
    seen: Option<Vec<FileStamp>>,
    /// Why they could not be used, as it was logged.
    failure: Option<String>,
    /// True if the last read succeeded and the one before failed.
    is_good_again: bool,
}

impl CredentialFiles {
    fn new(
        setting: &'static str,
        files: Vec<PathBuf>,
        seen: Option<Vec<FileStamp>>,
        reloads: watch::Receiver<u64>,
    ) -> Self {
        CredentialFiles { setting, files, reloads, seen, failure: None, is_good_again: false }
    }

    /// Returns when the files should be read: `true` if a reload was requested.
    async fn changed(&mut self) -> bool {
        loop {
            let asked = tokio::select! {
                changed = self.reloads.changed() => match changed {
                    Ok(()) => true,
                    // The service ends.
                    Err(_) => std::future::pending().await,
                },
                () = sleep(LOOK) => false,
            };
            let now = self.stamps().await;
            // A file that could not be read may become readable without a change, for example with new permissions.
            if asked || now != self.seen || self.failure.is_some() {
                self.seen = now;
                return asked;
            }
        }
    }

    /// Runs `read` on a blocking thread. Returns `None` if it fails; logs each cause once, and every time if the reload
    /// was requested.
    async fn read<T: Send + 'static>(
        &mut self,
        asked: bool,
        read: impl FnOnce() -> Result<T, String> + Send + 'static,
    ) -> Option<T> {
        let read = self.waited_for(read).await.unwrap_or_else(|| Err("the file cannot be read".to_owned()));
        match read {
            Ok(value) => {
                self.is_good_again = self.failure.take().is_some();
                Some(value)
            }
            Err(error) => {
                self.fail(error, asked);
                None
            }
        }
    }

    fn fail(&mut self, error: String, asked: bool) {
        if asked || self.failure.as_ref() != Some(&error) {
            let what = if self.setting == TOKEN_FILE { "token" } else { "certificate" };
            tracing::error!("{}: {error}; the service keeps the previous {what}", self.setting);
        }
        self.failure = Some(error);
    }

    async fn stamps(&mut self) -> Option<Vec<FileStamp>> {
        let files = self.files.clone();
        self.waited_for(move || files.iter().map(stamp).collect()).await
    }

    /// Returns the result of work that may take long, for example on an unreachable file system. Logs if it is slow,
    /// and waits until it ends.
    async fn waited_for<T: Send + 'static>(&mut self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let mut working = spawn_blocking(work);
        if let Ok(done) = timeout(LONGEST, &mut working).await {
            return done.ok();
        }
        self.fail(format!("the file system has not answered for {} s", LONGEST.as_secs()), false);
        working.await.ok()
    }
}

/// Returns a warning about a certificate that is not valid now or expires soon; `None` if it is valid for long enough.
pub fn ending(identity: &Identity, now: SystemTime) -> Option<String> {
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

fn stamp(file: &PathBuf) -> FileStamp {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = std::fs::metadata(file).ok()?;
    Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
}
