//! Reads the objects with a prefix in sweeps, and lists and fetches concurrently.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anabranch_plugin::source::{Backlog, Read, Room};
use anabranch_record::fault::Fault;
use anabranch_record::mark::Partition;
use anabranch_record::{Position, Record};
use futures::future::{BoxFuture, MaybeDone, OptionFuture, maybe_done};
use futures::stream::FuturesOrdered;
use futures::{FutureExt, StreamExt};
use tokio::time::{Instant, sleep_until};

use super::fetch::{FetchOutcome, Fetching};
use super::limits::{FetchPermit, ListingPermit, ReadLimits};
use super::listing::{Page, PageStart, Version};
use super::position::{Cursor, Horizon, Purpose, SweepProgress};
use super::sweep::{Ahead, Find, SeenObjects, Sweep};
use crate::retry::{RequestPurpose, attended, patiently};

/// Memory of an object in flight in addition to its bytes.
const OVERHEAD: usize = 2 << 10;
/// Resolution of the server's clock.
const SECOND: Duration = Duration::from_secs(1);

/// Seconds that an object must be dated ahead of the server's clock to be logged.
const NOTICED: i64 = 10;
/// Minimum interval of this log line.
const TOLD_AGAIN: Duration = Duration::from_secs(600);

/// Intervals of reading.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Pause between two sweeps.
    pub(super) polling: Duration,
    /// Time to wait after the second of a change.
    pub(super) settling: Duration,
}

/// Reader of the objects with a prefix, which are a partition.
pub(super) struct Objects {
    fetching: Arc<Fetching>,
    partition: Partition,
    pace: Pace,
    limits: ReadLimits,
    versioned: bool,
    /// Fingerprint of bucket and prefix.
    bucket: u32,
    purpose: Purpose,
    since: Option<Horizon>,
    /// Progress at which the first sweep resumes.
    resume: Option<(Horizon, Cursor)>,
    memory: SeenObjects,
    /// Changes up to this second of the server's clock must be delivered before the source is caught up. It is the time
    /// of the opening, or a later date of an object in the first listing.
    due: Option<i64>,
    /// True if that listing is complete.
    surveyed: bool,
    /// Objects that the last sweep held back.
    ahead: Ahead,
    /// Time of the last log line about them.
    told: Option<Instant>,
    /// Time when the server's clock was last queried.
    asked: Instant,
    caught_up: CaughtUp,
    phase: Phase,
    /// A key whose versions may continue on the next page.
    group: Option<(String, Vec<Version>)>,
    finds: VecDeque<Find>,
    fetches: FuturesOrdered<BoxFuture<'static, Result<FetchOutcome, Fault>>>,
    /// The objects being fetched, in the same order.
    in_flight: VecDeque<InFlightObject>,
    /// The permit for the next find, while the limits do not allow it.
    waiting: Option<MaybeDone<BoxFuture<'static, FetchPermit>>>,
    /// Held while many finds of a page are left.
    listing: Option<ListingPermit>,
    missed: Vec<(String, bool)>,
    /// A fetched record that exceeded the last batch.
    held: Option<Record>,
    /// Results to return after all fetched records are delivered.
    pending: VecDeque<Read>,
}

/// An object that is being fetched, or that was fetched and is not delivered yet.
struct InFlightObject {
    /// Bytes.
    size: u64,
    /// Time of its last change.
    since: Option<i64>,
    _permit: FetchPermit,
}

/// State of the report that the source has caught up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CaughtUp {
    NotYet,
    Said,
    /// It was returned, and records were delivered since.
    Outdated,
}

