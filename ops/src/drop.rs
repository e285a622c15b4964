//! The `drop` destination: discards records and counts them, for benchmarks.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use anabranch_plugin::destination::{
    Delivered, Destination, DestinationKind, Retry, Verdicts, Write, WritePolicy, Writer,
};
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::Flow;
use anabranch_plugin::format::{FormatSettings, RecordFormat};
use anabranch_plugin::host::Host;
use anabranch_plugin::kind;
use anabranch_plugin::parameters::{Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::fault::Fault;

/// Returns the `drop` destination for the registry.
pub fn kind() -> Arc<dyn DestinationKind> {
    let specification = Specification::builtin("drop", "Discards records and counts them.")
        .describe(
            "Discards records and counts them, which shows the cost of a pipeline without its destination. The count \
             is logged when the pipeline stops.",
        )
        .with_all(shared::destination());
    kind::destination(specification, configure)
}

#[derive(Parameters)]
struct Settings {
    /// Whether to format each record before it is discarded.
    #[parameter(default = false)]
    encode: bool,
    #[parameter(flatten)]
    format: FormatSettings,
}

fn configure(Settings { encode, format }: Settings) -> Result<Arc<dyn Destination>, Diagnostics> {
    let format = RecordFormat::new(&format)?;
    Ok(Arc::new(ConfiguredDrop { format: encode.then(|| Arc::new(format)) }))
}

struct ConfiguredDrop {
    format: Option<Arc<RecordFormat>>,
}

#[async_trait]
impl Destination for ConfiguredDrop {
    async fn open(&self, host: &Host) -> Result<Box<dyn Writer>, Fault> {
        Ok(Box::new(Counter {
            host: host.clone(),
            format: self.format.clone(),
            text: Vec::new(),
            records: 0,
            bytes: 0,
        }))
    }

    fn flow(&self, flow: &mut Flow) {
        if let Some(format) = &self.format {
            format.flow(flow, true);
        }
    }

    fn takes_shares(&self) -> bool {
        true
    }

    fn policy(&self) -> WritePolicy {
        WritePolicy { rows: 4096, bytes: 1 << 20, linger: Duration::ZERO, retry: Retry::Idempotent }
    }
}

struct Counter {
    host: Host,
    format: Option<Arc<RecordFormat>>,
    text: Vec<u8>,
    records: u64,
    bytes: u64,
}

#[async_trait]
impl Writer for Counter {
    async fn write(&mut self, Write { rows, .. }: Write<'_>) -> Result<Verdicts, Fault> {
        let Some(format) = &self.format else {
            self.records += rows.len() as u64;
            return Ok(Verdicts::All(Delivered::Durable));
        };
        let mut verdicts = Vec::new();
        for (row, record) in rows.iter().enumerate() {
            self.text.clear();
            if let Err(fault) = format.encode(record, &mut self.text) {
                verdicts.resize_with(row, || Ok(Delivered::Durable));
                verdicts.push(Err(fault));
                continue;
            }
            self.records += 1;
            self.bytes += self.text.len() as u64;
        }
        if verdicts.is_empty() {
            return Ok(Verdicts::All(Delivered::Durable));
        }
        verdicts.resize_with(rows.len(), || Ok(Delivered::Durable));
        Ok(Verdicts::Each(verdicts))
    }

    async fn flush(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    async fn close(&mut self) -> Result<(), Fault> {
        let encoded = self.format.is_some().then_some(self.bytes);
        tracing::info!(
            pipeline = %self.host.pipeline,
            connector = %self.host.node,
            records = self.records,
            bytes = encoded,
            "dropped"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests;
