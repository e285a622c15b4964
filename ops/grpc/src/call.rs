//! gRPC calls to a plugin, each with a deadline.

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes};
use futures::Stream;
use http::Uri;
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};

use crate::handshake::Address;
use crate::process::seconds;

/// Maximum size of a received message. A larger one is not a batch of records, and would take the memory of all
/// pipelines.
pub(crate) const LARGEST_MESSAGE: usize = 512 << 20;
/// Number of bytes that a plugin may send in a stream before they are read.
const STREAM_WINDOW: u32 = 1 << 20;
/// The same over all streams, of which there are two or three: the maximum. The reason is not the bytes: the limit for
/// small frames is half of it, and plugins send a frame for each record.
const CONNECTION_WINDOW: u32 = i32::MAX.cast_unsigned();

/// Error of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallError {
    /// There was no answer within the time limit.
    Late(Duration),
    /// The plugin does not support the method.
    Unimplemented,
    /// Error message of the plugin. Plugins use the same code for nearly all errors, so the code is ignored.
    Refused(String),
    /// The plugin has ended, or does not speak gRPC.
    Lost(String),
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallError::Late(patience) => write!(f, "no answer within {}", seconds(*patience)),
            CallError::Unimplemented => f.write_str("the plugin does not implement the method"),
            CallError::Refused(message) => f.write_str(message),
            CallError::Lost(message) => write!(f, "the connection was lost ({message})"),
        }
    }
}

impl From<Status> for CallError {
    fn from(status: Status) -> Self {
        let text = |status: &Status| match status.message() {
            "" => status.code().description().to_owned(),
            message => message.to_owned(),
        };
        let mut cause = std::error::Error::source(&status);
        let mut message = text(&status);
        let local = cause.is_some();
        while let Some(error) = cause {
            let said = error.to_string();
            if !message.contains(&said) {
                message = format!("{message}: {said}");
            }
            cause = error.source();
        }
        match status.code() {
            Code::Unimplemented => CallError::Unimplemented,
            Code::Unavailable => CallError::Lost(message),
            _ if local => CallError::Lost(message),
            _ => CallError::Refused(message),
        }
    }
}

/// A connection to a plugin, shared by its clones.
#[derive(Clone)]
pub(crate) struct Client {
    channel: Channel,
}

impl Client {
    /// Connects to the address from the plugin's handshake.
    pub(crate) async fn connect(address: Address, patience: Duration) -> Result<Client, CallError> {
        let endpoint = Endpoint::from_static("http://localhost")
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW);
        let connected = timeout(patience, endpoint.connect_with_connector(Dial(Some(address)))).await;
        match connected {
            Ok(Ok(channel)) => Ok(Client { channel }),
            Ok(Err(error)) => Err(CallError::Lost(chain(&error))),
            Err(_) => Err(CallError::Late(patience)),
        }
    }

    fn grpc(&self) -> tonic::client::Grpc<Channel> {
        tonic::client::Grpc::new(self.channel.clone())
            .max_decoding_message_size(LARGEST_MESSAGE)
            .max_encoding_message_size(usize::MAX)
    }

    /// Makes a call with one message in each direction.
    pub(crate) async fn unary(&self, path: &str, message: Vec<u8>, patience: Duration) -> Result<Bytes, CallError> {
        let path = path_of(path)?;
        let call = async {
            let mut grpc = self.grpc();
            grpc.ready().await.map_err(|error| CallError::Lost(chain(&error)))?;
            let response = grpc.unary(Request::new(Bytes::from(message)), path, Raw).await?;
            Ok(response.into_inner())
        };
        timeout(patience, call).await.unwrap_or(Err(CallError::Late(patience)))
    }

    /// Makes a streaming call. Resolves when the plugin answers, possibly only with its first message.
    pub(crate) async fn stream(
        &self,
        path: &str,
        messages: impl Stream<Item = Bytes> + Send + 'static,
    ) -> Result<Streaming<Bytes>, CallError> {
        let path = path_of(path)?;
        let mut grpc = self.grpc();
        grpc.ready().await.map_err(|error| CallError::Lost(chain(&error)))?;
        Ok(grpc.streaming(Request::new(messages), path, Raw).await?.into_inner())
    }
}

fn path_of(path: &str) -> Result<PathAndQuery, CallError> {
    path.parse().map_err(|_| CallError::Lost(format!("{path:?} is not a path")))
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Opens the only connection of a channel. If it is lost, the plugin is lost. Otherwise, the channel would open another
/// one, which a plugin that hangs never answers.
struct Dial(Option<Address>);

/// A byte stream of either kind.
trait Socket: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin {}

impl<S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin> Socket for S {}

type Dialled = Pin<Box<dyn Future<Output = std::io::Result<TokioIo<Box<dyn Socket>>>> + Send>>;

impl tower_service::Service<Uri> for Dial {
    type Response = TokioIo<Box<dyn Socket>>;
    type Error = std::io::Error;
    type Future = Dialled;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Dialled {
        let address = self.0.take();
        Box::pin(async move {
            let address = address.ok_or_else(|| std::io::Error::other("it closed the connection"))?;
            let socket: Box<dyn Socket> = match address {
                Address::Unix(path) => Box::new(UnixStream::connect::<PathBuf>(path).await?),
                Address::Tcp(address) => Box::new(TcpStream::connect(address).await?),
            };
            Ok(TokioIo::new(socket))
        })
    }
}

/// Codec for messages as bytes. A received message is a slice of its read buffer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(message);
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::default()
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::default()
    }
}
