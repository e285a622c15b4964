//! The gRPC server of the plugin.

use std::convert::Infallible;
use std::future::Future;
use std::io::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use anabranch_ops_grpc::wire;
use bytes::Bytes;
use futures::Stream;
use futures::stream::StreamExt as _;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixListener;
use tonic::body::Body;
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use tower_service::Service;

use crate::{Plugin, Version, destination, die, hang, source, specification};

/// Messages of the plugin in a streaming call.
pub(crate) struct Messages<M>(Pin<Box<dyn Stream<Item = Result<M, Status>> + Send>>);

impl<M> Messages<M> {
    pub(crate) fn of(stream: impl Stream<Item = Result<M, Status>> + Send + 'static) -> Self {
        Messages(Box::pin(stream))
    }
}

impl<M> Stream for Messages<M> {
    type Item = Result<M, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(context)
    }
}

type Answering<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

pub(crate) async fn serve(version: Version, wrong: &str) {
    let directory = std::env::var("PLUGIN_UNIX_SOCKET_DIR").unwrap();
    let path = format!("{directory}/plugin{}", std::process::id());
    let listener = UnixListener::bind(&path).unwrap();
    let number = if version == Version::One { 1 } else { 2 };
    println!("1|{number}|unix|{path}|grpc|");
    if wrong == "garbage" {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.write_all(&[0x55; 4096]).await;
        hang().await;
    }
    let incoming = futures::stream::unfold(listener, |listener| async move {
        let stream = listener.accept().await.map(|(stream, _)| stream);
        Some((stream, listener))
    });
    let calls = Calls { version, plugin: Arc::default() };
    Server::builder().serve_with_incoming(calls, incoming).await.unwrap();
}

#[derive(Clone)]
struct Calls {
    version: Version,
    plugin: Arc<Plugin>,
}

/// A call with one message in each direction.
struct One<F>(F);

impl<F, A, M, R> Service<Request<M>> for One<F>
where
    F: FnMut(M) -> A,
    A: Future<Output = Result<R, Status>> + Send + 'static,
{
    type Response = Response<R>;
    type Error = Status;
    type Future = Answering<Response<R>, Status>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<M>) -> Self::Future {
        let answer = (self.0)(request.into_inner());
        Box::pin(async move { answer.await.map(Response::new) })
    }
}

/// A streaming call.
struct Many<F>(F);

impl<F, M, R> Service<Request<Streaming<M>>> for Many<F>
where
    F: FnMut(Streaming<M>) -> Messages<R>,
    R: 'static,
{
    type Response = Response<Messages<R>>;
    type Error = Status;
    type Future = Answering<Self::Response, Status>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Streaming<M>>) -> Self::Future {
        let messages = (self.0)(request.into_inner());
        Box::pin(async move { Ok(Response::new(messages)) })
    }
}

async fn unary<M, R, A>(
    request: http::Request<Body>,
    answer: impl FnMut(M) -> A + Send + 'static,
) -> http::Response<Body>
where
    M: prost::Message + Default + 'static,
    R: prost::Message + Default + 'static,
    A: Future<Output = Result<R, Status>> + Send + 'static,
{
    tonic::server::Grpc::new(ProstCodec::<R, M>::default()).unary(One(answer), request).await
}

async fn streaming<M, R>(
    request: http::Request<Body>,
    answer: impl FnMut(Streaming<M>) -> Messages<R> + Send + 'static,
) -> http::Response<Body>
where
    M: prost::Message + Default + 'static,
    R: prost::Message + Default + 'static,
{
    let codec = ProstCodec::<R, M>::default();
    tonic::server::Grpc::new(codec).max_decoding_message_size(4 << 20).streaming(Many(answer), request).await
}

impl Service<http::Request<Body>> for Calls {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answering<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let Calls { version, plugin } = self.clone();
        Box::pin(async move { Ok(answer(version, plugin, request).await) })
    }
}

