//! A run of the service, from opening the store to the last pipeline that ends.

use std::collections::BTreeMap;
use std::future::pending;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anabranch_graph::config::DesiredStatus;
use anabranch_graph::plan::CompileOptions;
use anabranch_plugin::backoff::Backoff;
use anabranch_plugin::registry::Registry;
use anabranch_plugin::secret::MASKED_FROM;
use anabranch_process::log::{COUNTED_EVERY, Log, LogFormat};
use anabranch_process::signals::{Signals, hung_up};
use anabranch_process::terminal::{Stream, is_terminal};
use anabranch_process::{runtime, signals};
use anabranch_record::text::Str;
use anabranch_settings::Settings;
use anabranch_store::{Holding, Moment, OpenError, Origin, Provision, Status, StopReason, Store, StoredPipeline};
use futures::future::BoxFuture;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, interval_at, sleep};

use crate::account::Account;
use crate::control::{Control, Shared};
use crate::document::Read;
use crate::error::ServiceError;
use crate::lifecycle::PipelineOutcome;
use crate::listener::{Listener, Served};
use crate::pipeline::Pipeline;
use crate::pipeline_table::{NextStart, PipelineEntry};
use crate::pipelines::{Invalid, Pipelines};
use crate::status_line::StatusLine;
use crate::tasks::{Job, JobResult, Overdue, Task, Tasks};
use crate::traces::{Exporter, FLUSH};
use crate::{limits, outputs, progress, renames, schemas, sequence};

/// The configuration of a service run.
pub struct Service {
    /// The settings of the service.
    pub settings: Settings,
    /// The plugin registry.
    pub registry: Registry,
    /// The options that pipelines are compiled with.
    pub compile: CompileOptions,
    /// The log of the service.
    pub log: Arc<Log>,
    /// True if the service ends when all sources have ended.
    pub once: bool,
    /// Called before the process ends immediately: after a second signal there is no time for destructors.
    pub before_abort: Option<Box<dyn Fn()>>,
    /// Called with the address once the HTTP listener accepts requests.
    pub on_listening: Option<Box<dyn FnOnce(SocketAddr)>>,
    /// A task that runs in parallel with the service until the service stops.
    pub companion: Option<Companion>,
}

/// A task that runs in parallel with a service and uses its [`Control`].
pub type Companion = Box<dyn FnOnce(Control) -> BoxFuture<'static, ()>>;

/// Pipelines that start once their plugins are loaded.
pub struct DeferredPipelines {
    /// These pipelines as their files declare them.
    pub stored: Vec<StoredPipeline>,
    /// Loads the plugins, compiles the pipelines and reports the findings. Runs on its own thread.
    pub compile: Box<dyn FnOnce() -> Pipelines + Send>,
}

/// Summary of a service run that has ended.
#[derive(Debug, Default)]
pub struct RunSummary {
    /// Outcome of each pipeline, by id.
    pub outcomes: Vec<(Str, PipelineOutcome)>,
    /// Totals of each of those pipelines.
    pub accounts: BTreeMap<Str, Account>,
    /// Ids of pipelines with errors.
    pub invalid: Vec<Str>,
    /// True if a signal stopped the service.
    pub signalled: bool,
    /// True if a degraded pipeline ended the service.
    pub gave_up: bool,
    /// Reason why the service lost its store permanently, if that ended it.
    pub taken: Option<String>,
}

impl RunSummary {
    /// Returns the summary of a service that a signal stopped before any pipeline started.
    fn signalled() -> RunSummary {
        RunSummary { signalled: true, ..RunSummary::default() }
    }
}

