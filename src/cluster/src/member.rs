//! A node as a member of the cluster: renews its lease, takes and asks for units, and tells which units it has.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anabranch_plugin::state::Unit;
use anabranch_record::text::Str;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout};

use crate::balance::{Steps, steps};
use crate::lease::{Announcement, HeldUnit, History, LeaseError, LeaseStore, NodeId, Overview, View};
use crate::{ANSWER, SAFE, TICK};

/// The order to a node for one of its units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tenure {
    /// It runs the unit.
    Held,
    /// It delivers what it has read, stops the unit and releases it: another node has asked for it, or this node leaves.
    Wanted,
    /// It delivers what it has read, stops the unit and ends it: the pipeline is being stopped.
    Ending,
}

/// A unit of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The order to the node.
    pub tenure: Tenure,
    /// Number of units of the pipeline.
    pub of: u32,
    /// Differs each time the node gets the unit: between two numbers, another node may have had it.
    pub number: u64,
}

/// The view that a node has of itself in the cluster. The node must not run a unit that is missing in `units`.
#[derive(Clone, Debug)]
pub struct Standing {
    /// Its id; `None` while it has not joined.
    pub id: Option<NodeId>,
    /// Its units.
    pub units: BTreeMap<Unit, Hold>,
    /// Number of the latest change of the stored configuration.
    pub revision: u64,
    /// Why the node has no units although it may have had some; `None` while it is a member.
    pub lost: Option<String>,
    /// From this moment on, `units` no longer holds.
    until: Instant,
}

/// The stored configuration at one moment, as a node sees it.
///
/// A server that takes over may lack the latest changes, and give their numbers to others. A node that is a member of the
/// cluster in the history of that server has another id: so numbers are compared only with the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigurationRevision {
    id: NodeId,
    number: u64,
}

impl ConfigurationRevision {
    /// Returns `true` if a node that has read this configuration knows everything of the other one.
    pub fn covers(self, other: ConfigurationRevision) -> bool {
        self.id == other.id && self.number >= other.number
    }
}

impl Standing {
    /// Returns the configuration that the node has to read; `None` while it is not a member.
    pub fn configuration(&self) -> Option<ConfigurationRevision> {
        self.id.map(|id| ConfigurationRevision { id, number: self.revision })
    }

    fn outside(lost: Option<String>) -> Standing {
        Standing { id: None, units: BTreeMap::new(), revision: 0, lost, until: Instant::now() }
    }
}

/// A handle of the membership; clones share it.
#[derive(Clone)]
pub struct Membership {
    orders: mpsc::UnboundedSender<Order>,
    standing: watch::Receiver<Standing>,
    store: Arc<dyn LeaseStore>,
    name: Str,
    labels: Vec<Str>,
}

/// Has a node renew its lease, as long as the node has another handle.
pub struct Looker(mpsc::WeakUnboundedSender<Order>);

impl Looker {
    /// Does what [`Membership::look`] does.
    pub fn look(&self) {
        if let Some(orders) = self.0.upgrade() {
            // Nobody receives it if the member has ended.
            let _ = orders.send(Order::Look);
        }
    }
}

enum Order {
    Release(Unit),
    End(Unit),
    Drain,
    Look,
    Leave(oneshot::Sender<()>),
}

impl Membership {
    /// Returns a receiver of what this node knows; it changes with the units and the revision.
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.clone()
    }

    /// Returns what the node has to do with a unit now; `None` if the unit must not run here. Correct also if the task of
    /// the member was not scheduled for long.
    pub fn tenure(&self, unit: &Unit) -> Option<Tenure> {
        let standing = self.standing.borrow();
        if Instant::now() < standing.until { standing.units.get(unit).map(|hold| hold.tenure) } else { None }
    }

    /// Returns the name of this node.
    pub fn name(&self) -> &Str {
        &self.name
    }

    /// Returns `true` if this node may run units with this label; empty = without one.
    pub fn takes(&self, label: &str) -> bool {
        label.is_empty() || self.labels.iter().any(|own| *own == *label)
    }

    /// Returns the nodes of the cluster and its units, those of one pipeline or all.
    ///
    /// # Errors
    /// The store is unavailable.
    pub async fn overview(&self, pipeline: Option<&str>) -> Result<Overview, LeaseError> {
        answered(ANSWER, self.store.overview(pipeline)).await
    }

    /// Gives a unit away, whose run has ended.
    pub fn release(&self, unit: Unit) {
        self.order(Order::Release(unit));
    }

    /// Removes a unit whose run has ended because its pipeline is being stopped.
    pub fn end(&self, unit: Unit) {
        self.order(Order::End(unit));
    }

    /// Renews the lease now, so that a change of the store is known soon.
    pub fn look(&self) {
        self.order(Order::Look);
    }

    /// Returns a handle that has the node renew its lease now, and does not keep it a member.
    pub fn looker(&self) -> Looker {
        Looker(self.orders.downgrade())
    }

    /// Has the node give all its units away, one by one as they are released, and take no more.
    pub fn drain(&self) {
        self.order(Order::Drain);
    }

    /// Leaves the cluster. Units that were not released are free at once: their runs must have ended. Waits for the store
    /// for at most two times [`ANSWER`].
    pub async fn leave(&self) {
        let (done, is_done) = oneshot::channel();
        self.order(Order::Leave(done));
        let _ = timeout(ANSWER * 2, is_done).await;
    }

    fn order(&self, order: Order) {
        // If the member has ended, nothing is left to do.
        let _ = self.orders.send(order);
    }
}

