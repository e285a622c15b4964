//! Schemas around native processors (spec § 2.6).
//!
//! Raw data whose schema the metadata name are decoded before the processor sees them, and stay decoded: nothing is
//! encoded between processors, so that conditions see fields too. What a processor makes of structured data keeps a
//! version that fits it: where it changed their shape, the new one is registered under the same subject. Bytes are made
//! where records leave, see [`crate::record::encode`].
//!
//! WebAssembly processors do the same on their side, see [`crate::guest`].

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anabranch_graph::fault::{Fault, FaultClass};
use anabranch_graph::flow::Flow;
use anabranch_graph::operator::{
    Access, AsyncOperator, BuiltOperator, ConfiguredOperator, Host, Operator, OperatorKind, Rows, Signature, Verdict,
};
use anabranch_graph::record::Record;
use anabranch_graph::text::Str;
use async_trait::async_trait;

use crate::desk::Desk;
use crate::record::{Part, decode, has_schema, is_encoded, refresh};
use crate::strip::Prepared;
use crate::wrapped::wrapped;

/// The processor with schemas around it.
pub fn around(kind: Arc<dyn OperatorKind>) -> Arc<dyn OperatorKind> {
    wrapped(kind, |inner, arguments| {
        let on = |step: &str, part: &str| arguments.bool(&format!("sdk.schema.{step}.{part}.enabled")).unwrap_or(false);
        let switches = Switches {
            decode: [on("decode", "key"), on("decode", "payload")],
            encode: [on("encode", "key"), on("encode", "payload")],
        };
        if switches.decode.contains(&true) || switches.encode.contains(&true) {
            Arc::new(Configured { inner, switches })
        } else {
            inner
        }
    })
}

/// For the key and the payload.
#[derive(Clone, Copy)]
struct Switches {
    decode: [bool; 2],
    encode: [bool; 2],
}

fn parts(on: [bool; 2]) -> impl Iterator<Item = Part> {
    Part::ALL.into_iter().zip(on).filter_map(|(part, on)| on.then_some(part))
}

struct Configured {
    inner: Arc<dyn ConfiguredOperator>,
    switches: Switches,
}

impl ConfiguredOperator for Configured {
    fn signature(&self) -> Signature {
        let mut signature = self.inner.signature();
        let versions = parts(self.switches.encode).map(|part| vec![Str::from_static("Metadata"), part.names().1]);
        match &mut signature.writes {
            // What changes no data has no new shape.
            Access::These(writes) if !writes.is_empty() => writes.extend(versions),
            Access::These(_) | Access::Everything => {}
        }
        signature
    }

    fn flow(&self, flow: &mut Flow) {
        self.inner.flow(flow);
        for part in parts(self.switches.encode) {
            let (subject, version) = part.names();
            if flow.record.metadata.may_have(&subject) {
                flow.record.metadata.allow(version);
            }
        }
    }

    fn patience(&self) -> Option<Duration> {
        self.inner.patience()
    }

    fn build(&self, worker: usize, host: &Host) -> Result<BuiltOperator, Fault> {
        let desk = Desk::new(host.schemas.clone());
        let switches = self.switches;
        Ok(match self.inner.build(worker, host)? {
            BuiltOperator::Inline(inner) => {
                BuiltOperator::Inline(Box::new(Around { inner, desk, switches, strip: Prepared::new() }))
            }
            BuiltOperator::Isolate(inner) => {
                BuiltOperator::Isolate(Box::new(Around { inner, desk, switches, strip: Prepared::new() }))
            }
            BuiltOperator::Async(inner) => {
                BuiltOperator::Async(Arc::new(AroundAsync { inner, desk: Mutex::new(desk), switches }))
            }
        })
    }
}

/// Decodes what the switches say. An error leaves the record half decoded.
fn decode_all(desk: &mut Desk, switches: Switches, record: &mut Record) -> Result<bool, Fault> {
    parts(switches.decode).try_fold(false, |any, part| Ok(any | decode(desk, part, record)?))
}

/// A registry that is away fails the record for now; data without a schema lose the one they do not have any more.
fn refresh_all(desk: &mut Desk, switches: Switches, record: &mut Record) -> Result<(), Fault> {
    for part in parts(switches.encode) {
        match refresh(desk, part, record) {
            Ok(_) => {}
            Err(fault) if fault.class() == FaultClass::Record => {
                let (subject, version) = part.names();
                tracing::debug!(error = %fault, "the schema of a record does not fit it any more");
                record.metadata.remove(&subject);
                record.metadata.remove(&version);
            }
            Err(fault) => return Err(fault),
        }
    }
    Ok(())
}

struct Around<O: ?Sized> {
    inner: Box<O>,
    desk: Desk,
    switches: Switches,
    strip: Prepared,
}

impl<O: Operator + ?Sized> Operator for Around<O> {
    fn process(&mut self, rows: &mut Rows<'_>) {
        let Around { inner, desk, switches, strip } = self;
        let concerns = |record: &Record| parts(switches.decode).any(|part| is_encoded(part, record));
        strip.process(&mut **inner, rows, concerns, |record| decode_all(desk, *switches, record));
        // A registry that is away ends the run, so nobody sees a row that fails here.
        strip.finish(rows, |_, record| refresh_all(desk, *switches, record));
    }

    fn close(&mut self) -> Result<(), Fault> {
        self.inner.close()
    }
}

struct AroundAsync {
    inner: Arc<dyn AsyncOperator>,
    desk: Mutex<Desk>,
    switches: Switches,
}

impl AroundAsync {
    fn with<T>(&self, f: impl FnOnce(&mut Desk) -> T) -> T {
        f(&mut self.desk.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl AsyncOperator for AroundAsync {
    async fn call(&self, mut rows: Vec<Record>) -> Vec<Verdict> {
        if !rows.iter().any(|record| Part::ALL.iter().any(|part| has_schema(*part, record))) {
            return self.inner.call(rows).await;
        }
        let outcomes: Vec<Result<bool, Fault>> =
            self.with(|desk| rows.iter_mut().map(|record| decode_all(desk, self.switches, record)).collect());
        let good = rows.into_iter().zip(&outcomes).filter_map(|(record, outcome)| outcome.is_ok().then_some(record));
        let mut verdicts = self.inner.call(good.collect()).await.into_iter();
        let mut all = Vec::with_capacity(outcomes.len());
        for outcome in outcomes {
            let verdict = match outcome {
                Err(fault) => Some(Verdict::Fail(fault)),
                Ok(_) => verdicts.next(),
            };
            // The rest is given again.
            let Some(verdict) = verdict else { break };
            all.push(self.with(|desk| self.refreshed(desk, verdict)));
        }
        all
    }

    async fn close(&self) -> Result<(), Fault> {
        self.inner.close().await
    }
}

impl AroundAsync {
    fn refreshed(&self, desk: &mut Desk, verdict: Verdict) -> Verdict {
        let mut refresh = |record: &mut Record| refresh_all(desk, self.switches, record);
        match verdict {
            Verdict::Keep(mut record) => match refresh(&mut record) {
                Ok(()) => Verdict::Keep(record),
                Err(fault) => Verdict::Fail(fault),
            },
            Verdict::Split(mut records) => match records.iter_mut().try_for_each(refresh) {
                Ok(()) => Verdict::Split(records),
                Err(fault) => Verdict::Fail(fault),
            },
            other => other,
        }
    }
}

#[cfg(test)]
mod tests;
