//! Client of the worker process that runs a script.
//!
//! Rows stay in the service; the worker receives the parts that the script can read. If the worker dies, hangs or is
//! killed, a new one processes the unanswered rows and answers each before it begins the next. If two such workers die
//! at the same row, that row fails and the others do not.

mod process;

use std::ops::Range;

use anabranch_plugin::host::Host;
use anabranch_plugin::operator::{Decision, Operator, OperatorContext, Rows};
use anabranch_record::Record;
use anabranch_record::code::Code;
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;

use self::process::{EndReason, Worker};
use crate::codes;
use crate::log::ServiceLog;
use crate::wire::orders::Opening;

pub use self::process::Launch;

/// Operator that sends records to a worker process.
pub(crate) struct Client {
    launch: Launch,
    opening: Opening,
    /// Names of the pipeline and the processor, shown in process lists.
    names: [Str; 2],
    lines: ServiceLog,
    /// The running worker; `None` after it died.
    worker: Option<Worker>,
}

/// Returns `true` for failures to start that the script causes, so that the next record may succeed.
fn is_of_script(code: Code) -> bool {
    matches!(
        code,
        codes::SCRIPT_CRASHED
            | codes::SCRIPT_FAILED
            | codes::SCRIPT_LIMIT
            | codes::SCRIPT_MEMORY
            | codes::SCRIPT_NO_PROCESS
            | codes::SCRIPT_RESULT
            | codes::SCRIPT_THREW
            | codes::SCRIPT_TIMEOUT
    )
}

impl Client {
    /// Starts a worker and waits until the script is ready.
    ///
    /// # Errors
    /// Fatal if the script is rejected or ended the worker; transient if the process cannot be started.
    pub(crate) fn open(launch: Launch, opening: Opening, host: &Host) -> Result<Self, Fault> {
        let lines = ServiceLog(host.node.clone());
        let names = [host.pipeline.clone(), host.node.clone()];
        let worker = Worker::start(&launch, &opening, &names, &lines).map_err(|fault| match fault.code() {
            codes::SCRIPT_CRASHED | codes::SCRIPT_MEMORY | codes::NO_WORKER => fault,
            _ => Fault::fatal(codes::SCRIPT_FAILED, fault.message()),
        })?;
        Ok(Client { launch, opening, names, lines, worker: Some(worker) })
    }

    /// Processes records; returns one result for each. If a worker cannot be started, the remaining rows get a
    /// transient fault, which ends the run.
    fn made(&mut self, records: &mut [&mut Record]) -> Vec<Result<Decision, Fault>> {
        let mut made = Vec::with_capacity(records.len());
        let mut course = CallState::default();
        while made.len() < records.len() {
            let first = made.len();
            if let Some(fault) = course.fails(first) {
                made.push(Err(fault));
                continue;
            }
            let mut worker = match self.worker.take().map_or_else(|| self.start(), Ok) {
                Ok(worker) => worker,
                // The worker was killed from outside, or by the script.
                Err(fault) if fault.code() == codes::SCRIPT_CRASHED && course.may_start_again() => continue,
                // Caused by the script: the next record may succeed.
                Err(fault) if is_of_script(fault.code()) => {
                    made.push(Err(Fault::record(fault.code(), fault.message())));
                    continue;
                }
                Err(fault) => {
                    made.resize_with(records.len(), || Err(fault.clone()));
                    break;
                }
            };
            let rows = first..course.until(records.len());
            match worker.process(&mut records[rows.clone()], course.careful, &mut made, &self.lines) {
                Ok(()) => {
                    course.lost_starts = 0;
                    self.worker = Some(worker);
                }
                Err(EndReason::Unfit { row, fault }) => {
                    self.worker = Some(worker);
                    course.failed = Some((first + row, fault));
                }
                Err(EndReason::Stuck { row, fault }) => course.failed = Some((first + row, fault)),
                Err(EndReason::Died(fault)) => {
                    tracing::debug!(processor = %self.lines.0, "a worker ended: {}", fault.message());
                    course.died(made.len()..rows.end, fault);
                }
            }
        }
        made
    }

    fn start(&self) -> Result<Worker, Fault> {
        Worker::start(&self.launch, &self.opening, &self.names, &self.lines)
    }
}

impl Operator for Client {
    fn process(&mut self, rows: &mut Rows<'_>, _: &OperatorContext) {
        let mut records: Vec<&mut Record> = rows.iter_mut().map(|(_, record)| record).collect();
        let mut made = self.made(&mut records).into_iter();
        let unanswered = || Fault::fatal(codes::SCRIPT_UNANSWERED, "a worker returned fewer records than it received");
        rows.for_each(|_| made.next().unwrap_or_else(|| Err(unanswered())));
    }
}

/// State of a call across workers.
#[derive(Default)]
struct CallState {
    /// True if workers answer each row before the next.
    careful: bool,
    /// Row at which a careful worker died. The worker may have been killed from outside.
    suspects: Range<usize>,
    /// A row that is known to fail, and its fault.
    failed: Option<(usize, Fault)>,
    /// Number of consecutive workers that ended before they were ready.
    lost_starts: usize,
}

/// Maximum number of consecutive workers that may end before they are ready. After that a row fails, because all of
/// them run the same script.
const MOST_LOST_STARTS: usize = 2;

impl CallState {
    /// Returns the fault of `row` if it is the one that is known to fail.
    fn fails(&mut self, row: usize) -> Option<Fault> {
        self.failed.take_if(|(failed, _)| *failed == row).map(|(_, fault)| fault)
    }

    /// Handles a worker that ended before it was ready. Returns `true` if another should be started for the same row.
    fn may_start_again(&mut self) -> bool {
        self.lost_starts += 1;
        self.lost_starts <= MOST_LOST_STARTS
    }

    /// Returns the end of the rows that the next worker receives.
    fn until(&self, all: usize) -> usize {
        self.failed.as_ref().map_or(all, |(row, _)| *row)
    }

    /// Handles the death of a worker. A careful worker was processing the first of the unanswered rows, any other
    /// worker may have been at any of them.
    fn died(&mut self, unanswered: Range<usize>, fault: Fault) {
        let at = unanswered.start;
        if !self.careful {
            self.careful = true;
        } else if self.suspects.contains(&at) {
            (self.failed, self.suspects) = (Some((at, fault)), 0..0);
        } else {
            self.suspects = at..at + 1;
        }
    }
}
