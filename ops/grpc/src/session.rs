//! A running plugin: started, configured, opened, and stopped in order.

use std::collections::HashMap;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anabranch_ops_program::lines::LineSplitter;
use anabranch_ops_program::log::ProgramOwner;
use anabranch_ops_program::{RunningProgram, described, log};
use anabranch_plugin::host::{Host, LogLevel};
use anabranch_plugin::schema::SchemaRegistry;
use anabranch_record::code::Code;
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::text::{Str, hexadecimal};
use bytes::Bytes;
use prost::Message as _;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::Settings;
use crate::active::{Active, ConnectorChange, GivenSettings};
use crate::call::{CallError, Client};
use crate::codes;
use crate::handshake::Handshake;
use crate::log::LineParser;
use crate::process::{self, ProcessIdentity, StartError};
use crate::protocol::{Call, Protocol, Role};
use crate::utilities::Utilities;
use crate::wire;

/// Time limits for stopping and for teardown, both within the time of a shutdown.
const STOP: Duration = Duration::from_secs(10);
/// Time limit for the end of a process after the request to end.
const GRACE: Duration = Duration::from_secs(2);
/// Time limit for the last output of a process that has closed its connection.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// Maximum number of queued messages to a plugin.
const OUTBOX: usize = 256;
/// Maximum number of queued messages from a plugin; the rest waits in the plugin.
const INBOX: usize = 2;

/// A connector program.
#[derive(Debug)]
pub(crate) struct Plugin {
    /// The file of the program.
    pub(crate) file: PathBuf,
    /// The name in its specification.
    pub(crate) name: Str,
    /// Settings for running it.
    pub(crate) settings: Arc<Settings>,
}

/// A running plugin in one role. [`Connected::end`] ends it in order. Dropping the session does so in the background if
/// the plugin works correctly; otherwise it kills the process.
pub(crate) struct Session(Arc<Connected>);

/// State of a running plugin. Dropping it kills the process.
pub(crate) struct Connected {
    plugin: Arc<Plugin>,
    role: Role,
    protocol: Protocol,
    client: Client,
    process: RunningProgram,
    tasks: Mutex<JoinSet<()>>,
    stopping: AtomicBool,
    /// True if the plugin was ended or misbehaves: no orderly end follows.
    over: AtomicBool,
}

impl Deref for Session {
    type Target = Connected;

    fn deref(&self) -> &Connected {
        &self.0
    }
}

impl Drop for Session {
    /// A plugin of a failed pipeline may hold a resource that the next run needs, such as a lock or a replication slot.
    fn drop(&mut self) {
        if let Ok(runtime) = Handle::try_current()
            && !self.over.load(Ordering::Acquire)
        {
            let connected = self.0.clone();
            // The other end of the stream is dropped together with this, which closes the stream.
            runtime.spawn(async move { connected.end().await });
        }
    }
}

/// This side of a stream of records and acknowledgements.
pub(crate) struct SessionStream {
    /// Messages to the plugin. Dropping it closes this half of the stream.
    pub(crate) outbox: mpsc::Sender<Bytes>,
    /// Messages of the plugin, until the end of the stream or its error.
    pub(crate) inbox: mpsc::Receiver<Result<Bytes, CallError>>,
    /// Its sender is dropped when the stream has ended.
    pub(crate) ended: watch::Receiver<()>,
}

impl Session {
    /// Starts the process and connects.
    pub(crate) async fn start(plugin: Arc<Plugin>, role: Role, host: &Host) -> Result<Session, Fault> {
        let mut tasks = JoinSet::new();
        let failed = |class, code, what: &dyn std::fmt::Display| {
            Fault::new(class, code, format!("connector {:?} ({}) {what}", plugin.name, plugin.file.display()))
        };
        let cannot = |what: &dyn std::fmt::Display| failed(FaultClass::Transient, codes::PLUGIN_START_FAILED, what);
        let token = random().map_err(|error| cannot(&error))?;
        let schemas: Arc<dyn SchemaRegistry> = host.schemas.clone();
        let served = Utilities::serve(&token, schemas, &mut tasks).await;
        let utilities =
            served.map_err(|error| cannot(&format!("cannot be started, because its schema service fails: {error}")))?;
        let identity = ProcessIdentity { owner: ProgramOwner::of(host), plugin: plugin.name.clone(), token, utilities };
        let patience = plugin.settings.patience;
        let started = process::start(&plugin.settings, &plugin.file, &identity, patience).await;
        let (process, Handshake { protocol, address }) = started.map_err(|error| match &error {
            StartError::Handshake(..) => failed(FaultClass::Fatal, codes::PLUGIN_INCOMPATIBLE, &error),
            _ => cannot(&error),
        })?;
        let client = match Client::connect(address, patience).await {
            Ok(client) => client,
            Err(error) => return Err(cannot(&format!("cannot be reached: {error}{}", process.last_words()))),
        };
        let mut listening = Box::pin(listen(client.clone(), identity));
        // The first poll sends the request before any other: a plugin must not block on its output.
        if futures::poll!(listening.as_mut()).is_pending() {
            tasks.spawn(listening);
        }
        Ok(Session(Arc::new(Connected {
            plugin,
            role,
            protocol,
            client,
            process,
            tasks: Mutex::new(tasks),
            stopping: AtomicBool::new(false),
            over: AtomicBool::new(false),
        })))
    }
}

