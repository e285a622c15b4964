//! Converts a scenario to a pipeline of the compiler.

use anabranch_config::limits::MemoryLimits;
use std::sync::Arc;

use anabranch_config::{ConnectorConfig, DeadLetterConfig, DesiredStatus, PipelineConfig, ProcessorConfig};
use anabranch_graph::plan::{CompileOptions, StagePlan, compile};
use anabranch_plugin::diagnostic::{Span, Spanned};
use anabranch_plugin::kind;
use anabranch_plugin::parameters::{Parameters, shared};
use anabranch_plugin::registry::{Registry, Role};
use anabranch_plugin::settings::Settings;
use anabranch_plugin::specification::Specification;
use anabranch_plugin::written::Written;

use crate::ends::SimDestination;
use crate::processors::SimProcessor;
use crate::record::MARK;
use crate::scenario::{AppliesTo, Scenario, ScenarioProcessor, Upstream};
use crate::source::SimSource;
use crate::world::World;

/// The setting that selects the source, destination or processor of the scenario.
const NUMBER: &str = "number";

/// Parameters of the plugins of the simulation.
#[derive(Parameters)]
struct Selected {
    /// Index of the plugin in the scenario.
    #[parameter(name = NUMBER)]
    number: usize,
}

fn at<T>(value: T) -> Spanned<T> {
    Spanned::new(value, Span::default())
}

fn settings(pairs: &[(&str, String)]) -> Settings {
    Settings::from_pairs(pairs.iter().map(|(name, value)| (*name, value.as_str())))
}

fn verbatim(text: String) -> Written {
    Written::new(text.clone(), text, Span::default())
}

/// Returns the condition that selects these records.
fn condition(when: AppliesTo) -> Option<Written> {
    match when {
        AppliesTo::Always => None,
        AppliesTo::Never => Some("{{ false }}".to_owned()),
        AppliesTo::Is(mark) => Some(format!("{{{{ eq (index .Metadata \"{MARK}\") \"{mark}\" }}}}")),
        AppliesTo::Text => Some(format!("{{{{ index .Metadata \"{MARK}\" }}}}")),
    }
    .map(verbatim)
}

/// Compiles the scenario. With `repaired`, any number of failures is allowed.
///
/// # Errors
/// The findings of the compiler, which are not expected.
pub fn plan(world: &Arc<World>, repaired: bool) -> Result<Arc<StagePlan>, String> {
    let scenario: &Scenario = &world.scenario;
    let mut all: Vec<ScenarioProcessor> = Vec::new();
    let mut configured = |list: &[ScenarioProcessor]| -> Vec<ProcessorConfig> {
        let processor = |(i, processor): (usize, &ScenarioProcessor)| {
            all.push(processor.clone());
            ProcessorConfig {
                id: at(format!("p{i}").into()),
                plugin: at("sim".into()),
                condition: condition(processor.when),
                settings: settings(&[(NUMBER, (all.len() - 1).to_string())]),
                workers: at(processor.workers),
                span: Span::default(),
            }
        };
        list.iter().enumerate().map(processor).collect()
    };
    let connector = |id: String, role, when, settings, processors| ConnectorConfig {
        id: at(id.as_str().into()),
        role: at(role),
        plugin: at("sim".into()),
        name: at(id.into()),
        condition: condition(when),
        settings,
        processors,
        span: Span::default(),
    };
    let mut connectors = Vec::new();
    for (i, source) in scenario.sources.iter().enumerate() {
        let Upstream { batch, processors, .. } = source;
        let mut pairs = vec![(NUMBER, i.to_string())];
        if let Some((rows, delay)) = batch {
            let rows = (*rows).min(scenario.replay_rows);
            pairs.extend([("sdk.batch.size", rows.to_string()), ("sdk.batch.delay", format!("{delay}ms"))]);
        }
        connectors.push(connector(
            format!("s{i}"),
            Role::Source,
            AppliesTo::Always,
            settings(&pairs),
            configured(processors),
        ));
    }
    for (i, sink) in scenario.sinks.iter().enumerate() {
        let mut pairs = vec![(NUMBER, i.to_string())];
        if sink.rate > 0 {
            pairs.push(("sdk.rate.perSecond", sink.rate.to_string()));
        }
        let processors = configured(&sink.processors);
        connectors.push(connector(format!("d{i}"), Role::Destination, sink.when, settings(&pairs), processors));
    }
    let unmatched = match scenario.sinks.iter().position(|sink| sink.otherwise) {
        Some(sink) => format!("d{sink}"),
        None if scenario.unmatched_fails => "dead-letter".to_owned(),
        None => "drop".to_owned(),
    };
    let config = PipelineConfig {
        id: at("p".into()),
        name: at("p".into()),
        description: Default::default(),
        status: DesiredStatus::Running,
        connectors,
        processors: configured(&scenario.processors),
        unmatched: Some(verbatim(unmatched)),
        placement: None,
        dead_letter_queue: DeadLetterConfig {
            plugin: at("sim".into()),
            settings: settings(&[(NUMBER, scenario.sinks.len().to_string())]),
            window_size: at(if repaired { 0 } else { scenario.window }),
            window_nack_threshold: at(if repaired { 0 } else { scenario.threshold }),
            span: Span::default(),
        },
        span: Span::default(),
    };
    let specification = |parameters| Specification::builtin("sim", "Simulated.").with_all(parameters);
    let mut registry = Registry::new();
    let of_source = world.clone();
    registry.add_source(kind::source(specification(shared::source()), move |Selected { number: index }| {
        Ok(Arc::new(SimSource { world: of_source.clone(), index }))
    }));
    let of_destination = world.clone();
    registry
        .add_destination(kind::destination(specification(shared::destination()), move |Selected { number: index }| {
            Ok(Arc::new(SimDestination { world: of_destination.clone(), index }))
        }));
    let (of_operator, processors) = (world.clone(), all);
    registry.add_operator(kind::operator(specification(shared::processor()), move |Selected { number }| {
        Ok(SimProcessor { world: of_operator.clone(), processor: processors[number].clone() }.configured())
    }));
    let limits = MemoryLimits {
        replay_rows: scenario.replay_rows,
        held_bytes: scenario.held_bytes,
        queue_bytes: scenario.queue_bytes,
        ..MemoryLimits::default()
    };
    let options = CompileOptions { split: true, once: scenario.once, strict: false, limits, cluster: false };
    match compile(&config, &registry, &options) {
        Ok(compiled) => Ok(compiled.stages),
        Err(findings) => Err(format!("the pipeline does not compile: {findings:?}")),
    }
}