/// How long a signal that ends the process immediately waits until the last line of the log is written.
const STATUS_CLEARED: Duration = Duration::from_millis(100);
/// How long the service waits for a pipeline beyond its drain budget before it abandons it.
const GRACE: Duration = Duration::from_secs(2);
/// The pauses between attempts to open the store. While another process owns it, the pause of the second failure is the
/// longest.
const PAUSES: Backoff = Backoff::doubling(Duration::from_millis(250), Duration::from_secs(15));
const MOST_WHILE_OWNED: u32 = 2;
/// Minimum time between two identical log lines about waiting for the store.
const WAITING_LINE: Duration = Duration::from_secs(60);
/// Time between two checks that the file of the store still exists.
const LOOK: Duration = Duration::from_secs(5);
/// Log message for the first signal.
const STOPPING: &str = "stopping; a second signal ends the service at once";
/// Maximum number of pipelines that open at the same time: each may need a thread for its files.
const OPENING: usize = 8;
/// How long an idle blocking thread is kept.
const IDLE_THREAD: Duration = Duration::from_secs(2);

impl Service {
    /// Runs until every pipeline has ended or a signal stops the service. `L` answers HTTP, if the settings ask for it.
    ///
    /// # Errors
    /// The store cannot be opened or a system call failed. No pipeline was started.
    pub fn run<L: Listener>(
        mut self,
        pipelines: Pipelines,
        later: Option<DeferredPipelines>,
    ) -> Result<RunSummary, ServiceError> {
        let system = |what| move |error| ServiceError::System { what, error };
        let control = runtime::start(Builder::new_current_thread().thread_keep_alive(IDLE_THREAD))
            .map_err(system("start the control runtime"))?;
        let executor = executor().map_err(system("start the executor"))?;
        let ended = control.block_on(async {
            let mut signals = Signals::listen().and_then(Signals::with_hangups).map_err(system("listen to signals"))?;
            let Some(opened) = self.attended(&mut signals, self.open::<L>()).await else {
                return Ok(RunSummary::signalled());
            };
            let (store, early) = opened?;
            let api = match early {
                Some(api) => Some(api),
                None => self.listen().await?,
            };
            if let (Some(tell), Some(api)) = (self.on_listening.take(), &api) {
                tell(api.address());
            }
            let companion = self.companion.take();
            let traces = self.trace(executor.handle())?;
            let (control, jobs) = Control::new(Shared {
                store: store.clone(),
                registry: self.registry.clone(),
                compile: self.compile,
                schemas: schemas::registry(&self.settings.schemas, &store)?,
                log: self.log.clone(),
                executor: executor.handle().clone(),
                opening: Arc::new(Semaphore::new(OPENING)),
                recovery: self.settings.pipelines.recovery,
                once: self.once,
                live_restart: self.settings.live_restart,
                traces: traces.clone(),
            });
            let served = Served { store: store.clone(), registry: self.registry.clone(), control: control.clone() };
            let service = async {
                let ended = self.serve(pipelines, later, &control, jobs, signals, companion).await;
                control.ended();
                ended
            };
            let ended = beside(api, served, service).await;
            store.release().await;
            if let Some(traces) = traces {
                traces.close(FLUSH).await;
            }
            ended
        });
        // A system call that hangs must not keep the process from ending.
        executor.shutdown_background();
        control.shutdown_background();
        signals::end_the_process_again();
        ended
    }

    /// Opens the store. Also returns the HTTP listener if it was started early to report that the service waits for the
    /// store.
    async fn open<L: Listener>(&self) -> Result<(Store, Option<L>), ServiceError> {
        let (tell, mut why) = watch::channel(String::new());
        let (stop, stopped) = oneshot::channel::<()>();
        let told = async {
            if why.changed().await.is_err() {
                return None;
            }
            let api: L = match self.listen().await {
                Ok(api) => api?,
                // Another service on this machine may hold the address as long as it holds the store.
                Err(error) => {
                    tracing::warn!(
                        "this service does not answer probes while it waits for the state store: {error}; it tries to \
                         listen again when it owns the store"
                    );
                    return None;
                }
            };
            api.wait_for_store(why, async { stopped.await.unwrap_or_default() }).await;
            Some(api)
        };
        let opened = async {
            let store = self.open_store(&tell).await;
            drop((tell, stop));
            store
        };
        let (store, api) = tokio::join!(opened, told);
        Ok((store?, api))
    }

