//! Random pipelines: whatever compiles is sound, and every pass means the same.

use std::collections::BTreeMap;

use anabranch_plugin::host::Host;
use anabranch_plugin::operator::{Configured, Decision};
use anabranch_plugin::testing::{self, configured::Opened};
use anabranch_record::mask::Mask;
use anabranch_record::{Position, Record};
use petgraph::algo::{has_path_connecting, is_cyclic_directed};
use petgraph::stable_graph::NodeIndex;
use proptest::prelude::*;

use crate::plan::graph::{NodeKind, PlanGraph, Port, RouteRule, successors};
use crate::plan::replay::{NoEntry, ReplayEntry, replay};
use crate::plan::stage::{StageId, StageKind, StagePlan, StageRule, StageSpec, StepCondition, StepSpec, Unmatched};
use crate::plan::{CompileOptions, compile};
use crate::testing::any_pipeline::any_pipeline;
use crate::testing::notation::pipeline;
use crate::testing::scripted::registry;

/// The rows that arrive at each destination and at `failed`, in order.
type Arrived = BTreeMap<String, Vec<Record>>;

/// The result of an operator: for each row the records that stay, or none and whether it failed.
fn apply(operator: &Configured, records: &mut [Record], selected: Option<&Mask>) -> Vec<(usize, Decision)> {
    let host = Host { pipeline: "demo".into(), node: "step".into(), ..testing::host() };
    Opened::new(operator, host).unwrap().process(records, selected)
}

/// Sends one record through a graph, depth first: rows keep their order.
fn through_graph(plan: &PlanGraph, at: NodeIndex, mut record: Record, arrived: &mut Arrived) {
    let node = &plan[at];
    let mut rows = Vec::new();
    let mut taken = None;
    let mut ways: Option<Vec<bool>> = None;
    match &node.kind {
        NodeKind::Destination(_) => return arrived.entry(node.id.to_string()).or_default().push(record),
        NodeKind::Branch(guard) => {
            taken = Some(guard.condition.evaluate(&record).unwrap());
            rows.push(record);
        }
        NodeKind::Route(route) => {
            let holds = |rule: &RouteRule| match &rule.guard {
                Some(guard) => guard.condition.evaluate(&record).unwrap(),
                None => !rule.otherwise,
            };
            let matched: Vec<bool> = route.rules.iter().map(holds).collect();
            let none = !matched.contains(&true);
            let takes = |(rule, matched): (&RouteRule, bool)| matched || (none && rule.otherwise);
            let takes: Vec<bool> = route.rules.iter().zip(matched).map(takes).collect();
            if !takes.contains(&true) && route.unmatched != Unmatched::Drop {
                return arrived.entry("failed".to_owned()).or_default().push(record);
            }
            ways = Some(takes);
            rows.push(record);
        }
        NodeKind::Operator(step) | NodeKind::Split(step) => {
            if step.guard.as_ref().is_some_and(|guard| !guard.condition.evaluate(&record).unwrap()) {
                rows.push(record);
            } else {
                match apply(&step.operator, std::slice::from_mut(&mut record), None).pop() {
                    None | Some((_, Decision::Keep)) => rows.push(record),
                    Some((_, decision @ (Decision::Split(_) | Decision::Pieces(_)))) => rows = decision.into_records(),
                    Some((_, Decision::Filter)) => {}
                    Some((_, Decision::Fail(_))) => arrived.entry("failed".to_owned()).or_default().push(record),
                }
            }
        }
        NodeKind::Source(_) | NodeKind::FanOut { .. } | NodeKind::Merge | NodeKind::DeadLetter(_) => rows.push(record),
    }
    for row in rows {
        for (way, (port, next)) in successors(plan, at).into_iter().enumerate() {
            if ways.as_ref().is_some_and(|ways| !ways[way]) {
                continue;
            }
            let follows = match port {
                Port::Taken => taken == Some(true),
                Port::Skipped => taken == Some(false),
                Port::Out | Port::Failed => true,
            };
            if follows {
                through_graph(plan, next, row.clone(), arrived);
            }
        }
    }
}

