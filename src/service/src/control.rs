//! Requests to the running service.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anabranch_graph::exec::{RequestError, RunOptions, Taps};
use anabranch_graph::plan::CompileOptions;
use anabranch_plugin::registry::Registry;
use anabranch_plugin::schema::SchemaRegistry;
use anabranch_plugin::source::Request;
use anabranch_plugin::state::StoreError;
use anabranch_process::log::Log;
use anabranch_process::runtime::TEXTS;
use anabranch_record::code::Code;
use anabranch_record::text::Str;
use anabranch_settings::RecoveryPolicy;
use anabranch_store::{Status, StopReason, Store};
use futures::future::Either;
use tokio::runtime::Handle;
use tokio::sync::{OwnedMutexGuard, Semaphore, mpsc, watch};
use tokio::time::timeout;

use crate::codes;
use crate::lifecycle::{LifecycleCommand, LifecycleState, PipelineLifecycle, PipelineOutcome, Renewal};
use crate::pipeline::{Pipeline, ReloadError};
use crate::pipeline_table::{NextStart, Phase, PipelineEntry, PipelineTable, locked};
use crate::tasks::{Job, JobResult, Task};
use crate::traces::{Exporter, SpanCounts};

/// How long a request waits for a pipeline that another request holds.
const BUSY: Duration = Duration::from_secs(20);

/// How long a source may take to store a request.
const PATIENCE: Duration = Duration::from_secs(15);

/// Reason why a request changed nothing.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The pipeline does not exist.
    #[error("there is no pipeline {0:?}")]
    NotFound(Str),
    /// The pipeline runs.
    #[error("pipeline {0} runs")]
    Running(Str),
    /// The pipeline does not run.
    #[error("pipeline {0} does not run")]
    NotRunning(Str),
    /// Another node of the cluster runs the pipeline.
    #[error("another node of the cluster runs pipeline {0}")]
    Elsewhere(Str),
    /// The pipeline is already stopping.
    #[error("pipeline {0} is stopping")]
    Stopping(Str),
    /// The configuration of the pipeline has errors.
    #[error("pipeline {id} cannot be started: {what}")]
    Invalid {
        /// The pipeline.
        id: Str,
        /// The first error.
        what: Str,
    },
    /// The plugins of the pipeline are still being loaded.
    #[error("the plugins of pipeline {0} are still being loaded; it starts after that")]
    Loading(Str),
    /// Another request is changing the pipeline.
    #[error("another request is changing pipeline {0}")]
    Busy(Str),
    /// The pipeline has no source with this id, and these.
    #[error("pipeline {pipeline} has no source {source_id:?}; its sources are {}", .sources.join(", "))]
    NoSource {
        /// The pipeline.
        pipeline: Str,
        /// The id.
        source_id: Str,
        /// Ids of its sources.
        sources: Vec<String>,
    },
    /// The source does not take the request: the code and the text of the reason.
    #[error("{1}")]
    Refused(Code, String),
    /// The source did not take the request in time.
    #[error("the source did not store the request within {} s, because the pipeline is busy; it may do so later", PATIENCE.as_secs())]
    Late,
    /// The service is stopping.
    #[error("the service is stopping")]
    ServiceStopping,
    /// The state store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ControlError {
    /// Returns the stable code of the error.
    pub fn code(&self) -> Code {
        match self {
            ControlError::NotFound(_) => codes::PIPELINE_NOT_FOUND,
            ControlError::Running(_) => codes::PIPELINE_RUNNING,
            ControlError::NotRunning(_) => codes::PIPELINE_NOT_RUNNING,
            ControlError::Elsewhere(_) => codes::PIPELINE_ELSEWHERE,
            ControlError::Stopping(_) => codes::PIPELINE_STOPPING,
            ControlError::Invalid { .. } => codes::PIPELINE_INVALID,
            ControlError::Loading(_) => codes::PIPELINE_LOADING,
            ControlError::Busy(_) => codes::PIPELINE_BUSY,
            ControlError::NoSource { .. } => codes::PIPELINE_NO_SOURCE,
            ControlError::Refused(code, _) => *code,
            ControlError::Late => codes::PIPELINE_REQUEST_LATE,
            ControlError::ServiceStopping => codes::SERVICE_STOPPING,
            ControlError::Store(_) => codes::STORE_UNAVAILABLE,
        }
    }

    /// Returns the remedy, if there is one.
    pub fn suggestion(&self) -> Option<&'static str> {
        match self {
            ControlError::Running(_) => Some("stop the pipeline first"),
            ControlError::Stopping(_) => Some(
                "wait until it has delivered the records in flight, or stop it with `force`: undelivered records are \
                 read again",
            ),
            ControlError::Invalid { .. } => Some("`anabranch pipelines validate` shows all errors in files"),
            ControlError::Busy(_) => Some("try again in a moment"),
            ControlError::NotRunning(_) => Some("start the pipeline first"),
            ControlError::Elsewhere(_) => Some("send the request to the node that runs the pipeline"),
            ControlError::NotFound(_)
            | ControlError::NoSource { .. }
            | ControlError::Refused(..)
            | ControlError::Late
            | ControlError::Loading(_)
            | ControlError::ServiceStopping
            | ControlError::Store(_) => None,
        }
    }
}

