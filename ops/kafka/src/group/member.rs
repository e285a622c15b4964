//! A member of a group of the classic protocol.
//!
//! A task joins the group, sends heartbeats and takes part in rebalances, whatever the pipeline does. With the protocol
//! `cooperative-sticky`, partitions that stay are not touched. With `range`, which a group uses if another member supports
//! nothing else, all partitions are given up before each rebalance. Sources: KIP-429, KIP-345, KIP-394, and the requests
//! JoinGroup, SyncGroup, Heartbeat, OffsetCommit and LeaveGroup of the protocol.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::text::Str;
use async_trait::async_trait;
use krafka::__private::protocol as wire;
use krafka::error::ErrorCode;
use krafka::{Kafka, KrafkaError};
use tokio::sync::{Notify, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use wire::ApiKey;

use super::coordinator::{ANSWER, Api, Coordinator, is_of_coordinator};
use super::rebalance::Rebalanced;
use super::topics::Subscription;
use super::{Change, Committed, Membership, Tenure, TopicPartition};
use crate::codes;
use crate::fault::{Doing, answered, refused};

pub(super) const HEARTBEAT: Api = Api(ApiKey::Heartbeat, 3, 4);
const LEAVE: Api = Api(ApiKey::LeaveGroup, 3, 5);

/// Maximum time between two heartbeats.
const BEAT: Duration = Duration::from_secs(3);
/// Maximum time for which a member that leaves waits for its id.
const NAMED: Duration = Duration::from_secs(2);
/// Shortest and longest pause before a repetition.
pub(super) const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Time after a change of the coordinator within which a fence may be a mistake, and how many of them may be.
const MISTAKEN: (Duration, usize) = (Duration::from_secs(60), 3);

/// Settings of a member.
#[derive(Clone, Debug)]
pub(crate) struct GroupSettings {
    /// Id of the group.
    pub(crate) group: Str,
    /// Static id of the member.
    pub(crate) instance: Option<Str>,
    /// Time without a heartbeat after which the coordinator gives the partitions to others.
    pub(crate) session: Duration,
    /// Time for which a rebalance waits for its members.
    pub(crate) rebalance: Duration,
    /// The topics.
    pub(crate) subscription: Subscription,
    /// True if the member retries transient errors for ever.
    pub(crate) retry_errors: bool,
}

/// Joins a group. The result has no partitions yet: [`Membership::change`] reports them.
pub(crate) fn join(kafka: Kafka, settings: GroupSettings) -> Arc<dyn Membership> {
    begin(kafka, settings, Group::run)
}

/// Begins the task of a member.
pub(super) fn begin<F: Future<Output = ()> + Send + 'static>(
    kafka: Kafka,
    settings: GroupSettings,
    run: impl FnOnce(Arc<Group>) -> F,
) -> Arc<dyn Membership> {
    let (sender, changes) = mpsc::unbounded_channel();
    let group = Arc::new(Group {
        coordinator: Coordinator::new(kafka.clone(), settings.group.clone()),
        kafka,
        settings,
        state: Mutex::new(State::new()),
        given_up: Notify::new(),
        named: Notify::new(),
        sender,
    });
    let mut tasks = JoinSet::new();
    let task = tasks.spawn(run(group.clone()));
    Arc::new(ClassicMember { group, reports: tokio::sync::Mutex::new(Reports { changes, tasks }), task })
}

struct ClassicMember {
    group: Arc<Group>,
    reports: tokio::sync::Mutex<Reports>,
    task: AbortHandle,
}

/// The task, and the channel of its reports.
struct Reports {
    changes: mpsc::UnboundedReceiver<Result<Change, Fault>>,
    tasks: JoinSet<()>,
}

impl Drop for ClassicMember {
    /// Leaves the group, if nobody has done so: otherwise, others would wait until the session is over.
    fn drop(&mut self) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            self.reports.get_mut().tasks.detach_all();
            let (group, task) = (self.group.clone(), self.task.clone());
            runtime.spawn(async move { group.leave(&task).await });
        }
    }
}