/// Activity in addition to the fetches.
enum Phase {
    /// Idle until this time.
    Rest(Instant),
    /// The server's clock is being queried.
    Clock(BoxFuture<'static, Result<Horizon, Fault>>),
    /// A page is being listed.
    Page(Box<Sweep>, BoxFuture<'static, Result<ListedPage, Fault>>),
    /// The next page may be listed when there is room for its objects; `None` at the end of the listing.
    Listed(Box<Sweep>, Option<PageStart>),
    /// The listing is complete; its objects are being fetched.
    Ending(Box<super::sweep::CompletedSweep>),
}

/// A page, with the permit for its finds.
type ListedPage = (Page, ListingPermit);

enum Turn {
    Rested,
    Clock(Result<Horizon, Fault>),
    Page(Result<ListedPage, Fault>),
}

impl Phase {
    /// Waits for the current activity. Cancel-safe.
    async fn turn(&mut self) -> Turn {
        match self {
            Phase::Rest(until) => {
                sleep_until(*until).await;
                Turn::Rested
            }
            Phase::Clock(clock) => Turn::Clock(clock.await),
            Phase::Page(_, page) => Turn::Page(page.await),
            Phase::Listed(..) | Phase::Ending(_) => std::future::pending().await,
        }
    }
}

impl Objects {
    pub(super) fn new(
        fetching: Fetching,
        partition: Partition,
        (pace, limits): (Pace, ReadLimits),
        versioned: bool,
        (bucket, place): (u32, Option<SweepProgress>),
    ) -> Self {
        let place = place.unwrap_or(SweepProgress { purpose: Purpose::Snapshot, since: None, under_way: None });
        Objects {
            fetching: Arc::new(fetching),
            partition,
            pace,
            limits,
            versioned,
            bucket,
            purpose: place.purpose,
            since: place.since,
            resume: place.under_way,
            memory: SeenObjects::default(),
            due: None,
            surveyed: false,
            ahead: Ahead::default(),
            told: None,
            asked: Instant::now(),
            caught_up: CaughtUp::NotYet,
            phase: Phase::Rest(Instant::now()),
            group: None,
            finds: VecDeque::new(),
            fetches: FuturesOrdered::new(),
            in_flight: VecDeque::new(),
            waiting: None,
            listing: None,
            missed: Vec::new(),
            held: None,
            pending: VecDeque::new(),
        }
    }

    /// Proceeds as far as possible without waiting.
    fn go_on(&mut self) {
        self.fetch();
        let is_short = self.finds.len() < self.limits.few();
        if is_short {
            self.listing = None;
        }
        if matches!(&self.phase, Phase::Listed(..)) && is_short {
            let rest = Phase::Rest(Instant::now());
            match std::mem::replace(&mut self.phase, rest) {
                Phase::Listed(sweep, Some(from)) => self.phase = Phase::Page(sweep, self.page(from)),
                Phase::Listed(sweep, None) => {
                    self.phase = Phase::Ending(Box::new(sweep.end(&mut self.finds)));
                    self.fetch();
                }
                other => self.phase = other,
            }
        }
        if matches!(&self.phase, Phase::Ending(_))
            && self.finds.is_empty()
            && self.fetches.is_empty()
            && self.held.is_none()
        {
            self.end();
        }
    }

    /// Starts fetches up to the limits.
    fn fetch(&mut self) {
        while let Some(find) = self.finds.front() {
            let (size, since) = find.version.as_ref().map_or((0, None), |it| (it.size, Some(it.modified.seconds)));
            let Some(permit) = self.permit(usize::try_from(size).unwrap_or(usize::MAX).saturating_add(OVERHEAD)) else {
                return;
            };
            let Some(find) = self.finds.pop_front() else { return };
            let position = self.position(&find);
            self.in_flight.push_back(InFlightObject { size, since, _permit: permit });
            self.fetches.push_back(self.fetching.clone().fetch(find, position).boxed());
        }
    }

    /// Returns a permit for the next find, which takes `bytes`, or waits for one.
    fn permit(&mut self, bytes: usize) -> Option<FetchPermit> {
        if let Some(waiting) = &mut self.waiting {
            let permit = Pin::new(waiting).take_output()?;
            self.waiting = None;
            return Some(permit);
        }
        let permit = self.limits.try_fetch(bytes);
        if permit.is_none() {
            self.waiting = Some(maybe_done(self.limits.clone().fetch(bytes).boxed()));
        }
        permit
    }

    /// Returns the position after a find is delivered.
    fn position(&self, find: &Find) -> Position {
        let version = if find.more { find.version.as_ref().map(|version| version.fingerprint) } else { None };
        let cursor = Cursor { key: find.key.clone(), version };
        let until = match &self.phase {
            Phase::Page(sweep, _) | Phase::Listed(sweep, _) => &sweep.until,
            Phase::Ending(ended) => &ended.until,
            // Finds exist only during a sweep.
            Phase::Rest(_) | Phase::Clock(_) => return Position::default(),
        };
        let place = SweepProgress {
            purpose: self.purpose,
            since: self.since.clone(),
            under_way: Some((until.clone(), cursor)),
        };
        place.encode(self.bucket)
    }

    fn page(&self, from: PageStart) -> BoxFuture<'static, Result<ListedPage, Fault>> {
        let (fetching, limits, versioned) = (self.fetching.clone(), self.limits.clone(), self.versioned);
        async move {
            let permit = limits.list().await;
            let what = format!("the content of bucket {}", fetching.bucket.name);
            let asked = RequestPurpose { server: &fetching.bucket.server, what: &what };
            let page = patiently(&fetching.host, || {
                attended(&fetching.host, asked, async {
                    match versioned {
                        true => fetching.bucket.versions(&from).await,
                        false => fetching.bucket.objects(&from).await,
                    }
                })
            });
            Ok((page.await?, permit))
        }
        .boxed()
    }

    fn ask_clock(&mut self) {
        let (fetching, limits) = (self.fetching.clone(), self.limits.clone());
        self.asked = Instant::now();
        let ask = async move {
            let _permit = limits.list().await;
            let what = format!("the unfinished uploads to bucket {}", fetching.bucket.name);
            let asked = RequestPurpose { server: &fetching.bucket.server, what: &what };
            patiently(&fetching.host, || attended(&fetching.host, asked, fetching.bucket.horizon())).await
        };
        self.phase = Phase::Clock(ask.boxed());
    }

    /// Begins a sweep, or resumes the one that was interrupted when the source was closed.
    fn begin(&mut self, clock: Horizon) {
        self.due.get_or_insert(clock.time);
        let mut memory = std::mem::take(&mut self.memory);
        for (key, delivered_before) in self.missed.drain(..) {
            memory.miss(key, delivered_before);
        }
        let (until, start) = match self.resume.take() {
            Some((until, cursor)) => (until, Some(cursor)),
            None => {
                let settled = clock.time - i64::try_from(self.pace.settling.as_secs()).unwrap_or(0);
                // The horizon never moves back, even if the server's clock does.
                let least = self.since.as_ref().map_or(settled, |since| since.time);
                (Horizon { time: settled.max(least), uploads: clock.uploads }, None)
            }
        };
        let from = match &start {
            None => PageStart::Start,
            Some(Cursor { key, version: Some(_) }) if self.versioned => PageStart::Only(key.clone()),
            Some(Cursor { key, .. }) => PageStart::After(key.clone()),
        };
        let sweep = Sweep::new(self.purpose, (self.since.clone(), until), start, self.versioned, memory);
        self.phase = Phase::Page(Box::new(sweep), self.page(from));
    }

    /// Processes a page.
    fn take(&mut self, (page, permit): ListedPage) -> Result<(), Fault> {
        self.listing = Some(permit);
        let Phase::Page(mut sweep, _) = std::mem::replace(&mut self.phase, Phase::Rest(Instant::now())) else {
            return Ok(());
        };
        sweep.now = page.now;
        for (key, version) in page.versions {
            match &mut self.group {
                Some((of, versions)) if *of == key => versions.push(version),
                group => {
                    if let Some((key, versions)) = group.replace((key, vec![version])) {
                        sweep.see(key, versions, &mut self.finds)?;
                    }
                }
            }
        }
        // Without versions, and at the end of the listing, no key continues on the next page.
        if (!self.versioned || page.next.is_none())
            && let Some((key, versions)) = self.group.take()
        {
            sweep.see(key, versions, &mut self.finds)?;
        }
        self.phase = Phase::Listed(sweep, page.next);
        Ok(())
    }

    /// Ends a sweep whose objects are all delivered.
    fn end(&mut self) {
        let Phase::Ending(ended) = std::mem::replace(&mut self.phase, Phase::Rest(Instant::now())) else { return };
        let mut due = self.due.unwrap_or(ended.until.time);
        // Every object in the first complete listing existed when the source was opened, whatever its date.
        if !self.surveyed && !ended.resumed {
            self.surveyed = true;
            due = ended.latest.map_or(due, |latest| latest.max(due));
            self.due = Some(due);
        }
        if !ended.resumed {
            self.hold_back(ended.ahead);
        }
        self.memory = ended.memory;
        self.since = Some(ended.until);
        let is_due = ended.deferred.is_some_and(|second| second <= due);
        let all = self.caught_up != CaughtUp::NotYet || !(is_due || ended.resumed);
        if ended.purpose == Purpose::Snapshot && (all || ended.resumed) {
            self.purpose = Purpose::Changes;
            let place = SweepProgress { purpose: Purpose::Changes, since: self.since.clone(), under_way: None };
            self.pending.push_back(Read::Progress(self.partition.clone(), place.encode(self.bucket)));
        }
        if !all {
            // Read the rest of the bucket immediately, and changes in this second when it is over.
            self.phase = Phase::Rest(if ended.resumed { Instant::now() } else { self.asked + SECOND });
            return;
        }
        if self.caught_up != CaughtUp::Said {
            self.pending.push_back(Read::CaughtUp);
        }
        self.phase = Phase::Rest(Instant::now() + self.pace.polling);
    }

    /// Records the objects that a sweep held back. Logs it from time to time if the delay is noticeable.
    fn hold_back(&mut self, ahead: Ahead) {
        // The engine queries the backlog of an idle source again after `CaughtUp`.
        if self.ahead.objects == 0 && ahead.objects > 0 && self.caught_up == CaughtUp::Said {
            self.caught_up = CaughtUp::Outdated;
        }
        self.ahead = ahead;
        let noticed = self.ahead.first.as_ref().is_some_and(|(_, at, now)| at - now > NOTICED);
        if noticed && self.told.is_none_or(|told| told.elapsed() >= TOLD_AGAIN) {
            self.told = Some(Instant::now());
            let host = &self.fetching.host;
            tracing::warn!(
                pipeline = %host.pipeline, connector = %host.node,
                "{}; the source reads objects when the clock has passed their date",
                self.ahead.words().unwrap_or_default()
            );
        }
    }

    /// Builds a batch from one outcome and all others that are ready.
    fn collect(&mut self, first: Result<FetchOutcome, Fault>, room: Room) -> Result<Vec<Record>, Fault> {
        let mut records = Vec::new();
        let mut bytes = 0;
        let mut next = Some(first);
        while let Some(outcome) = next.take() {
            match outcome {
                Ok(FetchOutcome::Record(record)) => {
                    self.in_flight.pop_front();
                    let size = record.weight();
                    if !records.is_empty() && bytes + size > room.bytes {
                        self.held = Some(*record);
                        return Ok(records);
                    }
                    bytes += size;
                    records.push(*record);
                }
                Ok(FetchOutcome::Missed { key, delivered_before }) => {
                    self.in_flight.pop_front();
                    self.missed.push((key, delivered_before));
                }
                Err(fault) if records.is_empty() => return Err(fault),
                Err(fault) => {
                    // Deliver the records before the fault first.
                    self.fetches.push_front(std::future::ready(Err(fault)).boxed());
                    return Ok(records);
                }
            }
            if records.len() >= room.rows {
                break;
            }
            self.fetch();
            next = self.fetches.next().now_or_never().flatten();
        }
        Ok(records)
    }

    fn rows(&mut self, records: Vec<Record>) -> Read {
        if self.caught_up == CaughtUp::Said {
            self.caught_up = CaughtUp::Outdated;
        }
        Read::Rows { partition: self.partition.clone(), records }
    }

    /// Returns the next records, as soon as there are any. Cancel-safe.
    ///
    /// # Errors
    /// Those of the requests, after retries.
    pub(super) async fn read(&mut self, room: Room) -> Result<Read, Fault> {
        loop {
            if let Some(record) = self.held.take() {
                return Ok(self.rows(vec![record]));
            }
            self.go_on();
            if let Some(read) = self.pending.pop_front() {
                if matches!(read, Read::CaughtUp) {
                    self.caught_up = CaughtUp::Said;
                }
                return Ok(read);
            }
            let permit = OptionFuture::from(self.waiting.as_mut());
            tokio::select! {
                biased;
                Some(outcome) = self.fetches.next(), if !self.fetches.is_empty() => {
                    let records = self.collect(outcome, room)?;
                    if !records.is_empty() {
                        return Ok(self.rows(records));
                    }
                }
                Some(()) = permit => {}
                turn = self.phase.turn() => match turn {
                    Turn::Rested => self.ask_clock(),
                    Turn::Clock(clock) => {
                        // A completed future must not be polled again.
                        self.phase = Phase::Rest(Instant::now());
                        self.begin(clock?);
                    }
                    Turn::Page(page) => self.take(page?)?,
                },
            }
        }
    }

    pub(super) fn partition(&self) -> &Partition {
        &self.partition
    }

    /// Returns the objects that the last sweep held back.
    pub(super) fn ahead(&self) -> &Ahead {
        &self.ahead
    }

    /// Returns the unread part. Counts only listed pages: the listing may be incomplete.
    pub(super) fn backlog(&self) -> Backlog {
        let waiting = self.finds.iter().filter_map(|find| find.version.as_ref());
        let listed: u64 = waiting.clone().map(|version| version.size).sum();
        let fetching = self.in_flight.iter().map(|object| object.size).fold(0, u64::saturating_add);
        let changed = waiting.map(|version| version.modified.seconds);
        let oldest = changed.chain(self.in_flight.iter().filter_map(|object| object.since)).min();
        let objects = self.finds.len() + self.fetches.len() + usize::from(self.held.is_some());
        Backlog {
            objects: Some((objects as u64).saturating_add(self.ahead.objects)),
            bytes: Some(listed.saturating_add(fetching).saturating_add(self.ahead.bytes)),
            since: oldest.and_then(moment),
            ahead: self.ahead.objects,
            ..Backlog::default()
        }
    }
}

/// Converts a second of the server's clock.
fn moment(second: i64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(second).ok()?))
}
