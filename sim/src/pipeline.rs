//! Converts a scenario to a pipeline of the compiler.

use std::sync::Arc;

use anabranch_graph::config::{ConnectorConfig, DeadLetterConfig, DesiredStatus, PipelineConfig, ProcessorConfig};
use anabranch_graph::plan::{CompileOptions, Limits, StagePlan, compile};
use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::destination::{Destination, DestinationKind};
use anabranch_plugin::diagnostic::{Diagnostics, Span, Spanned};
use anabranch_plugin::operator::{ConfiguredOperator, OperatorKind};
use anabranch_plugin::registry::{Registry, Role};
use anabranch_plugin::settings::Settings;
use anabranch_plugin::source::{Source, SourceKind};
use anabranch_plugin::specification::{Parameter, ParameterKind, Specification, shared};
use anabranch_plugin::written::Written;

use crate::ends::{MARK, SimDestination, SimSource};
use crate::scenario::{Scenario, Step, Upstream, When};
use crate::steps::SimStep;
use crate::world::World;

/// The setting that selects the source, destination or processor of the scenario.
const NUMBER: &str = "number";

/// A plugin of the simulation: sources, destinations and processors by number.
struct Sim {
    specification: Specification,
    world: Arc<World>,
    steps: Vec<Step>,
}

impl Sim {
    fn number(arguments: &Arguments) -> usize {
        arguments.size(NUMBER).unwrap_or_default()
    }
}

impl SourceKind for Sim {
    fn specification(&self) -> &Specification {
        &self.specification
    }

    fn configure(&self, arguments: &Arguments) -> Result<Arc<dyn Source>, Diagnostics> {
        Ok(Arc::new(SimSource { world: self.world.clone(), index: Sim::number(arguments) }))
    }
}

impl DestinationKind for Sim {
    fn specification(&self) -> &Specification {
        &self.specification
    }

    fn configure(&self, arguments: &Arguments) -> Result<Arc<dyn Destination>, Diagnostics> {
        Ok(Arc::new(SimDestination { world: self.world.clone(), index: Sim::number(arguments) }))
    }
}

impl OperatorKind for Sim {
    fn specification(&self) -> &Specification {
        &self.specification
    }

    fn configure(&self, arguments: &Arguments) -> Result<Arc<dyn ConfiguredOperator>, Diagnostics> {
        let step = self.steps[Sim::number(arguments)].clone();
        Ok(Arc::new(SimStep { world: self.world.clone(), step }))
    }
}

fn at<T>(value: T) -> Spanned<T> {
    Spanned::new(value, Span::default())
}

fn settings(pairs: &[(&str, String)]) -> Settings {
    Settings::from_pairs(pairs.iter().map(|(name, value)| (*name, value.as_str())))
}

/// Compiles the scenario. With `repaired`, any number of failures is allowed.
///
/// # Errors
/// The findings of the compiler, which are not expected.
pub fn plan(world: &Arc<World>, repaired: bool) -> Result<Arc<StagePlan>, String> {
    let scenario: &Scenario = &world.scenario;
    let mut steps: Vec<Step> = Vec::new();
    let mut processors = |list: &[Step]| -> Vec<ProcessorConfig> {
        let processor = |(i, step): (usize, &Step)| {
            steps.push(step.clone());
            let condition = match step.when {
                When::Always => None,
                When::Never => Some("{{ false }}".to_owned()),
                When::Is(mark) => Some(format!("{{{{ eq (index .Metadata \"{MARK}\") \"{mark}\" }}}}")),
                When::Text => Some(format!("{{{{ index .Metadata \"{MARK}\" }}}}")),
            };
            ProcessorConfig {
                id: at(format!("p{i}").into()),
                plugin: at("sim".into()),
                condition: condition.map(|text| Written::new(text.clone(), text, Span::default())),
                settings: settings(&[(NUMBER, (steps.len() - 1).to_string())]),
                workers: at(step.workers),
                span: Span::default(),
            }
        };
        list.iter().enumerate().map(processor).collect()
    };
    let connector = |id: String, role, settings, processors| ConnectorConfig {
        id: at(id.as_str().into()),
        role: at(role),
        plugin: at("sim".into()),
        name: at(id.into()),
        settings,
        processors,
        span: Span::default(),
    };
    let mut connectors = Vec::new();
    for (i, source) in scenario.sources.iter().enumerate() {
        let Upstream { batch, steps, .. } = source;
        let mut pairs = vec![(NUMBER, i.to_string())];
        if let Some((rows, delay)) = batch {
            let rows = (*rows).min(scenario.replay_rows);
            pairs.extend([("sdk.batch.size", rows.to_string()), ("sdk.batch.delay", format!("{delay}ms"))]);
        }
        connectors.push(connector(format!("s{i}"), Role::Source, settings(&pairs), processors(steps)));
    }
    for (i, sink) in scenario.sinks.iter().enumerate() {
        let mut pairs = vec![(NUMBER, i.to_string())];
        if sink.rate > 0 {
            pairs.push(("sdk.rate.perSecond", sink.rate.to_string()));
        }
        connectors.push(connector(format!("d{i}"), Role::Destination, settings(&pairs), processors(&sink.steps)));
    }
    let config = PipelineConfig {
        id: at("p".into()),
        name: at("p".into()),
        description: Default::default(),
        status: DesiredStatus::Running,
        connectors,
        processors: processors(&scenario.steps),
        dead_letter_queue: DeadLetterConfig {
            plugin: at("sim".into()),
            settings: settings(&[(NUMBER, scenario.sinks.len().to_string())]),
            window_size: at(if repaired { 0 } else { scenario.window }),
            window_nack_threshold: at(if repaired { 0 } else { scenario.threshold }),
            span: Span::default(),
        },
        span: Span::default(),
    };
    let kind = |parameters| {
        let number = Parameter::new(NUMBER, ParameterKind::Int, "Which one.");
        let specification = Specification::builtin("sim", "Simulated.").with(number).with_all(parameters);
        Arc::new(Sim { specification, world: world.clone(), steps: steps.clone() })
    };
    let mut registry = Registry::new();
    registry.add_source(kind(shared::source()));
    registry.add_destination(kind(shared::destination()));
    registry.add_operator(kind(shared::processor()));
    let limits = Limits {
        replay_rows: scenario.replay_rows,
        held_bytes: scenario.held_bytes,
        queue_bytes: scenario.queue_bytes,
        ..Limits::default()
    };
    let options = CompileOptions { split: true, once: scenario.once, strict: false, limits };
    match compile(&config, &registry, &options) {
        Ok(compiled) => Ok(compiled.stages),
        Err(findings) => Err(format!("the pipeline does not compile: {findings:?}")),
    }
}