pub(super) struct Group {
    pub(super) kafka: Kafka,
    pub(super) settings: GroupSettings,
    pub(super) coordinator: Coordinator,
    state: Mutex<State>,
    /// Notified when a revoked partition was let go.
    given_up: Notify,
    /// Notified when the coordinator has given this member an id.
    pub(super) named: Notify,
    sender: mpsc::UnboundedSender<Result<Change, Fault>>,
}

pub(super) struct State {
    pub(super) member: String,
    /// True while the coordinator is asked for an id.
    pub(super) naming: bool,
    /// True if the member has left or is about to.
    pub(super) left: bool,
    pub(super) generation: i32,
    /// True if the last rebalance used a protocol in which members give up everything before the next one.
    eager: bool,
    pub(super) owned: BTreeMap<TopicPartition, Tenure>,
    tenures: u64,
    /// Revoked partitions that are not let go yet. They are owned too.
    leaving: BTreeSet<TopicPartition>,
    /// The topics of the last join.
    pub(super) topics: BTreeSet<String>,
    /// Time of the last request to which the coordinator answered that this is a member.
    pub(super) beat: Instant,
}

impl State {
    fn new() -> State {
        State {
            member: String::new(),
            naming: false,
            left: false,
            generation: -1,
            eager: false,
            owned: BTreeMap::new(),
            tenures: 0,
            leaving: BTreeSet::new(),
            topics: BTreeSet::new(),
            beat: Instant::now(),
        }
    }
}

/// The end of a session of a member.
pub(super) enum Ended {
    /// The group rebalances.
    Rejoin,
    /// The coordinator does not know the member any more: it owns nothing.
    Expelled,
    /// The group is in a later generation, in which the member owns nothing.
    Outdated,
    /// The coordinator cannot be asked.
    Failed(KrafkaError),
    /// Another process has the static id of this one.
    Fenced,
}

impl Group {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn report(&self, change: Change) {
        let _ = self.sender.send(Ok(change));
    }

    pub(super) fn report_fault(&self, fault: Fault) {
        let _ = self.sender.send(Err(fault));
    }

    async fn run(self: Arc<Self>) {
        let mut pause = PAUSE.0;
        let mut fenced: Vec<Instant> = Vec::new();
        loop {
            match self.session(&mut pause).await {
                Ok(()) | Err(Ended::Rejoin) => {}
                Err(ended @ (Ended::Expelled | Ended::Outdated)) => {
                    tracing::debug!(group = %self.settings.group, "the session is over: joining again");
                    self.lose();
                    // A member that the coordinator knows keeps its id: it would wait for one that never joins again.
                    if matches!(ended, Ended::Expelled) {
                        self.state().member.clear();
                    }
                }
                // A coordinator that has just taken over may know an earlier id of this member, whose newer one was lost with
                // its predecessor. A member that joins with its static id alone replaces any earlier one.
                Err(Ended::Fenced) if self.may_be_mistaken(&mut fenced) => {
                    tracing::debug!(group = %self.settings.group, "the new coordinator knows another id: joining again");
                    self.lose();
                    self.state().member.clear();
                }
                Err(Ended::Fenced) => {
                    self.lose();
                    let text = format!(
                        "another member of the consumer group {} has the static id {}",
                        self.settings.group,
                        self.settings.instance.as_deref().unwrap_or_default()
                    );
                    self.report_fault(Fault::fatal(codes::MEMBER_FENCED, text));
                    return;
                }
                Err(Ended::Failed(error)) => {
                    self.expire();
                    let fault = self.fault(error);
                    if fault.class() != FaultClass::Transient || !self.settings.retry_errors {
                        self.report_fault(fault);
                        return;
                    }
                    tracing::debug!(group = %self.settings.group, "{}", fault.message());
                    sleep(pause.mul_f64(fastrand::f64().mul_add(0.5, 0.75))).await;
                    pause = (pause * 2).min(PAUSE.1);
                }
            }
        }
    }