    /// Opens the store on a blocking thread, because a server or a disk may take long and signals must be handled
    /// meanwhile. Retries for as long as the settings allow, and sends the reason for each retry to `tell`.
    async fn open_store(&self, tell: &watch::Sender<String>) -> Result<Store, ServiceError> {
        let begun = Instant::now();
        let mut logged: Option<(String, Instant)> = None;
        let mut failures = 0;
        loop {
            let database = self.settings.database.clone();
            let opened = tokio::task::spawn_blocking(move || Store::own(&database)).await;
            let failed = |error| ServiceError::System { what: "open the store", error: std::io::Error::other(error) };
            let error = match opened.map_err(failed)? {
                Ok(store) => return Ok(store),
                Err(error) => error,
            };
            let left = self.settings.store_wait.saturating_sub(begun.elapsed());
            if left.is_zero() || !error.is_passing() {
                return Err(error.into());
            }
            let why = error.to_string();
            if logged.as_ref().is_none_or(|(before, at)| *before != why || at.elapsed() >= WAITING_LINE) {
                tracing::warn!("waiting for the state store: {why}");
                logged = Some((why.clone(), Instant::now()));
            }
            tell.send_if_modified(|before| std::mem::replace(before, why.clone()) != why);
            failures += 1;
            if matches!(error, OpenError::InUse { .. }) {
                // The owner releases the store at any time, and a query costs it nothing.
                failures = failures.min(MOST_WHILE_OWNED);
            }
            sleep(PAUSES.after(failures).min(left)).await;
        }
    }

    /// Runs work that precedes the start of pipelines. The first signal gives the work a moment to finish; a second
    /// signal ends the process. Returns `None` if a signal stopped the work, even if it finished.
    async fn attended<T>(&self, signals: &mut Signals, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        tokio::select! {
            biased;
            done = &mut work => return Some(done),
            _ = signals.next() => tracing::info!("{STOPPING}"),
        }
        let patience = self.settings.shutdown_timeout.map(|budget| Instant::now() + budget.min(GRACE));
        tokio::select! {
            biased;
            _ = work => {}
            signal = signals.next() => self.abort(signal),
            () = until(patience) => tracing::warn!(
                "the service was still starting, and ends without waiting for that"
            ),
        }
        None
    }

    fn abort(&self, signal: i32) -> ! {
        if let Some(before_abort) = &self.before_abort {
            before_abort();
        }
        self.log.output().flush(STATUS_CLEARED);
        std::process::exit(128 + signal)
    }

    async fn listen<L: Listener>(&self) -> Result<Option<L>, ServiceError> {
        // Several runs with `once` may share a machine: none of them takes a port unless it was requested.
        let wanted = self.settings.api.as_ref().filter(|api| api.asked || !self.once);
        let Some(settings) = wanted else { return Ok(None) };
        self.log.mask(settings.token.clone().filter(|token| token.len() >= MASKED_FROM));
        let api = L::listen(settings).await?;
        tracing::info!(address = %api.address(), "HTTP is served at {}", api.url());
        Ok(Some(api))
    }

    /// Starts the exporter of traces, if traces are configured.
    fn trace(&self, executor: &Handle) -> Result<Option<Arc<Exporter>>, ServiceError> {
        let Some(settings) = &self.settings.traces else { return Ok(None) };
        self.log.mask(settings.secrets());
        Exporter::start(settings, executor).map(Some).map_err(ServiceError::Traces)
    }

