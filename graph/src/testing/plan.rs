//! Hand-written plans.

use anabranch_config::limits::MemoryLimits;
use std::sync::Arc;
use std::time::Duration;

use anabranch_plugin::host::Host;
use anabranch_plugin::operator::Configured;
use anabranch_plugin::testing::{Downstream, DownstreamDestination, MemoryStore, Upstream, UpstreamSource, host};
use anabranch_record::text::Str;
use anabranch_template::condition::CompiledCondition;

use crate::exec::Services;
use crate::plan::stage::{
    DeadLetterSpec, ReadSpec, StageId, StageKind, StagePlan, StageRule, StageSpec, StepCondition, StepSpec, Wire,
    WriteSpec,
};

/// Returns services with this store and a log that discards everything.
pub fn services(store: &Arc<MemoryStore>) -> Services {
    let Host { log, result_cache, active, schemas, network, shared, .. } = host();
    Services { store: store.clone(), log, result_cache, active, letters: None, schemas, network, shared }
}

/// Builder of a fused plan. Stages are added before their successors.
pub struct Pipeline {
    plan: StagePlan,
}

impl Pipeline {
    /// Creates a pipeline named `p` whose dead letters go to `letters`.
    pub fn new(letters: &Arc<Downstream>, window_size: u64, threshold: u64) -> Self {
        let dead_letter = DeadLetterSpec {
            plugin: "shelf".into(),
            destination: Arc::new(DownstreamDestination(letters.clone())),
            window_size,
            threshold,
        };
        let limits = MemoryLimits::default();
        Pipeline {
            plan: StagePlan {
                pipeline: "p".into(),
                stages: Vec::new(),
                wires: Vec::new(),
                dead_letter,
                limits,
                files_are_shared: false,
                located: None,
            },
        }
    }

    /// Changes the limits.
    #[must_use]
    pub fn limits(mut self, change: impl FnOnce(&mut MemoryLimits)) -> Self {
        change(&mut self.plan.limits);
        self
    }

    fn add(&mut self, name: &str, kind: StageKind) -> StageId {
        self.plan.stages.push(StageSpec { name: name.into(), kind });
        StageId(self.plan.stages.len() - 1)
    }

    fn wire(&mut self, from: &[StageId], to: StageId) -> StageId {
        self.plan.wires.extend(from.iter().map(|from| Wire { from: *from, to }));
        to
    }

    /// Adds a source.
    pub fn read(&mut self, connector: &str, upstream: &Arc<Upstream>) -> StageId {
        self.read_batches(connector, upstream, None, Duration::ZERO)
    }

    /// Adds a source that collects rows.
    pub fn read_batches(
        &mut self,
        connector: &str,
        upstream: &Arc<Upstream>,
        batch_rows: Option<usize>,
        batch_delay: Duration,
    ) -> StageId {
        let source = Arc::new(UpstreamSource(upstream.clone()));
        let plugin = Str::from("upstream");
        let spec = ReadSpec { connector: connector.into(), plugin, source, batch_rows, batch_delay };
        self.add(connector, StageKind::Read(spec))
    }

    /// Adds a stage of any kind.
    pub fn stage(&mut self, name: &str, from: &[StageId], kind: StageKind) -> StageId {
        let stage = self.add(name, kind);
        self.wire(from, stage)
    }

    /// Adds a chain of operators that are applied to all rows.
    pub fn chain(&mut self, from: &[StageId], operators: &[Configured]) -> StageId {
        let steps =
            operators.iter().enumerate().map(|(i, operator)| Self::step(&format!("step{i}"), operator)).collect();
        self.stage("chain", from, StageKind::Chain(steps))
    }

    /// Returns a step that is applied to all rows.
    pub fn step(node: &str, operator: &Configured) -> StepSpec {
        StepSpec {
            node: node.into(),
            plugin: "closure".into(),
            operator: operator.clone(),
            condition: StepCondition::Always,
            multiplies: true,
        }
    }

    /// Adds a destination.
    pub fn write(&mut self, from: &[StageId], connector: &str, shelf: &Arc<Downstream>) -> StageId {
        self.write_with(from, connector, shelf, |_| {})
    }

    /// Adds a destination with changed settings.
    pub fn write_with(
        &mut self,
        from: &[StageId],
        connector: &str,
        shelf: &Arc<Downstream>,
        change: impl FnOnce(&mut WriteSpec),
    ) -> StageId {
        let mut spec = WriteSpec {
            connector: connector.into(),
            plugin: "shelf".into(),
            destination: Arc::new(DownstreamDestination(shelf.clone())),
            batch_rows: None,
            batch_delay: None,
            rate: None,
            burst: 0,
        };
        change(&mut spec);
        let stage = self.add(connector, StageKind::Write(spec));
        self.wire(from, stage)
    }

    /// Sets the rules of a route, which was added before its successors: a condition, or none, and whether the successor
    /// receives the rows that fulfil no condition.
    pub fn rules(&mut self, route: StageId, rules: Vec<(StageId, Option<CompiledCondition>, bool)>) {
        let rule = |(to, condition, otherwise): (StageId, Option<CompiledCondition>, bool)| StageRule {
            to,
            node: format!("{}?", to.0).into(),
            condition: condition.map(Arc::new),
            otherwise,
        };
        if let Some(StageKind::Route(spec)) = self.plan.stages.get_mut(route.0).map(|stage| &mut stage.kind) {
            spec.rules = rules.into_iter().map(rule).collect();
        }
    }

    /// Returns the plan.
    pub fn plan(self) -> Arc<StagePlan> {
        Arc::new(self.plan)
    }
}
