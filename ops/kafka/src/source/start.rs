//! Where reading a partition starts: after our mark, at an offset that another program committed, or where the settings say.

use std::collections::BTreeMap;
use std::time::Duration;

use anabranch_plugin::source::Start;
use anabranch_record::fault::Fault;
use anabranch_record::mark::Mark;
use anabranch_record::text::{Str, hexadecimal};
use async_trait::async_trait;
use futures::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::fetch::FetchStart;
use super::lookup::{Found, Lookup};
use super::position::{LogPosition, PositionEncoder};
use super::prepare::Prepared;
use crate::codes;
use crate::group::{Committed, Membership, Tenure, TopicPartition};
use crate::waiting::until_brokers;

/// Time for which look-ups are repeated, and the pause before a repetition.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(200);

/// Before the source in the metadata of offsets that we commit.
const OURS: &str = "anabranch:";

/// Where a partition without a mark and without a committed offset starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beginning {
    Earliest,
    Latest,
    /// The first record with this timestamp or a later one, in milliseconds since 1970.
    At(i64),
}

/// What happens if records that are to be read do not exist any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnGap {
    Fail,
    Continue,
}

/// Decides where partitions start.
pub(super) struct Starts {
    pub(super) lookup: Lookup,
    pub(super) group: Str,
    /// Name of the connector, for the log.
    pub(super) name: Str,
    /// Id of this source and its store, in positions and in the metadata of committed offsets.
    pub(super) source: Str,
    pub(super) beginning: Beginning,
    pub(super) on_gap: OnGap,
}

/// A partition that is about to be read.
pub(super) struct Started {
    /// The first offset.
    pub(super) from: FetchStart,
    /// The offset after the last record that can be read now.
    pub(super) end: i64,
    /// The answer for the engine.
    pub(super) start: Start,
    pub(super) positions: PositionEncoder,
    /// Records that were removed before they were read.
    pub(super) missed: u64,
    /// True if another program committed the offset. Before records are delivered, the source commits it itself: otherwise
    /// it would count again after a crash, and the records would be delivered again.
    pub(super) is_adopted: bool,
}

/// Where partitions start, as the reader asks for it.
#[async_trait]
pub(super) trait Starter: Send + Sync {
    /// Looks up what decides where partitions start, and sends each as soon as it is known. A slow broker delays only the
    /// partitions that it leads. By default, nothing is looked up.
    async fn prepare(
        &self,
        partitions: Vec<(TopicPartition, Tenure)>,
        _membership: &dyn Membership,
        ready: &mpsc::UnboundedSender<Prepared>,
    ) {
        for (at, tenure) in partitions {
            let _ = ready.send((at, tenure, None));
        }
    }

    /// Decides where a partition starts. `mark` is the mark of the engine; its position is empty after a reset. With
    /// `restart`, the partition starts at this offset: what was read before does not lead there. `found` is what was
    /// prepared.
    ///
    /// # Errors
    /// An offset cannot be looked up; the records that follow do not exist any more, and the settings say to fail; or the
    /// mark belongs to another group.
    async fn start(
        &self,
        at: &TopicPartition,
        mark: Option<&Mark>,
        restart: Option<i64>,
        found: Option<Found>,
        membership: &dyn Membership,
    ) -> Result<Started, Fault>;

    /// Returns the ends of partitions for the source. Those that cannot be looked up now are absent.
    async fn ends(&self, partitions: Vec<TopicPartition>) -> BTreeMap<TopicPartition, i64>;

    /// Returns the first offset that exists, and the end of the log.
    ///
    /// # Errors
    /// An offset cannot be looked up.
    async fn bounds(&self, at: &TopicPartition) -> Result<(i64, i64), Fault>;

    /// Reports that reading goes from the offset `wanted` to `there`, or returns the number of missing records if the
    /// settings say to continue.
    ///
    /// # Errors
    /// The settings say to fail.
    fn gap(&self, at: &TopicPartition, wanted: i64, there: i64, why: &str) -> Result<u64, Fault>;
}

#[async_trait]
impl Starter for Starts {
    async fn prepare(
        &self,
        partitions: Vec<(TopicPartition, Tenure)>,
        membership: &dyn Membership,
        ready: &mpsc::UnboundedSender<Prepared>,
    ) {
        let mut left: BTreeMap<TopicPartition, Tenure> = partitions.into_iter().collect();
        let until = Instant::now() + PATIENCE;
        let looking = self.look_up(&mut left, until, membership, ready);
        until_brokers(|| "said where the assigned partitions start and end".to_owned(), looking).await;
        for (at, tenure) in left {
            // The error is reported when the look-up fails once more.
            let _ = ready.send((at, tenure, None));
        }
    }

