//! Network endpoints that a guest may be allowed to reach.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use reqwest::Url;

/// A scheme, a host and a port, written as `host`, `host:port`, `https://host:port` or `http://address:port`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    secure: bool,
    /// Host in lower case; addresses in brackets as in URLs.
    host: String,
    port: u16,
}

/// Reason why a text is not an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEndpoint {
    /// Patterns are not supported.
    #[error("{0:?} is a pattern: name each host")]
    Pattern(String),
    /// Not a host.
    #[error("{0:?} is not a host: expected host, host:port, https://host:port or http://address:port")]
    Malformed(String),
    /// Plain HTTP is allowed only for private addresses.
    #[error("{0:?}: http is allowed only with a private address as the host; use https")]
    Insecure(String),
}

impl Endpoint {
    /// Parses one entry of a list.
    ///
    /// # Errors
    /// Fails if the entry is invalid.
    pub fn parse(text: &str) -> Result<Endpoint, InvalidEndpoint> {
        let text = text.trim();
        if text.contains('*') {
            return Err(InvalidEndpoint::Pattern(text.to_owned()));
        }
        let malformed = || InvalidEndpoint::Malformed(text.to_owned());
        let whole = if text.contains("://") { text.to_owned() } else { format!("https://{text}") };
        if text.trim_end_matches('/') != text || text.contains(['?', '#', '@', '\\']) {
            return Err(malformed());
        }
        let url = Url::parse(&whole).map_err(|_| malformed())?;
        let endpoint = Endpoint::of(&url).filter(|_| url.path() == "/").ok_or_else(malformed)?;
        if !endpoint.secure && endpoint.address().is_none_or(is_public) {
            return Err(InvalidEndpoint::Insecure(text.to_owned()));
        }
        Ok(endpoint)
    }

    /// Returns the endpoint of a request; `None` if the URL is not HTTP.
    pub(crate) fn of(url: &Url) -> Option<Endpoint> {
        let secure = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let host = url.host_str().filter(|host| !host.is_empty())?.trim_end_matches('.').to_owned();
        Some(Endpoint { secure, host, port: url.port_or_known_default()? })
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Returns the host if it is an address.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        self.host.trim_start_matches('[').trim_end_matches(']').parse().ok()
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}:{}", if self.secure { "https" } else { "http" }, self.host, self.port)
    }
}

/// Returns `true` for public addresses: not of this machine or a local network, and without an embedded address of
/// these.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, ..] = address.octets();
    !matches!((a, b), (0 | 10 | 127 | 224.., _) | (169, 254) | (172, 16..=31) | (192, 168) | (100, 64..=127))
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let s = address.segments();
    let local =
        s[0] & 0xffc0 == 0xfe80 || s[0] & 0xffc0 == 0xfec0 || s[0] & 0xfe00 == 0xfc00 || s[0] & 0xff00 == 0xff00;
    // IPv4 within IPv6: compatible (with `::` and `::1`), mapped, translated, NAT64, 6to4, Teredo.
    let embedded = s[..6] == [0; 6]
        || s[..6] == [0, 0, 0, 0, 0, 0xffff]
        || s[..6] == [0, 0, 0, 0, 0xffff, 0]
        || s[..6] == [0x64, 0xff9b, 0, 0, 0, 0]
        || s[0] == 0x2002
        || s[..2] == [0x2001, 0];
    !local && !embedded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_hosts_with_schemes_and_ports() {
        for (text, endpoint) in [
            ("api.example.com", "https://api.example.com:443"),
            ("API.example.com:8443", "https://api.example.com:8443"),
            ("https://example.com", "https://example.com:443"),
            ("http://127.0.0.1", "http://127.0.0.1:80"),
            ("http://10.0.0.7:8080", "http://10.0.0.7:8080"),
            ("http://[::1]:8080", "http://[::1]:8080"),
            ("8.8.8.8", "https://8.8.8.8:443"),
        ] {
            assert_eq!(Endpoint::parse(text).unwrap().to_string(), endpoint);
        }
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for text in [
            "",
            "https://",
            "*.example.com",
            "example.com/path",
            "example.com/",
            "ftp://example.com",
            "a b",
            "x:99999",
            "u@x",
        ] {
            assert!(Endpoint::parse(text).is_err(), "{text}");
        }
        for text in ["http://example.com", "http://8.8.8.8", "http://localhost"] {
            assert_eq!(Endpoint::parse(text), Err(InvalidEndpoint::Insecure(text.to_owned())));
        }
    }

    #[test]
    fn addresses_that_lead_to_this_machine_or_its_neighbours_are_not_public() {
        for address in [
            "0.0.0.0",
            "10.1.2.3",
            "127.0.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "100.64.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "fe80::1",
            "fec0::1",
            "fc00::1",
            "fd12::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "::127.0.0.1",
            "::ffff:0:7f00:1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "2001:0:1::",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
        for address in
            ["8.8.8.8", "172.15.0.1", "172.32.0.1", "100.63.0.1", "100.128.0.1", "2606:4700::1111", "2001:4860::8888"]
        {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
    }
}