    /// Returns `true` if the coordinator changed within the last minute, so that it may have fenced this member by mistake. At
    /// most three fences per minute count as mistakes, so that two members with the same static id do not replace each other
    /// endlessly.
    fn may_be_mistaken(&self, fenced: &mut Vec<Instant>) -> bool {
        fenced.retain(|time| time.elapsed() < MISTAKEN.0);
        fenced.push(Instant::now());
        fenced.len() <= MISTAKEN.1 && self.coordinator.was_lost_within(MISTAKEN.0)
    }

    pub(super) fn fault(&self, error: KrafkaError) -> Fault {
        let doing = Doing::Group(&self.settings.group);
        let message = match &error {
            KrafkaError::Broker { code: ErrorCode::InvalidSessionTimeout, .. } => {
                "sessionTimeout must be between group.min.session.timeout.ms and group.max.session.timeout.ms of the broker"
            }
            KrafkaError::Broker { code: ErrorCode::InconsistentGroupProtocol, .. } => {
                "its members support neither the assignor cooperative-sticky nor range, or they are not consumers"
            }
            _ => return refused(&doing, error),
        };
        answered(&doing, ErrorCode::InvalidRequest, message)
    }

    /// Reports all partitions as lost.
    fn lose(&self) {
        let mut state = self.state();
        state.generation = -1;
        state.leaving.clear();
        let lost: Vec<TopicPartition> = std::mem::take(&mut state.owned).into_keys().collect();
        if !lost.is_empty() {
            // Reported under the lock, so that no commit of a lost partition is sent after it.
            self.report(Change::Lost(lost));
        }
    }

    fn is_expired(&self) -> bool {
        self.state().beat.elapsed() > self.settings.session
    }

    /// Reports all partitions as lost if the session is over: others may own them.
    fn expire(&self) {
        let owns = !self.state().owned.is_empty();
        if owns && self.is_expired() {
            self.lose();
        }
    }

    /// Joins, and stays in the group until something happens.
    async fn session(&self, pause: &mut Duration) -> Result<(), Ended> {
        self.expire();
        let all = {
            let state = self.state();
            if state.eager { state.owned.keys().cloned().collect() } else { BTreeSet::new() }
        };
        self.give_up(all).await?;
        let rebalanced = self.rebalance().await?;
        *pause = PAUSE.0;
        let removed = self.take_over(&rebalanced);
        if !removed.is_empty() {
            return self.give_up(removed).await;
        }
        self.report(Change::Settled);
        self.stay(&rebalanced).await
    }

    /// Takes over the assigned partitions, and returns those to give up.
    pub(super) fn take_over(&self, Rebalanced { assigned, eager, .. }: &Rebalanced) -> BTreeSet<TopicPartition> {
        let mut state = self.state();
        state.eager = *eager;
        let removed: BTreeSet<_> = state.owned.keys().filter(|at| !assigned.contains(*at)).cloned().collect();
        let new: Vec<_> = assigned.iter().filter(|at| !state.owned.contains_key(*at)).cloned().collect();
        let mut added = Vec::new();
        for at in new {
            state.tenures += 1;
            let tenure = Tenure(state.tenures);
            state.owned.insert(at.clone(), tenure);
            added.push((at, tenure));
        }
        // Under the lock, so that changes are in order with those of `lose`.
        if *eager && !removed.is_empty() {
            // The protocol changed during the rebalance: others own them already.
            state.owned.retain(|at, _| !removed.contains(at));
            self.report(Change::Lost(removed.iter().cloned().collect()));
        }
        if !added.is_empty() {
            self.report(Change::Assigned(added));
        }
        if *eager { BTreeSet::new() } else { removed }
    }