    async fn serve(
        &self,
        mut pipelines: Pipelines,
        later: Option<DeferredPipelines>,
        control: &Control,
        mut jobs: mpsc::UnboundedReceiver<Job>,
        mut signals: Signals,
        companion: Option<Companion>,
    ) -> Result<RunSummary, ServiceError> {
        let (awaited, compile) = later.map(|later| (later.stored, later.compile)).unzip();
        let mut awaited = awaited.unwrap_or_default();
        let mut ended = RunSummary { invalid: ids_of(&pipelines.invalid), ..RunSummary::default() };
        let Some(made) = self.attended(&mut signals, self.made(control)).await else {
            return Ok(RunSummary::signalled());
        };
        let made = made?;
        let taken = |id: &Str| made.iter().any(|pipeline| pipeline.id == *id);
        for id in pipelines.good.iter().map(|good| &good.config.id.value).chain(awaited.iter().map(|it| &it.id)) {
            if taken(id) {
                tracing::error!(
                    pipeline = %id,
                    "the service ignores its file: a pipeline with this id was created through the API"
                );
            }
        }
        pipelines.good.retain(|good| !taken(&good.config.id.value));
        awaited.retain(|pipeline| !taken(&pipeline.id));
        match self.attended(&mut signals, self.provision(&pipelines, &awaited, control)).await {
            Some(provisioned) => provisioned?,
            None => return Ok(RunSummary::signalled()),
        }
        for pipeline in awaited {
            control.put(&pipeline.id, NextStart::Loading, Status::Stopped { reason: StopReason::System });
        }
        limits::tell(&pipelines.good);
        let mut starting = self.take_in(pipelines, control);
        if !self.once {
            begin(std::mem::take(&mut starting), control);
        }
        let made_ids: Vec<Str> = made.iter().map(|pipeline| pipeline.id.clone()).collect();
        let read = async {
            let mut read = Vec::new();
            for pipeline in made {
                // If a pipeline cannot be read, it is not started; the service is ending.
                if let Ok(text) = Read::stored(control.shared(), &pipeline).await {
                    read.push((pipeline, text));
                }
            }
            read
        };
        let Some(read) = self.attended(&mut signals, read).await else { return Ok(RunSummary::signalled()) };
        starting.extend(self.take_back(read, control));
        if self.once {
            sequence::begin_in_turn(&starting, control);
        } else {
            begin(starting, control);
        }
        let mut loading = compile.map(tokio::task::spawn_blocking);
        if control.live_pipelines().is_empty() && !self.once && loading.is_none() {
            tracing::warn!(
                "there is no pipeline to start; `anabranch pipelines init` writes one, and the API creates them; \
                 waiting for Ctrl+C"
            );
        }
        control.ready();
        let mut companion = pin!(async {
            if let Some(companion) = companion {
                companion(control.clone()).await;
            }
            pending::<()>().await;
        });

        let store = control.shared().store.clone();
        let mut holding = store.holding();
        // Idle pipelines do not write, and would not notice that the file is missing.
        let mut looking = pin!(async {
            loop {
                sleep(LOOK).await;
                store.look().await;
            }
        });
        let mut doing = Tasks::default();
        let mut overdue = Overdue::default();
        let mut status_line = StatusLine::new(self.log.output().clone());
        let mut redraw = interval(StatusLine::PERIOD);
        redraw.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut meter = progress::ProgressMeter::default();
        let mut reported = interval_at(tokio::time::Instant::now() + progress::PERIOD, progress::PERIOD);
        reported.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // When the service abandons what still runs. `None`: the service is not stopping, or waits without a limit.
        let mut deadline: Option<Instant> = None;
        let mut stopping = false;
        let mut hangups = signals.hangups.take();
        let mut counting = interval(COUNTED_EVERY);
        counting.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Programs read these objects, even if the terminal also shows the status line.
        let logs_objects = self.settings.log.format == LogFormat::Json;
        let output = self.log.output().clone();
        let mut reader_gone = pin!(output.reader_gone());
        while !(doing.is_empty() && jobs.is_empty() && (self.once || stopping)) {
            tokio::select! {
                Some(job) = jobs.recv() => doing.push(job),
                Some(done) = doing.next(), if !doing.is_empty() => {
                    let JobResult::Life(id, outcome) = done else { continue };
                    let degraded = matches!(outcome, PipelineOutcome::Degraded { .. });
                    ended.outcomes.retain(|(before, _)| *before != id);
                    ended.outcomes.push((id, outcome));
                    if degraded && self.settings.pipelines.exit_on_degraded && !stopping {
                        tracing::error!("stopping, because pipelines.exit-on-degraded is set");
                        ended.gave_up = true;
                        stopping = true;
                        deadline = self.stop(control);
                    }
                }
                loaded = finished(&mut loading), if loading.is_some() && !stopping => {
                    loading = None;
                    let Some(mut pipelines) = loaded else { continue };
                    pipelines.good.retain(|good| !made_ids.contains(&good.config.id.value));
                    for id in ids_of(&pipelines.invalid) {
                        ended.invalid.push(id.clone());
                        let store = control.shared().store.clone();
                        // Running pipelines do not depend on this status, and a store that hangs must not block the
                        // loop.
                        control.see_to(Task::Errand("storing the status", id.clone()), async move {
                            if let Err(error) = store.set_status(&id, Status::Invalid).await {
                                tracing::warn!(pipeline = %id, error = %error, "the status could not be stored");
                            }
                            JobResult::Errand
                        });
                    }
                    begin(self.take_in(pipelines, control), control);
                }
                signal = signals.next() => {
                    if stopping {
                        status_line.clear();
                        self.abort(signal);
                    }
                    tracing::info!("{STOPPING}");
                    ended.signalled = true;
                    stopping = true;
                    deadline = self.stop(control);
                }
                () = hung_up(&mut hangups), if !stopping => {
                    if is_terminal(Stream::Out) {
                        // The terminal was closed, and with it the session that started the service.
                        ended.signalled = true;
                        stopping = true;
                        deadline = self.stop(control);
                    } else {
                        tracing::info!("SIGHUP: the service reads its credentials");
                        control.reload();
                    }
                }
                () = &mut reader_gone, if !stopping => {
                    // Same behavior as `anabranch run | head`: without a reader of the log there is nothing to wait
                    // for.
                    ended.signalled = true;
                    stopping = true;
                    deadline = self.stop(control);
                }
                // Polled until the end, because it may hold resources that it still has to release.
                () = &mut companion => {}
                () = until(deadline) => break,
                () = overdue.next(), if stopping => doing.tell(&control.all()),
                _ = counting.tick() => self.log.count_repeated(false),
                () = &mut looking => {}
                why = store_taken(&mut holding), if ended.taken.is_none() => {
                    tracing::error!("{why}; the service ends");
                    ended.taken = Some(why);
                    stopping = true;
                    control.stop_all(Some(Duration::ZERO));
                    deadline = Some(Instant::now() + GRACE);
                }
                _ = redraw.tick(), if status_line.is_live() || self.once => {
                    if !status_line.is_live() {
                        meter.look(&control.all(), Instant::now());
                    } else if self.once {
                        let measured = meter.measure(&control.all(), Instant::now());
                        status_line.show(measured.iter().map(|(id, progress)| format!("{id} {}", progress.shown())));
                    } else {
                        status_line.draw(control.all());
                    }
                }
                _ = reported.tick(), if self.once && (!status_line.is_live() || logs_objects) => {
                    for (id, progress) in meter.measure(&control.all(), Instant::now()) {
                        progress.log(&id);
                    }
                }
            }
        }
        status_line.clear();
        for (id, seen) in control.live_pipelines() {
            tracing::warn!(
                pipeline = %id, status = seen.status.word(),
                "does not stop; the service ends without waiting for it"
            );
            ended.outcomes.retain(|(before, _)| *before != id);
            ended.outcomes.push((id, PipelineOutcome::NotDrained { left: Vec::new() }));
        }
        doing.leave_behind();
        self.log.count_repeated(true);
        let ran = control.all().into_iter().filter(|(_, seen)| seen.run > 0);
        ended.accounts = ran.map(|(id, seen)| (id, seen.whole_account())).collect();
        Ok(ended)
    }

