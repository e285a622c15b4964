//! Requests to the registry. They run on a separate runtime, one per process. So the caller may wait on any thread, and
//! the registry does not depend on the waiting threads.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anabranch_plugin::schema::{Definition, Schema, SchemaError, SchemaId, SchemaKind, SchemaRegistry, SchemaVersion};
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};

use crate::codes;

/// A registry, and the time limit for one request including its retries.
#[derive(Clone)]
pub(crate) struct RegistryClient {
    pub(crate) registry: Arc<dyn SchemaRegistry>,
    pub(crate) patience: Duration,
}

impl RegistryClient {
    pub(crate) fn new(registry: Arc<dyn SchemaRegistry>) -> RegistryClient {
        RegistryClient { registry, patience: Duration::from_secs(30) }
    }
}

/// A request to the schema registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RegistryRequest {
    /// Returns the text of a version.
    Version(Str, SchemaVersion),
    /// Returns the version of a subject with this text; registers it if it does not exist.
    Text(Str, Str),
    /// Returns the highest version of a subject.
    Newest(Str),
    /// Returns the text of an id.
    Id(SchemaId),
}

#[derive(Clone, Debug)]
pub(crate) enum RegistryAnswer {
    Schema(Arc<Schema>),
    Definition(Arc<Definition>),
}

pub(crate) type RegistryResult = Result<RegistryAnswer, Fault>;

fn unavailable(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Fault {
    Fault::transient(codes::SCHEMA_REGISTRY_UNAVAILABLE, why)
}

fn contradiction() -> Fault {
    unavailable("the answer of the schema registry does not match the request")
}

impl RegistryAnswer {
    pub(super) fn schema(self) -> Result<Arc<Schema>, Fault> {
        match self {
            RegistryAnswer::Schema(schema) => Ok(schema),
            RegistryAnswer::Definition(_) => Err(contradiction()),
        }
    }

    pub(super) fn definition(self) -> Result<Arc<Definition>, Fault> {
        match self {
            RegistryAnswer::Definition(definition) => Ok(definition),
            RegistryAnswer::Schema(_) => Err(contradiction()),
        }
    }
}

impl RegistryRequest {
    async fn call(self, registry: &dyn SchemaRegistry) -> RegistryResult {
        Ok(match self {
            RegistryRequest::Version(subject, version) => {
                RegistryAnswer::Schema(registry.get(&subject, version).await?)
            }
            RegistryRequest::Text(subject, text) => {
                RegistryAnswer::Schema(registry.create(&subject, SchemaKind::Avro, &text).await?)
            }
            RegistryRequest::Newest(subject) => {
                let newest = registry.versions(&subject).await?.into_iter().max();
                let newest = newest.ok_or_else(|| SchemaError::SubjectNotFound(subject.clone()))?;
                RegistryAnswer::Schema(registry.get(&subject, newest).await?)
            }
            RegistryRequest::Id(id) => RegistryAnswer::Definition(registry.by_id(id).await?),
        })
    }

    /// Sends the request and passes the answer to `done`; drops `done` if the registry panics.
    fn send(self, client: &RegistryClient, done: impl FnOnce(RegistryResult) + Send + 'static) {
        let runtime = match runtime() {
            Ok(runtime) => runtime,
            Err(error) => return done(Err(unavailable(error))),
        };
        let RegistryClient { registry, patience } = client.clone();
        runtime.spawn(async move {
            let late = || unavailable(format!("the schema registry did not answer within {patience:?}"));
            let answer = tokio::time::timeout(patience, self.call(&*registry)).await;
            done(answer.unwrap_or_else(|_| Err(late())));
        });
    }

    /// Waits for the answer without blocking a thread.
    pub(super) async fn answer(self, client: &RegistryClient) -> RegistryResult {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        self.send(client, |answer| drop(sender.send(answer)));
        receiver.await.unwrap_or_else(|_| Err(unavailable("the schema registry panicked")))
    }

    /// Waits for the answer on this thread. A thread of an executor hands its tasks to another thread meanwhile.
    pub(super) fn wait(self, client: &RegistryClient) -> RegistryResult {
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        self.send(client, move |answer| drop(sender.send(answer)));
        let wait = || receiver.recv().unwrap_or_else(|_| Err(unavailable("the schema registry panicked")));
        match Handle::try_current().map(|handle| handle.runtime_flavor()) {
            Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(wait),
            _ => wait(),
        }
    }
}

/// Returns the runtime for requests. It is created with the first one and stays.
fn runtime() -> Result<&'static Runtime, String> {
    static RUNTIME: OnceLock<Result<Runtime, String>> = OnceLock::new();
    let start = || Builder::new_multi_thread().worker_threads(1).thread_name("anabranch-schemas").enable_all().build();
    RUNTIME.get_or_init(|| start().map_err(|error| error.to_string())).as_ref().map_err(Clone::clone)
}
