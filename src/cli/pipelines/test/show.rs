//! Formats test results as text and as JSON.

use anabranch_plugin::diagnostic::RenderStyle;
use anabranch_process::terminal::Style;
use anabranch_trial::testing::coverage::{Branch, Coverage};
use anabranch_trial::testing::{Failure, Suite, TestResult, TestResults, Verdict, placed};
use serde_json::{Value as Json, json};
use similar::TextDiff;

use crate::cli::pipelines::dry_run::show::doubtful;
use crate::cli::report;

/// Maximum number of lines of a comparison that are shown.
const MOST_LINES: usize = 200;

struct Page {
    out: String,
    color: bool,
    unicode: bool,
}

impl Page {
    fn styled(&self, style: Style, text: &str) -> String {
        style.paint(text, self.color)
    }

    fn line(&mut self, text: &str) {
        self.out.extend([text, "\n"]);
    }
}

/// Returns the results as text.
pub(super) fn text(suite: &Suite, outcome: &TestResults, color: bool, unicode: bool) -> String {
    let mut page = Page { out: String::new(), color, unicode };
    for (number, file) in suite.tests.iter().enumerate() {
        let tests: Vec<&TestResult> = outcome.tests.iter().filter(|test| test.file == number).collect();
        if tests.is_empty() {
            continue;
        }
        let name = suite.files.get(file.file).map_or("", |file| file.name.as_str());
        let heading = page.styled(Style::BOLD, name);
        page.line(&heading);
        for test in &tests {
            one(test, &mut page);
            for doubt in &test.doubts {
                let place = placed(&test.files, doubt.span);
                let hint = doubt.hint.as_ref().map_or_else(String::new, |hint| format!("; {hint}"));
                let finding = doubt.finding();
                let line = page.styled(Style::DIM, &format!("warning[{}]: {}{hint}", finding.code, finding.message));
                page.line(&format!("      {line} ({place})"));
            }
        }
        page.line("");
    }
    for test in outcome.tests.iter().filter(|test| !matches!(test.verdict, Verdict::Passed)) {
        details(suite, test, &mut page);
    }
    let [passed, failed, invalid] = counts(outcome);
    if !outcome.tests.is_empty() {
        let mut parts = vec![format!("{passed} passed")];
        parts.extend((failed > 0).then(|| format!("{failed} failed")));
        parts.extend((invalid > 0).then(|| format!("{invalid} not valid")));
        let style = if failed + invalid > 0 { Style::RED } else { Style::GREEN };
        let summary = page.styled(style, &parts.join(", "));
        page.line(&format!("{summary} in {:.2} s", outcome.elapsed.as_secs_f64()));
    }
    page.out
}

fn one(test: &TestResult, page: &mut Page) {
    let (mark, word, style) = match (&test.verdict, page.unicode) {
        (Verdict::Passed, true) => ("✓", "", Style::GREEN),
        (Verdict::Passed, false) => ("ok    ", "", Style::GREEN),
        (Verdict::Failed(_), true) => ("✗", "", Style::RED),
        (Verdict::Failed(_), false) => ("FAILED", "", Style::RED),
        (Verdict::Invalid(..), true) => ("✗", " (not valid)", Style::RED),
        (Verdict::Invalid(..), false) => ("INVALID", "", Style::RED),
    };
    let mark = page.styled(style, mark);
    let time = page.styled(Style::DIM, &format!("{} ms", test.elapsed.as_millis()));
    page.line(&format!("  {mark} {}{word}  {time}", test.name));
}

fn details(suite: &Suite, test: &TestResult, page: &mut Page) {
    let heading = page.styled(Style::BOLD, &test.name);
    match &test.verdict {
        Verdict::Passed => {}
        Verdict::Failed(failures) => {
            page.line(&heading);
            for failure in failures {
                failed(suite, failure, page);
            }
            page.line("");
        }
        Verdict::Invalid(findings, files) => {
            page.line(&format!("{heading} cannot be run"));
            let files = files.as_ref().unwrap_or(&suite.files);
            page.line(&findings.render(files, RenderStyle { color: page.color, ..RenderStyle::default() }));
        }
    }
}

