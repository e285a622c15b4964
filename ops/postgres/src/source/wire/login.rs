//! Opens the byte stream of a connection, and logs in.

use std::net::IpAddr;

use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{self, ChannelBinding, ScramSha256};
use postgres_protocol::message::frontend;
use rustls::pki_types::ServerName;
use sha2::{Digest as _, Sha256, Sha384, Sha512};
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio_postgres::config::{self, Host, SslMode};
use tokio_rustls::TlsConnector;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

use super::super::fault::{ServerError, WireError};
use super::gather::Gathering;
use super::{Duplex, Message, OPTIONS, Session, Wire};
use crate::address::Address;

/// Where a host listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    host: Option<Host>,
    address: Option<IpAddr>,
}

/// Returns the hosts and ports of an address, in order.
pub(super) fn hosts(address: &Address) -> Vec<(Endpoint, u16)> {
    let (names, addresses) = (address.config.get_hosts(), address.config.get_hostaddrs());
    let ports = address.config.get_ports();
    let count = names.len().max(addresses.len());
    let port = |i: usize| ports.get(i).or(ports.first()).copied().unwrap_or(5432);
    (0..count)
        .map(|i| (Endpoint { host: names.get(i).cloned(), address: addresses.get(i).copied() }, port(i)))
        .collect()
}

/// Opens the byte stream, with TLS if the address asks for it. Also returns the hash of the server's certificate, with
/// which a login is bound to it.
pub(super) async fn open(
    address: &Address,
    endpoint: &Endpoint,
    port: u16,
    session: Session,
) -> Result<(Box<dyn Duplex>, Option<Vec<u8>>), WireError> {
    let name = match (&endpoint.host, endpoint.address) {
        (Some(Host::Unix(directory)), None) => {
            let stream = UnixStream::connect(directory.join(format!(".s.PGSQL.{port}"))).await?;
            return Ok((Box::new(stream), None));
        }
        (Some(Host::Tcp(name)), _) => name.clone(),
        (_, Some(ip)) => ip.to_string(),
        (_, None) => return Err(WireError::Closed),
    };
    let mut stream = match endpoint.address {
        Some(ip) => TcpStream::connect((ip, port)).await?,
        None => TcpStream::connect((name.as_str(), port)).await?,
    };
    stream.set_nodelay(true)?;
    let plain = |stream: TcpStream| -> Box<dyn Duplex> {
        match session {
            Session::Queries => Box::new(stream),
            Session::Replication => Box::new(Gathering::new(stream)),
        }
    };
    let mode = address.config.get_ssl_mode();
    if mode == SslMode::Disable {
        return Ok((plain(stream), None));
    }
    let mut request = bytes::BytesMut::new();
    frontend::ssl_request(&mut request);
    stream.write_all(&request).await?;
    let offered = stream.read_u8().await? == b'S';
    if !offered && mode == SslMode::Prefer {
        return Ok((plain(stream), None));
    }
    if !offered {
        return Err(WireError::NoTls);
    }
    let server = ServerName::try_from(name).map_err(|_| WireError::Login("the host name is not valid for TLS"))?;
    let connector = TlsConnector::from(Arc::new(address.tls_client()?));
    let stream = connector.connect(server, plain(stream)).await?;
    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let binding = certificate.and_then(|certificate| binding(certificate));
    Ok((Box::new(stream), binding))
}

/// Returns the hash of a certificate for `tls-server-end-point` (RFC 5929): that of its signature, but at least SHA-256.
fn binding(certificate: &[u8]) -> Option<Vec<u8>> {
    let algorithm = Certificate::from_der(certificate).ok()?.signature_algorithm.oid.to_string();
    match algorithm.as_str() {
        // RSA with SHA-1 and SHA-256, ECDSA with SHA-256.
        "1.2.840.113549.1.1.5" | "1.2.840.113549.1.1.11" | "1.2.840.10045.4.3.2" => {
            Some(Sha256::digest(certificate).to_vec())
        }
        // The same with SHA-384 and SHA-512.
        "1.2.840.113549.1.1.12" | "1.2.840.10045.4.3.3" => Some(Sha384::digest(certificate).to_vec()),
        "1.2.840.113549.1.1.13" | "1.2.840.10045.4.3.4" => Some(Sha512::digest(certificate).to_vec()),
        _ => None,
    }
}