    /// Returns the pipelines that were created through the API.
    async fn made(&self, control: &Control) -> Result<Vec<StoredPipeline>, ServiceError> {
        let stored = control.shared().store.pipelines().await?;
        Ok(stored.into_iter().filter(|pipeline| pipeline.origin == Origin::Api).collect())
    }

    /// Restores the pipelines that were created through the API. Returns the pipelines to start: those that no user
    /// stopped.
    fn take_back(&self, made: Vec<(StoredPipeline, Read)>, control: &Control) -> Vec<Arc<PipelineEntry>> {
        let mut starting = Vec::new();
        let mut made: Vec<(StoredPipeline, NextStart)> =
            made.into_iter().map(|(pipeline, read)| (pipeline, read.into_plan())).collect();
        set_apart(control, made.iter_mut().map(|(pipeline, plan)| (&pipeline.id, plan)));
        for (pipeline, plan) in made {
            let was_live =
                pipeline.status.is_live() || matches!(pipeline.status, Status::Stopped { reason: StopReason::System });
            let status = if was_live { Status::Stopped { reason: StopReason::System } } else { pipeline.status };
            let entry = control.put(&pipeline.id, plan, status);
            if was_live {
                starting.push(entry);
            }
        }
        starting
    }

    /// Stores the configuration that the files declare.
    async fn provision(
        &self,
        pipelines: &Pipelines,
        awaited: &[StoredPipeline],
        control: &Control,
    ) -> Result<(), ServiceError> {
        let provision = Provision {
            // Pipelines that are loaded later count as valid until they are compiled.
            good: pipelines
                .good
                .iter()
                .map(|p| StoredPipeline::from(&p.config))
                .chain(awaited.iter().cloned())
                .collect(),
            invalid: ids_of(&pipelines.invalid),
            complete: pipelines.is_complete(),
            at: Moment::now(),
        };
        let store = &control.shared().store;
        let stored = store.pipelines().await?;
        let declared = |id: &Str| provision.invalid.contains(id) || provision.good.iter().any(|good| good.id == *id);
        let (here, gone): (Vec<_>, Vec<_>) =
            stored.into_iter().partition(|pipeline| pipeline.origin == Origin::Api || declared(&pipeline.id));
        for new in &provision.good {
            let old = here.iter().find(|old| old.id == new.id);
            let gone = if provision.complete { &gone[..] } else { &[] };
            for reread in renames::rereads(store, old, new, gone).await? {
                tracing::warn!(pipeline = %new.id, "{reread}");
            }
        }
        for change in store.provision(provision).await? {
            tracing::info!(pipeline = %change.pipeline, "{change}");
        }
        Ok(())
    }

