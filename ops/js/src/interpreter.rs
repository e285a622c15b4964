//! A script and its isolate, which is made anew after the script was stopped.

use std::rc::Rc;

use anabranch_graph::fault::Fault;
use anabranch_graph::operator::{Decision, Operator, Rows};
use anabranch_graph::record::Record;

use crate::globals::log::Lines;
use crate::isolate::{Failure, Isolate, Limits, Outcome};
use crate::program::Program;

/// Runs a script in this process and on this thread.
pub(crate) struct Interpreter {
    program: Program,
    limits: Limits,
    lines: Rc<dyn Lines>,
    /// None after the script was stopped.
    isolate: Option<Isolate>,
}

impl Interpreter {
    /// Runs the script up to its end.
    ///
    /// # Errors
    /// Why it has no function that takes records.
    pub(crate) fn open(program: Program, limits: Limits, lines: Rc<dyn Lines>) -> Result<Self, Fault> {
        let isolate = Isolate::open(&program, limits, &lines).map_err(fault)?;
        Ok(Interpreter { program, limits, lines, isolate: Some(isolate) })
    }

    /// Result of the script for a record.
    ///
    /// # Errors
    /// Why it makes nothing of it.
    pub(crate) fn process(&mut self, record: &Record) -> Result<Outcome, Fault> {
        // Taken out, so that a panic leaves none behind whose state nobody knows.
        let mut isolate = match self.isolate.take() {
            Some(isolate) => isolate,
            None => Isolate::open(&self.program, self.limits, &self.lines).map_err(fault)?,
        };
        let outcome = isolate.process(record);
        if !matches!(outcome, Err(Failure::Stopped(_))) {
            self.isolate = Some(isolate);
        }
        outcome.map_err(fault)
    }
}

fn fault(failure: Failure) -> Fault {
    match failure {
        Failure::Record(fault) | Failure::Stopped(fault) => fault,
    }
}

impl Operator for Interpreter {
    fn process(&mut self, rows: &mut Rows<'_>) {
        rows.for_each(|record| {
            let outcome = Interpreter::process(self, record)?;
            Ok(decide(outcome, record))
        });
    }
}

/// Puts what a script made of a record in its place.
pub(crate) fn decide(outcome: Outcome, record: &mut Record) -> Decision {
    match outcome {
        Outcome::Keep(new) => {
            *record = new;
            Decision::Keep
        }
        Outcome::Split(records) => Decision::Split(records),
        Outcome::Filter => Decision::Filter,
    }
}