async fn answer(version: Version, plugin: Arc<Plugin>, request: http::Request<Body>) -> http::Response<Body> {
    let path = request.uri().path().to_owned();
    let (service, method) = path.trim_start_matches('/').split_once('/').unwrap_or_default();
    let number = if version == Version::One { "v1" } else { "v2" };
    match service {
        "plugin.GRPCStdio" => return streaming(request, move |_: Streaming<wire::Empty>| prints(&plugin)).await,
        "plugin.GRPCController" => std::process::exit(0),
        _ => {}
    }
    let ours = service.strip_prefix("connector.").and_then(|rest| rest.strip_prefix(number));
    let Some(service) = ours else { return Status::unimplemented("unknown service").into_http() };
    let open = if version == Version::One { "Start" } else { "Open" };
    let is_source = service == ".SourcePlugin";
    match (service, method) {
        (".SpecifierPlugin", "Specify") => specify(version, request).await,
        (_, "Configure") => unary(request, move |message| configure(plugin.clone(), message)).await,
        (_, "LifecycleOnCreated") => {
            unary(request, move |wire::Configuration { config }| {
                lifecycle(plugin.clone(), format!("created {}", listed(&config)))
            })
            .await
        }
        (_, "LifecycleOnDeleted") => unary(request, move |message| deleted(plugin.clone(), message)).await,
        (_, "LifecycleOnUpdated") => {
            unary(request, move |wire::Updated { before, after }| {
                lifecycle(plugin.clone(), format!("updated {} -> {}", listed(&before), listed(&after)))
            })
            .await
        }
        (_, method) if method == open && is_source => {
            unary(request, move |wire::PositionMessage { position }| source::open(plugin.clone(), position)).await
        }
        (_, method) if method == open => unary(request, move |_: wire::Empty| destination::open(plugin.clone())).await,
        (_, "Run") => match (is_source, version) {
            (true, Version::Two) => {
                streaming(request, move |acks: Streaming<wire::Positions>| {
                    source::run(plugin.clone(), acks, |acks| acks.positions, |records| wire::Records { records })
                })
                .await
            }
            (true, Version::One) => {
                streaming(request, move |acks: Streaming<wire::PositionMessage>| {
                    let records = source::run(plugin.clone(), acks, |ack| vec![ack.position], |records| records);
                    let one = |record| Ok(wire::OneRecord { record: Some(record) });
                    Messages::of(records.flat_map(move |records| match records {
                        Ok(records) => futures::stream::iter(records.into_iter().map(one).collect::<Vec<_>>()),
                        Err(status) => futures::stream::iter(vec![Err(status)]),
                    }))
                })
                .await
            }
            (false, Version::Two) => {
                streaming(request, move |records: Streaming<wire::Records>| {
                    destination::run(
                        plugin.clone(),
                        records,
                        |message| message.records,
                        |acks| vec![wire::Acks { acks }],
                    )
                })
                .await
            }
            (false, Version::One) => {
                streaming(request, move |records: Streaming<wire::OneRecord>| {
                    let each = |message: wire::OneRecord| message.record.into_iter().collect();
                    destination::run(plugin.clone(), records, each, |acks| acks)
                })
                .await
            }
        },
        (_, "Stop") if is_source => unary(request, move |_: wire::Empty| source::stop(plugin.clone())).await,
        (_, "Stop") => {
            unary(request, move |wire::PositionMessage { position }| destination::stop(plugin.clone(), position)).await
        }
        (_, "Teardown") => unary(request, move |_: wire::Empty| teardown(plugin.clone())).await,
        _ => Status::unimplemented("unknown method").into_http(),
    }
}

async fn specify(version: Version, request: http::Request<Body>) -> http::Response<Body> {
    let given = specification();
    match version {
        Version::Two => {
            let answer = wire::Specified { specification: Some(given) };
            unary(request, move |_: wire::Empty| std::future::ready(Ok(answer.clone()))).await
        }
        Version::One => {
            let parameters = |given: std::collections::HashMap<String, anabranch_ops_opencdc::wire::Parameter>| {
                let old = |(name, parameter): (String, anabranch_ops_opencdc::wire::Parameter)| {
                    let old = wire::ParameterV1 {
                        default: parameter.default,
                        required: !parameter.validations.is_empty(),
                        description: parameter.description,
                        kind: 0,
                        validations: Vec::new(),
                    };
                    (name, old)
                };
                given.into_iter().map(old).collect()
            };
            let answer = wire::SpecifiedV1 {
                name: given.name,
                summary: given.summary,
                description: given.description,
                version: given.version,
                author: given.author,
                destination_params: parameters(given.destination_params),
                source_params: parameters(given.source_params),
            };
            unary(request, move |_: wire::Empty| std::future::ready(Ok(answer.clone()))).await
        }
    }
}

