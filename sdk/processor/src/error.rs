//! Errors of processors.

use std::any::Any;
use std::fmt;

/// Error of the configuration of a processor, or of a record.
///
/// Any error converts into it, so that `?` works on everything; the message then includes the sources. It does not
/// implement [`std::error::Error`] itself, because that would conflict with this conversion.
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    pub(crate) code: u32,
    pub(crate) message: String,
}

impl Error {
    /// Creates an error with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Error { code: 0, message: message.into() }
    }

    /// Adds a description of the failed action to the message: `what: message`.
    #[must_use]
    pub fn context(self, what: impl fmt::Display) -> Self {
        Error { message: format!("{what}: {}", self.message), ..self }
    }

    /// Returns the message.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the error of the host, if this error comes from it.
    pub fn host(&self) -> Option<HostError> {
        (self.code != 0).then_some(HostError(self.code))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.message)
    }
}

impl<E: std::error::Error + 'static> From<E> for Error {
    fn from(error: E) -> Self {
        let code = (&error as &dyn Any).downcast_ref::<HostError>().map_or(0, |error| error.0);
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(error) = source {
            message.push_str(": ");
            message.push_str(&error.to_string());
            source = error.source();
        }
        Error { code, message }
    }
}

/// Error code that a host function returns instead of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostError(pub(crate) u32);

macro_rules! host_errors {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $message:literal;)*) => {
        #[allow(missing_docs, reason = "the messages say it")]
        impl HostError {
            $($(#[$doc])* #[doc = $message] pub const $name: HostError = HostError($code);)*
        }

        impl fmt::Display for HostError {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.0 {
                    $($code => f.pad($message),)*
                    code => write!(f, "unknown error code {code:#x} of the host"),
                }
            }
        }
    };
}

host_errors! {
    NO_MORE_COMMANDS = 0xFFFF_FFFE, "no more commands";
    UNKNOWN_COMMAND_REQUEST = 0xFFFF_FFFD, "unknown command request";
    UNKNOWN_COMMAND_RESPONSE = 0xFFFF_FFFC, "unknown command response";
    MEMORY_OUT_OF_RANGE = 0xFFFF_FFFB, "memory out of range";
    INTERNAL = 0xFFFF_FFFA, "internal error";
    SUBJECT_NOT_FOUND = 0xFFFF_FFF9, "schema subject not found";
    VERSION_NOT_FOUND = 0xFFFF_FFF8, "schema version not found";
    INVALID_SCHEMA = 0xFFFF_FFF7, "invalid schema";
    HTTP_DISABLED = 0xFFFF_FFF6, "HTTP requests are not enabled for this processor";
    HTTP_FORBIDDEN = 0xFFFF_FFF5, "the destination of the HTTP request is forbidden";
    HTTP_INVALID_REQUEST = 0xFFFF_FFF4, "invalid HTTP request";
    HTTP_DNS = 0xFFFF_FFF3, "the name of the HTTP server could not be resolved";
    HTTP_TIMEOUT = 0xFFFF_FFF2, "the HTTP request timed out";
    HTTP_RESPONSE_TOO_LARGE = 0xFFFF_FFF1, "the HTTP response is too large";
    HTTP_TRANSPORT = 0xFFFF_FFF0, "the HTTP request could not be sent, or its response not be read";
}

impl HostError {
    /// The lowest result that is an error; lower results are sizes.
    pub(crate) const LOWEST: u32 = 0xFFFF_FF9B;

    /// Returns the number of the error.
    pub const fn code(self) -> u32 {
        self.0
    }
}

impl std::error::Error for HostError {}
