//! The `log` destination: one line of the service log per record.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use anabranch_plugin::destination::{
    Delivered, Destination, DestinationKind, Retry, Verdicts, Write, WritePolicy, Writer,
};
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::Flow;
use anabranch_plugin::format::{Encoder, FormatSettings, RecordFormat};
use anabranch_plugin::host::{Host, LogLevel, LogLine, LogSink};
use anabranch_plugin::kind;
use anabranch_plugin::parameters::{Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::Record;
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::text::Str;

use crate::codes;
use crate::offload::Offload;

/// Returns the `log` destination for the registry.
pub fn kind() -> Arc<dyn DestinationKind> {
    let specification = Specification::builtin("log", "Writes each record as a line of the service log.")
        .describe(
            "Writes each record as one line of the service log, with time, level, component, connector id, plugin \
             name and the record. If the output of a template is not JSON, it is written as a JSON string. If the \
             service does not log the level, records are not formatted and count as delivered.",
        )
        .with_all(shared::destination());
    kind::destination(specification, configure)
}

#[derive(Parameters)]
struct Settings {
    /// Level of the lines.
    #[parameter(default = "info")]
    level: LogLevel,
    /// Text before each record.
    message: Option<Str>,
    #[parameter(flatten)]
    format: FormatSettings,
}

fn configure(Settings { level, message, format }: Settings) -> Result<Arc<dyn Destination>, Diagnostics> {
    let format = Arc::new(RecordFormat::new(&format)?);
    Ok(Arc::new(ConfiguredLog { level, message: message.unwrap_or_default(), format }))
}

struct ConfiguredLog {
    level: LogLevel,
    message: Str,
    format: Arc<RecordFormat>,
}

#[async_trait]
impl Destination for ConfiguredLog {
    async fn open(&self, host: &Host) -> Result<Box<dyn Writer>, Fault> {
        let output = Output {
            // Connectors of different pipelines may have the same id.
            pipeline: host.pipeline.clone(),
            connector: format!("{}:{}", host.pipeline, host.node),
            log: host.log.clone(),
            message: self.message.clone(),
            bytes: Vec::new(),
            ends: Vec::new(),
        };
        Ok(Box::new(Logging { level: self.level, format: self.format.clone(), output: Offload::Here(output) }))
    }

    fn flow(&self, flow: &mut Flow) {
        // If this level is not logged, records are not formatted.
        self.format.flow(flow, false);
    }

    fn written(&self, record: &Record) -> Option<Result<Vec<u8>, Fault>> {
        let mut line = Vec::new();
        Some(encode(&self.format, &mut self.format.encoder(), record, &mut line).map(|()| line))
    }

    fn logs(&self) -> Option<(LogLevel, Str)> {
        Some((self.level, self.message.clone()))
    }

    fn takes_shares(&self) -> bool {
        true
    }

    fn policy(&self) -> WritePolicy {
        WritePolicy { rows: 1024, bytes: 1 << 20, linger: Duration::ZERO, retry: Retry::Idempotent }
    }
}

/// State used on a blocking thread: writes to a stopped terminal block.
struct Output {
    pipeline: Str,
    connector: String,
    log: Arc<dyn LogSink>,
    message: Str,
    bytes: Vec<u8>,
    /// End of each record in `bytes`.
    ends: Vec<usize>,
}

impl Output {
    fn write(&self, level: LogLevel) -> io::Result<()> {
        let line = LogLine {
            level,
            pipeline: &self.pipeline,
            component: "plugin",
            connector: &self.connector,
            plugin: "log",
            message: &self.message,
        };
        let mut start = 0;
        let mut records = self.ends.iter().map(|end| &self.bytes[std::mem::replace(&mut start, *end)..*end]);
        self.log.write_records(&line, &mut records)
    }
}

struct Logging {
    level: LogLevel,
    format: Arc<RecordFormat>,
    output: Offload<Output, io::Result<()>>,
}

#[async_trait]
impl Writer for Logging {
    async fn write(&mut self, Write { rows, .. }: Write<'_>) -> Result<Verdicts, Fault> {
        let broken = || Fault::fatal(codes::LOG_UNWRITABLE, "the thread that writes the log panicked");
        let _ = self.output.settle().await;
        let Some(output) = self.output.here() else { return Err(broken()) };
        if !output.log.enabled(self.level) {
            return Ok(Verdicts::All(Delivered::Durable));
        }
        output.bytes.clear();
        output.ends.clear();
        let (mut failures, mut encoder) = (Vec::new(), self.format.encoder());
        for (row, record) in rows.iter().enumerate() {
            match encode(&self.format, &mut encoder, record, &mut output.bytes) {
                Ok(()) => output.ends.push(output.bytes.len()),
                Err(fault) => failures.push((row, fault)),
            }
        }
        if !output.ends.is_empty() {
            let level = self.level;
            let written = self.output.run(move |output| output.write(level)).await.map_err(|_| broken())?;
            written.map_err(|e| {
                // A reader that closed its end does not come back. A full disk may get free space.
                let gone = e.kind() == std::io::ErrorKind::BrokenPipe;
                let class = if gone { FaultClass::Fatal } else { FaultClass::Transient };
                Fault::new(class, codes::LOG_UNWRITABLE, format!("cannot write the log: {e}"))
            })?;
        }
        if failures.is_empty() {
            return Ok(Verdicts::All(Delivered::Durable));
        }
        let mut verdicts: Vec<Result<Delivered, Fault>> = rows.iter().map(|_| Ok(Delivered::Durable)).collect();
        for (row, fault) in failures {
            verdicts[row] = Err(fault);
        }
        Ok(Verdicts::Each(verdicts))
    }

    async fn flush(&mut self) -> Result<(), Fault> {
        let _ = self.output.settle().await;
        Ok(())
    }
}

/// Encodes the record as one line of JSON, so that a log entry stays on one line and stays machine-readable.
fn encode<'a>(
    format: &RecordFormat,
    encoder: &mut Encoder<'a>,
    record: &'a Record,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    let start = out.len();
    encoder.encode(record, out)?;
    if matches!(format, RecordFormat::Template(_) | RecordFormat::Raw) {
        let text = &out[start..];
        let one_line = memchr::memchr2(b'\n', b'\r', text).is_none();
        if !(one_line && serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok()) {
            let quoted = serde_json::to_vec(&String::from_utf8_lossy(text))
                .map_err(|e| Fault::record(codes::FORMAT_FAILED, e))?;
            out.truncate(start);
            out.extend_from_slice(&quoted);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
