//! Requests of users to a source that is being read.

use std::collections::BTreeMap;
use std::sync::Mutex;

use anabranch_plugin::host::Host;
use anabranch_plugin::source::{Acker, OpenedSource, Read, Reader, Request, Requested, Room, Source};
use anabranch_plugin::testing::AtEnd;
use anabranch_record::Position;
use anabranch_record::fault::Fault;
use anabranch_record::mark::{Mark, Partition};
use async_trait::async_trait;
use tokio::sync::Notify;

use super::*;
use crate::exec::{RequestError, SourceRequests};
use crate::plan::stage::{ReadSpec, StageKind};

/// A source that gives nothing, and accepts requests for one part. They are stored when `stored` is notified.
#[derive(Clone, Default)]
struct Asked {
    taken: Arc<Mutex<Vec<Request>>>,
    stored: Arc<Notify>,
}

#[async_trait]
impl Source for Asked {
    fn catches_up(&self) -> bool {
        false
    }

    async fn open(&self, _: &BTreeMap<Partition, Mark>, _: &Host) -> Result<OpenedSource, Fault> {
        Ok(OpenedSource::new(Box::new(self.clone()), Box::new(self.clone())))
    }
}

#[async_trait]
impl Reader for Asked {
    async fn read(&mut self, _: Room) -> Result<Read, Fault> {
        std::future::pending().await
    }

    async fn request(&mut self, request: Request) -> Result<Requested, Fault> {
        if request != backfill("a") {
            return Err(Fault::record(crate::codes::EMPTY_POSITION, "there is no such part"));
        }
        self.taken.lock().unwrap().push(request);
        let stored = self.stored.clone();
        Ok(Box::pin(async move {
            stored.notified().await;
            Ok(())
        }))
    }
}

#[async_trait]
impl Acker for Asked {
    async fn ack(&mut self, _: &Partition, _: &[Position]) -> Result<(), Fault> {
        Ok(())
    }
}

fn backfill(part: &'static str) -> Request {
    Request::Backfill { part: part.into() }
}

#[tokio::test(start_paused = true)]
async fn a_request_is_confirmed_when_the_source_has_stored_it() {
    let (bench, source, requests) = (Bench::new(), Asked::default(), Arc::<SourceRequests>::default());
    assert!(matches!(requests.ask("in", backfill("a")).await, Err(RequestError::NotRead)));
    let shelf = Arc::new(Downstream::new("out", &bench.journal));
    let options = RunOptions { requests: requests.clone(), ..RunOptions::default() };
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &Arc::new(Upstream::new(&bench.journal, 0, AtEnd::End)));
    pipeline.write(&[read], "out", &shelf);
    let mut plan = (*pipeline.plan()).clone();
    if let StageKind::Read(ReadSpec { source: read, .. }) = &mut plan.stages[0].kind {
        *read = Arc::new(source.clone());
    }
    let running = start(Arc::new(plan), services(&bench.store), options);
    running.opened().await.unwrap();
    assert_eq!(requests.sources(), ["in"]);

    let mut asking = std::pin::pin!(requests.ask("in", backfill("a")));
    let waits = tokio::time::timeout(Duration::from_secs(60), &mut asking).await;
    assert!(waits.is_err(), "it is not stored");
    assert_eq!(*source.taken.lock().unwrap(), [backfill("a")]);
    source.stored.notify_one();
    asking.await.unwrap();
    let refused = requests.ask("in", backfill("b")).await;
    assert!(
        matches!(&refused, Err(RequestError::Refused(fault)) if fault.message().contains("no such part")),
        "{refused:?}"
    );
    assert!(matches!(requests.ask("other", backfill("a")).await, Err(RequestError::NotRead)));

    // The run goes on, and nobody answers after it.
    running.stop(None);
    assert!(matches!(running.join().await, Ending::Stopped));
    assert!(matches!(requests.ask("in", backfill("a")).await, Err(RequestError::NotRead)));
}
