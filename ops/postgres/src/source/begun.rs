//! The tasks of a source that is being opened, and the ends at which the engine holds them.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use anabranch_plugin::host::Host;
use anabranch_plugin::source::{OpenedSource, Read};
use anabranch_record::fault::Fault;
use anabranch_record::mark::{Mark, Partition};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::acknowledged::Acknowledged;
use super::config::Config;
use super::events::{Ended, Events};
use super::lanes::{of_part, part_of};
use super::lead::Parts;
use super::lsn::Lsn;
use super::part::PartReader;
use super::position::{PLAN, RangePosition};
use super::reader::{Confirmations, EventReader};
use super::record::Schemas;
use super::requests::Requests;
use super::siblings;
use super::snapshot::Plan;
use super::split::SplitSource;

/// Events that wait for the engine.
const WAITING: usize = 2;

/// A source whose tasks begin.
pub(super) struct Begun {
    pub(super) schemas: Option<Arc<Schemas>>,
    pub(super) events: Events,
    pub(super) acknowledged: Arc<Acknowledged>,
    read: mpsc::Receiver<Result<Read, Fault>>,
    tasks: JoinSet<()>,
}

impl Begun {
    /// Creates one without tasks. All changes before `confirmed` count as delivered.
    pub(super) fn new(config: &Config, host: &Host, confirmed: Lsn) -> Begun {
        let context = match &config.context {
            Some(name) if name.is_empty() => String::new(),
            Some(name) => format!("{name}:"),
            None => format!("{}:{}:", host.pipeline, host.node),
        };
        let schemas = config.has_schemas.then(|| Arc::new(Schemas { registry: host.schemas.clone(), context }));
        let (sender, read) = mpsc::channel(WAITING);
        let acknowledged = Arc::new(Acknowledged::new(confirmed));
        Begun { schemas, events: Events(sender), acknowledged, read, tasks: JoinSet::new() }
    }

    /// Adds a task. Its fault ends the run.
    pub(super) fn spawn(&mut self, task: impl Future<Output = Result<(), Ended>> + Send + 'static) {
        let events = self.events.clone();
        self.tasks.spawn(async move {
            if let Err(Ended::Failed(fault)) = task.await {
                // A source that is closed does not need it.
                let _ = events.0.send(Err(fault)).await;
            }
        });
    }

    /// Adds the parts that this run reads, and returns how to follow all of them.
    pub(super) fn read_parts(
        &mut self,
        config: &Arc<Config>,
        host: &Host,
        resume: &BTreeMap<Partition, Mark>,
        split: SplitSource,
    ) -> Parts {
        let (tell, siblings) = watch::channel(split.siblings);
        let marks = host.marks.clone();
        self.tasks.spawn(siblings::follow(marks, tell));
        for number in split.mine {
            let of_plan = of_part(&PLAN, number);
            let stored = resume.get(&of_plan).and_then(|mark| Plan::decode(&mark.position).ok());
            let mut plan = stored.unwrap_or_default();
            plan.note_lanes(|lane| {
                let position = resume.get(lane).and_then(|mark| RangePosition::decode(&mark.position).ok());
                position.is_some_and(|position| position.complete)
            });
            let lanes = resume.keys().filter(|lane| part_of(lane) == Some(number) && **lane != of_plan);
            let part = PartReader {
                config: config.clone(),
                number,
                plan,
                schemas: self.schemas.clone(),
                events: self.events.clone(),
                acknowledged: self.acknowledged.clone(),
                siblings: siblings.clone(),
                finished: lanes.cloned().collect(),
            };
            self.spawn(part.run());
        }
        Parts { count: split.count, siblings }
    }

    /// Returns what the engine reads from. Without `requests`, the source takes none.
    pub(super) fn opened(self, requests: Option<Requests>) -> OpenedSource {
        let reader = Box::new(EventReader::new(self.read, self.acknowledged.clone(), requests));
        OpenedSource::new(reader, Box::new(Confirmations { acknowledged: self.acknowledged, tasks: self.tasks }))
    }
}
