//! The processors of a simulation.

use std::sync::Arc;
use std::time::Duration;

use anabranch_plugin::operator::{
    AsyncOperator, Class, Configured, Decision, Fan, Operator, OperatorContext, Pieces, Rows, Signature,
};
use anabranch_plugin::testing::of_class;
use anabranch_record::access::Access;
use anabranch_record::fault::Fault;
use anabranch_record::{Position, Record};
use async_trait::async_trait;

use crate::codes;
use crate::oracle::{Copy, ProcessorOutput};
use crate::record::{MARK, copy, payload};
use crate::scenario::{Execution, ProcessorAction, ScenarioProcessor, hits, mix};
use crate::world::World;

/// How long a processor waits before it fails with a timeout.
const LATE: Duration = Duration::from_secs(30);

/// A processor of the scenario.
#[derive(Clone)]
pub struct SimProcessor {
    /// The world.
    pub world: Arc<World>,
    /// Its behaviour.
    pub processor: ScenarioProcessor,
}

impl SimProcessor {
    /// Returns the processor for a plan.
    pub fn configured(self) -> Configured {
        let class = match self.processor.execution {
            Execution::Inline => Class::Inline,
            Execution::Async { .. } => Class::Async,
            Execution::Isolate => Class::Isolate,
        };
        of_class(class, self.signature(), move |_| {
            self.world.opens()?;
            Ok(self.clone())
        })
    }

    fn signature(&self) -> Signature {
        let part = |path: &[&'static str]| path.iter().map(|part| (*part).into()).collect::<Vec<_>>();
        let (payload, mark, index) =
            (part(&["Payload", "After"]), part(&["Metadata", MARK]), part(&["Metadata", "split.index"]));
        let (fan, writes) = match self.processor.action {
            ProcessorAction::Tag | ProcessorAction::Fail | ProcessorAction::Panic => (Fan::One, vec![payload]),
            ProcessorAction::Set(_) => (Fan::One, vec![payload, mark]),
            ProcessorAction::Filter if self.processor.one_in == 1 => (Fan::Never, vec![]),
            ProcessorAction::Filter => (Fan::AtMostOne, vec![payload]),
            ProcessorAction::Split { .. } => (Fan::Many, vec![payload, index]),
            ProcessorAction::Clone(copies) => (Fan::Copies(copies), vec![payload, index]),
        };
        Signature::new().fan(fan).writes(Access::These(writes)).needs_arch_v2(fan.multiplies())
    }

    fn pieces(&self, record: &Record, pieces: &[Copy]) -> Vec<Record> {
        let piece = |(i, piece): (usize, &Copy)| {
            let mut new = record.clone();
            write(&mut new, *piece);
            match self.processor.action {
                ProcessorAction::Split { astray: true, .. } => new = new.with_position(Position::default()),
                ProcessorAction::Split { numbered: true, .. } => {
                    new.metadata.insert("split.index", i.to_string());
                }
                _ => {}
            }
            new
        };
        pieces.iter().enumerate().map(piece).collect()
    }

    fn decide(&self, record: &mut Record) -> Decision {
        let before = copy(record);
        match self.processor.apply(before) {
            ProcessorOutput::Keep(after) => write(record, after),
            // For every other row, the engine creates the pieces lazily, as it does for rows with very many pieces.
            ProcessorOutput::Pieces(pieces) => {
                let pieces = self.pieces(record, &pieces);
                return match hits(self.processor.salt ^ 3, before.id, 2) {
                    true => Decision::Pieces(Pieces::new(pieces.len(), move |i| pieces[i].clone())),
                    false => Decision::Split(pieces),
                };
            }
            ProcessorOutput::Filter => return Decision::Filter,
            ProcessorOutput::Fail => {
                return Decision::Fail(Fault::record(
                    anabranch_plugin::testing::codes::FAILED,
                    "the processor refuses it",
                ));
            }
            ProcessorOutput::Panic => {
                let panics = self.world.lock().panics(self.processor.salt, before.id);
                assert!(!panics, "simulated");
                write(record, self.processor.unharmed(before));
            }
        }
        Decision::Keep
    }
}

fn write(record: &mut Record, after: Copy) {
    record.payload.after = payload(after.id);
    let mark = [b'0' + after.mark].map(char::from).iter().collect::<String>();
    record.metadata.insert(MARK, mark);
}

impl Operator for SimProcessor {
    fn process(&mut self, rows: &mut Rows<'_>, _: &OperatorContext) {
        self.world.lives();
        rows.for_each(|record| Ok(self.decide(record)));
    }
}

#[async_trait]
impl AsyncOperator for SimProcessor {
    async fn call(&self, rows: &mut [Record], _: &OperatorContext) -> Vec<Decision> {
        let Execution::Async { delay, partial, hangs, late, mute } = self.processor.execution else {
            return Vec::new();
        };
        let (call, troubled, repaired) = {
            let mut state = self.world.lock();
            (state.next_call(), state.is_troubled(), state.repaired)
        };
        if delay > 0 {
            tokio::time::sleep(Duration::from_millis(mix(call, self.processor.salt) % (delay + 1))).await;
        }
        self.world.tick().await;
        if troubled && hits(self.processor.salt, call, hangs) {
            self.world.hang().await;
        }
        if troubled && hits(self.processor.salt ^ 1, call, late) {
            tokio::time::sleep(LATE).await;
            let fault = || match repaired || call % 4 > 0 {
                true => Fault::transient(codes::SIM_PASSING, "there is no answer"),
                false => Fault::fatal(codes::SIM_BROKEN, "the processor never answers"),
            };
            return rows.iter().map(|_| Decision::Fail(fault())).collect();
        }
        let most = if partial { rows.len().min(1 + call as usize % 3) } else { rows.len() };
        let answered = |record: &&mut Record| repaired || !hits(self.processor.salt ^ 2, copy(record).id, mute);
        let rows = rows.iter_mut().take(most).take_while(answered);
        let decisions: Vec<Decision> = rows.map(|record| self.decide(record)).collect();
        if decisions.is_empty() {
            self.world.silent();
            self.world.tick().await;
        }
        decisions
    }
}
