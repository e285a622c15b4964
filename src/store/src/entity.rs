//! Pipelines in their stored form: the text of the file (`${NAME}`, never the substituted value), and the status of the
//! pipeline.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anabranch_config::{ConnectorConfig, DesiredStatus, PipelineConfig, ProcessorConfig};
use anabranch_plugin::registry::Role;
use anabranch_plugin::settings::Settings as PluginSettings;
use anabranch_record::text::Str;
use serde::{Deserialize, Serialize};

/// Origin of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StopReason {
    /// The file or a user asked for it: the pipeline stays stopped.
    User,
    /// The service was stopped or crashed: the pipeline starts with the service.
    System,
}

/// The status of a pipeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "state")]
pub enum Status {
    /// It was started, and opens its connectors and processors. It is stored as running.
    Starting,
    /// It was started.
    Running,
    /// It failed, and restarts after a wait.
    Recovering {
        /// The error.
        error: String,
    },
    /// It does not run.
    Stopped {
        /// Origin of the stop.
        reason: StopReason,
    },
    /// It failed permanently.
    Degraded {
        /// The error.
        error: String,
    },
    /// All its sources ended and everything was delivered.
    Finished,
    /// Its file has errors.
    Invalid,
}

impl Status {
    /// Returns `true` if the pipeline runs, or will run without a request.
    pub fn is_live(&self) -> bool {
        matches!(self, Status::Starting | Status::Running | Status::Recovering { .. })
    }

    /// Returns `true` if the pipeline starts with the service, although it does not run.
    pub fn is_stopped_by_system(&self) -> bool {
        matches!(self, Status::Stopped { reason: StopReason::System })
    }

    /// Returns the status as a word.
    pub fn word(&self) -> &'static str {
        match self {
            Status::Starting => "starting",
            Status::Running => "running",
            Status::Recovering { .. } => "recovering",
            Status::Stopped { .. } => "stopped",
            Status::Degraded { .. } => "degraded",
            Status::Finished => "finished",
            Status::Invalid => "invalid",
        }
    }

    /// Returns the error, if there is one.
    pub fn error(&self) -> Option<&str> {
        match self {
            Status::Recovering { error } | Status::Degraded { error } => Some(error),
            Status::Starting | Status::Running | Status::Stopped { .. } | Status::Finished | Status::Invalid => None,
        }
    }
}

/// Where a pipeline is declared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// In a file, which is applied at every start of the service.
    #[default]
    File,
    /// Created through the API: only the store has it.
    Api,
}

/// A point in time: milliseconds since 1970 in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Moment(pub u64);

impl Moment {
    /// Returns the current time.
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Moment(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

impl From<Moment> for SystemTime {
    fn from(moment: Moment) -> Self {
        UNIX_EPOCH + Duration::from_millis(moment.0)
    }
}

/// A pipeline as it was last provisioned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredPipeline {
    /// The id.
    pub id: Str,
    /// The name.
    pub name: Str,
    /// Free text.
    pub description: Str,
    /// True if its file asks to start it.
    pub autostart: bool,
    /// The dead-letter queue.
    pub dead_letter: StoredDeadLetter,
    /// Sources and destinations, in order.
    pub connectors: Vec<StoredConnector>,
    /// Processors of the pipeline, in order.
    pub processors: Vec<StoredProcessor>,
    /// What becomes of records that fulfil the condition of no destination, if the file says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unmatched: Option<Str>,
    /// Where nodes of a cluster may run the pipeline, if the file says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Str>,
    /// Connectors that are missing in its file; their positions are kept.
    #[serde(default)]
    pub detached_connectors: Vec<StoredConnector>,
    /// True if no file declares the pipeline.
    #[serde(default)]
    pub detached: bool,
    /// The status.
    pub status: Status,
    /// Where it is declared.
    #[serde(default)]
    pub origin: Origin,
    /// When it was first stored; `None` if an earlier version stored it.
    #[serde(default)]
    pub created: Option<Moment>,
    /// When its configuration last changed.
    #[serde(default)]
    pub updated: Option<Moment>,
}

/// The dead-letter queue as written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredDeadLetter {
    /// Destination plugin.
    pub plugin: Str,
    /// Its settings.
    pub settings: Vec<StoredSetting>,
    /// Size of the window.
    pub window_size: u64,
    /// Tolerated failures within the window.
    pub window_nack_threshold: u64,
}

/// A connector as written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredConnector {
    /// Its id.
    pub id: Str,
    /// `source` or `destination`.
    pub role: Str,
    /// Its plugin.
    pub plugin: Str,
    /// Its name.
    pub name: Str,
    /// The condition on the records that the destination receives, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<Str>,
    /// Its settings.
    pub settings: Vec<StoredSetting>,
    /// Its own processors, in order.
    pub processors: Vec<StoredProcessor>,
}

