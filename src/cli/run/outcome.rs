//! Summary of `anabranch run`: the last lines and the exit code.

use std::fmt::Write as _;
use std::time::Duration;

use anabranch_record::code::Code;
use anabranch_record::text::Str;
use anabranch_service::RunSummary;
use anabranch_service::account::Account;
use anabranch_service::lifecycle::{PipelineOutcome, names};
use serde_json::{Map, Value, json};

use crate::cli::report::counted;
use crate::cli::{Exit, Report};
use crate::codes;

/// Options and results of the run that its summary depends on.
pub(super) struct RunReport {
    /// The service was to end when everything is read.
    pub(super) once: bool,
    /// `true` if the last line is text. With a log in JSON, it would be the only line that is not JSON.
    pub(super) text: bool,
    /// `true` if standard output is for records. Then the last line goes to standard error.
    pub(super) output_is_data: bool,
    /// `true` if pipelines did not start because their files have errors, which makes the run a failure.
    pub(super) refused: bool,
    /// Duration of the whole run.
    pub(super) took: Duration,
}

/// Adds the exit code and the last lines to the report.
pub(super) fn conclude(report: Report, ended: &RunSummary, run: &RunReport) -> Report {
    let mut result: Vec<Value> = ended.invalid.iter().map(|id| json!({ "id": id, "status": "invalid" })).collect();
    result.extend(ended.outcomes.iter().map(|(id, outcome)| shown(id, outcome, ended.accounts.get(id))));
    let total = total(ended);
    let mut report = report
        .summary(json!({ "pipelines": ended.outcomes.len(), "totals": totals(&total, run.took) }))
        .result(json!({ "pipelines": result }));
    if run.once && run.text {
        let last = last_lines(ended, &total, run.took);
        report = if run.output_is_data { report.notes(last) } else { report.text(last) };
    }
    match failure(ended, run) {
        Some((exit, code, message)) => report.fail(exit, code, message),
        None => report,
    }
}

/// The reason why the run is not a success; the most severe one if there are several.
fn failure(ended: &RunSummary, run: &RunReport) -> Option<(Exit, Code, String)> {
    let mut left = Vec::new();
    let mut degraded = Vec::new();
    let mut stopped = Vec::new();
    for (id, outcome) in &ended.outcomes {
        match outcome {
            PipelineOutcome::NotDrained { left: nodes } if nodes.is_empty() => left.push(id.to_string()),
            PipelineOutcome::NotDrained { left: nodes } => left.push(format!("{id} ({})", names(nodes))),
            PipelineOutcome::Degraded { error } => degraded.push(format!("{id}: {error}")),
            PipelineOutcome::Stopped => stopped.push(id.to_string()),
            PipelineOutcome::Finished => {}
        }
    }
    if let Some(why) = &ended.taken {
        let message =
            format!("{why}; start this service again: with --db.wait it waits until the other service has ended");
        return Some((Exit::Environment, codes::STORE_TAKEN, message));
    }
    if !left.is_empty() {
        let message = format!(
            "not all records were delivered; the next start reads again what the sources still have: {}",
            left.join(", ")
        );
        return Some((Exit::Environment, codes::RUN_NOT_DRAINED, message));
    }
    if run.refused {
        let message = "some pipelines have errors and were not started".to_owned();
        return Some((Exit::Invalid, codes::RUN_INVALID_PIPELINES, message));
    }
    if !degraded.is_empty() && (ended.gave_up || !ended.signalled) {
        return Some((Exit::Failed, codes::RUN_DEGRADED, format!("degraded: {}", degraded.join("; "))));
    }
    if !run.once {
        return None;
    }
    let accounts = || ended.accounts.iter();
    let dropped = accounts().filter(|(_, account)| account.letters_dropped > 0);
    let dropped: Vec<_> = dropped.map(|(id, account)| format!("{id}: {}", account.letters_dropped)).collect();
    if !dropped.is_empty() {
        let message = format!(
            "dead letters were lost: a bound of the dead-letter queue (max-count, max-bytes, max-age) dropped them: {}",
            dropped.join(", ")
        );
        return Some((Exit::LettersDropped, codes::RUN_LETTERS_DROPPED, message));
    }
    // The log has the errors of pipelines that failed before the signal came.
    stopped.extend(degraded);
    if !stopped.is_empty() || ended.signalled && ended.outcomes.is_empty() {
        let which = if stopped.is_empty() { String::new() } else { format!(": {}", stopped.join(", ")) };
        let message = format!("interrupted before all records were read; the next run continues from there{which}");
        return Some((Exit::Interrupted, codes::RUN_INTERRUPTED, message));
    }
    let left: Vec<String> = accounts()
        .flat_map(|(id, account)| {
            account.left.iter().map(move |left| format!("{id}:{}: {}", left.connector, left.what))
        })
        .collect();
    if !left.is_empty() {
        let message = format!("not all records were read; a later run continues from there: {}", left.join("; "));
        return Some((Exit::Interrupted, codes::RUN_LEFT, message));
    }
    if ended.outcomes.is_empty() {
        let message =
            "nothing was read: no pipeline was started, because the files contain `status: stopped`".to_owned();
        return Some((Exit::NothingRead, codes::RUN_NOTHING_READ, message));
    }
    let unread: Vec<String> =
        accounts().flat_map(|(id, account)| account.unread.iter().map(move |unread| nothing(id, unread))).collect();
    (!unread.is_empty())
        .then(|| (Exit::NothingRead, codes::RUN_NOTHING_READ, format!("nothing was read: {}", unread.join("; "))))
}