fn failed(suite: &Suite, failure: &Failure, page: &mut Page) {
    page.line(&format!("  {} ({})", failure.what, placed(&suite.files, failure.span)));
    for said in &failure.said {
        let said = page.styled(Style::RED, said);
        page.line(&format!("    {said}"));
    }
    let Some((expected, got)) = &failure.lists else { return };
    let pretty = |value: &Json| format!("{value:#}\n");
    let (expected, got) = (pretty(expected), pretty(got));
    let difference = TextDiff::from_lines(&expected, &got);
    let mut unified = difference.unified_diff();
    let unified = unified.context_radius(4).header("expected", "got").to_string();
    let lines: Vec<&str> = unified.lines().filter(|line| !line.starts_with('\\')).collect();
    for line in lines.iter().take(MOST_LINES) {
        let style = match line.as_bytes().first() {
            Some(b'+') => Style::GREEN,
            Some(b'-') => Style::RED,
            Some(b'@') => Style::DIM,
            _ => Style::PLAIN,
        };
        let line = page.styled(style, line);
        page.line(&format!("    {line}"));
    }
    if lines.len() > MOST_LINES {
        page.line(&format!("    and {} more lines", lines.len() - MOST_LINES));
    }
}

/// Returns the numbers of passed, failed and invalid tests.
fn counts(outcome: &TestResults) -> [usize; 3] {
    let count = |is: fn(&Verdict) -> bool| outcome.tests.iter().filter(|test| is(&test.verdict)).count();
    [
        count(|verdict| matches!(verdict, Verdict::Passed)),
        count(|verdict| matches!(verdict, Verdict::Failed(_))),
        count(|verdict| matches!(verdict, Verdict::Invalid(..))),
    ]
}

/// Appends the coverage of a pipeline.
pub(super) fn coverage(coverage: &Coverage, out: &mut String) {
    let items = coverage.items();
    let covered = items.iter().filter(|item| item.records > 0).count();
    out.push_str(&format!(
        "\ncoverage of {}: {} % ({covered} of {})\n",
        coverage.pipeline(),
        coverage.percent(),
        items.len()
    ));
    for item in &items {
        let side = match item.branch {
            None => String::new(),
            Some(Branch::Taken) => format!(", if {}", item.condition.as_deref().unwrap_or_default()),
            Some(Branch::Skipped) => ", otherwise".to_owned(),
        };
        let records = match item.records {
            0 => "NOT COVERED".to_owned(),
            1 => "1 record".to_owned(),
            n => format!("{n} records"),
        };
        out.push_str(&format!("  {:<11}  {} ({}){side}\n", records, item.node, item.plugin));
    }
}

/// Returns the counts as JSON.
pub(super) fn summary(outcome: &TestResults) -> Json {
    let [passed, failed, invalid] = counts(outcome);
    json!({
        "tests": outcome.tests.len(),
        "passed": passed,
        "failed": failed,
        "invalid": invalid,
        "elapsedSeconds": outcome.elapsed.as_secs_f64(),
    })
}

/// Returns the results as JSON.
pub(super) fn json(suite: &Suite, outcome: &TestResults) -> Json {
    let coverage: Vec<Json> = outcome
        .coverage
        .iter()
        .map(|coverage| json!({ "pipeline": coverage.pipeline(), "percent": coverage.percent(), "items": coverage.items() }))
        .collect();
    json!({
        "tests": outcome.tests.iter().map(|test| tested(suite, test)).collect::<Vec<_>>(),
        "coverage": coverage,
        "findings": report::findings(&suite.findings, &suite.files),
    })
}

fn tested(suite: &Suite, test: &TestResult) -> Json {
    let place = suite.files.locate(test.span);
    let (outcome, failures, findings) = match &test.verdict {
        Verdict::Passed => ("passed", Vec::new(), Vec::new()),
        Verdict::Failed(failures) => {
            ("failed", failures.iter().map(|failure| one_failure(suite, failure)).collect(), Vec::new())
        }
        Verdict::Invalid(findings, files) => {
            ("invalid", Vec::new(), report::findings(findings, files.as_ref().unwrap_or(&suite.files)))
        }
    };
    json!({
        "name": test.name.as_str(),
        "file": place.as_ref().map(|place| place.file.as_str()),
        "line": place.as_ref().map(|place| place.line),
        "outcome": outcome,
        "elapsedSeconds": test.elapsed.as_secs_f64(),
        "virtualTime": test.virtual_time,
        "starts": test.starts,
        "failures": failures,
        "findings": findings,
        "doubts": test.doubts.iter().map(|doubt| doubtful(doubt, &test.files)).collect::<Vec<_>>(),
    })
}

fn one_failure(suite: &Suite, failure: &Failure) -> Json {
    let place = suite.files.locate(failure.span);
    json!({
        "what": failure.what,
        "messages": failure.said,
        "file": place.as_ref().map(|place| place.file.as_str()),
        "line": place.as_ref().map(|place| place.line),
        "column": place.as_ref().map(|place| place.column),
        "expected": failure.lists.as_ref().map(|(expected, _)| expected),
        "got": failure.lists.as_ref().map(|(_, got)| got),
    })
}
