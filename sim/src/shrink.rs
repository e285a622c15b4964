//! Reduces failing scenarios.

use std::sync::Arc;

use crate::run::{Failure, simulate};
use crate::scenario::{AppliesTo, Execution, Interruption, Scenario, ScenarioProcessor, Sink};

/// Removes everything from a scenario that its failure does not need.
pub fn shrink(scenario: &Scenario, fails: impl Fn(&Arc<Scenario>) -> bool) -> Scenario {
    let mut smallest = scenario.clone();
    // Every change makes the scenario smaller, so the loop ends; the bound limits its duration.
    for _ in 0..400 {
        let smaller = candidates(&smallest).into_iter().find(|candidate| fails(&Arc::new(candidate.clone())));
        match smaller {
            Some(scenario) => smallest = scenario,
            None => break,
        }
    }
    smallest
}

/// Shrinks a failing scenario, and runs it again with a log.
pub fn explain(scenario: &Scenario) -> (Scenario, Failure) {
    let smallest = shrink(scenario, |candidate| simulate(candidate, false).is_err());
    match simulate(&Arc::new(smallest.clone()), true) {
        Err(failure) => (smallest, failure),
        Ok(()) => (smallest, Failure { what: "it does not fail again".to_owned(), log: Vec::new() }),
    }
}

type Change<'a> = &'a mut dyn FnMut(&dyn Fn(&mut Scenario));

fn candidates(scenario: &Scenario) -> Vec<Scenario> {
    let mut found = Vec::new();
    let mut offer = |change: &dyn Fn(&mut Scenario)| {
        let mut candidate = scenario.clone();
        change(&mut candidate);
        if format!("{candidate:?}") != format!("{scenario:?}") {
            found.push(candidate);
        }
    };
    for i in 0..scenario.sources.len() {
        if scenario.sources.len() > 1 {
            offer(&|s| {
                s.sources.remove(i);
            });
        }
        for partition in 0..scenario.sources[i].partitions.len() {
            if scenario.sources[i].partitions.len() > 1 {
                offer(&|s| {
                    s.sources[i].partitions.remove(partition);
                });
            }
            offer(&|s| s.sources[i].partitions[partition] /= 2);
            offer(&|s| s.sources[i].partitions[partition] = s.sources[i].partitions[partition].saturating_sub(1));
        }
        processors(&mut offer, scenario.sources[i].processors.len(), &|s| &mut s.sources[i].processors);
        offer(&|s| s.sources[i].fails_rows = 0);
        offer(&|s| s.sources[i].progress = 0);
        offer(&|s| s.sources[i].read_fails = 0);
        offer(&|s| s.sources[i].ack_fails = 0);
        offer(&|s| s.sources[i].ack_hangs = 0);
        offer(&|s| s.sources[i].revokes = 0);
        offer(&|s| s.sources[i].comes_back = 0);
        offer(&|s| s.sources[i].finishes = false);
        offer(&|s| s.sources[i].group = None);
        offer(&|s| s.sources[i].group.iter_mut().for_each(|group| group.takes = 0));
        offer(&|s| s.sources[i].group.iter_mut().for_each(|group| group.resets = 0));
        offer(&|s| s.sources[i].group.iter_mut().for_each(|group| group.gaps = 0));
        offer(&|s| s.sources[i].group.iter_mut().for_each(|group| group.ack_delay = 0));
        offer(&|s| s.sources[i].twins = false);
        offer(&|s| s.sources[i].delay = 0);
        offer(&|s| s.sources[i].batch = None);
        offer(&|s| s.sources[i].ends = true);
        offer(&|s| s.sources[i].per_read = 1000);
    }
    processors(&mut offer, scenario.processors.len(), &|s| &mut s.processors);
    for i in 0..scenario.sinks.len() {
        if scenario.sinks.len() > 1 {
            offer(&|s| {
                s.sinks.remove(i);
            });
        }
        processors(&mut offer, scenario.sinks[i].processors.len(), &|s| &mut s.sinks[i].processors);
        offer(&|s| s.sinks[i].when = AppliesTo::Always);
        offer(&|s| s.sinks[i].otherwise = false);
        sink(&mut offer, &|s| &mut s.sinks[i]);
    }
    sink(&mut offer, &|s| &mut s.letters);
    for i in 0..scenario.interruptions.len() {
        offer(&|s| s.interruptions.truncate(i));
        offer(&|s| s.interruptions[i] = Interruption::None);
        offer(&|s| match &mut s.interruptions[i] {
            Interruption::Crash(at) | Interruption::Stop(at, _) | Interruption::Fence(at) => *at = at.saturating_sub(1),
            Interruption::None => {}
        });
    }
    offer(&|s| s.window = 0);
    offer(&|s| s.unmatched_fails = false);
    offer(&|s| s.once = false);
    offer(&|s| s.store_fails = 0);
    offer(&|s| s.store_delay = 0);
    offer(&|s| s.open_fails = 0);
    offer(&|s| s.open_hangs = 0);
    offer(&|s| s.panics = 0);
    offer(&|s| s.replay_rows = 1000);
    offer(&|s| s.queue_bytes = 8 << 20);
    offer(&|s| s.held_bytes = 64 << 20);
    found
}

fn processors(offer: Change<'_>, count: usize, of: &dyn Fn(&mut Scenario) -> &mut Vec<ScenarioProcessor>) {
    for i in 0..count {
        offer(&|s| {
            of(s).remove(i);
        });
        offer(&|s| of(s)[i].execution = Execution::Inline);
        offer(&|s| of(s)[i].workers = 1);
        offer(&|s| of(s)[i].when = AppliesTo::Always);
        offer(&|s| of(s)[i].action = crate::scenario::ProcessorAction::Tag);
    }
}

fn sink(offer: Change<'_>, of: &dyn Fn(&mut Scenario) -> &mut Sink) {
    offer(&|s| of(s).refuses = 0);
    offer(&|s| of(s).fails = 0);
    offer(&|s| of(s).partial = 0);
    offer(&|s| of(s).hangs = 0);
    offer(&|s| of(s).miscounts = 0);
    offer(&|s| of(s).flush_fails = 0);
    offer(&|s| of(s).goes_back = 0);
    offer(&|s| of(s).late = 0);
    offer(&|s| of(s).reinitialises = false);
    offer(&|s| of(s).delay = 0);
    offer(&|s| of(s).linger = 0);
    offer(&|s| of(s).rate = 0);
    offer(&|s| of(s).rows = 1000);
    offer(&|s| of(s).takes = crate::scenario::AcceptedDurability::Durable);
    offer(&|s| of(s).retry = crate::scenario::WriteRetry::Idempotent);
}
