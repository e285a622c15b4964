//! The pipelines of a service, and what is known and asked of each.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use anabranch_graph::exec::Taps;
use anabranch_record::text::Str;
use tokio::sync::{Mutex as Gate, watch};

use super::lifecycle::{Order, Seen};
use crate::pipelines::Pipeline;
use crate::store::{Status, StopReason};

/// What a pipeline would run if it were started now.
#[derive(Clone)]
pub(super) enum Plan {
    /// This.
    Good(Arc<Pipeline>),
    /// Nothing: this is wrong with it.
    Invalid(Str),
    /// Nothing: it is being made, and lacks this.
    Incomplete(Str),
    /// Nothing yet: its plugins are being loaded, and then it is started.
    Loading,
}

/// One pipeline.
pub(super) struct Entry {
    pub(super) id: Str,
    /// Held by whoever starts, stops, changes or deletes it.
    pub(super) gate: Arc<Gate<()>>,
    pub(super) orders: watch::Sender<Order>,
    pub(super) seen: watch::Sender<Seen>,
    /// Where its records can be looked at, in all of its runs.
    pub(super) taps: Arc<Taps>,
    /// Whether its life has begun and not ended; the status may say earlier that it has.
    live: watch::Sender<bool>,
    /// Whether it is only tried out: what becomes of it concerns who tries, and not the service.
    on_trial: AtomicBool,
    plan: Mutex<Plan>,
}

impl Entry {
    pub(super) fn new(id: Str, plan: Plan, status: Status) -> Arc<Entry> {
        let status = match &plan {
            Plan::Good(_) | Plan::Incomplete(_) | Plan::Loading => status,
            Plan::Invalid(_) => Status::Invalid,
        };
        Arc::new(Entry {
            id,
            gate: Arc::default(),
            orders: watch::Sender::new(Order::Run),
            seen: watch::Sender::new(Seen::new(status)),
            taps: Arc::default(),
            live: watch::Sender::new(false),
            on_trial: AtomicBool::new(false),
            plan: Mutex::new(plan),
        })
    }

    pub(super) fn plan(&self) -> Plan {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces what is run by the next start.
    pub(super) fn set_plan(&self, plan: Plan) {
        if let Plan::Invalid(_) = plan {
            self.show(Status::Invalid);
        } else if self.seen.borrow().status == Status::Invalid {
            self.show(Status::Stopped { reason: StopReason::User });
        }
        *self.plan.lock().unwrap_or_else(PoisonError::into_inner) = plan;
    }

    /// Shows a status that is not of a life.
    pub(super) fn show(&self, status: Status) {
        self.seen.send_modify(|seen| {
            *seen = Seen { status, since: SystemTime::now(), retry: None, place: None, ..seen.clone() };
        });
    }

    pub(super) fn is_on_trial(&self) -> bool {
        self.on_trial.load(Ordering::Relaxed)
    }

    pub(super) fn set_on_trial(&self, on_trial: bool) {
        self.on_trial.store(on_trial, Ordering::Relaxed);
    }

    pub(super) fn is_live(&self) -> bool {
        *self.live.borrow()
    }

    pub(super) fn set_live(&self, live: bool) {
        self.live.send_replace(live);
    }

    /// Returns when its life has ended.
    pub(super) async fn stands(&self) {
        // The sender is in `self`: there is always another value to come.
        let _ = self.live.subscribe().wait_for(|live| !live).await;
    }

    /// Tells it to stop, if it was not told to stop as soon as that already. Who told it first stays the one who did.
    pub(super) fn stop(&self, order: Order) {
        self.orders.send_if_modified(|before| {
            let after = before.hastened(order);
            std::mem::replace(before, after) != after
        });
    }
}

/// How far the service is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Not everything that is to be started was.
    Starting,
    Serving,
    Stopping,
}

/// All pipelines by id.
pub(super) struct Roster {
    pub(super) entries: BTreeMap<Str, Arc<Entry>>,
    pub(super) phase: Phase,
}

impl Roster {
    /// Whether this is the pipeline of its id: not one that was deleted.
    pub(super) fn has(&self, entry: &Arc<Entry>) -> bool {
        self.entries.get(&entry.id).is_some_and(|known| Arc::ptr_eq(known, entry))
    }

    pub(super) fn empty() -> Mutex<Roster> {
        Mutex::new(Roster { entries: BTreeMap::new(), phase: Phase::Starting })
    }
}

/// A map and a word are whole even after a panic elsewhere.
pub(super) fn locked(roster: &Mutex<Roster>) -> MutexGuard<'_, Roster> {
    roster.lock().unwrap_or_else(PoisonError::into_inner)
}