fn nothing(pipeline: &Str, unread: &anabranch_graph::exec::UnreadSource) -> String {
    let connector = &unread.connector;
    match &unread.missing {
        Some(why) => format!("{pipeline}:{connector}: {why}"),
        None => format!("{pipeline}:{connector} contains no record, and no earlier run has read one from it"),
    }
}

fn total(ended: &RunSummary) -> Account {
    let mut total = Account::default();
    for account in ended.accounts.values() {
        total.read += account.read;
        total.read_again += account.read_again;
        total.filtered += account.filtered;
        total.dead_lettered += account.dead_lettered;
        total.letters_dropped += account.letters_dropped;
        total.delivered.extend(account.delivered.iter().cloned());
    }
    total
}

/// Returns a line per pipeline, and one for the total if there are several.
fn last_lines(ended: &RunSummary, total: &Account, took: Duration) -> String {
    let mut text = String::new();
    for (id, outcome) in &ended.outcomes {
        let word = match outcome {
            PipelineOutcome::Finished => "finished",
            PipelineOutcome::Stopped => "interrupted",
            PipelineOutcome::NotDrained { .. } => "not drained",
            PipelineOutcome::Degraded { .. } => "degraded",
        };
        let account = ended.accounts.get(id).cloned().unwrap_or_default();
        let _ = writeln!(text, "{id} {word}: {}", sentence(&account, account.took, true));
    }
    if ended.outcomes.len() != 1 {
        let pipelines = counted(ended.outcomes.len(), "pipeline");
        let _ = writeln!(text, "{pipelines}: {}", sentence(total, took, false));
    }
    text
}

fn sentence(account: &Account, took: Duration, each: bool) -> String {
    let Account { read, read_again, filtered, dead_lettered, letters_dropped, delivered, .. } = account;
    let mut text = format!("{} read", of_records(*read - *read_again));
    if *read_again > 0 {
        let _ = write!(text, " (and {read_again} read again after a failure)");
    }
    let _ = write!(text, ", {} delivered", account.delivered_in_all());
    if each && delivered.len() > 1 {
        let each: Vec<String> = delivered.iter().map(|(id, rows)| format!("{id} {rows}")).collect();
        let _ = write!(text, " ({})", each.join(", "));
    }
    let _ = write!(text, ", {filtered} filtered, {dead_lettered} dead-lettered");
    if *letters_dropped > 0 {
        let _ = write!(text, " (dropped from the queue by a bound: {letters_dropped})");
    }
    let _ = write!(text, ", in {:.1} s", took.as_secs_f64());
    text
}

fn of_records(n: u64) -> String {
    format!("{n} record{}", if n == 1 { "" } else { "s" })
}

