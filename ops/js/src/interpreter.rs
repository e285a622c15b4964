//! A script and its isolate, which is recreated after the script was stopped.

use std::rc::Rc;

use anabranch_plugin::operator::{Decision, Operator, OperatorContext, Rows};
use anabranch_record::Record;
use anabranch_record::fault::Fault;

use crate::codes;
use crate::isolate::{Failure, Isolate};
use crate::limits::Limits;
use crate::log::LineReceiver;
use crate::outcome::ScriptOutcome;
use crate::program::Program;
use crate::wire::Wants;

/// Runs a script in this process and on this thread.
pub(crate) struct Interpreter {
    program: Program,
    limits: Limits,
    lines: Rc<dyn LineReceiver>,
    /// The isolate; `None` after the script was stopped.
    isolate: Option<Isolate>,
}

impl Interpreter {
    /// Evaluates the script.
    ///
    /// # Errors
    /// Fails if the script fails or defines no function that takes records.
    pub(crate) fn open(program: Program, limits: Limits, lines: Rc<dyn LineReceiver>) -> Result<Self, Fault> {
        let isolate = Isolate::open(&program, limits, &lines).map_err(fault)?;
        Ok(Interpreter { program, limits, lines, isolate: Some(isolate) })
    }

    /// Calls the script with a record.
    ///
    /// # Errors
    /// Returns the fault of the record.
    pub(crate) fn process(&mut self, record: &Record) -> Result<ScriptOutcome, Fault> {
        self.run(record, false).map_err(fault)
    }

    /// Calls the script with a record that holds only the parts in [`Interpreter::wants`]. Returns `None` if the script
    /// needs the whole record; after that, `wants` contains the whole record.
    ///
    /// # Errors
    /// Returns the fault of the record.
    pub(crate) fn process_part(&mut self, record: &Record) -> Result<Option<ScriptOutcome>, Fault> {
        match self.run(record, true) {
            Ok(outcome) => Ok(Some(outcome)),
            Err(Failure::Unseen) => Ok(None),
            Err(failure) => Err(fault(failure)),
        }
    }

    /// Returns the parts of the next record that the script needs.
    ///
    /// # Errors
    /// Fails if the script was stopped and cannot be evaluated again.
    pub(crate) fn wants(&mut self) -> Result<Rc<Wants>, Fault> {
        let mut isolate = self.isolate()?;
        let wants = isolate.wants();
        self.isolate = Some(isolate);
        Ok(wants)
    }

    fn run(&mut self, record: &Record, is_part: bool) -> Result<ScriptOutcome, Failure> {
        let mut isolate = self.isolate().map_err(Failure::Record)?;
        let outcome = isolate.process(record, is_part);
        if !matches!(outcome, Err(Failure::Stopped(_))) {
            self.isolate = Some(isolate);
        }
        outcome
    }

    /// Takes the isolate out, so that a panic does not leave one in an unknown state.
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
        Failure::Unseen => Fault::fatal(codes::SCRIPT_FAILED, "the script received only a part of a record"),
    }
}

impl Operator for Interpreter {
    fn process(&mut self, rows: &mut Rows<'_>, _: &OperatorContext) {
        rows.for_each(|record| {
            let outcome = Interpreter::process(self, record)?;
            Ok(decide(outcome, record))
        });
    }
}

/// Applies the outcome to the record and returns the decision.
pub(crate) fn decide(outcome: ScriptOutcome, record: &mut Record) -> Decision {
    match outcome {
        ScriptOutcome::Keep(new) => {
            *record = new;
            Decision::Keep
        }
        ScriptOutcome::Split(records) => Decision::Split(records),
        ScriptOutcome::Filter => Decision::Filter,
    }
}