/// State that all pipelines of the service share.
pub(super) struct Shared {
    pub(super) store: Store,
    pub(super) registry: Registry,
    pub(super) compile: CompileOptions,
    pub(super) schemas: Arc<dyn SchemaRegistry>,
    pub(super) log: Arc<Log>,
    pub(super) executor: Handle,
    pub(super) opening: Arc<Semaphore>,
    pub(super) recovery: RecoveryPolicy,
    pub(super) once: bool,
    /// True if a running pipeline may be restarted to apply a change that a client sends.
    pub(super) live_restart: bool,
    /// Number of units into which a pipeline is split that can be split; 1 outside of a cluster.
    pub(super) slots: u32,
    /// The exporter of traces, if traces are configured.
    pub(super) traces: Option<Arc<Exporter>>,
}

/// A handle for requests to the running service. Cheap to clone.
#[derive(Clone)]
pub struct Control {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Shared,
    pipelines: Mutex<PipelineTable>,
    jobs: mpsc::UnboundedSender<Job>,
    /// Held while a pipeline is created: before that, there is no entry with a gate to hold.
    making: tokio::sync::Mutex<()>,
    /// Held while a pipeline is compared with the others and added to them.
    placing: tokio::sync::Mutex<()>,
    /// Number of requests to reload credentials.
    reloads: watch::Sender<u64>,
    /// True once the declared and stored pipelines are known, or never will be.
    known: watch::Sender<bool>,
}

impl Control {
    /// Creates a control without pipelines, and the receiver of jobs for the loop of the service.
    pub(super) fn new(shared: Shared) -> (Control, mpsc::UnboundedReceiver<Job>) {
        let (jobs, to_do) = mpsc::unbounded_channel();
        (
            Control {
                inner: Arc::new(Inner {
                    shared,
                    pipelines: PipelineTable::empty(),
                    jobs,
                    making: tokio::sync::Mutex::default(),
                    placing: tokio::sync::Mutex::default(),
                    reloads: watch::Sender::new(0),
                    known: watch::Sender::new(false),
                }),
            },
            to_do,
        )
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.inner.shared
    }

    /// Returns the counts of exported and dropped trace spans.
    pub fn spans(&self) -> SpanCounts {
        self.inner.shared.traces.as_ref().map(|traces| traces.counts()).unwrap_or_default()
    }

    /// Returns a receiver that changes with each request to reload credentials.
    pub fn reloads(&self) -> watch::Receiver<u64> {
        self.inner.reloads.subscribe()
    }

    /// Starts a pipeline that does not run. Returns immediately.
    ///
    /// # Errors
    /// The pipeline does not exist, runs already or cannot run, or the service is stopping.
    pub async fn start(&self, id: &str) -> Result<(), ControlError> {
        let (entry, _gate) = self.gate(id).await?;
        if !entry.seen.borrow().status.is_live() {
            // The final status is still being stored.
            entry.wait_until_stopped().await;
        }
        if self.shared().store.membership().is_some() && entry.tenure().is_none() {
            if entry.seen.borrow().status.is_live() {
                return Err(ControlError::Running(entry.id.clone()));
            }
            return self.want(&entry).await;
        }
        if entry.is_live() {
            let stopping = *entry.orders.borrow() != LifecycleCommand::Run;
            let id = entry.id.clone();
            return Err(if stopping { ControlError::Stopping(id) } else { ControlError::Running(id) });
        }
        self.begin(&entry)
    }