fn shown(id: &Str, outcome: &PipelineOutcome, account: Option<&Account>) -> Value {
    let account = account.cloned().unwrap_or_default();
    let mut shown = match outcome {
        PipelineOutcome::Finished => json!({ "id": id, "status": "finished" }),
        PipelineOutcome::Stopped => json!({ "id": id, "status": "stopped" }),
        PipelineOutcome::NotDrained { left } => json!({ "id": id, "status": "stopped", "left": left }),
        PipelineOutcome::Degraded { error } => json!({ "id": id, "status": "degraded", "error": error }),
    };
    let destinations: Map<String, Value> =
        account.delivered.iter().map(|(id, rows)| (id.to_string(), (*rows).into())).collect();
    let unread: Vec<Value> = account
        .unread
        .iter()
        .map(|unread| json!({ "connector": unread.connector, "missing": unread.missing }))
        .collect();
    shown["totals"] = totals(&account, account.took);
    shown["totals"]["destinations"] = destinations.into();
    shown["unread"] = unread.into();
    shown["left"] = account.left.iter().map(|left| json!({ "connector": left.connector, "what": left.what })).collect();
    shown
}

fn totals(account: &Account, took: Duration) -> Value {
    json!({
        "read": account.read - account.read_again,
        "readAgain": account.read_again,
        "delivered": account.delivered_in_all(),
        "filtered": account.filtered,
        "deadLettered": account.dead_lettered,
        "lettersDropped": account.letters_dropped,
        "seconds": (took.as_secs_f64() * 1e3).round() / 1e3,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(once: bool) -> RunReport {
        RunReport { once, text: true, output_is_data: false, refused: false, took: Duration::from_millis(1500) }
    }

    fn ended(outcome: PipelineOutcome, account: Account) -> RunSummary {
        RunSummary {
            outcomes: vec![("p".into(), outcome)],
            accounts: [("p".into(), account)].into(),
            ..RunSummary::default()
        }
    }

    #[test]
    fn letters_that_a_bound_dropped_are_no_success() {
        let account = Account { read: 9, dead_lettered: 9, letters_dropped: 4, ..Account::default() };
        let ended = ended(PipelineOutcome::Finished, account);
        let (exit, code, message) = failure(&ended, &run(true)).unwrap();
        assert_eq!((exit, code), (Exit::LettersDropped, codes::RUN_LETTERS_DROPPED));
        assert!(message.contains("p: 4"), "{message}");
        assert!(failure(&ended, &run(false)).is_none(), "a service that is stopped has said so in its log");
        assert!(last_lines(&ended, &total(&ended), Duration::ZERO).contains("dropped from the queue by a bound: 4"));
    }

    #[test]
    fn a_record_that_was_read_again_counts_once() {
        let account = Account { read: 1500, read_again: 1000, ..Account::default() };
        let ended = ended(PipelineOutcome::Stopped, account);
        let last = last_lines(&ended, &total(&ended), Duration::ZERO);
        assert!(last.contains("500 records read (and 1000 read again after a failure), 0 delivered"), "{last}");
        let report = conclude(Report::new("run"), &ended, &run(true));
        let totals = &report.envelope()["summary"]["totals"];
        assert_eq!((&totals["read"], &totals["readAgain"]), (&json!(500), &json!(1000)));
    }

    #[test]
    fn a_source_that_left_something_has_not_read_everything() {
        let left =
            anabranch_graph::exec::UnfinishedSource { connector: "in".into(), what: "1 object is dated ahead".into() };
        let ended = ended(PipelineOutcome::Finished, Account { left: vec![left], ..Account::default() });
        let (exit, code, message) = failure(&ended, &run(true)).unwrap();
        assert_eq!((exit, code), (Exit::Interrupted, codes::RUN_LEFT));
        assert!(message.ends_with("p:in: 1 object is dated ahead"), "{message}");
        assert!(failure(&ended, &run(false)).is_none());
    }

    #[test]
    fn the_worst_is_said() {
        let unread = anabranch_graph::exec::UnreadSource { connector: "in".into(), missing: None };
        let account = Account { unread: vec![unread], ..Account::default() };
        let code = |outcome| failure(&ended(outcome, account.clone()), &run(true)).unwrap().0;
        assert_eq!(code(PipelineOutcome::Finished), Exit::NothingRead);
        assert_eq!(code(PipelineOutcome::Stopped), Exit::Interrupted);
        assert_eq!(code(PipelineOutcome::NotDrained { left: Vec::new() }), Exit::Environment);
        assert_eq!(code(PipelineOutcome::Degraded { error: "x".into() }), Exit::Failed);
        assert!(failure(&ended(PipelineOutcome::Finished, Account::default()), &run(true)).is_none());
    }
}
