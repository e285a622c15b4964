//! Settings of the HTTP listener.

use std::fmt;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anabranch_ops_tls::{Identity, Trust, read_regular_text};
use anabranch_record::text::Str;

/// Settings of the HTTP listener. `Debug` leaves out the token.
#[derive(Clone)]
pub struct ApiSettings {
    /// Name or address to listen on; empty = all addresses of this machine.
    pub host: String,
    /// Port; 0 = any free port.
    pub port: u16,
    /// The token that requests must carry.
    pub token: Option<Str>,
    /// File with the token that requests must carry.
    pub token_file: Option<PathBuf>,
    /// The certificate of the service; `None` = no TLS.
    pub identity: Option<Identity>,
    /// File with the certificate authorities that commands trust.
    pub authorities: Option<PathBuf>,
    /// `true` if the address is given with `https://`.
    pub secure: bool,
    /// `true` if metrics need no token.
    pub open_metrics: bool,
    /// Origins of other sites whose pages may use the API.
    pub origins: Vec<Str>,
    /// Settings of the served schema registry; `None` = it is not served.
    pub schemas: Option<ServedSchemas>,
    /// `true` if the web interface is served.
    pub page: bool,
    /// `true` if the listener was configured, and not only enabled by default.
    pub asked: bool,
    /// `true` if a flag or a variable of this command gives the address, which then names a specific service. Never
    /// true for the unspecified address.
    pub named: bool,
}

/// Settings of the built-in schema registry when it is served over HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServedSchemas {
    /// Required compatibility of a new version with earlier ones.
    pub compatibility: Compatibility,
}

/// Required compatibility of a schema with earlier versions of its subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compatibility {
    /// No requirement.
    None,
    /// The new schema can read data of the latest version.
    Backward,
    /// The new schema can read data of all earlier versions.
    BackwardTransitive,
    /// The latest version can read data of the new schema.
    Forward,
    /// All earlier versions can read data of the new schema.
    ForwardTransitive,
    /// Both directions, for the latest version.
    Full,
    /// Both directions, for all earlier versions.
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

    /// Returns the name in the registry protocol; settings use lower case.
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

    /// Returns `true` if it concerns all earlier versions, not only the latest.
    pub const fn is_transitive(self) -> bool {
        matches!(self, Self::BackwardTransitive | Self::ForwardTransitive | Self::FullTransitive)
    }

    /// Returns `true` if a new schema must be able to read data of earlier versions.
    pub const fn reads_earlier(self) -> bool {
        matches!(self, Self::Backward | Self::BackwardTransitive | Self::Full | Self::FullTransitive)
    }

    /// Returns `true` if earlier versions must be able to read data of a new schema.
    pub const fn is_read_by_earlier(self) -> bool {
        matches!(self, Self::Forward | Self::ForwardTransitive | Self::Full | Self::FullTransitive)
    }
}

impl ApiSettings {
    /// Returns the address as text.
    pub fn shown(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Returns the token that requests must carry, from its file if it is in one.
    ///
    /// # Errors
    /// The file cannot be read, or does not contain a token.
    pub fn read_token(&self) -> Result<Option<Str>, String> {
        match (&self.token, &self.token_file) {
            (Some(token), _) => Ok(Some(token.clone())),
            (None, Some(path)) => token_in(path).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// Returns the trust of commands that connect over TLS; `None` = they connect without TLS.
    pub fn trust(&self) -> Option<Trust> {
        match (&self.authorities, &self.identity) {
            (Some(file), _) => Some(Trust::ChainAndName.with_roots(file)),
            // These are the settings of the service itself, which commands on the same machine can reach by any of its
            // names.
            (None, Some(identity)) => Some(Trust::Certificate(identity.certificates.clone())),
            (None, None) => self.secure.then_some(Trust::ChainAndName),
        }
    }

    /// Returns `true` if only programs on this machine can connect.
    pub fn is_local(&self) -> bool {
        self.host.eq_ignore_ascii_case("localhost")
            || self.host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}

/// Maximum size of a file with a token, in bytes.
const TOKEN_BYTES: u64 = 64 << 10;

/// Reads the token from a file, without surrounding white space.
pub fn token_in(path: &Path) -> Result<Str, String> {
    let shown = path.display();
    let text = read_regular_text(path, TOKEN_BYTES).map_err(|error| match error.kind() {
        ErrorKind::FileTooLarge => format!("{shown} is too large for a token"),
        _ => format!("cannot read {shown}: {}", anabranch_process::files::system(&error)),
    })?;
    match text.trim() {
        "" => Err(format!("{shown} is empty")),
        token if !is_sendable(token) => Err(format!("{shown} contains {UNSENDABLE}")),
        token => Ok(token.into()),
    }
}

/// Reason why a token that is not [`is_sendable`] is refused.
pub(crate) const UNSENDABLE: &str =
    "a line break, or a character other than those of printable ASCII, which clients cannot send";

/// Returns `true` if clients can send a token in the header `Authorization` (RFC 9110 § 5.5): it consists of printable
/// ASCII characters.
pub(crate) fn is_sendable(token: &str) -> bool {
    token.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic())
}

impl fmt::Debug for ApiSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiSettings").field("address", &self.shown()).finish_non_exhaustive()
    }
}