    /// Stops a pipeline: it stops reading and delivers what it has read. With `force` it drops records in flight, which
    /// are read again at the next start. Returns after the order is given or, with `wait`, after the pipeline has
    /// stopped.
    ///
    /// # Errors
    /// The pipeline does not exist, does not run, or is already stopping.
    pub async fn stop(&self, id: &str, force: bool, wait: bool) -> Result<(), ControlError> {
        let (entry, gate) = self.gate(id).await?;
        if let Some(membership) = self.shared().store.membership() {
            self.end(&entry, membership, force).await?;
            drop(gate);
            if wait {
                entry.wait_until_stopped().await;
            }
            return Ok(());
        }
        if !entry.is_live() || !entry.seen.borrow().status.is_live() {
            return Err(self.not_running(&entry));
        }
        let by = StopReason::User;
        let order = if force { LifecycleCommand::Kill { by } } else { LifecycleCommand::Stop { budget: None, by } };
        if *entry.orders.borrow() != LifecycleCommand::Run && !force {
            return Err(ControlError::Stopping(entry.id.clone()));
        }
        tracing::info!(pipeline = %entry.id, force, "stop requested");
        entry.stop(order);
        // The next request may force the stop.
        drop(gate);
        if wait {
            entry.wait_until_stopped().await;
        }
        Ok(())
    }

    /// Holds a pipeline still while `work` runs. A running pipeline is drained before, for at most 15 s, and resumed
    /// after, whatever `work` returns and even if the caller is gone. No other request can start, stop, change or
    /// delete it meanwhile.
    ///
    /// # Errors
    /// The pipeline does not exist, or another request holds it.
    pub async fn held<T>(&self, id: &str, work: impl Future<Output = T>) -> Result<T, ControlError> {
        let hold = self.hold(id).await?;
        let done = work.await;
        drop(hold);
        Ok(done)
    }

    /// Returns the compiled pipeline and its configuration, as it runs or would be started.
    pub fn compiled(&self, id: &str) -> Option<Arc<Pipeline>> {
        match self.entry(id).ok()?.plan() {
            NextStart::Good(pipeline) => Some(pipeline),
            NextStart::Invalid(_) | NextStart::Incomplete(_) | NextStart::Loading => None,
        }
    }

    /// Returns all pipelines of this service with their state, by id.
    pub fn all(&self) -> Vec<(Str, LifecycleState)> {
        let table = locked(&self.inner.pipelines);
        table.entries.iter().map(|(id, entry)| (id.clone(), entry.seen.borrow().clone())).collect()
    }

    /// Returns the state of a pipeline.
    pub fn seen(&self, id: &str) -> Option<LifecycleState> {
        self.entry(id).ok().map(|entry| entry.seen.borrow().clone())
    }

    /// Returns the taps and the state of a pipeline. Both outlive its runs; the receiver closes when the pipeline is
    /// deleted.
    pub fn watch(&self, id: &str) -> Option<(Arc<Taps>, watch::Receiver<LifecycleState>)> {
        self.entry(id).ok().map(|entry| (entry.taps.clone(), entry.seen.subscribe()))
    }