impl Connected {
    pub(crate) fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Configures the plugin, and notifies it if it is new or its settings changed.
    pub(crate) async fn configure(&self, given: &GivenSettings, host: &Host) -> Result<(), Fault> {
        let config: HashMap<String, String> =
            given.iter().map(|(name, text)| (name.to_string(), text.value().to_string())).collect();
        let message = wire::Configuration { config: config.clone() }.encode_to_vec();
        if let Err(error) = self.call(Call::Configure, message, self.plugin.settings.patience).await {
            let (class, code) = match &error {
                CallError::Refused(_) | CallError::Unimplemented => (FaultClass::Fatal, codes::PLUGIN_REFUSED_SETTINGS),
                CallError::Late(_) | CallError::Lost(_) => (FaultClass::Transient, codes::PLUGIN_LOST),
            };
            let fault = self.fault(class, code, "does not accept its settings", &error).await;
            if class == FaultClass::Fatal {
                // No other call may follow.
                self.end().await;
            }
            return Err(fault);
        }
        // Dead-letter queues have no lifecycle events: they belong to the pipeline.
        if host.node == *format!("{}-dlq", host.pipeline) {
            return Ok(());
        }
        self.tell(given, config, host).await
    }

    async fn tell(&self, given: &GivenSettings, config: HashMap<String, String>, host: &Host) -> Result<(), Fault> {
        let stored = |error| Fault::transient(codes::STORE_UNAVAILABLE, error);
        let last = host.active.active(&host.pipeline, &host.node).await.map_err(stored)?;
        let last = last.as_deref().and_then(Active::decode);
        let (call, message) = match Active::change(last.as_ref(), &self.plugin.name, given) {
            ConnectorChange::None => return Ok(()),
            ConnectorChange::Created => (Call::Created, wire::Configuration { config }.encode_to_vec()),
            ConnectorChange::Updated(before) => {
                (Call::Updated, wire::Updated { before, after: config }.encode_to_vec())
            }
        };
        match self.call(call, message, self.plugin.settings.patience).await {
            // Older plugins do not have these calls.
            Ok(_) | Err(CallError::Unimplemented) => {}
            Err(error) => {
                let what = format!("fails in {}", self.protocol.method(call));
                return Err(self.fault(FaultClass::Transient, codes::PLUGIN_LIFECYCLE_FAILED, &what, &error).await);
            }
        }
        let salt = random().map_err(|error| Fault::transient(codes::PLUGIN_START_FAILED, error.to_string()))?;
        let active = Active::of(&self.plugin.name, given, &salt).encode();
        host.active.set_active(&host.pipeline, &host.node, active.into()).await.map_err(stored)
    }

    /// Notifies the plugin that a connector with these settings was deleted, without configuring it.
    pub(crate) async fn tell_deleted(&self, config: HashMap<String, String>) -> Result<(), Fault> {
        let message = wire::Configuration { config }.encode_to_vec();
        let told = match self.call(Call::Deleted, message, self.plugin.settings.patience).await {
            Ok(_) | Err(CallError::Unimplemented) => Ok(()),
            Err(error) => {
                let what = format!("fails in {}", self.protocol.method(Call::Deleted));
                Err(self.fault(FaultClass::Transient, codes::PLUGIN_LIFECYCLE_FAILED, &what, &error).await)
            }
        };
        self.end().await;
        told
    }

    /// Opens the plugin; a source at a position.
    pub(crate) async fn open(&self, message: Vec<u8>) -> Result<(), Fault> {
        match self.call(Call::Open, message, self.plugin.settings.patience).await {
            Ok(_) => Ok(()),
            Err(error) => {
                let code = match &error {
                    CallError::Lost(_) => codes::PLUGIN_LOST,
                    CallError::Late(_) => codes::PLUGIN_LATE,
                    CallError::Refused(_) | CallError::Unimplemented => codes::PLUGIN_OPEN_FAILED,
                };
                Err(self.fault(FaultClass::Transient, code, "cannot be opened", &error).await)
            }
        }
    }

    /// Starts the stream of records and acknowledgements.
    pub(crate) fn run(&self) -> SessionStream {
        let (outbox, mut messages) = mpsc::channel::<Bytes>(OUTBOX);
        let (to_inbox, inbox) = mpsc::channel(INBOX);
        let (ending, ended) = watch::channel(());
        let client = self.client.clone();
        let path = self.protocol.path(self.role, Call::Run);
        self.tasks().spawn(async move {
            let messages = futures::stream::poll_fn(move |context| messages.poll_recv(context));
            // Read to the end even if the receiver is gone: a plugin must never block on the stream.
            let error = match client.stream(&path, messages).await {
                Ok(mut stream) => loop {
                    match stream.message().await {
                        Ok(Some(message)) => drop(to_inbox.send(Ok(message)).await),
                        Ok(None) => break None,
                        Err(status) => break Some(status.into()),
                    }
                },
                Err(error) => Some(error),
            };
            if let Some(error) = error {
                let _ = to_inbox.send(Err(error)).await;
            }
            drop(ending);
        });
        SessionStream { outbox, inbox, ended }
    }

