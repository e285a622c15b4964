//! Parses the first line of a plugin's standard output: `1|2|unix|/dir/plugin123|grpc|`.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::protocol::Protocol;

/// Protocol and address of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Handshake {
    pub(crate) protocol: Protocol,
    pub(crate) address: Address,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

/// Maximum length of a placeholder for a missing certificate.
const NO_CERTIFICATE: usize = 50;

/// Parses the line.
///
/// # Errors
/// Describes the problem, as the continuation of "its first line".
pub(crate) fn parse(line: &str) -> Result<Handshake, String> {
    let line = line.trim();
    let mut parts = line.split('|');
    let mut next = || parts.next().map(str::trim);
    let (Some(core), Some(protocol), Some(network), Some(address)) = (next(), next(), next(), next()) else {
        return Err(format!("is {:?}, which is not that of a connector", shortened(line)));
    };
    if core != "1" {
        return Err(format!("names version {core:?} of the plugin protocol; this host supports version 1"));
    }
    let known = protocol.parse().ok().and_then(Protocol::from_number);
    let Some(protocol) = known else {
        return Err(format!(
            "names version {protocol:?} of the connector protocol; this host supports versions 1 and 2"
        ));
    };
    match next() {
        Some("grpc") => {}
        other => return Err(format!("names the protocol {:?}, not gRPC", other.unwrap_or("net/rpc"))),
    }
    if next().is_some_and(|certificate| certificate.len() > NO_CERTIFICATE) {
        return Err("requests TLS, which the host did not offer".to_owned());
    }
    let address = match network {
        "unix" if address.starts_with('/') => Address::Unix(address.into()),
        "tcp" => match address.parse::<SocketAddr>() {
            Ok(socket) if socket.ip().is_loopback() => Address::Tcp(socket),
            _ => return Err(format!("names {address:?}, which is not an address of this machine")),
        },
        _ => return Err(format!("names {network:?} {address:?}, which is not an address")),
    };
    Ok(Handshake { protocol, address })
}

fn shortened(line: &str) -> String {
    const MOST: usize = 80;
    let mut text: String = line.chars().take(MOST).collect();
    if text.len() < line.len() {
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let unix = Address::Unix("/d/plugin1".into());
        for line in ["1|2|unix|/d/plugin1|grpc|", "1|2|unix|/d/plugin1|grpc", " 1|2|unix|/d/plugin1|grpc||false\r"] {
            assert_eq!(parse(line), Ok(Handshake { protocol: Protocol::V2, address: unix.clone() }), "{line}");
        }
        let tcp = parse("1|1|tcp|127.0.0.1:4000|grpc|").unwrap();
        assert_eq!(tcp, Handshake { protocol: Protocol::V1, address: Address::Tcp("127.0.0.1:4000".parse().unwrap()) });
    }

    #[test]
    fn other_lines_are_refused_with_a_reason() {
        let certificate = format!("1|2|unix|/d|grpc|{}", "M".repeat(60));
        for (line, reason) in [
            ("", "is \"\""),
            ("hello world", "is \"hello world\""),
            ("2|2|unix|/d|grpc|", "version \"2\" of the plugin protocol"),
            ("1|3|unix|/d|grpc|", "versions 1 and 2"),
            ("1|2|unix|/d", "\"net/rpc\", not gRPC"),
            ("1|2|unix|/d|netrpc|", "\"netrpc\", not gRPC"),
            ("1|2|unix|relative|grpc|", "not an address"),
            ("1|2|tcp|10.0.0.1:80|grpc|", "not an address of this machine"),
            ("1|2|udp|/d|grpc|", "not an address"),
            (&certificate, "requests TLS"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(reason), "{line}: {error}");
        }
        assert!(parse(&"x".repeat(100_000)).unwrap_err().len() < 200);
    }
}
