//! A script in a process of its own, as the chain sees it.
//!
//! Rows stay with the chain; what the script can look at of them goes to the worker. Where it dies, is stuck, or is
//! killed from outside, the rows that it has not answered are done again by a fresh one, which answers each row before
//! it begins the next: a row at which two of these died is the culprit, and fails; the others do not suffer from it.

mod process;

use std::ops::Range;

use anabranch_plugin::host::Host;
use anabranch_plugin::operator::{Decision, Operator, Rows};
use anabranch_record::Record;
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;

use self::process::{End, Worker};
use crate::globals::log::ServiceLog;
use crate::wire::orders::Opening;

pub use self::process::Launch;

/// Stands for a script that runs in a worker.
pub(crate) struct Client {
    launch: Launch,
    opening: Opening,
    /// Name of the pipeline and the processor, shown in lists of processes.
    names: [Str; 2],
    lines: ServiceLog,
    /// None after it died.
    worker: Option<Worker>,
}

impl Client {
    /// Starts a worker and waits until the script is ready.
    ///
    /// # Errors
    /// The script is refused or ended the worker (fatal), or no process can be started (transient).
    pub(crate) fn open(launch: Launch, opening: Opening, host: &Host) -> Result<Self, Fault> {
        let lines = ServiceLog(host.node.clone());
        let names = [host.pipeline.clone(), host.node.clone()];
        let worker = Worker::start(&launch, &opening, &names, &lines).map_err(|fault| match fault.code() {
            "script_crashed" | "script_memory" | "no_worker" => fault,
            _ => Fault::fatal("script_failed", fault.message()),
        })?;
        Ok(Client { launch, opening, names, lines, worker: Some(worker) })
    }

    /// Makes of these records what the script makes of them; one result for each. Where no worker can be started, the
    /// fault of the rows left is a transient one, which ends the run.
    fn made(&mut self, records: &mut [&mut Record]) -> Vec<Result<Decision, Fault>> {
        let mut made = Vec::with_capacity(records.len());
        let mut course = Course::default();
        while made.len() < records.len() {
            let first = made.len();
            if let Some(fault) = course.fails(first) {
                made.push(Err(fault));
                continue;
            }
            let mut worker = match self.worker.take().map_or_else(|| self.start(), Ok) {
                Ok(worker) => worker,
                // It was ended from outside, or by the script.
                Err(fault) if fault.code() == "script_crashed" && course.may_start_again() => continue,
                // The script itself: the next record may fare better.
                Err(fault) if fault.code().starts_with("script_") => {
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
                Err(End::Unfit { row, fault }) => {
                    self.worker = Some(worker);
                    course.failed = Some((first + row, fault));
                }
                Err(End::Stuck { row, fault }) => course.failed = Some((first + row, fault)),
                Err(End::Died(fault)) => {
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
    fn process(&mut self, rows: &mut Rows<'_>) {
        let mut records: Vec<&mut Record> = rows.iter_mut().map(|(_, record)| record).collect();
        let mut made = self.made(&mut records).into_iter();
        let unanswered = || Fault::fatal("script_unanswered", "a worker answered fewer records than it was given");
        rows.for_each(|_| made.next().unwrap_or_else(|| Err(unanswered())));
    }
}

/// Order in which a call processes its rows.
#[derive(Default)]
struct Course {
    /// Whether workers answer each row before the next.
    careful: bool,
    /// The row at which a careful worker died, which may have been killed.
    suspects: Range<usize>,
    /// A row that is known to fail.
    failed: Option<(usize, Fault)>,
    /// How many workers in a row ended before they were ready.
    lost_starts: usize,
}

/// So many workers in a row may end before they are ready, until a row fails of it: they began with the same script.
const MOST_LOST_STARTS: usize = 2;

impl Course {
    /// Why the row fails that is next, if it does.
    fn fails(&mut self, row: usize) -> Option<Fault> {
        self.failed.take_if(|(failed, _)| *failed == row).map(|(_, fault)| fault)
    }

    /// A worker ended before it was ready: whether to start another for the same row.
    fn may_start_again(&mut self) -> bool {
        self.lost_starts += 1;
        self.lost_starts <= MOST_LOST_STARTS
    }

    /// The end of the rows that are to be given to a worker.
    fn until(&self, all: usize) -> usize {
        self.failed.as_ref().map_or(all, |(row, _)| *row)
    }

    /// A worker died, the first of these rows being at hand if it was careful, else any.
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
