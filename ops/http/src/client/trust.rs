//! Settings of TLS.

use std::path::PathBuf;

use anabranch_plugin::parameters::{Argument, Parameters};
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use tokio::runtime::{Handle, RuntimeFlavor};

use super::Tls;
use crate::codes;

/// Maximum size of a file of trusted roots. The roots of a whole system take a quarter of a mebibyte.
const MOST_ROOTS: u64 = 16 << 20;

/// Parameters of TLS, for all plugins that send requests.
#[derive(Parameters)]
pub struct TrustSettings {
    /// PEM file of trusted certificates, in addition to those of the system.
    ca: Argument<Option<PathBuf>>,
    /// Accept any certificate; only for tests.
    #[parameter(default = false)]
    skip_verify: bool,
}

/// The servers to trust.
#[derive(Clone, Debug)]
pub struct ServerTrust {
    /// File of trusted roots.
    roots: Option<Str>,
    skip_verify: bool,
}

impl TrustSettings {
    /// Returns the servers to trust.
    pub fn trust(&self) -> ServerTrust {
        ServerTrust { roots: self.ca.as_ref().map(|_| self.ca.text().clone()), skip_verify: self.skip_verify }
    }
}

impl ServerTrust {
    /// Reads the file. A thread of the executor hands its tasks to another thread meanwhile, because the file may be on an
    /// unavailable server.
    ///
    /// # Errors
    /// `tls_invalid` if the file cannot be read.
    pub fn read(&self) -> Result<Tls, Fault> {
        let roots = self.roots.as_ref().map(|path| {
            let unreadable = |error| Fault::fatal(codes::TLS_INVALID, format!("tls.ca: cannot read {path}: {error}"));
            read_roots(path).map_err(unreadable)
        });
        Ok(Tls { roots: roots.transpose()?, skip_verify: self.skip_verify })
    }
}

/// Reads a file. Rejects a pipe, which may never end.
fn read_roots(path: &str) -> std::io::Result<Vec<u8>> {
    let read = || anabranch_ops_tls::read_regular(path.as_ref(), MOST_ROOTS);
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(read),
        _ => read(),
    }
}
