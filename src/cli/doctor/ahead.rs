//! Checks for objects that sources of a running service hold back.

use super::parts::live;
use super::{CheckResult, DoctorContext};
use crate::cli::report::counted;

/// Reports pipelines whose sources hold back objects that are dated ahead of the clock of their store.
pub(super) fn objects(subject: &mut DoctorContext<'_>) -> CheckResult {
    if !subject.answers() {
        return CheckResult::well("no service runs: no object is held back");
    }
    // If the service does not return its pipelines, the check of their progress reports why.
    let pipelines = live(subject.settings).map(|live| live.pipelines).unwrap_or_default();
    let held = pipelines.iter().filter_map(|pipeline| {
        let ahead = pipeline.backlog.and_then(|backlog| backlog.ahead).filter(|ahead| *ahead > 0)?;
        let (objects, are) = (counted(ahead as usize, "object"), if ahead == 1 { "is" } else { "are" });
        Some(format!("{} holds back {objects} that {are} dated ahead of the clock of the store", pipeline.id))
    });
    let held: Vec<String> = held.collect();
    match held.is_empty() {
        true => CheckResult::well("no object is dated ahead of the clock of its store"),
        false => CheckResult::warning(held.join("; ")).advise(
            "correct the clocks of the store; the source reads an object when the clock has passed the date of \
                     the object",
        ),
    }
}