impl StoredConnector {
    /// Returns `true` if the connector is a source.
    pub fn is_source(&self) -> bool {
        &*self.role == "source"
    }
}

/// A processor as written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredProcessor {
    /// Its id.
    pub id: Str,
    /// Its plugin.
    pub plugin: Str,
    /// The condition on records, if any.
    pub condition: Option<Str>,
    /// Its settings.
    pub settings: Vec<StoredSetting>,
    /// Number of parallel workers.
    pub workers: u32,
}

/// A setting as written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StoredSetting {
    /// Its name.
    pub name: Str,
    /// Its text in the file, without substitution.
    pub written: Str,
}

impl StoredPipeline {
    /// Returns the ids of its sources, in order.
    pub fn sources(&self) -> Vec<Str> {
        self.connectors.iter().filter(|connector| connector.is_source()).map(|source| source.id.clone()).collect()
    }

    /// Creates a pipeline without connectors, with the API as its origin. Its dead-letter queue is the default of
    /// pipeline files.
    pub fn new(id: Str, name: Str, description: Str) -> Self {
        let setting =
            |name, written| StoredSetting { name: Str::from_static(name), written: Str::from_static(written) };
        StoredPipeline {
            name,
            description,
            dead_letter: StoredDeadLetter {
                plugin: Str::from_static("builtin:log"),
                settings: vec![setting("level", "warn"), setting("message", "record delivery failed")],
                window_size: 1,
                window_nack_threshold: 0,
            },
            status: Status::Stopped { reason: StopReason::User },
            origin: Origin::Api,
            ..StoredPipeline::unknown(id)
        }
    }

    /// Removes a connector that was set aside.
    pub(super) fn forget(&mut self, connector: &str) {
        self.detached_connectors.retain(|detached| *detached.id != *connector);
    }

    /// Creates a pipeline of which only the id is known.
    pub fn unknown(id: Str) -> Self {
        StoredPipeline {
            name: id.clone(),
            id,
            description: Str::default(),
            autostart: true,
            dead_letter: StoredDeadLetter {
                plugin: Str::default(),
                settings: Vec::new(),
                window_size: 0,
                window_nack_threshold: 0,
            },
            connectors: Vec::new(),
            processors: Vec::new(),
            unmatched: None,
            placement: None,
            detached_connectors: Vec::new(),
            detached: false,
            status: Status::Invalid,
            origin: Origin::File,
            created: None,
            updated: None,
        }
    }
}

impl From<&PipelineConfig> for StoredPipeline {
    fn from(config: &PipelineConfig) -> Self {
        let queue = &config.dead_letter_queue;
        StoredPipeline {
            id: config.id.value.clone(),
            name: config.name.value.clone(),
            description: config.description.clone(),
            autostart: config.status == DesiredStatus::Running,
            dead_letter: StoredDeadLetter {
                plugin: queue.plugin.value.clone(),
                settings: settings(&queue.settings),
                window_size: queue.window_size.value,
                window_nack_threshold: queue.window_nack_threshold.value,
            },
            connectors: config.connectors.iter().map(connector).collect(),
            processors: config.processors.iter().map(processor).collect(),
            unmatched: config.unmatched.as_ref().map(|unmatched| unmatched.written().clone()),
            placement: config.placement.as_ref().map(|placement| placement.written().clone()),
            detached_connectors: Vec::new(),
            detached: false,
            status: Status::Stopped { reason: StopReason::User },
            origin: Origin::File,
            created: None,
            updated: None,
        }
    }
}

fn connector(config: &ConnectorConfig) -> StoredConnector {
    StoredConnector {
        id: config.id.value.clone(),
        role: Str::from_static(match config.role.value {
            Role::Source => "source",
            Role::Destination => "destination",
        }),
        plugin: config.plugin.value.clone(),
        name: config.name.value.clone(),
        condition: config.condition.as_ref().map(|condition| condition.written().clone()),
        settings: settings(&config.settings),
        processors: config.processors.iter().map(processor).collect(),
    }
}

fn processor(config: &ProcessorConfig) -> StoredProcessor {
    StoredProcessor {
        id: config.id.value.clone(),
        plugin: config.plugin.value.clone(),
        condition: config.condition.as_ref().map(|c| c.written().clone()),
        settings: settings(&config.settings),
        workers: config.workers.value,
    }
}

/// Returns the settings sorted, because their order in a file has no meaning.
fn settings(settings: &PluginSettings) -> Vec<StoredSetting> {
    let mut stored: Vec<_> = settings
        .entries
        .iter()
        .map(|s| StoredSetting { name: s.name.value.clone(), written: s.value.written().clone() })
        .collect();
    stored.sort();
    stored
}