    /// Adds the pipelines of files, with the errors of the invalid ones. Returns the pipelines to start.
    fn take_in(&self, pipelines: Pipelines, control: &Control) -> Vec<Arc<PipelineEntry>> {
        let mut starting = Vec::new();
        for invalid in &pipelines.invalid {
            let Some(id) = &invalid.id else { continue };
            tracing::error!(pipeline = %id, "invalid: the pipeline is not started");
            control.put(id, NextStart::Invalid(pipelines.first_error(invalid)), Status::Invalid);
        }
        let planned = |pipeline: Pipeline| {
            let wanted = pipeline.config.status == DesiredStatus::Running;
            (pipeline.config.id.value.clone(), wanted, NextStart::Good(Arc::new(pipeline)))
        };
        let mut good: Vec<(Str, bool, NextStart)> = pipelines.good.into_iter().map(planned).collect();
        set_apart(control, good.iter_mut().map(|(id, _, plan)| (&*id, plan)));
        for (id, wanted, plan) in good {
            let reason = if wanted { StopReason::System } else { StopReason::User };
            let is_good = matches!(plan, NextStart::Good(_));
            let entry = control.put(&id, plan, Status::Stopped { reason });
            if !is_good {
                continue;
            }
            if !wanted {
                tracing::info!(pipeline = %id, "not started: its file contains `status: stopped`");
            } else {
                starting.push(entry);
            }
        }
        starting
    }