/// Returns the settings in name order, without the paths of the plugin's files.
fn listed(config: &std::collections::HashMap<String, String>) -> String {
    let told = config.iter().filter(|(name, _)| !matches!(name.as_str(), "log" | "path"));
    let mut pairs: Vec<String> = told.map(|(name, value)| format!("{name}={value}")).collect();
    pairs.sort();
    format!("[{}]", pairs.join(" "))
}

async fn configure(
    plugin: Arc<Plugin>,
    wire::Configuration { config }: wire::Configuration,
) -> Result<wire::Empty, Status> {
    plugin.configure(config.clone());
    plugin.note(&format!("configure {}", listed(&config)));
    if plugin.fault("configure-error").is_some() {
        return Err(Status::unknown("config invalid: error validating \"greeting\": rude"));
    }
    if plugin.fault("configure-hang").is_some() {
        hang().await;
    }
    if plugin.fault("configure-die").is_some() {
        die();
    }
    Ok(wire::Empty {})
}

/// Handles the deletion, which arrives at a process that was not configured.
async fn deleted(
    plugin: Arc<Plugin>,
    wire::Configuration { config }: wire::Configuration,
) -> Result<wire::Empty, Status> {
    plugin.configure(config.clone());
    if plugin.fault("deleted-error").is_some() {
        let whose = plugin.setting("greeting").unwrap_or_default();
        return Err(Status::unknown(format!("slot {whose:?} is in use")));
    }
    lifecycle(plugin, format!("deleted {}", listed(&config))).await
}

async fn lifecycle(plugin: Arc<Plugin>, line: String) -> Result<wire::Empty, Status> {
    plugin.note(&line);
    match plugin.fault("old") {
        Some(_) => Err(Status::unimplemented("method LifecycleOnCreated not implemented")),
        None => Ok(wire::Empty {}),
    }
}

async fn teardown(plugin: Arc<Plugin>) -> Result<wire::Empty, Status> {
    let times = match plugin.listened.load(Ordering::SeqCst) {
        1 => "once".to_owned(),
        n => format!("{n} times"),
    };
    plugin.note(&format!("teardown, was listened to {times}"));
    if plugin.fault("teardown-hang").is_some() {
        hang().await;
    }
    if plugin.fault("teardown-die").is_some() {
        die();
    }
    Ok(wire::Empty {})
}

/// Returns the plugin's output after it is connected: nothing, or more than any buffer holds.
fn prints(plugin: &Plugin) -> Messages<wire::Stdio> {
    plugin.listened.fetch_add(1, Ordering::SeqCst);
    let chunk = |n: i32| {
        Ok(wire::Stdio {
            channel: 1 + n % 2,
            data: Bytes::from(format!("{{\"@level\":\"warn\",\"@message\":\"line {n}\"}}\n")),
        })
    };
    let Ok(said) = std::env::var("HELPER_CHATTY") else { return Messages::of(futures::stream::pending()) };
    let note = |said: &str| {
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(said).unwrap();
        file.write_all(b"all\n").unwrap();
    };
    let path = said.clone();
    std::thread::spawn(move || {
        for n in 0..20_000 {
            println!("on standard output, line {n}");
            eprintln!("{{\"@level\":\"info\",\"@message\":\"on standard error\",\"n\":{n}}}");
        }
        note(&path);
    });
    let end = futures::stream::poll_fn(move |_| {
        note(&said);
        Poll::Ready(None)
    });
    Messages::of(futures::stream::iter((0..20_000).map(chunk)).chain(end).chain(futures::stream::pending()))
}