/// Runs a strip through the steps of a stage as the executor does: a mask per step, taken over where the
/// step says so.
fn through_steps(steps: &[StepSpec], mut strip: Vec<Record>, arrived: &mut Arrived) -> Vec<Record> {
    let mut before: Vec<bool> = Vec::new();
    let mut kept_rows = true;
    for step in steps {
        let mut mask = Mask::none(strip.len());
        match &step.condition {
            StepCondition::Always => (0..strip.len()).for_each(|row| mask.set(row)),
            StepCondition::If(condition) => condition.instantiate().select(&strip, &mut mask, &mut Vec::new()),
            StepCondition::AsBefore => {
                assert!(kept_rows && before.len() == strip.len(), "the mask of the step before fits no more");
                before.iter().enumerate().filter(|(_, b)| **b).for_each(|(row, _)| mask.set(row));
            }
        }
        let mut decisions: BTreeMap<usize, Decision> =
            apply(&step.operator, &mut strip, Some(&mask)).into_iter().collect();
        kept_rows = decisions.values().all(|d| matches!(d, Decision::Keep | Decision::Fail(_)));
        before.clear();
        let mut next = Vec::new();
        for (row, record) in strip.into_iter().enumerate() {
            let kept = match decisions.remove(&row) {
                None | Some(Decision::Keep) => vec![record],
                Some(decision @ (Decision::Split(_) | Decision::Pieces(_))) => decision.into_records(),
                Some(Decision::Filter) => vec![],
                Some(Decision::Fail(_)) => {
                    arrived.entry("failed".to_owned()).or_default().push(record);
                    vec![]
                }
            };
            before.extend(kept.iter().map(|_| mask.get(row)));
            next.extend(kept);
        }
        strip = next;
    }
    strip
}

fn through_stages(plan: &StagePlan, at: StageId, strip: Vec<Record>, arrived: &mut Arrived) {
    let strip = match &plan.stages[at.0].kind {
        StageKind::Read(_) => strip,
        StageKind::Chain(steps) | StageKind::Parallel { steps, .. } | StageKind::Isolate { steps, .. } => {
            through_steps(steps, strip, arrived)
        }
        StageKind::Async { .. } => unreachable!("no waiting steps here"),
        StageKind::Route(route) => {
            let selected = |rule: &StageRule| -> Vec<bool> {
                let mut mask = Mask::none(strip.len());
                match &rule.condition {
                    Some(condition) => condition.instantiate().select(&strip, &mut mask, &mut Vec::new()),
                    None => (0..strip.len()).filter(|_| !rule.otherwise).for_each(|row| mask.set(row)),
                }
                (0..strip.len()).map(|row| mask.get(row)).collect()
            };
            let masks: Vec<Vec<bool>> = route.rules.iter().map(selected).collect();
            let none = |row: usize| !masks.iter().any(|mask| mask[row]);
            if route.unmatched != Unmatched::Drop && !route.rules.iter().any(|rule| rule.otherwise) {
                let failed = strip.iter().enumerate().filter(|(row, _)| none(*row)).map(|(_, record)| record.clone());
                arrived.entry("failed".to_owned()).or_default().extend(failed);
            }
            for (rule, mask) in route.rules.iter().zip(&masks) {
                let takes = |row: usize| mask[row] || (rule.otherwise && none(row));
                let rows = strip.iter().enumerate().filter(|(row, _)| takes(*row)).map(|(_, record)| record.clone());
                through_stages(plan, rule.to, rows.collect(), arrived);
            }
            return;
        }
        StageKind::Write(write) => return arrived.entry(write.connector.to_string()).or_default().extend(strip),
    };
    for wire in plan.wires.iter().filter(|wire| wire.from == at) {
        through_stages(plan, wire.to, strip.clone(), arrived);
    }
}

fn strip(rows: &[u8]) -> Vec<Record> {
    let record = |(i, kind): (usize, &u8)| {
        let mut record = Record::at(Position::copy_from(&[i as u8 + 1]));
        if *kind > 0 {
            record.metadata.insert("a", "1".repeat(usize::from(*kind)));
        }
        record
    };
    rows.iter().enumerate().map(record).collect()
}

