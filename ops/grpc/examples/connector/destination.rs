//! The plugin as a destination: writes a line per record to a file.

use std::collections::HashMap;
use std::io::Write as _;
use std::sync::{Arc, Mutex};

use anabranch_ops_grpc::wire;
use anabranch_record::json::write_record;
use anabranch_record::protobuf::decode_record;
use anabranch_record::{Data, Record};
use bytes::Bytes;
use prost::Message as _;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tonic::{Status, Streaming};

use crate::serve::Messages;
use crate::{Plugin, die, hang};

#[derive(Default)]
pub(crate) struct State {
    last: Mutex<Bytes>,
}

/// The metadata of a record as sent on the wire.
#[derive(Clone, PartialEq, prost::Message)]
struct Plain {
    #[prost(map = "string, string", tag = "3")]
    metadata: HashMap<String, String>,
}

pub(crate) async fn open(plugin: Arc<Plugin>) -> Result<wire::Empty, Status> {
    plugin.note("open");
    if plugin.fault("open-error").is_some() {
        return Err(Status::unknown("no such directory"));
    }
    Ok(wire::Empty {})
}

pub(crate) async fn stop(plugin: Arc<Plugin>, position: Bytes) -> Result<wire::Empty, Status> {
    let last = plugin.destination.last.lock().unwrap().clone();
    let right = if last == position { "" } else { "WRONG " };
    plugin.note(&format!("{right}stop {:?}", String::from_utf8_lossy(&position)));
    if plugin.fault("stop-hang").is_some() {
        hang().await;
    }
    Ok(wire::Empty {})
}

pub(crate) fn run<A, M>(
    plugin: Arc<Plugin>,
    mut messages: Streaming<A>,
    records: impl Fn(A) -> Vec<Bytes> + Send + 'static,
    answers: impl Fn(Vec<wire::Ack>) -> Vec<M> + Send + 'static,
) -> Messages<M>
where
    A: Send + 'static,
    M: Send + 'static,
{
    plugin.note("run");
    let (sender, mut receiver) = mpsc::channel::<Result<M, Status>>(4);
    Handle::current().spawn(async move {
        let mut file = plugin.setting("path").map(|path| file_of_whole_lines(path.as_ref()));
        let mut count = 0;
        loop {
            let message = match messages.message().await {
                Ok(Some(message)) => message,
                Ok(None) => break,
                Err(status) => {
                    let _ = sender.send(Err(status)).await;
                    return;
                }
            };
            let given = records(message);
            if given.is_empty() {
                plugin.note("WRONG an empty message");
            }
            if count == 0 {
                let pause = std::time::Duration::from_millis(plugin.number("pause").unwrap_or(0));
                tokio::time::sleep(pause).await;
            }
            let acks = write(&plugin, given, file.as_mut(), &mut count);
            if plugin.fault("no-ack").is_some() {
                continue;
            }
            for answer in answers(acks) {
                if sender.send(Ok(answer)).await.is_err() {
                    return;
                }
            }
            if plugin.fault("error-after").is_some_and(|after| count > after) {
                let _ = sender.send(Err(Status::unknown("write plugin error: the disk is full"))).await;
                return;
            }
        }
        plugin.note(&format!("closed after {count}"));
    });
    Messages::of(futures::stream::poll_fn(move |context| receiver.poll_recv(context)))
}

/// Writes records in one piece, so that acknowledged records outlive the process.
/// Opens a file for appending, without the part of a line at its end: a kill cuts a write at any page.
fn file_of_whole_lines(path: &std::path::Path) -> std::fs::File {
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
    let written = std::fs::read(path).unwrap();
    let end = written.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    if end < written.len() {
        file.set_len(end as u64).unwrap();
    }
    file
}

fn write(plugin: &Plugin, records: Vec<Bytes>, file: Option<&mut std::fs::File>, count: &mut u64) -> Vec<wire::Ack> {
    let mut lines = Vec::new();
    let mut acks = Vec::new();
    let mut failed = false;
    for bytes in records {
        let record = decode_record(&bytes).unwrap();
        let number = *count;
        let reached = |fault: &str| plugin.fault(fault) == Some(number);
        *count += 1;
        let mut position = record.position().0.clone();
        *plugin.destination.last.lock().unwrap() = position.clone();
        if reached("die-after") {
            die();
        }
        if reached("refuse") {
            acks.push(wire::Ack { position, error: "this one is not liked".to_owned() });
            continue;
        }
        // Behaves like a connector whose call for a batch fails: all records that are not written yet get its error.
        let line = number_of(&record);
        failed |= plugin.fault("refuse-rest").is_some_and(|n| line == Some(n));
        let is_down = || std::env::var_os("HELPER_DOWN").is_some_and(|path| std::path::Path::new(&path).exists());
        failed |= plugin.fault("refuse-all").is_some() && is_down();
        if failed {
            acks.push(wire::Ack { position, error: "the table is gone".to_owned() });
            continue;
        }
        if reached("wrong-ack") {
            position = Bytes::from_static(b"elsewhere");
        }
        if reached("extra-ack") {
            acks.push(wire::Ack { position: position.clone(), error: String::new() });
        }
        describe(plugin, &record, bytes, &mut lines);
        acks.push(wire::Ack { position, error: String::new() });
    }
    if let Some(file) = file {
        file.write_all(&lines).unwrap();
    }
    acks
}

/// Returns the number in `line 7`.
fn number_of(record: &Record) -> Option<u64> {
    match &record.payload.after {
        Data::Raw(text) => {
            std::str::from_utf8(text).ok()?.strip_prefix("line ")?.split_whitespace().next()?.parse().ok()
        }
        _ => None,
    }
}

fn describe(plugin: &Plugin, record: &Record, bytes: Bytes, lines: &mut Vec<u8>) {
    match &record.payload.after {
        Data::Raw(text) => lines.extend_from_slice(text),
        _ => write_record(record, lines).unwrap(),
    }
    if plugin.setting("keys").is_some() {
        let mut keys: Vec<String> = Plain::decode(bytes).unwrap().metadata.into_keys().collect();
        keys.sort();
        lines.extend_from_slice(format!(" {}", keys.join(" ")).as_bytes());
    }
    lines.push(b'\n');
}
