//! A run of the service, from opening the store to the last pipeline that ends.

mod opening;
mod provision;

use std::collections::BTreeMap;
use std::future::pending;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anabranch_graph::plan::CompileOptions;
use anabranch_plugin::registry::Registry;
use anabranch_plugin::secret::MASKED_FROM;
use anabranch_process::log::{COUNTED_EVERY, Log, LogFormat};
use anabranch_process::signals::hung_up;
use anabranch_process::terminal::{Stream, is_terminal};
use anabranch_process::{runtime, signals};
use anabranch_record::text::Str;
use anabranch_settings::Settings;
use anabranch_store::{Status, StopReason, StoredPipeline};
use futures::future::BoxFuture;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, interval_at, sleep};

use opening::store_taken;

use crate::account::Account;
use crate::control::{Control, Shared};
use crate::document::Read;
use crate::error::ServiceError;
use crate::inputs::InputPlaces;
use crate::lifecycle::PipelineOutcome;
use crate::listener::{Listener, Served};
use crate::pipeline_table::{NextStart, PipelineEntry};
use crate::pipelines::{Invalid, Pipelines};
use crate::placement::place;
use crate::status_line::StatusLine;
use crate::stops::{StopSource, Stops};
use crate::tasks::{Job, JobResult, Overdue, Task, Tasks};
use crate::traces::{Exporter, FLUSH};
use crate::{limits, progress, schemas, sequence};

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
    /// The source of requests to stop the service before its pipelines have ended.
    pub stops: StopSource,
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
    /// True if a signal or the program stopped the service.
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
/// Time between two checks that the file of the store still exists.
const LOOK: Duration = Duration::from_secs(5);
/// Maximum number of pipelines that open at the same time: each may need a thread for its files.
const OPENING: usize = 8;
/// How long an idle blocking thread is kept.
const IDLE_THREAD: Duration = Duration::from_secs(2);

impl Service {
    /// Runs until every pipeline has ended or [`Service::stops`] ends them. `L` answers HTTP, if the settings ask for it.
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
            let mut stops = Stops::listen(self.stops.clone()).map_err(system("listen to signals"))?;
            let Some(opened) = self.attended(&mut stops, self.open::<L>()).await else {
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
                slots: self.settings.cluster.as_ref().map_or(1, |cluster| cluster.slots),
                traces: traces.clone(),
            });
            let served = Served {
                store: store.clone(),
                registry: self.registry.clone(),
                control: control.clone(),
                cluster: self.settings.cluster.clone(),
                inputs: InputPlaces::of(&self.settings),
            };
            let service = async {
                let ended = self.serve(pipelines, later, &control, jobs, stops, companion).await;
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
        if matches!(self.stops, StopSource::Signals) {
            signals::end_the_process_again();
        }
        ended
    }

    /// Runs work that precedes the start of pipelines. The first signal gives the work a moment to finish; a second
    /// signal ends the process. Returns `None` if a signal stopped the work, even if it finished.
    async fn attended<T>(&self, stops: &mut Stops, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        tokio::select! {
            biased;
            done = &mut work => return Some(done),
            _ = stops.next() => tracing::info!("{}", stops.message()),
        }
        let patience = self.settings.shutdown_timeout.map(|budget| Instant::now() + budget.min(GRACE));
        tokio::select! {
            biased;
            _ = work => {}
            signal = stops.next() => self.abort(signal),
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
        let of_cluster = self.settings.cluster.iter().filter_map(|cluster| cluster.token.as_ref());
        let tokens = settings.token.clone().into_iter().chain(of_cluster.map(|token| token.at_start().into()));
        self.log.mask(tokens.filter(|token| token.len() >= MASKED_FROM));
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
        mut stops: Stops,
        companion: Option<Companion>,
    ) -> Result<RunSummary, ServiceError> {
        let (awaited, compile) = later.map(|later| (later.stored, later.compile)).unzip();
        let mut awaited = awaited.unwrap_or_default();
        let mut ended = RunSummary { invalid: ids_of(&pipelines.invalid), ..RunSummary::default() };
        let Some(made) = self.attended(&mut stops, self.made(control)).await else {
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
        match self.attended(&mut stops, self.provision(&pipelines, &awaited, control)).await {
            Some(provisioned) => provisioned?,
            None => return Ok(RunSummary::signalled()),
        }
        for pipeline in awaited {
            control.put(&pipeline.id, NextStart::Loading, Status::Stopped { reason: StopReason::System });
        }
        limits::tell(&pipelines.good);
        let mut starting = self.take_in(pipelines, control);
        let membership = control.shared().store.membership().cloned();
        if !self.once && membership.is_none() {
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
        let Some(read) = self.attended(&mut stops, read).await else { return Ok(RunSummary::signalled()) };
        starting.extend(self.take_back(read, control));
        match &membership {
            // The units of this node decide.
            Some(_) => {}
            None if self.once => sequence::begin_in_turn(&starting, control),
            None => begin(starting, control),
        }
        let mut loading = compile.map(tokio::task::spawn_blocking);
        if control.live_pipelines().is_empty() && !self.once && loading.is_none() && membership.is_none() {
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

        let mut placing = pin!(async {
            match membership.clone() {
                Some(membership) => place(control.clone(), membership, self.settings.shutdown_timeout).await,
                None => pending().await,
            }
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
        let mut hangups = stops.hangups.take();
        let is_alone = stops.are_signals();
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
                    let starting = self.take_in(pipelines, control);
                    if membership.is_none() {
                        begin(starting, control);
                    }
                }
                signal = stops.next() => {
                    if stopping {
                        status_line.clear();
                        self.abort(signal);
                    }
                    tracing::info!("{}", stops.message());
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
                () = &mut reader_gone, if is_alone && !stopping => {
                    // Same behavior as `anabranch run | head`: without a reader of the log there is nothing to wait
                    // for.
                    ended.signalled = true;
                    stopping = true;
                    deadline = self.stop(control);
                }
                () = &mut placing => {}
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

    /// Orders all pipelines to stop. Returns the time when the service abandons those that still run.
    fn stop(&self, control: &Control) -> Option<Instant> {
        if let Some(membership) = control.shared().store.membership() {
            membership.drain();
        }
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

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep(deadline.saturating_duration_since(Instant::now())).await,
        None => pending().await,
    }
}

fn executor() -> std::io::Result<Runtime> {
    runtime::start(Builder::new_multi_thread().thread_name("anabranch-exec").thread_keep_alive(IDLE_THREAD))
}