    /// Asks the plugin to stop.
    pub(crate) async fn stop(&self, message: Vec<u8>) -> Result<Bytes, CallError> {
        self.stopping.store(true, Ordering::Release);
        self.call(Call::Stop, message, self.plugin.settings.patience.min(STOP)).await
    }

    /// Returns `true` if the plugin received a request to stop.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Logs an error at the end that cannot lose records.
    pub(crate) fn warn(&self, what: &str, error: &CallError) {
        tracing::warn!(plugin = %self.plugin.name, "the {} {what}: {error}", self.role.word());
    }

    /// Tears the plugin down and ends the process. The stream must be closed, because plugins wait for that.
    pub(crate) async fn end(&self) {
        if self.over.swap(true, Ordering::AcqRel) {
            return;
        }
        let patience = self.plugin.settings.patience.min(STOP);
        match self.call(Call::Teardown, Vec::new(), patience).await {
            Ok(_) => {}
            // Some plugins crash in a teardown without an open.
            Err(error @ (CallError::Lost(_) | CallError::Unimplemented)) => {
                tracing::debug!(plugin = %self.plugin.name, "torn down: {error}");
            }
            Err(error) => self.warn("does not complete its teardown", &error),
        }
        shut_down(&self.client, &self.process).await;
        self.tasks().abort_all();
    }

    /// Waits until the plugin closes its half of the stream.
    pub(crate) async fn closed(&self, ended: &mut watch::Receiver<()>) {
        let patience = self.plugin.settings.patience.min(STOP);
        if timeout(patience, ended.changed()).await.is_err() {
            self.warn("does not close its stream", &CallError::Late(patience));
        }
    }

    /// Builds a fault of this plugin: the failed action, the reason and, if the plugin has ended, its last output.
    pub(crate) async fn fault(&self, class: FaultClass, code: Code, what: &str, error: &CallError) -> Fault {
        let Plugin { name, file, .. } = &*self.plugin;
        let file = file.display();
        if let CallError::Lost(_) | CallError::Late(_) = error {
            self.over.store(true, Ordering::Release);
        }
        if let CallError::Lost(_) = error {
            let ended = self.process.wait(LAST_WORDS).await;
            let ended = ended.map_or_else(String::new, |status| format!(", its process ended ({})", described(status)));
            let words = self.process.last_words();
            return Fault::new(class, code, format!("connector {name:?} ({file}) {what}: {error}{ended}{words}"));
        }
        Fault::new(class, code, format!("connector {name:?} ({file}) {what}: {error}"))
    }

    async fn call(&self, call: Call, message: Vec<u8>, patience: Duration) -> Result<Bytes, CallError> {
        self.client.unary(&self.protocol.path(self.role, call), message, patience).await
    }

    fn tasks(&self) -> std::sync::MutexGuard<'_, JoinSet<()>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks a process to end; kills it if it does not.
pub(crate) async fn shut_down(client: &Client, process: &RunningProgram) {
    // The process ends while it answers, so the result is meaningless.
    let _ = client.unary("/plugin.GRPCController/Shutdown", Vec::new(), GRACE).await;
    if process.wait(GRACE).await.is_none() {
        process.kill().await;
    }
}

/// Reads the plugin's output after the first line, which the plugin holds back until it is requested.
async fn listen(client: Client, identity: ProcessIdentity) {
    let ProcessIdentity { owner, plugin, .. } = identity;
    let request = futures::stream::iter([Bytes::new()]);
    let mut stream = match client.stream("/plugin.GRPCStdio/StreamStdio", request).await {
        Ok(stream) => stream,
        Err(error) => {
            tracing::debug!(connector = %owner.id(), plugin = %plugin, "its output cannot be read: {error}");
            return;
        }
    };
    const STDERR: i32 = 2;
    let (mut out, mut err, mut voice) = (LineSplitter::default(), LineSplitter::default(), LineParser::default());
    while let Ok(Some(message)) = stream.message().await {
        let Ok(wire::Stdio { channel, data }) = wire::Stdio::decode(message) else { continue };
        if channel == STDERR {
            err.push(&data, |line| {
                if let Some(heard) = voice.hear(line) {
                    log::write(&heard, &owner, &plugin);
                }
            });
        } else {
            out.push(&data, |line| {
                log::write(&log::ParsedLine { level: LogLevel::Debug, text: line.to_owned() }, &owner, &plugin);
            });
        }
    }
}

/// Returns an unguessable token.
pub(crate) fn random() -> Result<String, getrandom::Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    Ok(hexadecimal(&bytes))
}