/// The task of a member.
pub struct Member {
    store: Arc<dyn LeaseStore>,
    announcement: Announcement,
    orders: mpsc::UnboundedReceiver<Order>,
    tell: Arc<watch::Sender<Standing>>,
    id: Option<NodeId>,
    history: Option<History>,
    /// When the last successful renewal was sent.
    renewed: Instant,
    /// Units that are released or ended, until the store has confirmed it; true for those that end.
    releasing: BTreeMap<Unit, bool>,
    is_leaving: bool,
    /// Number of the next unit that this node gets.
    next: u64,
}

impl Member {
    /// Creates a member that has not joined, and its handle.
    pub fn new(store: Arc<dyn LeaseStore>, announcement: Announcement) -> (Member, Membership) {
        let (orders, to_do) = mpsc::unbounded_channel();
        let (name, labels) = (announcement.name.clone(), announcement.labels.clone());
        let (tell, standing) = watch::channel(Standing::outside(None));
        let member = Member {
            store: store.clone(),
            announcement,
            orders: to_do,
            tell: Arc::new(tell),
            id: None,
            history: None,
            renewed: Instant::now(),
            releasing: BTreeMap::new(),
            is_leaving: false,
            next: 0,
        };
        (member, Membership { orders, standing, store, name, labels })
    }

    /// Joins, and stays a member until it is ordered to leave or all handles are gone.
    pub async fn live(mut self) {
        let tell = self.tell.clone();
        tokio::select! {
            biased;
            () = watch_deadline(&tell) => {}
            () = self.follow_orders() => {}
        }
    }

    async fn follow_orders(&mut self) {
        let mut next = Instant::now();
        loop {
            tokio::select! {
                biased;
                order = self.orders.recv() => match order {
                    Some(Order::Release(unit)) => self.give_away(unit, false).await,
                    Some(Order::End(unit)) => self.give_away(unit, true).await,
                    Some(Order::Drain) => {
                        self.is_leaving = true;
                        next = Instant::now();
                    }
                    Some(Order::Look) => next = Instant::now(),
                    Some(Order::Leave(done)) => {
                        self.leave().await;
                        let _ = done.send(());
                        return;
                    }
                    None => return self.leave().await,
                },
                () = sleep_until(next) => {
                    let begun = Instant::now();
                    let took = self.tick().await;
                    // The node renews again at once, because only a view tells which units it took.
                    next = if took { Instant::now() } else { begun + TICK };
                }
            }
        }
    }

    /// Renews the lease and balances. Returns `true` if units may have been taken.
    async fn tick(&mut self) -> bool {
        let Some(id) = self.joined().await else { return false };
        let sent = Instant::now();
        let renewed = answered(ANSWER, self.store.renew(id, self.is_leaving)).await;
        let view = match renewed {
            Ok(view) => view,
            Err(LeaseError::Over) => {
                tracing::warn!("the lease of this node is over: it joins the cluster again");
                self.give_up("the lease of this node is over");
                self.id = None;
                return true;
            }
            Err(LeaseError::Unavailable(why)) => {
                tracing::debug!(why, "the lease of this node is not renewed");
                return false;
            }
        };
        if self.history.as_ref().is_some_and(|known| *known != view.history) {
            tracing::warn!(
                "the state store is another server now, which may have lost the latest leases: this node joins the \
                 cluster again"
            );
            self.give_up("the state store is another server now");
            // Best effort: the new server may not know this node.
            let _ = answered(ANSWER, self.store.leave(id)).await;
            (self.id, self.history) = (None, None);
            return true;
        }
        self.history = Some(view.history.clone());
        self.renewed = sent;
        self.show(id, &view);
        self.release().await;
        let Steps { take, ask } = steps(id, &view);
        if let Some((of, count)) = ask {
            self.note(&answered(ANSWER, self.store.ask(id, of, count)).await);
        }
        if take == 0 {
            return false;
        }
        let taken = answered(ANSWER, self.store.take(id, take)).await;
        self.note(&taken) && taken.is_ok_and(|taken| taken > 0)
    }

