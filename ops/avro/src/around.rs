//! Schema handling around native processors (spec § 2.6).
//!
//! Raw data with a schema in the metadata is decoded before the processor sees it, and stays decoded: nothing is
//! encoded between processors, so that conditions can read fields too. After the processor, structured data must still
//! have a version that fits it. If the processor changed the shape, the new schema is registered under the same
//! subject. If it turned the data into raw data, which the next processor would decode, the schema is removed from the
//! metadata. Data is encoded where records leave the pipeline, see [`crate::record::encode`].
//!
//! WebAssembly processors handle schemas themselves, see [`crate::guest`].

use std::sync::{Arc, Mutex};

use anabranch_plugin::flow::{Flow, RecordShape};
use anabranch_plugin::operator::{
    AsyncOperator, BuiltAsync, BuiltInline, BuiltIsolate, ConfiguredOperator, Decision, Layer, Operator,
    OperatorContext, OperatorKind, Rows, Signature,
};
use anabranch_record::Record;
use anabranch_record::access::Access;
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::reference::Side;
use anabranch_record::text::Str;
use async_trait::async_trait;

use crate::cache::{RegistryClient, SchemaCache};
use crate::input::InputRows;
use crate::part::SchemaPart;
use crate::pieces::named;
use crate::record::{decode, has_schema, is_encoded, refresh};
use crate::strip::PreparedRows;
use crate::wrapped::wrapped;

/// Wraps a processor with schema handling.
pub fn around(kind: Arc<dyn OperatorKind>) -> Arc<dyn OperatorKind> {
    wrapped(kind, |inner, recoding| {
        let switches = Switches {
            decode: [recoding.decodes_key, recoding.decodes_payload].map(Option::unwrap_or_default),
            encode: [recoding.encodes_key, recoding.encodes_payload].map(Option::unwrap_or_default),
        };
        if switches.decode.contains(&true) || switches.encode.contains(&true) {
            let written = inner.signature().writes;
            inner.layered(SchemaLayer { switches, written })
        } else {
            inner
        }
    })
}

/// Settings for the key and the payload.
#[derive(Clone, Copy)]
struct Switches {
    decode: [bool; 2],
    encode: [bool; 2],
}

fn parts(on: [bool; 2]) -> impl Iterator<Item = SchemaPart> {
    SchemaPart::ALL.into_iter().zip(on).filter_map(|(part, on)| on.then_some(part))
}

/// Schema handling around processors.
struct SchemaLayer {
    switches: Switches,
    /// The parts of a record that the processor writes.
    written: Access,
}

impl Layer for SchemaLayer {
    fn signature(&self, mut signature: Signature) -> Signature {
        match &mut signature.writes {
            // A processor that changes no data does not change its shape.
            Access::These(writes) if !writes.is_empty() => {
                writes.extend(parts(self.switches.encode).flat_map(names));
            }
            Access::These(_) | Access::Everything => {}
        }
        signature
    }

    fn flow(&self, flow: &mut Flow, inner: &dyn Fn(&mut Flow)) {
        let before = flow.record.clone();
        inner(flow);
        for part in parts(self.switches.encode) {
            let (subject, version) = part.names();
            if flow.record.metadata.may_have(&subject) {
                flow.record.metadata.allow(version);
            }
            self.remove_schema(part, &before, &mut flow.record);
        }
    }

    fn inline(
        &self,
        inner: &dyn ConfiguredOperator<Built = BuiltInline>,
        context: &OperatorContext,
    ) -> Result<BuiltInline, Fault> {
        Ok(Box::new(self.worker(inner.build(context)?, context)))
    }

    fn isolate(
        &self,
        inner: &dyn ConfiguredOperator<Built = BuiltIsolate>,
        context: &OperatorContext,
    ) -> Result<BuiltIsolate, Fault> {
        Ok(Box::new(self.worker(inner.build(context)?, context)))
    }

