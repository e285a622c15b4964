//! The plugin as a source of numbered lines.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use anabranch_ops_grpc::wire;
use anabranch_ops_opencdc::wire::{CreateSchema, FoundSchema, GetSchema};
use anabranch_record::metadata::{Metadata, key};
use anabranch_record::protobuf::encode_record;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Position, Record};
use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tonic::{Status, Streaming};
use tonic_prost::ProstCodec;

use crate::serve::Messages;
use crate::{Plugin, die, hang};

#[derive(Default)]
pub(crate) struct State {
    /// Number of the next line.
    next: AtomicU64,
    stopped: AtomicBool,
    /// Wakes the reading task when it is stopped.
    stop: tokio::sync::Notify,
    idle: tokio::sync::Notify,
    is_idle: AtomicBool,
    /// Lines that were sent and not acknowledged.
    sent: Mutex<VecDeque<Bytes>>,
    first: AtomicU64,
}

pub(crate) async fn open(plugin: Arc<Plugin>, position: Bytes) -> Result<wire::Empty, Status> {
    plugin.note(&format!("open {:?}", String::from_utf8_lossy(&position)));
    if plugin.fault("open-error").is_some() {
        return Err(Status::unknown("cannot reach the database"));
    }
    if plugin.fault("open-die").is_some() {
        die();
    }
    if plugin.fault("open-hang").is_some() {
        hang().await;
    }
    let next = match position.is_empty() {
        true => 0,
        false => std::str::from_utf8(&position).unwrap().parse::<u64>().unwrap() + 1,
    };
    plugin.source.next.store(next, Ordering::SeqCst);
    plugin.source.first.store(next, Ordering::SeqCst);
    if plugin.setting("schema").is_some() {
        let found = schemas().await;
        plugin.note(&format!("schema {found}"));
    }
    Ok(wire::Empty {})
}

pub(crate) async fn stop(plugin: Arc<Plugin>) -> Result<wire::PositionMessage, Status> {
    plugin.note("stop");
    if plugin.fault("stop-hang").is_some() {
        hang().await;
    }
    if plugin.fault("stop-die").is_some() {
        die();
    }
    let State { stopped, stop, idle, is_idle, next, first, .. } = &plugin.source;
    stopped.store(true, Ordering::SeqCst);
    stop.notify_one();
    while !is_idle.load(Ordering::SeqCst) {
        idle.notified().await;
    }
    let next = next.load(Ordering::SeqCst);
    let sent_any = next > first.load(Ordering::SeqCst);
    let position = if sent_any { Bytes::from((next - 1).to_string()) } else { Bytes::new() };
    Ok(wire::PositionMessage { position })
}

/// Sends lines in messages, and checks the order of acknowledgements.
pub(crate) fn run<A, M>(
    plugin: Arc<Plugin>,
    mut acks: Streaming<A>,
    positions: impl Fn(A) -> Vec<Bytes> + Send + 'static,
    message: impl Fn(Vec<Bytes>) -> M + Send + 'static,
) -> Messages<M>
where
    A: Send + 'static,
    M: Send + 'static,
{
    plugin.note("run");
    // Messages with one record are sent one by one, each in its own frame.
    let waiting = if plugin.number("batch") == Some(1) { 1 } else { 4 };
    let (sender, mut receiver) = mpsc::channel::<Result<M, Status>>(waiting);
    let acked = plugin.clone();
    let closing = sender.clone();
    Handle::current().spawn(async move {
        let mut count = 0;
        let mut last = Bytes::new();
        while let Ok(Some(message)) = acks.message().await {
            for position in positions(message) {
                let due = acked.source.sent.lock().unwrap().pop_front();
                if due.as_ref() != Some(&position) {
                    acked.note(&format!("WRONG acknowledgement of {position:?}, {due:?} is due"));
                }
                count += 1;
                last = position;
            }
        }
        acked.note(&format!("acked {count} up to {:?}", String::from_utf8_lossy(&last)));
        // The host has closed its half of the stream: close the other half.
        acked.source.stopped.store(true, Ordering::SeqCst);
        acked.source.stop.notify_one();
        drop(closing);
    });
    Handle::current().spawn(async move {
        send_lines(&plugin, &sender, message).await;
        plugin.source.is_idle.store(true, Ordering::SeqCst);
        plugin.source.idle.notify_one();
    });
    Messages::of(futures::stream::poll_fn(move |context| receiver.poll_recv(context)))
}