    /// Revokes partitions and waits until they are let go, or the group no longer waits.
    async fn give_up(&self, partitions: BTreeSet<TopicPartition>) -> Result<(), Ended> {
        if partitions.is_empty() {
            return Ok(());
        }
        // The time of a rebalance also covers the join that follows.
        let within = (self.settings.rebalance / 2).min(Duration::from_secs(30));
        let until = Instant::now() + within;
        self.state().leaving.clone_from(&partitions);
        self.report(Change::Revoked { partitions: partitions.iter().cloned().collect(), within });
        loop {
            let released = self.given_up.notified();
            if self.state().leaving.is_empty() || Instant::now() >= until {
                break;
            }
            tokio::select! {
                () = released => {}
                beaten = self.next_heartbeat() => match beaten {
                    Ok(()) | Err(Ended::Rejoin) => {}
                    Err(Ended::Failed(_)) if !self.is_expired() => {}
                    Err(ended) => return Err(ended),
                },
                () = sleep_until(until) => {}
            }
        }
        let mut state = self.state();
        let late: Vec<TopicPartition> = std::mem::take(&mut state.leaving).into_iter().collect();
        state.owned.retain(|partition, _| !partitions.contains(partition));
        if !late.is_empty() {
            tracing::warn!(
                group = %self.settings.group,
                "{} partitions were not released in time; the next owner reads records of them again", late.len()
            );
            self.report(Change::Lost(late));
        }
        Ok(())
    }

    /// Sends heartbeats until the group rebalances, or topics change.
    async fn stay(&self, rebalanced: &Rebalanced) -> Result<(), Ended> {
        let mut changed = pin!(self.topics_changed(rebalanced));
        loop {
            tokio::select! {
                beaten = self.next_heartbeat() => match beaten {
                    // The coordinator may have moved; the session lasts until its time is over.
                    Err(Ended::Failed(_)) if !self.is_expired() => {}
                    beaten => beaten?,
                },
                () = &mut changed => return Ok(()),
            }
        }
    }

    /// Sends a heartbeat when it is time for the next one.
    async fn next_heartbeat(&self) -> Result<(), Ended> {
        self.time_of_heartbeat().await;
        let code = self.heartbeat().await.map_err(Ended::Failed)?;
        self.judge(code)
    }

    async fn time_of_heartbeat(&self) {
        sleep((self.settings.session / 15).min(BEAT)).await;
    }

    async fn heartbeat(&self) -> krafka::Result<ErrorCode> {
        let (member_id, generation_id) = {
            let state = self.state();
            (state.member.clone(), state.generation)
        };
        let request = wire::HeartbeatRequest {
            group_id: self.settings.group.to_string(),
            generation_id,
            member_id,
            group_instance_id: self.settings.instance.as_ref().map(Str::to_string),
        };
        let asked = Instant::now();
        // A coordinator that does not answer may have moved, and the session is not over yet.
        let wait = (self.settings.session / 3).min(ANSWER);
        let answer: wire::HeartbeatResponse = self.coordinator.ask(HEARTBEAT, &request, wait).await?;
        if matches!(answer.error_code, ErrorCode::None | ErrorCode::RebalanceInProgress) {
            self.state().beat = asked;
        }
        Ok(answer.error_code)
    }

    /// Waits for an answer that the coordinator holds back during a rebalance, which may take as long as its slowest member.
    /// Meanwhile, heartbeats show whether the coordinator is there and knows this member.
    pub(super) async fn held<A>(&self, asked: impl Future<Output = krafka::Result<A>>) -> Result<A, Ended> {
        let mut asked = pin!(asked);
        loop {
            let beaten = async {
                self.time_of_heartbeat().await;
                self.heartbeat().await
            };
            let is_named = !self.state().member.is_empty();
            let beaten = tokio::select! {
                biased;
                answer = &mut asked => return answer.map_err(Ended::Failed),
                beaten = beaten, if is_named => beaten,
            };
            match beaten {
                Ok(ErrorCode::None | ErrorCode::RebalanceInProgress) => {}
                // The member has not joined yet, or it waits for the answer.
                Ok(ErrorCode::IllegalGeneration) => self.state().beat = Instant::now(),
                Ok(ErrorCode::UnknownMemberId) => return Err(Ended::Expelled),
                Ok(ErrorCode::FencedInstanceId) => return Err(Ended::Fenced),
                // The answer is lost if its coordinator is.
                Err(error) if self.state().beat.elapsed() > self.settings.session / 2 => {
                    return Err(Ended::Failed(error));
                }
                Ok(code) if self.state().beat.elapsed() > self.settings.session / 2 => {
                    return self.judge(code).and(Err(Ended::Rejoin));
                }
                Ok(_) | Err(_) => {}
            }
        }
    }