    /// Returns the id of this node; joins if it is no member.
    async fn joined(&mut self) -> Option<NodeId> {
        if self.id.is_none() && !self.is_leaving {
            let sent = Instant::now();
            match answered(ANSWER, self.store.join(&self.announcement)).await {
                Ok(id) => {
                    self.id = Some(id);
                    self.renewed = sent;
                    self.releasing.clear();
                }
                Err(error) => {
                    tracing::debug!(%error, "this node could not join the cluster");
                    self.tell.send_if_modified(|standing| {
                        let differs = standing.lost.is_none();
                        standing.lost.get_or_insert_with(|| format!("this node could not join the cluster: {error}"));
                        differs
                    });
                }
            }
        }
        self.id
    }

    /// Publishes the units of a view.
    fn show(&mut self, id: NodeId, view: &View) {
        let (is_leaving, releasing, next) = (self.is_leaving, &self.releasing, &mut self.next);
        let until = self.renewed + SAFE;
        self.tell.send_if_modified(|standing| {
            let held = view.held.iter().filter(|held| !releasing.contains_key(&held.unit));
            let hold = |held: &HeldUnit| {
                let tenure = match held.is_ending {
                    true => Tenure::Ending,
                    false if held.is_wanted || is_leaving => Tenure::Wanted,
                    false => Tenure::Held,
                };
                let number = standing.units.get(&held.unit).map_or_else(
                    || {
                        *next += 1;
                        *next
                    },
                    |known| known.number,
                );
                (held.unit.clone(), Hold { tenure, of: held.of, number })
            };
            let units: BTreeMap<Unit, Hold> = held.map(hold).collect();
            let differs = (standing.id, &standing.units, standing.revision, &standing.lost)
                != (Some(id), &units, view.revision, &None);
            *standing = Standing { id: Some(id), units, revision: view.revision, lost: None, until };
            differs
        });
    }

    /// Tells that this node has no units any more.
    fn give_up(&self, why: &str) {
        lose(&self.tell, why);
    }

    /// Removes the units that this node releases from those that it shows.
    fn forget_released(&self) {
        self.tell.send_if_modified(|standing| {
            let before = standing.units.len();
            standing.units.retain(|unit, _| !self.releasing.contains_key(unit));
            standing.units.len() != before
        });
    }

    /// Gives a unit away whose run has ended.
    async fn give_away(&mut self, unit: Unit, ends: bool) {
        self.releasing.insert(unit, ends);
        self.forget_released();
        self.release().await;
    }

    /// Releases and ends what has to be; what fails is tried again at the next tick.
    async fn release(&mut self) {
        let Some(id) = self.id else {
            self.releasing.clear();
            return;
        };
        while let Some((unit, ends)) = self.releasing.first_key_value().map(|(unit, ends)| (unit.clone(), *ends)) {
            let done = match ends {
                true => answered(ANSWER, self.store.end(id, &unit)).await,
                false => answered(ANSWER, self.store.release(id, &unit)).await,
            };
            if !self.note(&done) {
                return;
            }
            self.releasing.remove(&unit);
        }
    }

    async fn leave(&mut self) {
        self.give_up("this node has left the cluster");
        if let Some(id) = self.id.take() {
            self.note(&answered(ANSWER, self.store.leave(id)).await);
        }
    }

    /// Logs a failure, which the next tick finds out about. Returns `true` if there was none.
    fn note<T>(&self, done: &Result<T, LeaseError>) -> bool {
        if let Err(error) = done {
            tracing::debug!(%error, "the state store did not change the units of this node");
        }
        done.is_ok()
    }
}

/// Gives all units up when the last renewal is too long ago, whatever the store does meanwhile. Never returns.
async fn watch_deadline(tell: &watch::Sender<Standing>) {
    let mut standing = tell.subscribe();
    loop {
        let until = standing.borrow_and_update().until;
        if Instant::now() < until {
            sleep_until(until).await;
            continue;
        }
        if !standing.borrow().units.is_empty() {
            lose(tell, "the state store has not confirmed the lease of this node in time");
        }
        // The sender is borrowed here, so the channel stays open.
        let _ = standing.changed().await;
    }
}

fn lose(tell: &watch::Sender<Standing>, why: &str) {
    tell.send_modify(|standing| {
        let revision = standing.revision;
        *standing = Standing { revision, ..Standing::outside(Some(why.to_owned())) };
    });
}

/// Waits for the store, up to the limit.
async fn answered<T>(limit: Duration, asked: impl Future<Output = Result<T, LeaseError>>) -> Result<T, LeaseError> {
    match timeout(limit, asked).await {
        Ok(answer) => answer,
        Err(_) => Err(LeaseError::Unavailable(format!("no answer in {} s", limit.as_secs_f32()))),
    }
}

#[cfg(test)]
mod tests;