    fn asynchronous(
        &self,
        inner: &dyn ConfiguredOperator<Built = BuiltAsync>,
        context: &OperatorContext,
    ) -> Result<BuiltAsync, Fault> {
        let schemas = &context.host.schemas;
        Ok(Arc::new(AsyncSchemaWorker {
            inner: inner.build(context)?,
            client: RegistryClient::new(schemas.clone()),
            cache: Mutex::new(SchemaCache::new(schemas.clone())),
            switches: self.switches,
            renames: self.renames(),
        }))
    }
}

impl SchemaLayer {
    fn worker<O: ?Sized>(&self, inner: Box<O>, context: &OperatorContext) -> SchemaWorker<O> {
        SchemaWorker {
            inner,
            cache: SchemaCache::new(context.host.schemas.clone()),
            switches: self.switches,
            strip: PreparedRows::new(),
            input: InputRows::new(self.renames()),
        }
    }

    fn may_write(&self, places: impl IntoIterator<Item = Vec<Str>>) -> bool {
        self.written.overlaps(&Access::These(places.into_iter().collect()))
    }

    /// Returns `true` if the processor may write schema names itself.
    fn renames(&self) -> bool {
        self.may_write(parts(self.switches.encode).flat_map(names))
    }

    /// Updates the static shape of the metadata if data may have become raw, or may fit no schema.
    fn remove_schema(&self, part: SchemaPart, before: &RecordShape, after: &mut RecordShape) {
        let place = match part {
            SchemaPart::Key => Str::from_static("Key"),
            SchemaPart::Payload => Str::from_static("Payload"),
        };
        if !self.may_write([vec![place]]) {
            return;
        }
        let had_fields = |side: &Side| {
            let shape = before.side(*side);
            !shape.absent && !shape.raw
        };
        let surely = part.sides().iter().any(|side| had_fields(side) && after.side(*side).is_raw()) && !self.renames();
        let (subject, version) = part.names();
        for key in [subject, version] {
            let had = after.metadata.has(&key);
            if surely || had {
                after.metadata.remove(&key);
            }
            if had && !surely {
                after.metadata.allow(key);
            }
        }
    }
}

/// Returns the metadata paths of a part's schema.
fn names(part: SchemaPart) -> [Vec<Str>; 2] {
    let (subject, version) = part.names();
    [subject, version].map(|key| vec![Str::from_static("Metadata"), key])
}

/// Decodes the parts that the settings enable. On an error, the record may be partly decoded.
fn decode_all(cache: &mut SchemaCache, switches: Switches, record: &mut Record) -> Result<bool, Fault> {
    parts(switches.decode).try_fold(false, |any, part| Ok(any | decode(cache, part, record)?))
}

/// Updates the schema names of a record that was made from `row`, and removes those of data without a schema. Fails if
/// the registry is unavailable.
fn refresh_all(
    cache: &mut SchemaCache,
    switches: Switches,
    input: &InputRows,
    row: usize,
    record: &mut Record,
) -> Result<(), Fault> {
    let differs = input.differs(row, record);
    for part in parts(switches.encode) {
        if differs && input.is_outdated(row, part, record) {
            cache.remove_schema(part, &mut record.metadata);
            continue;
        }
        match refresh(cache, part, record) {
            Ok(_) => {}
            Err(fault) if fault.class() == FaultClass::Record => {
                tracing::debug!(error = %fault, "a record no longer fits its schema");
                cache.remove_schema(part, &mut record.metadata);
            }
            Err(fault) => return Err(fault),
        }
    }
    Ok(())
}

struct SchemaWorker<O: ?Sized> {
    inner: Box<O>,
    cache: SchemaCache,
    switches: Switches,
    strip: PreparedRows,
    input: InputRows,
}