async fn send_lines<M>(plugin: &Plugin, sender: &mpsc::Sender<Result<M, Status>>, message: impl Fn(Vec<Bytes>) -> M) {
    let count = plugin.number("count").unwrap_or(u64::MAX);
    let batch = plugin.number("batch").unwrap_or(10).max(1);
    let size = plugin.number("size").unwrap_or(0) as usize;
    let structured = plugin.setting("structured").is_some();
    let State { next, stopped, stop, sent, first, .. } = &plugin.source;
    let mut at = next.load(Ordering::SeqCst);
    let first = first.load(Ordering::SeqCst);
    let mut buffer = Vec::new();
    while at < count && !stopped.load(Ordering::SeqCst) {
        let until = (at + batch).min(count);
        let mut records = Vec::new();
        for n in at..until {
            let reached = |fault: &str| plugin.fault(fault) == Some(n - first);
            if reached("die-after") {
                die();
            }
            if reached("error-after") {
                let _ = sender.send(Err(Status::unknown("read plugin error: the disk is on fire"))).await;
                return;
            }
            if reached("end-after") {
                let _ = sender.send(Err(Status::ok(""))).await;
                return;
            }
            let mut position = n.to_string();
            if reached("garbage-after") {
                records.push(Bytes::from_static(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"));
                break;
            }
            if reached("no-position-after") {
                position.clear();
            }
            buffer.clear();
            encode_record(&line(n, position.clone(), size, structured), &mut buffer);
            records.push(Bytes::copy_from_slice(&buffer));
            sent.lock().unwrap().push_back(Bytes::from(position));
        }
        at = until;
        next.store(at, Ordering::SeqCst);
        if sender.send(Ok(message(records))).await.is_err() {
            return;
        }
        if batch == 1 {
            tokio::task::yield_now().await;
        }
    }
    if at >= count {
        plugin.note("all sent");
    }
    while !stopped.load(Ordering::SeqCst) {
        stop.notified().await;
    }
}

fn line(n: u64, position: String, size: usize, structured: bool) -> Record {
    let mut text = format!("line {n}");
    text.extend(std::iter::repeat_n('.', size.saturating_sub(text.len())));
    let after = match structured {
        false => Data::text(text),
        true => {
            let entries = vec![("n".into(), Value::Int(n as i64)), ("text".into(), Value::from(text.as_str()))];
            Data::from(Object::from_entries(entries))
        }
    };
    let mut record = Record::create(Position(position.into()), Data::Absent, after);
    record.metadata = [(key::COLLECTION, "lines")].into_iter().collect::<Metadata>();
    record
}

/// Registers a schema with the host, reads it back, and makes calls that must fail.
async fn schemas() -> String {
    let target = std::env::var("CONDUIT_CONNECTOR_UTILITIES_GRPC_TARGET").unwrap();
    let token = std::env::var("CONDUIT_CONNECTOR_TOKEN").unwrap();
    let channel = tonic::transport::Endpoint::from_shared(format!("http://{target}")).unwrap().connect().await.unwrap();
    let call = async |method: &str, token: &str, create: Option<CreateSchema>, get: Option<GetSchema>| {
        let mut grpc = tonic::client::Grpc::new(channel.clone());
        grpc.ready().await.unwrap();
        let path = format!("/connutils.v1.SchemaService/{method}").parse().unwrap();
        let answer = match (create, get) {
            (Some(create), _) => {
                let mut request = tonic::Request::new(create);
                request.metadata_mut().insert("conduit-connector-token", token.parse().unwrap());
                grpc.unary(request, path, ProstCodec::<CreateSchema, FoundSchema>::default()).await
            }
            (None, get) => {
                let mut request = tonic::Request::new(get.unwrap());
                request.metadata_mut().insert("conduit-connector-token", token.parse().unwrap());
                grpc.unary(request, path, ProstCodec::<GetSchema, FoundSchema>::default()).await
            }
        };
        match answer {
            Ok(answer) => {
                let schema = answer.into_inner().schema.unwrap();
                format!("{} v{} {}", schema.subject, schema.version, String::from_utf8_lossy(&schema.bytes))
            }
            Err(status) => format!("{:?}: {}", status.code(), status.message()),
        }
    };
    let subject = "c:lines.payload".to_owned();
    let create = |kind| Some(CreateSchema { subject: subject.clone(), kind, bytes: Bytes::from_static(b"\"string\"") });
    let get = |subject: &str, version| Some(GetSchema { subject: subject.to_owned(), version });
    [
        call("CreateSchema", &token, create(1), None).await,
        call("GetSchema", &token, None, get(&subject, 1)).await,
        call("GetSchema", &token, None, get(&subject, 2)).await,
        call("GetSchema", &token, None, get("other", 1)).await,
        call("CreateSchema", &token, create(9), None).await,
        call("CreateSchema", "guessed", create(1), None).await,
        call("DropSchema", &token, create(1), None).await,
    ]
    .join("; ")
}
