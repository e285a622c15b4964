//! Properties of a scenario that limit what its run may do, and its variant for runs on the real clock.

use super::{Execution, ProcessorAction, Scenario, ScenarioProcessor, WriteRetry};

impl Scenario {
    /// Returns the scenario with short delays and nothing that hangs.
    pub fn with_short_delays(&self) -> Scenario {
        let mut fast = self.clone();
        (fast.open_hangs, fast.store_delay) = (0, 0);
        let processors = |processors: &mut Vec<ScenarioProcessor>| {
            for processor in processors {
                if let Execution::Async { delay, hangs, late, .. } = &mut processor.execution {
                    (*delay, *hangs, *late) = (0, 0, 0);
                }
                if let ProcessorAction::Split { most, .. } = &mut processor.action {
                    *most = (*most).min(4);
                }
            }
        };
        for source in &mut fast.sources {
            processors(&mut source.processors);
            source.delay = 0;
            source.ack_hangs = 0;
            if let Some(group) = &mut source.group {
                group.ack_delay = 0;
            }
            source.partitions.iter_mut().for_each(|rows| *rows = (*rows).min(60));
            source.batch = source.batch.map(|(rows, delay)| (rows, delay.min(3)));
        }
        processors(&mut fast.processors);
        for sink in fast.sinks.iter_mut().chain([&mut fast.letters]) {
            processors(&mut sink.processors);
            (sink.delay, sink.hangs, sink.rate, sink.linger) = (0, 0, 0, sink.linger.min(2));
            // The engine waits for at least a tenth of a second after a failure.
            (sink.fails, sink.partial) = (sink.fails * 20, sink.partial * 20);
        }
        fast
    }

    /// Returns all processors.
    pub fn all_processors(&self) -> impl Iterator<Item = &ScenarioProcessor> {
        let sources = self.sources.iter().flat_map(|source| &source.processors);
        sources.chain(&self.processors).chain(self.sinks.iter().flat_map(|sink| &sink.processors))
    }

    /// Returns `true` if a destination writes transactions.
    pub fn is_transactional(&self) -> bool {
        self.sinks.iter().any(|sink| sink.retry == WriteRetry::Transactional)
    }

    /// Returns `true` if a processor runs on its own thread, which the paused clock does not wait for.
    pub fn has_threads(&self) -> bool {
        self.all_processors().any(|processor| processor.execution == Execution::Isolate)
    }

    /// Returns `true` if a processor may panic.
    pub fn panics(&self) -> bool {
        self.all_processors().any(|processor| processor.action == ProcessorAction::Panic)
    }

    /// Returns `true` if a processor may not answer for some records.
    pub fn is_mute(&self) -> bool {
        self.all_processors().any(|processor| matches!(processor.execution, Execution::Async { mute: 1.., .. }))
    }

    /// Returns `true` if the outcome of every row is certain.
    pub fn is_certain(&self) -> bool {
        !self.panics()
    }
}
