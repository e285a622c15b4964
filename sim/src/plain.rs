//! A pipeline that has only a source and a destination, and the services of its runs.

use std::sync::Arc;

use anabranch_config::limits::MemoryLimits;
use anabranch_config::{ConnectorConfig, DeadLetterConfig, DesiredStatus, PipelineConfig};
use anabranch_graph::exec::Services;
use anabranch_graph::plan::{CompileOptions, StagePlan, compile};
use anabranch_plugin::destination::Destination;
use anabranch_plugin::diagnostic::{Span, Spanned};
use anabranch_plugin::host::{DiscardingLog, Network};
use anabranch_plugin::kind;
use anabranch_plugin::parameters::{Parameters, shared};
use anabranch_plugin::registry::{Registry, Role};
use anabranch_plugin::schema::MemoryRegistry;
use anabranch_plugin::settings::Settings;
use anabranch_plugin::source::Source;
use anabranch_plugin::specification::Specification;
use anabranch_plugin::state::{DiscardingState, StateStore};
use anabranch_record::text::Str;

/// Id of the source.
pub(crate) const SOURCE: &str = "s0";

/// Names of the plugins.
const ENDS: &str = "ends";
const LETTERS: &str = "letters";

/// The ends of a pipeline.
pub(crate) struct Ends {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) destination: Arc<dyn Destination>,
    /// Receives dead letters.
    pub(crate) letters: Arc<dyn Destination>,
}

/// The ends have no parameters.
#[derive(Parameters)]
struct NoParameters {}

/// Compiles the pipeline of these ends. `cluster` is true if it runs on nodes of a cluster.
pub(crate) fn compiled(ends: Ends, replay_rows: usize, cluster: bool) -> Result<Arc<StagePlan>, String> {
    let specification = |name, parameters| Specification::builtin(name, "Simulated.").with_all(parameters);
    let mut registry = Registry::new();
    let Ends { source, destination, letters } = ends;
    registry.add_source(kind::source(specification(ENDS, shared::source()), move |NoParameters {}| Ok(source.clone())));
    for (name, destination) in [(ENDS, destination), (LETTERS, letters)] {
        let specification = specification(name, shared::destination());
        registry.add_destination(kind::destination(specification, move |NoParameters {}| Ok(destination.clone())));
    }
    let limits = MemoryLimits { replay_rows, ..MemoryLimits::default() };
    let options = CompileOptions { split: true, once: false, strict: false, limits, cluster };
    match compile(&two_ends(), &registry, &options) {
        Ok(compiled) => Ok(compiled.stages),
        Err(findings) => Err(format!("the pipeline does not compile: {findings:?}")),
    }
}

/// Returns the services of a run that has only a store; `shared` identifies the store if several processes share it.
pub(crate) fn services(store: Arc<dyn StateStore>, shared: Option<Str>) -> Services {
    Services {
        store,
        log: Arc::new(DiscardingLog),
        result_cache: Arc::new(DiscardingState),
        active: Arc::new(DiscardingState),
        letters: None,
        schemas: Arc::new(MemoryRegistry::new()),
        network: Network::Open,
        shared,
    }
}

fn two_ends() -> PipelineConfig {
    fn at<T>(value: T) -> Spanned<T> {
        Spanned::new(value, Span::default())
    }
    let none = || Settings::from_pairs([]);
    let connector = |id: &str, role| ConnectorConfig {
        id: at(id.into()),
        role: at(role),
        plugin: at(ENDS.into()),
        name: at(id.into()),
        condition: None,
        settings: none(),
        processors: Vec::new(),
        span: Span::default(),
    };
    PipelineConfig {
        id: at("p".into()),
        name: at("p".into()),
        description: Default::default(),
        status: DesiredStatus::Running,
        connectors: vec![connector(SOURCE, Role::Source), connector("d0", Role::Destination)],
        processors: Vec::new(),
        unmatched: None,
        placement: None,
        dead_letter_queue: DeadLetterConfig {
            plugin: at(LETTERS.into()),
            settings: none(),
            window_size: at(1),
            window_nack_threshold: at(0),
            span: Span::default(),
        },
        span: Span::default(),
    }
}