    /// Orders all pipelines to stop. Returns the time when the service abandons those that still run.
    fn stop(&self, control: &Control) -> Option<Instant> {
        let budget = self.settings.shutdown_timeout;
        control.stop_all(budget);
        budget.map(|budget| Instant::now() + budget + GRACE)
    }
}

/// Starts pipelines.
fn begin(starting: Vec<Arc<PipelineEntry>>, control: &Control) {
    for entry in starting {
        if let Err(error) = control.begin(&entry) {
            tracing::error!(pipeline = %entry.id, %error, "not started");
        }
    }
}

/// Runs the service and answers HTTP requests meanwhile.
async fn beside<L: Listener, T>(api: Option<L>, served: Served, service: impl Future<Output = T>) -> T {
    let Some(api) = api else { return service.await };
    let (stop, stopped) = oneshot::channel::<()>();
    let stopped = async { stopped.await.unwrap_or_default() };
    let mut answers = pin!(api.serve(served, stopped));
    let mut service = pin!(service);
    let ended = tokio::select! {
        biased;
        ended = &mut service => ended,
        () = &mut answers => return service.await,
    };
    drop(stop);
    answers.await;
    ended
}

/// Marks plans as invalid that form a cycle with each other or with the running pipelines. Pipelines of files were
/// compared with each other before; pipelines of the API and pipelines that load later were not.
fn set_apart<'p>(control: &Control, plans: impl Iterator<Item = (&'p Str, &'p mut NextStart)>) {
    let good = plans.filter_map(|(id, plan)| match &*plan {
        NextStart::Good(pipeline) => Some((id, pipeline.clone(), plan)),
        NextStart::Invalid(_) | NextStart::Incomplete(_) | NextStart::Loading => None,
    });
    let good: Vec<_> = good.collect();
    let joining: Vec<_> = good.iter().map(|(_, pipeline, _)| pipeline.clone()).collect();
    for ((id, _, plan), finding) in good.into_iter().zip(outputs::closing(&control.good(), &joining)) {
        if let Some(finding) = finding {
            tracing::error!(pipeline = %id, "invalid: the pipeline is not started: {}", finding.message);
            *plan = NextStart::Invalid(finding.message.into());
        }
    }
}

fn ids_of(invalid: &[Invalid]) -> Vec<Str> {
    invalid.iter().filter_map(|invalid| invalid.id.clone()).collect()
}

/// Waits for the pipelines that are being loaded. Returns `None` if loading panicked; never returns if nothing is being
/// loaded.
async fn finished(loading: &mut Option<JoinHandle<Pipelines>>) -> Option<Pipelines> {
    match loading {
        Some(loading) => match loading.await {
            Ok(pipelines) => Some(pipelines),
            Err(error) => {
                tracing::error!("standalone processors cannot be loaded: {error}");
                None
            }
        },
        None => pending().await,
    }
}

/// Waits until this service has lost its store permanently. Returns the reason.
async fn store_taken(holding: &mut watch::Receiver<Holding>) -> String {
    let taken = holding.wait_for(|holding| matches!(holding, Holding::Taken(_))).await;
    match taken.ok().and_then(|taken| taken.refusal().map(str::to_owned)) {
        Some(why) => why,
        None => pending().await,
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep(deadline.saturating_duration_since(Instant::now())).await,
        None => pending().await,
    }
}

fn executor() -> std::io::Result<Runtime> {
    runtime::start(Builder::new_multi_thread().thread_name("anabranch-exec").thread_keep_alive(IDLE_THREAD))
}