    /// Returns how the session ends with this answer, if it does.
    pub(super) fn judge(&self, code: ErrorCode) -> Result<(), Ended> {
        match code {
            ErrorCode::None => Ok(()),
            ErrorCode::RebalanceInProgress => Err(Ended::Rejoin),
            ErrorCode::UnknownMemberId => Err(Ended::Expelled),
            ErrorCode::IllegalGeneration => Err(Ended::Outdated),
            ErrorCode::FencedInstanceId => Err(Ended::Fenced),
            code => {
                if is_of_coordinator(code) {
                    self.coordinator.forget();
                }
                Err(Ended::Failed(KrafkaError::broker(code, "")))
            }
        }
    }

    /// Ends the task and leaves the group. A static member stays until its session is over.
    async fn leave(&self, task: &AbortHandle) {
        let named = self.named.notified();
        let is_naming = {
            let mut state = self.state();
            state.left = true;
            state.naming
        };
        if is_naming {
            // A rebalance waits for a member that has an id until its session is over, also if it never learns its id.
            let _ = timeout(NAMED, named).await;
        }
        task.abort();
        let member = {
            let mut state = self.state();
            state.owned.clear();
            state.leaving.clear();
            std::mem::take(&mut state.member)
        };
        if member.is_empty() || self.settings.instance.is_some() {
            return;
        }
        let request = wire::LeaveGroupRequest {
            group_id: self.settings.group.to_string(),
            member_id: member.clone(),
            members: vec![wire::LeaveGroupMember { member_id: member, group_instance_id: None, reason: None }],
        };
        // Without an answer, the session ends by itself.
        let _ = self.coordinator.ask::<_, wire::LeaveGroupResponse>(LEAVE, &request, ANSWER).await;
    }
}

#[async_trait]
impl Membership for ClassicMember {
    async fn change(&self) -> Result<Change, Fault> {
        let mut reports = self.reports.lock().await;
        let Reports { changes, tasks } = &mut *reports;
        loop {
            tokio::select! {
                biased;
                Some(change) = changes.recv() => return change,
                Some(ended) = tasks.join_next() => {
                    if let Err(error) = ended
                        && let Ok(panic) = error.try_into_panic()
                    {
                        std::panic::resume_unwind(panic);
                    }
                }
                // The task has ended after its last report.
                else => std::future::pending().await,
            }
        }
    }

    async fn committed(&self, partitions: &[TopicPartition]) -> Result<BTreeMap<TopicPartition, Committed>, Fault> {
        self.group.committed(partitions).await
    }

    async fn commit(
        &self,
        offsets: &[(TopicPartition, Tenure, Committed)],
        patience: Duration,
    ) -> Result<Vec<TopicPartition>, Fault> {
        let until = Instant::now() + patience;
        let mut left = offsets.iter().map(|(at, tenure, offset)| (at.clone(), (*tenure, offset.clone()))).collect();
        let mut pause = PAUSE.0;
        loop {
            left = self.group.commit_once(&left).await?;
            if left.is_empty() || Instant::now() + pause > until {
                return Ok(left.into_keys().collect());
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    fn let_go(&self, partition: &TopicPartition) {
        let mut state = self.group.state();
        if state.leaving.remove(partition) {
            state.owned.remove(partition);
            self.group.given_up.notify_waiters();
        }
    }

    async fn leave(&self) {
        self.group.leave(&self.task).await;
    }
}