impl<O: Operator + ?Sized> Operator for SchemaWorker<O> {
    fn process(&mut self, rows: &mut Rows<'_>, context: &OperatorContext) {
        let SchemaWorker { inner, cache, switches, strip, input } = self;
        let concerns = |record: &Record| parts(switches.decode).any(|part| is_encoded(part, record));
        let decode = |record: &mut Record| decode_all(cache, *switches, record);
        // A processor that panicked leaves its entries.
        input.clear();
        strip.process((&mut **inner, context), rows, concerns, decode, |row, record| input.note(row, record));
        // A registry that is unavailable ends the run, so the faults of these rows are not used.
        for (row, decision) in rows.decisions_mut() {
            if let Decision::Pieces(pieces) = decision {
                let named = named(pieces, |piece| refresh_all(cache, *switches, input, row, piece));
                *decision = named.map_or_else(Decision::Fail, Decision::Pieces);
            }
        }
        strip.finish(rows, |row, _, record| refresh_all(cache, *switches, input, row, record));
        input.clear();
    }

    fn close(&mut self) -> Result<(), Fault> {
        self.inner.close()
    }
}

struct AsyncSchemaWorker {
    inner: Arc<dyn AsyncOperator>,
    client: RegistryClient,
    cache: Mutex<SchemaCache>,
    switches: Switches,
    renames: bool,
}

#[async_trait]
impl AsyncOperator for AsyncSchemaWorker {
    async fn call(&self, rows: &mut [Record], context: &OperatorContext) -> Vec<Decision> {
        if !rows.iter().any(|record| SchemaPart::ALL.iter().any(|part| has_schema(*part, record))) {
            return self.inner.call(rows, context).await;
        }
        let outcomes: Vec<Result<bool, Fault>> = self
            .with(|cache| {
                let decode = |record: &mut Record| decode_all(cache, self.switches, record);
                rows.iter_mut().map(decode).collect()
            })
            .await;
        let good = rows.iter().zip(&outcomes).filter(|(_, outcome)| outcome.is_ok());
        let mut good: Vec<Record> = good.map(|(record, _)| record.clone()).collect();
        let mut input = InputRows::new(self.renames);
        good.iter().enumerate().for_each(|(row, record)| input.note(row, record));
        let decisions = self.inner.call(&mut good, context).await;
        let mut decided = good.into_iter().zip(decisions).enumerate();
        let mut all = Vec::with_capacity(outcomes.len());
        for (row, outcome) in rows.iter_mut().zip(outcomes) {
            all.push(match outcome {
                Err(fault) => Decision::Fail(fault),
                Ok(_) => match decided.next() {
                    Some((number, (record, decision))) => {
                        *row = record;
                        self.refreshed(&input, number, row, decision).await
                    }
                    // The rest is passed again.
                    None => break,
                },
            });
        }
        all
    }

    async fn close(&self) -> Result<(), Fault> {
        self.inner.close().await
    }
}

impl AsyncSchemaWorker {
    async fn with<T>(&self, work: impl FnMut(&mut SchemaCache) -> T) -> T {
        SchemaCache::run_shared(&self.cache, &self.client, work).await
    }

    /// Updates the schema names of the records that `row` becomes.
    async fn refreshed(&self, input: &InputRows, number: usize, row: &mut Record, decision: Decision) -> Decision {
        let mut pieces = Vec::new();
        let is_split = decision.split().is_some();
        let records = match decision {
            Decision::Keep => std::slice::from_mut(row),
            Decision::Split(_) | Decision::Pieces(_) => {
                pieces = decision.into_records();
                pieces.as_mut_slice()
            }
            Decision::Filter | Decision::Fail(_) => return decision,
        };
        let refresh = |cache: &mut SchemaCache| {
            records.iter_mut().try_for_each(|record| {
                let before = record.metadata.clone();
                let refreshed = refresh_all(cache, self.switches, input, number, record);
                if cache.misses_schema() {
                    // The next attempt must see the processor's output.
                    record.metadata = before;
                }
                refreshed
            })
        };
        match self.with(refresh).await {
            Ok(()) if is_split => Decision::Split(pieces),
            Ok(()) => Decision::Keep,
            Err(fault) => Decision::Fail(fault),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
