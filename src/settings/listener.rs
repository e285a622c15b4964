//! Where HTTP is served, to whom, and what.

use std::fmt;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anabranch_ops_tls::{Identity, Trust, read_regular_text};
use anabranch_record::text::Str;

/// Where HTTP is served, and to whom. The token is shown to nobody.
#[derive(Clone)]
pub struct ApiSettings {
    /// Name or address to listen on; empty = all of this machine's.
    pub host: String,
    /// Port; 0 = any that is free.
    pub port: u16,
    /// What requests must carry.
    pub token: Option<Str>,
    /// File with what requests must carry.
    pub token_file: Option<PathBuf>,
    /// The certificate that the service shows; `None` = it speaks no TLS.
    pub identity: Option<Identity>,
    /// File with the authorities that commands trust.
    pub authorities: Option<PathBuf>,
    /// Whether the address is given as one over TLS.
    pub secure: bool,
    /// Whether metrics are for everybody.
    pub open_metrics: bool,
    /// Other sites whose pages may ask.
    pub origins: Vec<Str>,
    /// How the built-in schema registry is served; `None` = it is not.
    pub schemas: Option<ServedSchemas>,
    /// Whether the web interface is served.
    pub page: bool,
    /// Whether anybody asked for it, and it is not only there by default.
    pub asked: bool,
    /// Whether the address was given to this command, by a flag or a variable: it means the service there and no other.
    /// Never where that is all addresses of this machine.
    pub named: bool,
}

/// How the built-in schema registry is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServedSchemas {
    /// What a new version must be to those before.
    pub compatibility: Compatibility,
}

/// What a schema must be to earlier ones of its subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compatibility {
    /// Anything.
    None,
    /// It reads what the last one wrote.
    Backward,
    /// It reads what any of them wrote.
    BackwardTransitive,
    /// The last one reads what it writes.
    Forward,
    /// All of them read what it writes.
    ForwardTransitive,
    /// Both, for the last one.
    Full,
    /// Both, for all.
    FullTransitive,
}

impl Compatibility {
    /// All levels.
    pub const ALL: [Compatibility; 7] = [
        Compatibility::None,
        Compatibility::Backward,
        Compatibility::BackwardTransitive,
        Compatibility::Forward,
        Compatibility::ForwardTransitive,
        Compatibility::Full,
        Compatibility::FullTransitive,
    ];

    /// The name in the protocol of registries; lower case in settings.
    pub const fn as_str(self) -> &'static str {
        match self {
            Compatibility::None => "NONE",
            Compatibility::Backward => "BACKWARD",
            Compatibility::BackwardTransitive => "BACKWARD_TRANSITIVE",
            Compatibility::Forward => "FORWARD",
            Compatibility::ForwardTransitive => "FORWARD_TRANSITIVE",
            Compatibility::Full => "FULL",
            Compatibility::FullTransitive => "FULL_TRANSITIVE",
        }
    }

    /// Whether it is about all earlier versions, and not only the last.
    pub const fn is_transitive(self) -> bool {
        matches!(self, Self::BackwardTransitive | Self::ForwardTransitive | Self::FullTransitive)
    }

    /// Whether a new schema must read what earlier ones wrote.
    pub const fn reads_earlier(self) -> bool {
        matches!(self, Self::Backward | Self::BackwardTransitive | Self::Full | Self::FullTransitive)
    }

    /// Whether earlier schemas must read what a new one writes.
    pub const fn is_read_by_earlier(self) -> bool {
        matches!(self, Self::Forward | Self::ForwardTransitive | Self::Full | Self::FullTransitive)
    }
}

impl ApiSettings {
    /// The address, as one writes it.
    pub fn shown(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// The token that requests must carry, out of its file where it stands in one.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn read_token(&self) -> Result<Option<Str>, String> {
        match (&self.token, &self.token_file) {
            (Some(token), _) => Ok(Some(token.clone())),
            (None, Some(path)) => token_in(path).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// Whom commands trust that ask there over TLS; `None` = they ask without.
    pub fn trust(&self) -> Option<Trust> {
        match (&self.authorities, &self.identity) {
            (Some(file), _) => Some(Trust::ChainAndName.with_roots(file)),
            // These are the settings of the service itself, which is asked here by any of its names.
            (None, Some(identity)) => Some(Trust::Certificate(identity.certificates.clone())),
            (None, None) => self.secure.then_some(Trust::ChainAndName),
        }
    }

    /// Whether only programs of this machine reach it.
    pub fn is_local(&self) -> bool {
        self.host.eq_ignore_ascii_case("localhost")
            || self.host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}

/// The largest file with a token.
const TOKEN_BYTES: u64 = 64 << 10;

/// The token in a file, without white space around it.
pub(crate) fn token_in(path: &Path) -> Result<Str, String> {
    let shown = path.display();
    let text = read_regular_text(path, TOKEN_BYTES).map_err(|error| match error.kind() {
        ErrorKind::FileTooLarge => format!("{shown} is too large for a token"),
        _ => format!("cannot read {shown}: {}", crate::files::system(&error)),
    })?;
    match text.trim() {
        "" => Err(format!("{shown} is empty")),
        token => Ok(token.into()),
    }
}

impl fmt::Debug for ApiSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiSettings").field("address", &self.shown()).finish_non_exhaustive()
    }
}