/// Failed rows come together in another order when rows go through a graph one by one.
fn sorted_failures(mut arrived: Arrived) -> Arrived {
    if let Some(failed) = arrived.get_mut("failed") {
        failed.sort_by_key(|record| format!("{record:?}"));
    }
    arrived
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn plans_are_sound_and_passes_keep_their_meaning(
        text in any_pipeline(),
        rows in prop::collection::vec(0u8..3, 0..6),
    ) {
        let options = CompileOptions { split: true, ..CompileOptions::default() };
        let compiled = compile(&pipeline(&text), &registry(), &options).unwrap();
        for plan in [&compiled.lowered, &compiled.rewritten] {
            prop_assert!(!is_cyclic_directed(plan));
            let of = |wanted: fn(&NodeKind) -> bool| -> Vec<NodeIndex> {
                plan.node_indices().filter(|n| wanted(&plan[*n].kind)).collect()
            };
            for source in of(|kind| matches!(kind, NodeKind::Source(_))) {
                for destination in of(|kind| matches!(kind, NodeKind::Destination(_))) {
                    prop_assert!(has_path_connecting(plan, source, destination, None));
                }
            }
        }
        let is_branch = |kind: &NodeKind| matches!(kind, NodeKind::Branch(_));
        prop_assert!(!compiled.rewritten.node_weights().any(|node| is_branch(&node.kind)), "a branch is left");
        let stages = &compiled.stages;
        prop_assert!(stages.wires.iter().all(|wire| wire.from < wire.to), "a stage comes after its successor");
        prop_assert_eq!(stages.wires.len(), compiled.cuts.len());
        let first_steps = stages.stages.iter().filter_map(|stage| match &stage.kind {
            StageKind::Chain(steps) | StageKind::Parallel { steps, .. } | StageKind::Isolate { steps, .. } => steps.first(),
            _ => None,
        });
        for step in first_steps {
            prop_assert!(!matches!(step.condition, StepCondition::AsBefore), "nothing is before a first step");
        }

        // One source at a time: between sources there is no order.
        for (stage, source) in compiled.lowered.node_indices().filter(|n| {
            matches!(compiled.lowered[*n].kind, NodeKind::Source(_))
        }).enumerate() {
            let mut outcomes = Vec::new();
            for plan in [&compiled.lowered, &compiled.rewritten] {
                let mut arrived = Arrived::new();
                strip(&rows).into_iter().for_each(|record| through_graph(plan, source, record, &mut arrived));
                outcomes.push(sorted_failures(arrived));
            }
            let mut arrived = Arrived::new();
            through_stages(stages, StageId(stage), strip(&rows), &mut arrived);
            arrived.retain(|_, records| !records.is_empty());
            prop_assert_eq!(&outcomes[0], &outcomes[1]);
            prop_assert_eq!(&outcomes[0], &sorted_failures(arrived));
        }
    }

    /// From every step on, and from behind every source, a replay does what the pipeline does there.
    #[test]
    fn a_replay_means_what_the_rest_of_the_plan_means(
        text in any_pipeline(),
        rows in prop::collection::vec(0u8..3, 1..6),
    ) {
        let options = CompileOptions { split: true, ..CompileOptions::default() };
        let compiled = compile(&pipeline(&text), &registry(), &options).unwrap();
        let plan = &compiled.rewritten;
        let source = plan.node_weights().find_map(|node| match &node.kind {
            NodeKind::Source(read) => Some(read.source.clone()),
            _ => None,
        }).unwrap();
        for node in plan.node_indices() {
            let id = &plan[node].id;
            let entry = match &plan[node].kind {
                NodeKind::Source(_) => ReplayEntry::Start,
                NodeKind::Operator(_) | NodeKind::Split(_) | NodeKind::Route(_) | NodeKind::Destination(_) => ReplayEntry::Step(id.clone()),
                _ => continue,
            };
            let connector = if entry == ReplayEntry::Start { id.clone() } else { "s0".into() };
            let stages = replay(&compiled, &entry, &connector, source.clone()).unwrap();
            let is_read = |stage: &StageSpec| matches!(stage.kind, StageKind::Read(_));
            prop_assert_eq!(stages.stages.iter().filter(|stage| is_read(stage)).count(), 1);
            prop_assert!(stages.dead_letter.destination.keeps_letters().is_some());
            prop_assert_eq!(stages.reachable(StageId(0)).len(), stages.stages.len(), "a stage that nothing comes to");

            let mut wanted = Arrived::new();
            strip(&rows).into_iter().for_each(|record| through_graph(plan, node, record, &mut wanted));
            let mut arrived = Arrived::new();
            through_stages(&stages, StageId(0), strip(&rows), &mut arrived);
            arrived.retain(|_, records| !records.is_empty());
            prop_assert_eq!(sorted_failures(wanted), sorted_failures(arrived), "from {}", id);
        }
        prop_assert_eq!(
            replay(&compiled, &ReplayEntry::Step("nobody".into()), &"s0".into(), source).err(),
            Some(NoEntry::Gone("nobody".into()))
        );
    }

    /// Whatever the texts are, findings come back and nothing panics.
    #[test]
    fn nonsense_is_refused(
        plugins in prop::collection::vec("[a-z:@.]{1,8}|gen|out|set|split|count", 4),
        settings in prop::collection::vec("(key|value|sdk\\.batch\\.size)=[a-z0-9$]{0,5}", 4),
        workers in any::<u32>(),
        condition in "(\\{\\{ ?)?[a-z.\" ]{1,12}(\\}\\})?",
    ) {
        let text = format!(
            "source in {} {}\ndestination to {} {}\na {} {} workers={workers} if {condition}.\ndead-letters {} {}\n",
            plugins[0], settings[0], plugins[1], settings[1], plugins[2], settings[2], plugins[3], settings[3],
        );
        let compiled = compile(&pipeline(&text), &registry(), &CompileOptions::default());
        if let Err(findings) = compiled {
            prop_assert!(findings.has_errors());
            for finding in findings.iter() {
                prop_assert!(finding.code.name().starts_with("plan.") || finding.code.name().starts_with("settings."));
                prop_assert!(finding.path.is_some(), "{finding:?}");
                prop_assert!(!finding.code.name().contains("internal"), "{finding:?}");
            }
        }
    }
}
