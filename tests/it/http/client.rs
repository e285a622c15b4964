//! A client of HTTP that sends the bytes that a test says.

use std::io::{Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anabranch_ops_tls::Identity;
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

use crate::process::PATIENCE;
use crate::servers::certificates::Certificates;

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// Headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    fn parse(bytes: &[u8]) -> Result<Answer> {
        let text = String::from_utf8_lossy(bytes);
        let broken = || std::io::Error::other("the answer is incomplete");
        let (head, body) = text.split_once("\r\n\r\n").ok_or_else(broken)?;
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).ok_or_else(broken)?;
        let header =
            |line: &str| line.split_once(':').map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()));
        Ok(Answer { status, headers: lines.filter_map(header).collect(), body: body.to_owned() })
    }
}

/// The bytes of a request, after which the connection ends.
pub fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n").into_bytes();
    for (name, value) in headers {
        bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    bytes.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// Sends a request, and reads the answer.
pub fn exchange(address: SocketAddr, bytes: &[u8]) -> Result<Answer> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    // A server that refuses a body does not read all of it.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    Answer::parse(&answer).or_else(|error| read.and(Err(error)))
}

/// Posts a body to `/`.
pub fn post(address: SocketAddr, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Result<Answer> {
    exchange(address, &request("POST", "/", headers, body.as_ref()))
}

/// Sends a request through TLS; `authority` is the file with the trusted certificate.
pub fn exchange_over_tls(address: SocketAddr, authority: &str, bytes: &[u8]) -> Result<Answer> {
    let mut client = Command::new("openssl")
        .args(["s_client", "-quiet", "-verify_return_error", "-verify_hostname", "localhost", "-CAfile", authority])
        .args(["-connect", &address.to_string(), "-ign_eof"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut input) = client.stdin.take() {
        input.write_all(bytes)?;
    }
    Answer::parse(&client.wait_with_output()?.stdout)
}

/// Passes the bytes of TLS connections on to a server that reads plain text. Ends on drop.
pub struct TlsProxy {
    port: u16,
    _runtime: Runtime,
}

impl TlsProxy {
    pub fn start(certificates: &Certificates, name: &str, server: SocketAddr) -> TlsProxy {
        let identity =
            Identity { certificates: certificates.certificate(name).into(), key: certificates.key(name).into() };
        let tls = TlsAcceptor::from(Arc::new(identity.server().unwrap()));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let port = listener.local_addr().unwrap().port();
        let handle = runtime.handle().clone();
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let tls = tls.clone();
                handle.spawn(async move {
                    let Ok(mut near) = tls.accept(stream).await else { return };
                    let Ok(mut far) = tokio::net::TcpStream::connect(server).await else { return };
                    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                });
            }
        });
        TlsProxy { port, _runtime: runtime }
    }

    pub fn port(&self) -> u16 {
        self.port
    }
}