impl Wire {
    /// Sends the parameters of the session, proves the login, and waits until the server is ready.
    pub(super) async fn log_in(
        &mut self,
        address: &Address,
        session: Session,
        binding: Option<Vec<u8>>,
    ) -> Result<(), WireError> {
        let config = &address.config;
        let user = config.get_user().unwrap_or("postgres");
        let options = match config.get_options() {
            Some(options) => format!("{options} {OPTIONS}"),
            None => OPTIONS.to_owned(),
        };
        let mut parameters = vec![
            ("client_encoding", "UTF8"),
            ("user", user),
            ("database", config.get_dbname().unwrap_or(user)),
            ("application_name", config.get_application_name().unwrap_or("anabranch")),
            ("options", options.as_str()),
        ];
        if session == Session::Replication {
            parameters.push(("replication", "database"));
        }
        frontend::startup_message(parameters, &mut self.output)?;
        self.flush().await?;
        self.authenticate(address, user, binding).await?;
        loop {
            match self.expect().await?.tag {
                b'Z' => return Ok(()),
                b'K' => {}
                _ => return Err(WireError::Protocol("an unexpected message follows the login")),
            }
        }
    }

    async fn authenticate(&mut self, address: &Address, user: &str, binding: Option<Vec<u8>>) -> Result<(), WireError> {
        let password = || {
            let missing = WireError::Login("the server asks for a password, and the URL has none");
            address.config.get_password().ok_or(missing)
        };
        let binds = address.config.get_channel_binding();
        let mut is_bound = false;
        let mut scram = None;
        loop {
            let Message { tag, body } = self.expect().await?;
            let Some((kind, rest)) = body.split_first_chunk().filter(|_| tag == b'R') else {
                return Err(WireError::Protocol("an unexpected message is in the login"));
            };
            match (i32::from_be_bytes(*kind), scram.as_mut()) {
                (0, _) if !is_bound && binds == config::ChannelBinding::Require => {
                    return Err(WireError::Login("the server does not support channel_binding=require"));
                }
                (0, _) => return Ok(()),
                (3, _) => frontend::password_message(password()?, &mut self.output)?,
                (5, _) => {
                    let salt = rest.try_into().map_err(|_| WireError::Protocol("a salt has four bytes"))?;
                    let hash = md5_hash(user.as_bytes(), password()?, salt);
                    frontend::password_message(hash.as_bytes(), &mut self.output)?;
                }
                (10, _) => {
                    let offered: Vec<&[u8]> = rest.split(|byte| *byte == 0).collect();
                    let offers = |name: &str| offered.contains(&name.as_bytes());
                    let usable = binding.clone().filter(|_| binds != config::ChannelBinding::Disable);
                    let (mechanism, channel) = match usable {
                        Some(hash) if offers(sasl::SCRAM_SHA_256_PLUS) => {
                            is_bound = true;
                            (sasl::SCRAM_SHA_256_PLUS, ChannelBinding::tls_server_end_point(hash))
                        }
                        Some(_) if offers(sasl::SCRAM_SHA_256) => (sasl::SCRAM_SHA_256, ChannelBinding::unrequested()),
                        None if offers(sasl::SCRAM_SHA_256) => (sasl::SCRAM_SHA_256, ChannelBinding::unsupported()),
                        _ => return Err(WireError::Login("the server offers no login that is supported")),
                    };
                    let proof = ScramSha256::new(password()?, channel);
                    frontend::sasl_initial_response(mechanism, proof.message(), &mut self.output)?;
                    scram = Some(proof);
                }
                (11, Some(proof)) => {
                    proof.update(rest)?;
                    frontend::sasl_response(proof.message(), &mut self.output)?;
                }
                (12, Some(proof)) => proof.finish(rest)?,
                _ => return Err(WireError::Login("the server asks for a login that is not supported")),
            }
            self.flush().await?;
        }
    }

    /// Returns the next message, which is not an error.
    async fn expect(&mut self) -> Result<Message, WireError> {
        let message = self.answer().await?;
        match message.tag {
            b'E' => Err(WireError::Server(ServerError::parse(&message.body))),
            _ => Ok(message),
        }
    }
}
