//! A script and its isolate, which is made anew after the script was stopped.

use std::rc::Rc;

use anabranch_plugin::operator::{Decision, Operator, Rows};
use anabranch_record::Record;
use anabranch_record::fault::Fault;

use crate::globals::log::Lines;
use crate::isolate::{Failure, Isolate, Limits, Outcome};
use crate::program::Program;
use crate::wire::Wants;

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
        self.run(record, false).map_err(fault)
    }

    /// What the script makes of a record of which no more is there than [`Interpreter::wants`] says; `None` if it has to
    /// see all of it, which it wants from then on.
    ///
    /// # Errors
    /// Why it makes nothing of it.
    pub(crate) fn process_part(&mut self, record: &Record) -> Result<Option<Outcome>, Fault> {
        match self.run(record, true) {
            Ok(outcome) => Ok(Some(outcome)),
            Err(Failure::Unseen) => Ok(None),
            Err(failure) => Err(fault(failure)),
        }
    }

    /// What the script has to see of the next record.
    ///
    /// # Errors
    /// It was stopped, and cannot be run up to its end once more.
    pub(crate) fn wants(&mut self) -> Result<Rc<Wants>, Fault> {
        let mut isolate = self.isolate()?;
        let wants = isolate.wants();
        self.isolate = Some(isolate);
        Ok(wants)
    }

    fn run(&mut self, record: &Record, is_part: bool) -> Result<Outcome, Failure> {
        let mut isolate = self.isolate().map_err(Failure::Record)?;
        let outcome = isolate.process(record, is_part);
        if !matches!(outcome, Err(Failure::Stopped(_))) {
            self.isolate = Some(isolate);
        }
        outcome
    }

    /// Taken out, so that a panic leaves none behind whose state nobody knows.
    fn isolate(&mut self) -> Result<Isolate, Fault> {
        match self.isolate.take() {
            Some(isolate) => Ok(isolate),
            None => Isolate::open(&self.program, self.limits, &self.lines).map_err(fault),
        }
    }
}

fn fault(failure: Failure) -> Fault {
    match failure {
        Failure::Record(fault) | Failure::Stopped(fault) => fault,
        Failure::Unseen => Fault::fatal("script_failed", "the script was given a part of a record"),
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
