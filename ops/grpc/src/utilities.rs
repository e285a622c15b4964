//! Service for requests of running plugins: `connutils.v1.SchemaService`, on a local port, for one process and its
//! token.

use std::convert::Infallible;
use std::future::Future;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use anabranch_ops_opencdc::wire::{self, CreateSchema, FoundSchema, GetSchema};
use anabranch_plugin::schema::{Schema, SchemaError, SchemaKind, SchemaRegistry, SchemaVersion};
use anabranch_record::text::Str;
use bytes::Bytes;
use prost::Message as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tonic::body::Body;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use crate::call::Raw;

/// Number of Avro among the schema types.
const AVRO: i32 = 1;

/// The service for one plugin.
#[derive(Clone)]
pub(crate) struct Utilities {
    token: Arc<str>,
    schemas: Arc<dyn SchemaRegistry>,
}

impl Utilities {
    /// Serves until the tasks are dropped; returns the address.
    pub(crate) async fn serve(
        token: &str,
        schemas: Arc<dyn SchemaRegistry>,
        tasks: &mut JoinSet<()>,
    ) -> std::io::Result<String> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?.to_string();
        let service = Utilities { token: token.into(), schemas };
        let incoming = futures::stream::unfold(listener, |listener| async move {
            let accepted: std::io::Result<TcpStream> = listener.accept().await.map(|(stream, _)| stream);
            Some((accepted, listener))
        });
        tasks.spawn(async move {
            if let Err(error) = Server::builder().serve_with_incoming(service, incoming).await {
                tracing::debug!(%error, "the schema service of a connector ended");
            }
        });
        Ok(address)
    }

    async fn answer(&self, what: UtilityMethod, request: Request<Bytes>) -> Result<Response<Bytes>, Status> {
        let shown = request.metadata().get("conduit-connector-token");
        if shown.is_none_or(|token| token.as_bytes() != self.token.as_bytes()) {
            return Err(Status::unknown("invalid token"));
        }
        let message = request.into_inner();
        let schema = match what {
            UtilityMethod::Create => self.create(message).await?,
            UtilityMethod::Get => self.get(message).await?,
        };
        let answer = FoundSchema { schema: Some(answered(&schema)) };
        Ok(Response::new(answer.encode_to_vec().into()))
    }

    async fn create(&self, message: Bytes) -> Result<Arc<Schema>, Status> {
        let CreateSchema { subject, kind, bytes } =
            CreateSchema::decode(message).map_err(|error| unreadable(&error))?;
        let text = std::str::from_utf8(&bytes).map_err(|_| Status::unknown(INVALID))?;
        if kind != AVRO {
            return Err(Status::unknown(INVALID));
        }
        self.schemas.create(&Str::from(subject), SchemaKind::Avro, &Str::from(text)).await.map_err(refused)
    }

    async fn get(&self, message: Bytes) -> Result<Arc<Schema>, Status> {
        let GetSchema { subject, version } = GetSchema::decode(message).map_err(|error| unreadable(&error))?;
        let version = u32::try_from(version).ok().and_then(SchemaVersion::new);
        let version = version.ok_or_else(|| Status::unknown(NOT_FOUND))?;
        self.schemas.get(&Str::from(subject), version).await.map_err(refused)
    }
}

/// Plugins compare these messages literally.
const NOT_FOUND: &str = "schema subject not found";
const INVALID: &str = "invalid schema";

fn refused(error: SchemaError) -> Status {
    match error {
        SchemaError::SubjectNotFound(_) | SchemaError::VersionNotFound { .. } | SchemaError::SchemaNotFound(_) => {
            Status::unknown(NOT_FOUND)
        }
        SchemaError::Invalid(_) => Status::unknown(INVALID),
        other => Status::unknown(other.to_string()),
    }
}

fn unreadable(error: &prost::DecodeError) -> Status {
    Status::unknown(error.to_string())
}

fn answered(schema: &Schema) -> wire::Schema {
    // The numbers are below 2³¹.
    wire::Schema {
        subject: schema.subject.to_string(),
        version: schema.version.get().cast_signed(),
        id: schema.id.get().cast_signed(),
        kind: AVRO,
        bytes: Bytes::copy_from_slice(schema.text.as_bytes()),
    }
}

/// A method of the service.
#[derive(Clone, Copy, Debug)]
enum UtilityMethod {
    Create,
    Get,
}

type Answering<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

impl tower_service::Service<http::Request<Body>> for Utilities {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answering<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let what = match request.uri().path() {
            "/connutils.v1.SchemaService/CreateSchema" => UtilityMethod::Create,
            "/connutils.v1.SchemaService/GetSchema" => UtilityMethod::Get,
            _ => return Box::pin(async { Ok(Status::unimplemented("method not implemented").into_http()) }),
        };
        let method = Method { what, utilities: self.clone() };
        Box::pin(async move { Ok(tonic::server::Grpc::new(Raw).unary(method, request).await) })
    }
}

struct Method {
    what: UtilityMethod,
    utilities: Utilities,
}

impl tower_service::Service<Request<Bytes>> for Method {
    type Response = Response<Bytes>;
    type Error = Status;
    type Future = Answering<Response<Bytes>, Status>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let (what, utilities) = (self.what, self.utilities.clone());
        Box::pin(async move { utilities.answer(what, request).await })
    }
}
