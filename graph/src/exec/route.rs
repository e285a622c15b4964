//! A route: gives rows to the destinations whose conditions they fulfil.

use std::sync::Arc;

use anabranch_plugin::operator::{Decision, arrange};
use anabranch_plugin::trace::SpanKind;
use anabranch_record::fault::Fault;
use anabranch_record::mask::Mask;
use anabranch_record::text::Str;
use anabranch_template::condition::Condition;
use tokio::time::Instant;

use super::Interrupt;
use super::chain::{carry, select};
use super::fan_out::Output;
use super::meter::StripBefore;
use super::queue::Receiver;
use super::tap::{NodeRole, Side, Tap};
use super::trace::{Interval, NodeTracer, Passage, RowOutcome};
use crate::batch::{Batch, Leftover};
use crate::codes;
use crate::plan::graph::RouteNode;
use crate::plan::stage::{RouteSpec, StageId, Unmatched};

/// A rule with its condition.
struct Rule {
    /// Index of the successor.
    way: usize,
    node: Str,
    condition: Option<Box<dyn Condition>>,
    otherwise: bool,
}

/// The rules of a route, and what is reused for each strip.
pub(super) struct Routing {
    /// In the order of the file.
    rules: Vec<Rule>,
    unmatched: Unmatched,
    /// The rows that each successor receives.
    ways: Vec<Mask>,
    failed: Vec<(usize, Fault)>,
    decisions: Vec<(usize, Decision)>,
    tap: Arc<Tap>,
    tracer: Option<NodeTracer>,
    output: Output,
}

impl Routing {
    /// Creates the routing to these successors.
    ///
    /// # Errors
    /// The plan has no rule for a successor, a defect of the compiler.
    pub(super) fn new(spec: &RouteSpec, to: &[StageId], output: Output) -> Result<Routing, Fault> {
        let rules = spec.rules.iter().map(|rule| {
            let way = to.iter().position(|to| rule.to == *to)?;
            let condition = rule.condition.as_ref().map(|condition| condition.instantiate());
            Some(Rule { way, node: rule.node.clone(), condition, otherwise: rule.otherwise })
        });
        let rules = rules.collect::<Option<Vec<Rule>>>().filter(|rules| rules.len() == to.len());
        let rules = rules.ok_or_else(|| Fault::fatal(codes::PLAN_BROKEN, "a route has no rule for a destination"))?;
        let node = Str::from_static(RouteNode::NODE);
        Ok(Routing {
            ways: rules.iter().map(|_| Mask::default()).collect(),
            rules,
            unmatched: spec.unmatched,
            failed: Vec::new(),
            decisions: Vec::new(),
            tap: output.tap(NodeRole::Processor, &node),
            tracer: output.tracer(&node, &Str::default(), SpanKind::Step),
            output,
        })
    }

    /// Routes strips until the input ends.
    pub(super) async fn run(mut self, mut input: Receiver) -> Result<(), Interrupt> {
        while let Some(batch) = input.recv_idle().await {
            let mut left = self.output.leftover();
            let routed = self.route(batch, &mut left)?;
            if !left.is_empty() {
                self.output.put_aside(left).await?;
            }
            self.output.emit_each(routed).await?;
        }
        Ok(())
    }

    /// Returns the rows for each successor. Rows that no successor receives are in `left`.
    fn route(&mut self, mut batch: Batch, left: &mut Leftover) -> Result<Vec<Batch>, Interrupt> {
        let meters = self.output.meters();
        let meter = meters.step(0);
        meter.enter(batch.rows());
        if let Some(watchers) = self.tap.watchers() {
            watchers.show(Side::Before, batch.records());
        }
        let started = Instant::now();
        self.judge(&batch);
        let ended = Instant::now();
        meter.took(ended - started);
        arrange(&mut self.decisions);
        if let Some(tracer) = &self.tracer {
            let decisions = &self.decisions;
            tracer.passed(batch.lineage(), batch.records(), Interval { from: started, to: ended }, |row| {
                let decision = decisions.binary_search_by_key(&row, |(row, _)| *row).ok().map(|at| &decisions[at].1);
                Some(Passage { condition: None, fate: RowOutcome::from(decision) })
            });
        }
        let before = StripBefore::of(batch.rows(), left);
        if !self.decisions.is_empty() {
            for way in &mut self.ways {
                let judged = std::mem::take(way);
                carry(&judged, &self.decisions, way);
            }
            batch.apply(&mut self.decisions, left, &mut self.output.lend())?;
        }
        if let Some(watchers) = self.tap.watchers() {
            watchers.show(Side::After, batch.records());
        }
        meter.leave(before.passed(batch.rows(), left), meters.at(ended));
        let rows = batch.rows();
        let routed = batch.route(&self.ways, &mut self.output.lend())?;
        let copies: usize = routed.iter().map(Batch::rows).sum();
        self.output.context.progress.add_born(copies.saturating_sub(rows));
        Ok(routed)
    }

    /// Sets the rows of each way, and decides on rows that no way receives: those for which a condition fails, and those
    /// that fulfil none.
    fn judge(&mut self, batch: &Batch) {
        let rows = batch.rows();
        let (mut reached, mut failing) = (Mask::none(rows), Mask::none(rows));
        for rule in &mut self.rules {
            let way = &mut self.ways[rule.way];
            way.reset(rows);
            match &mut rule.condition {
                Some(condition) => {
                    let from = self.failed.len();
                    select(&mut **condition, batch, way, &mut self.failed);
                    // The first condition that fails for a row says why.
                    for (row, fault) in self.failed.split_off(from) {
                        if !failing.get(row) {
                            failing.set(row);
                            self.failed.push((row, fault.at(&rule.node)));
                        }
                    }
                }
                None if rule.otherwise => {}
                None => (0..rows).for_each(|row| way.set(row)),
            }
            way.rows().for_each(|row| reached.set(row));
        }
        if mutant!(FirstWayOnly) {
            let mut given = Mask::none(rows);
            for way in &mut self.ways {
                (0..rows).filter(|row| given.get(*row)).for_each(|row| way.clear(row));
                way.rows().for_each(|row| given.set(row));
            }
        }
        if mutant!(FailedRuleIsFalse) {
            self.failed.clear();
        }
        // A row fails as a whole: it is not known where it belongs.
        self.failed.iter().for_each(|(row, _)| reached.set(*row));
        let unmatched = |row: &usize| !reached.get(*row);
        for rule in self.rules.iter().filter(|rule| rule.otherwise) {
            (0..rows).filter(unmatched).for_each(|row| self.ways[rule.way].set(row));
        }
        if !self.rules.iter().any(|rule| rule.otherwise) {
            let decision = |row| (row, self.unmatched.decision());
            self.decisions.extend((0..rows).filter(unmatched).map(decision));
        }
        self.decisions.extend(self.failed.drain(..).map(|(row, fault)| (row, Decision::Fail(fault))));
    }
}

impl Unmatched {
    fn decision(self) -> Decision {
        let text = "the record fulfils the condition of no destination";
        let node = Str::from_static(RouteNode::NODE);
        match self {
            _ if mutant!(UnmatchedForgotten) => Decision::Filter,
            Unmatched::Drop => Decision::Filter,
            Unmatched::DeadLetter => Decision::Fail(Fault::record(codes::UNMATCHED, text).at(&node)),
            Unmatched::Fail => Decision::Fail(Fault::fatal(codes::UNMATCHED, text).at(&node)),
        }
    }
}
