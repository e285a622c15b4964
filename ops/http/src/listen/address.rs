//! The address of a source, and its socket.

use std::fmt;
use std::io::{Error, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anabranch_plugin::host::Host;
use anabranch_record::extent::Extent;
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use tokio::net::{TcpListener, lookup_host};
use tokio::time::{Instant, sleep};

use super::ports::{self, ClaimedAddress};
use crate::codes;

/// Time for which an address may still be in use by the listener of an earlier run.
const RELEASE: Duration = Duration::from_secs(2);
/// Pause before the address is tried again.
const AGAIN: Duration = Duration::from_millis(20);

/// A host with a port, as in the settings.
pub(super) struct ListenAddress(pub(super) Str);

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl ListenAddress {
    /// Returns `true` if the host is an IP address that other machines may reach.
    pub(super) fn is_in_a_network(&self) -> bool {
        let host = self.0.rsplit_once(':').map_or("", |(host, _)| host.trim());
        host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|ip| !ip.is_loopback())
    }

    /// Returns the address as a resource of one source; `None` if the port is any free one.
    pub(super) fn extent(&self) -> Option<Extent> {
        let (host, port) = self.0.rsplit_once(':')?;
        let port: u16 = port.trim().parse().ok().filter(|port| *port != 0)?;
        let host = host.trim().trim_matches(['[', ']']).to_ascii_lowercase();
        let ip = host.parse::<IpAddr>();
        // All addresses of the machine have the blank prefix.
        let (name, whole) = match &ip {
            Ok(ip) if ip.is_unspecified() => (Str::default(), false),
            Ok(ip) => (ip.to_string().into(), true),
            Err(_) => (host.into(), true),
        };
        Some(Extent {
            what: "requests at one address",
            space: port.to_string().into(),
            name,
            whole,
            setting: "address",
        })
    }

    /// Returns the addresses of the host.
    pub(super) async fn look_up(&self) -> std::io::Result<Vec<SocketAddr>> {
        lookup_host(self.0.as_str()).await.map(Iterator::collect)
    }

    /// Returns `true` if a socket can be opened at one of the addresses, and `false` if they are in use. Closes the socket.
    ///
    /// # Errors
    /// `http_address` if this machine cannot listen there.
    pub(super) async fn is_free(&self, addresses: &[SocketAddr]) -> Result<bool, Fault> {
        let mut last = Error::other("the host has no address");
        for address in addresses {
            match TcpListener::bind(address).await {
                Ok(_) => return Ok(true),
                Err(error) => last = error,
            }
        }
        if last.kind() == ErrorKind::AddrInUse { Ok(false) } else { Err(self.unusable(&last)) }
    }

    fn unusable(&self, error: &Error) -> Fault {
        let text = format!("cannot listen on {self}: {error}");
        // Another program may end.
        match error.kind() == ErrorKind::AddrInUse {
            true => Fault::transient(codes::HTTP_ADDRESS, text),
            false => Fault::fatal(codes::HTTP_ADDRESS, text),
        }
    }

    /// Opens the socket at the first usable address of the host.
    ///
    /// # Errors
    /// `http_address` if there is none, or a connector of this process has it.
    pub(super) async fn bind(&self, host: &Host) -> Result<(TcpListener, ClaimedAddress), Fault> {
        let mut last = Error::other("the host has no address");
        let connector = Str::from(format!("{}:{}", host.pipeline, host.node));
        for address in self.look_up().await.map_err(|error| self.unusable(&error))? {
            let claimed = ports::claim(address, &connector).map_err(|owner| {
                let text = format!("cannot listen on {self}: the connector {owner} of this service already does");
                Fault::fatal(codes::HTTP_ADDRESS, text)
            })?;
            match bind(address).await {
                Ok(socket) => return Ok((socket, claimed)),
                Err(error) => last = error,
            }
        }
        Err(self.unusable(&last))
    }
}

/// Opens a socket. Waits a short time for an earlier run to close its own.
async fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let until = Instant::now() + RELEASE;
    loop {
        match TcpListener::bind(address).await {
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse && Instant::now() < until => sleep(AGAIN).await,
            bound => return bound,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_meet_have_extents_that_meet() {
        let of = |text: &str| ListenAddress(text.into()).extent();
        let meet = |one: &str, other: &str| of(one).zip(of(other)).is_some_and(|(one, other)| one.meets(&other));
        for (one, other) in [
            ("127.0.0.1:80", "127.0.0.1:80"),
            ("0.0.0.0:80", "127.0.0.1:80"),
            ("127.0.0.1: 080", "[::]:80"),
            ("LocalHost:80", "localhost:80"),
            ("[::1]:80", "[0:0:0:0:0:0:0:1]:80"),
        ] {
            assert!(meet(one, other) && meet(other, one), "{one} {other}");
        }
        for (one, other) in [("127.0.0.1:80", "127.0.0.1:81"), ("127.0.0.1:80", "127.0.0.2:80"), ("[::]:0", "[::]:0")] {
            assert!(!meet(one, other) && !meet(other, one), "{one} {other}");
        }
    }
}