    /// Has a source read all records of a part again, such as a table, beside those that arrive, and returns when the
    /// source has stored that.
    ///
    /// # Errors
    /// The pipeline does not run, or the source refuses it.
    pub async fn backfill(&self, id: &str, connector: &str, part: Str) -> Result<(), ControlError> {
        let entry = self.entry(id)?;
        if !entry.is_live() {
            return Err(self.not_running(&entry));
        }
        let asked = entry.requests.ask(connector, Request::Backfill { part });
        match timeout(PATIENCE, asked).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(RequestError::NotRead)) => {
                let sources = entry.requests.sources();
                match sources.iter().any(|source| source == connector) {
                    true => Err(ControlError::NotRunning(entry.id.clone())),
                    false => {
                        Err(ControlError::NoSource { pipeline: entry.id.clone(), source_id: connector.into(), sources })
                    }
                }
            }
            Ok(Err(RequestError::Full)) => Err(ControlError::Busy(entry.id.clone())),
            Ok(Err(RequestError::Refused(fault))) => {
                Err(ControlError::Refused(fault.code(), self.shared().log.masked(&fault.message())))
            }
            Err(_) => Err(ControlError::Late),
        }
    }

    /// Returns the first error of a pipeline that cannot run.
    pub fn invalid(&self, id: &str) -> Option<Str> {
        match self.entry(id).ok()?.plan() {
            NextStart::Invalid(what) => Some(what),
            NextStart::Good(_) | NextStart::Incomplete(_) | NextStart::Loading => None,
        }
    }

    /// Returns `true` once every pipeline that starts with the service was started.
    pub fn is_ready(&self) -> bool {
        locked(&self.inner.pipelines).phase != Phase::Starting
    }

    /// Returns `true` if the service is stopping.
    pub fn is_stopping(&self) -> bool {
        locked(&self.inner.pipelines).phase == Phase::Stopping
    }

    /// Marks that every pipeline that starts with the service was started.
    pub(super) fn ready(&self) {
        let mut table = locked(&self.inner.pipelines);
        if table.phase == Phase::Starting {
            table.phase = Phase::Serving;
        }
        self.inner.known.send_replace(true);
    }

    /// Releases tasks that wait for the service to start, because it ends.
    pub(super) fn ended(&self) {
        self.inner.known.send_replace(true);
    }

    /// Waits until the declared and stored pipelines are known, or the service stops.
    pub async fn known(&self) {
        // The sender lives as long as `self`.
        let _ = self.inner.known.subscribe().wait_for(|known| *known).await;
    }

    /// Orders all pipelines to stop. No pipeline can be started after this.
    pub(super) fn stop_all(&self, budget: Option<Duration>) {
        let mut table = locked(&self.inner.pipelines);
        table.phase = Phase::Stopping;
        self.inner.known.send_replace(true);
        let order = LifecycleCommand::Stop { budget, by: StopReason::System };
        table.entries.values().for_each(|entry| entry.stop(order));
    }

    /// Returns the pipelines that are live.
    pub(super) fn live_pipelines(&self) -> Vec<(Str, LifecycleState)> {
        let table = locked(&self.inner.pipelines);
        let live = table.entries.values().filter(|entry| entry.is_live());
        live.map(|entry| (entry.id.clone(), entry.seen.borrow().clone())).collect()
    }

    /// Adds a pipeline, or replaces the plan of an existing one from its next start on.
    pub(super) fn put(&self, id: &Str, plan: NextStart, status: Status) -> Arc<PipelineEntry> {
        let mut table = locked(&self.inner.pipelines);
        if let Some(entry) = table.entries.get(id) {
            entry.set_plan(plan);
            return entry.clone();
        }
        let entry = PipelineEntry::new(id.clone(), plan, status);
        table.entries.insert(id.clone(), entry.clone());
        entry
    }

    /// Begins the life of a pipeline that is not live. The caller holds the gate of the pipeline, unless no other
    /// request can know it.
    ///
    /// # Errors
    /// The pipeline cannot run, the service is stopping, or the pipeline was deleted and could not be stopped.
    pub(super) fn begin(&self, entry: &Arc<PipelineEntry>) -> Result<(), ControlError> {
        self.begin_after(entry, Vec::new())
    }

    /// Starts a pipeline when other pipelines, which have begun, have ended. If it is stopped before that, it does not
    /// run.
    ///
    /// # Errors
    /// As [`Control::begin`].
    pub(super) fn begin_after(
        &self,
        entry: &Arc<PipelineEntry>,
        others: Vec<Arc<PipelineEntry>>,
    ) -> Result<(), ControlError> {
        let id = entry.id.clone();
        let pipeline = match entry.plan() {
            NextStart::Good(pipeline) => pipeline,
            NextStart::Invalid(what) | NextStart::Incomplete(what) => return Err(ControlError::Invalid { id, what }),
            NextStart::Loading => return Err(ControlError::Loading(id)),
        };
        let Shared { store, schemas, log, executor, opening, recovery, once, traces, .. } = self.shared();
        let store = match (store.membership(), entry.tenure()) {
            (None, _) => store.clone(),
            (Some(_), Some(holding)) => store.held_while(holding),
            (Some(_), None) => {
                // Whichever node has room runs it.
                let (control, entry) = (self.clone(), entry.clone());
                self.see_to(Task::Errand("the start", id), async move {
                    if let Err(error) = control.want(&entry).await {
                        tracing::error!(pipeline = %entry.id, %error, "the pipeline is not started");
                    }
                    JobResult::Errand
                });
                return Ok(());
            }
        };
        log.mask(pipeline.compiled.secrets.iter().cloned());
        // A pipeline must not start after the order to stop all of them.
        let table = locked(&self.inner.pipelines);
        if table.phase == Phase::Stopping {
            return Err(ControlError::ServiceStopping);
        }
        if !table.has(entry) {
            return Err(ControlError::NotFound(id));
        }
        if entry.is_live() {
            return Err(ControlError::Running(id));
        }
        entry.orders.send_replace(LifecycleCommand::Run);
        entry.set_live(true);
        let life = PipelineLifecycle {
            id: id.clone(),
            plan: pipeline.compiled.stages.clone(),
            options: RunOptions {
                once: *once,
                slots: entry.slots(),
                mask: pipeline.compiled.secrets.clone().into(),
                taps: entry.taps.clone(),
                requests: entry.requests.clone(),
                traces: traces.as_ref().map(|traces| traces.tracing()),
            },
            store,
            schemas: schemas.clone(),
            log: log.clone(),
            executor: executor.clone(),
            opening: opening.clone(),
            recovery: *recovery,
            renewal: self.renewal(entry),
            was_open: false,
            orders: entry.orders.subscribe(),
            seen: entry.seen.clone(),
        };
        let mut orders = entry.orders.subscribe();
        let entry = entry.clone();
        let begin = move || {
            tracing::info!(pipeline = %life.id, "starting");
            life.supervise()
        };
        // A pipeline that waits for no other one has the status `starting` immediately.
        let life = if others.is_empty() { Either::Left(begin()) } else { Either::Right(begin) };
        self.see_to(Task::Life(id.clone()), async move {
            let outcome = match life {
                Either::Left(life) => life.await,
                Either::Right(begin) => {
                    let ended = async {
                        for other in &others {
                            other.wait_until_stopped().await;
                        }
                    };
                    let stop = async { orders.wait_for(|order| *order != LifecycleCommand::Run).await.is_ok() };
                    let is_its_turn = tokio::select! {
                        biased;
                        _ = stop => false,
                        () = ended => true,
                    };
                    if is_its_turn { begin().await } else { PipelineOutcome::Stopped }
                }
            };
            entry.set_live(false);
            // The outcome of a trial start is not an outcome of the service.
            if entry.is_on_trial() { JobResult::Errand } else { JobResult::Life(id, outcome) }
        });
        Ok(())
    }

    /// Returns the function that reloads the credentials of a pipeline from their files. If they changed, the pipeline
    /// runs with the new ones from then on.
    fn renewal(&self, entry: &Arc<PipelineEntry>) -> Renewal {
        let (control, entry) = (self.clone(), entry.clone());
        Arc::new(move || {
            let (control, entry) = (control.clone(), entry.clone());
            Box::pin(async move {
                let renewed = control.renewed(&entry).await?.map(Arc::new);
                if let Some(pipeline) = &renewed {
                    control.shared().log.mask(pipeline.compiled.secrets.iter().cloned());
                    entry.set_plan(NextStart::Good(pipeline.clone()));
                    tracing::info!(
                        pipeline = %entry.id,
                        "files with values of its settings changed: the pipeline runs with the new values"
                    );
                }
                Ok(renewed)
            })
        })
    }

    /// Returns the pipeline with the current credentials of its files, if they changed.
    async fn renewed(&self, entry: &PipelineEntry) -> Result<Option<Pipeline>, ReloadError> {
        let NextStart::Good(pipeline) = entry.plan() else { return Ok(None) };
        if !pipeline.config.has_values_of_files() {
            return Ok(None);
        }
        let (registry, options) = (self.shared().registry.clone(), self.shared().compile);
        // There is no result only if the service ends.
        TEXTS.run(move || pipeline.read_again(&registry, &options)).await.unwrap_or(Ok(None))
    }

    /// Reloads all credentials: those of the listener, and those of running pipelines, which are drained and restarted
    /// if their credentials changed.
    pub(super) fn reload(&self) {
        self.inner.reloads.send_modify(|reloads| *reloads += 1);
        let live: Vec<Arc<PipelineEntry>> = {
            let table = locked(&self.inner.pipelines);
            table.entries.values().filter(|entry| entry.is_live()).cloned().collect()
        };
        for entry in live {
            let control = self.clone();
            self.see_to(Task::Errand("reading the credentials", entry.id.clone()), async move {
                let renewed = match control.renewed(&entry).await {
                    Ok(Some(_)) => control.held(&entry.id, async {}).await.map_err(|error| error.to_string()),
                    Ok(None) => Ok(()),
                    Err(error) => Err(error.to_string()),
                };
                if let Err(error) = renewed {
                    tracing::error!(
                        pipeline = %entry.id, error,
                        "the pipeline continues with its previous credentials"
                    );
                }
                JobResult::Errand
            });
        }
    }

    /// Runs a task to completion in the loop of the service, even if its requester is gone.
    pub(super) fn see_to(&self, task: Task, work: impl Future<Output = JobResult> + Send + 'static) {
        // This fails only after the loop has ended, when the task is not needed.
        let _ = self.inner.jobs.send(Job { task, work: Box::pin(work) });
    }

    pub(super) fn entry(&self, id: &str) -> Result<Arc<PipelineEntry>, ControlError> {
        let table = locked(&self.inner.pipelines);
        table.entries.get(id).cloned().ok_or_else(|| ControlError::NotFound(id.into()))
    }

    /// Returns a pipeline and its gate: the permission to start, stop, change or delete it.
    pub(super) async fn gate(&self, id: &str) -> Result<(Arc<PipelineEntry>, OwnedMutexGuard<()>), ControlError> {
        let passed = timeout(BUSY, async {
            loop {
                let entry = self.entry(id)?;
                let gate = entry.gate.clone().lock_owned().await;
                // While this waited, the pipeline may have been deleted and another one created with the same id.
                if locked(&self.inner.pipelines).has(&entry) {
                    return Ok::<_, ControlError>((entry, gate));
                }
            }
        });
        passed.await.unwrap_or_else(|_| Err(ControlError::Busy(id.into())))
    }

    /// Returns the permission to create pipelines.
    pub(super) async fn making(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.inner.making.lock().await
    }

    /// Returns the permission to add a pipeline to the others.
    pub(super) async fn placing(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.inner.placing.lock().await
    }

    /// Returns the pipelines that can run.
    pub(super) fn good(&self) -> Vec<Arc<Pipeline>> {
        let table = locked(&self.inner.pipelines);
        let good = table.entries.values().filter_map(|entry| match entry.plan() {
            NextStart::Good(pipeline) => Some(pipeline),
            NextStart::Invalid(_) | NextStart::Incomplete(_) | NextStart::Loading => None,
        });
        good.collect()
    }

    /// Returns the pipelines that can run, except the one with `id`.
    pub(super) fn others(&self, id: &str) -> Vec<Arc<Pipeline>> {
        self.good().into_iter().filter(|pipeline| *pipeline.config.id.value != *id).collect()
    }

    /// Removes a pipeline that has stopped. The caller holds its gate.
    pub(super) fn remove(&self, entry: &Arc<PipelineEntry>) {
        let mut table = locked(&self.inner.pipelines);
        if table.has(entry) {
            table.entries.remove(&entry.id);
        }
    }
}

#[cfg(test)]
mod tests;