    async fn start(
        &self,
        at: &TopicPartition,
        mark: Option<&Mark>,
        restart: Option<i64>,
        found: Option<Found>,
        membership: &dyn Membership,
    ) -> Result<Started, Fault> {
        let found = match found {
            Some(found) => found,
            None => self.look(at, membership).await?,
        };
        let (id, exact) = (found.topic, found.exact);
        let topic_id = id.map(|id| Str::from(hexadecimal(&id))).unwrap_or_default();
        let position = LogPosition {
            group: self.group.clone(),
            topic: at.topic.clone(),
            partition: at.partition,
            topic_id: topic_id.clone(),
            source: self.source.clone(),
            leader_epoch: -1,
            offset: 0,
        };
        let positions = PositionEncoder::new(position);
        let here = |from: i64| Start::elsewhere().at(positions.one(from - 1));
        let begin = |offset: i64, epoch: i32| FetchStart { offset, epoch, topic: id };
        if let Some(from) = restart {
            let start = here(from).replays_exactly(exact);
            let from = begin(from, -1);
            return Ok(Started { from, end: found.end, start, positions, missed: 0, is_adopted: false });
        }
        let known = match mark {
            Some(mark) if mark.position.0.is_empty() => None,
            Some(mark) => Some(LogPosition::decode(&mark.position)?),
            None => None,
        };
        let is_reset = mark.is_some() && known.is_none();
        let known = known.filter(|known| known.is_of(&self.source));
        let committed = if is_reset { None } else { found.committed };
        let is_adopted = committed.as_ref().is_some_and(|committed| !self.is_ours(committed));
        let (from, start) = match (&known, committed) {
            // Nobody but this source has moved the group.
            (Some(known), committed) if committed.as_ref().is_none_or(|it| self.is_ours(it)) => {
                (known.offset + 1, Start::after_mark())
            }
            (known, Some(committed)) => {
                match known.as_ref().is_some_and(|known| known.offset + 1 == committed.offset) {
                    true => (committed.offset, Start::after_mark()),
                    false => (committed.offset, here(committed.offset)),
                }
            }
            (_, None) => {
                let beginning = match self.beginning {
                    Beginning::Latest if is_reset => Beginning::Earliest,
                    beginning => beginning,
                };
                match beginning {
                    Beginning::Earliest => (found.earliest, here(found.earliest)),
                    Beginning::Latest => (found.latest, here(found.latest)),
                    Beginning::At(_) => {
                        let from = found.at_time.unwrap_or(found.latest);
                        (from, here(from))
                    }
                }
            }
        };
        let is_another_log = known
            .as_ref()
            .is_some_and(|known| !known.topic_id.is_empty() && !topic_id.is_empty() && known.topic_id != topic_id);
        // The broker compares the epoch of the last record, if reading continues after it.
        let epoch = known.as_ref().filter(|known| known.offset + 1 == from).map_or(-1, |known| known.leader_epoch);
        let gap = match () {
            () if is_another_log => Some((found.earliest, "the topic was deleted and created again".to_owned())),
            () if from < found.earliest => {
                let text = format!("the records before offset {} were removed", found.earliest);
                Some((found.earliest, text))
            }
            () if from > found.latest => {
                Some((found.latest, format!("the log ends at offset {}: it was truncated", found.latest)))
            }
            () => None,
        };
        let (from, start, missed) = match gap {
            None => (begin(from, epoch), start, 0),
            Some((there, why)) => {
                let missed = self.gap(at, from, there, &why)?;
                (begin(there, -1), here(there), missed)
            }
        };
        let start = start.replays_exactly(exact);
        Ok(Started { from, end: found.end, start, positions, missed, is_adopted })
    }

    async fn ends(&self, partitions: Vec<TopicPartition>) -> BTreeMap<TopicPartition, i64> {
        self.lookup.ends(partitions).await
    }

    async fn bounds(&self, at: &TopicPartition) -> Result<(i64, i64), Fault> {
        self.lookup.bounds(at).await
    }

    fn gap(&self, at: &TopicPartition, wanted: i64, there: i64, why: &str) -> Result<u64, Fault> {
        let text = format!("{at}: the next record has the offset {wanted}, but {why}");
        match self.on_gap {
            OnGap::Fail => {
                let text = format!(
                    "{text}; to continue at offset {there}, set onGap: continue, or reset the position, and start the pipeline"
                );
                Err(Fault::fatal(codes::GAP, text))
            }
            OnGap::Continue => {
                tracing::warn!(connector = %self.name, "{text}; reading continues at offset {there}");
                Ok(u64::try_from(there - wanted).unwrap_or(0))
            }
        }
    }
}

impl Starts {
    /// Returns the text that marks offsets as committed by this source.
    pub(super) fn signature(&self) -> Str {
        format!("{OURS}{}", self.source).into()
    }

    fn is_ours(&self, committed: &Committed) -> bool {
        committed.metadata == self.signature()
    }

    /// Looks up the start of the partitions that are `left`, repeatedly, until none is left or the time is up.
    async fn look_up(
        &self,
        left: &mut BTreeMap<TopicPartition, Tenure>,
        until: Instant,
        membership: &dyn Membership,
        ready: &mpsc::UnboundedSender<Prepared>,
    ) {
        loop {
            let leaders = self.lookup.leaders(left.keys().cloned()).await.unwrap_or_default();
            let look = |(leader, at)| self.lookup.look(leader, at, membership);
            let mut looking: FuturesUnordered<_> = leaders.into_iter().map(look).collect();
            while let Some(results) = looking.next().await {
                for (at, found) in results {
                    match found {
                        Ok(found) => {
                            if let Some(tenure) = left.remove(&at) {
                                let _ = ready.send((at, tenure, Some(found)));
                            }
                        }
                        Err(fault) => tracing::debug!("{}", fault.message()),
                    }
                }
            }
            if left.is_empty() {
                return;
            }
            if Instant::now() > until {
                return;
            }
            sleep(PAUSE).await;
        }
    }

    async fn look(&self, at: &TopicPartition, membership: &dyn Membership) -> Result<Found, Fault> {
        let leaders = self.lookup.leaders([at.clone()]).await?;
        let leader = leaders.into_keys().next().unwrap_or(-1);
        let results = self.lookup.look(leader, vec![at.clone()], membership).await;
        let silent = || Fault::transient(codes::UNAVAILABLE, format!("{at}: the broker did not answer"));
        results.into_iter().next().map_or_else(|| Err(silent()), |(_, found)| found)
    }
}
