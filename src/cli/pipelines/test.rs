//! `anabranch pipelines test`.

mod show;

use std::path::PathBuf;

use anabranch_api::testing::TestRequest;
use anabranch_picture::{Format, TextStyle};
use anabranch_process::files::output::{self, Unwritable};
use anabranch_settings::SettingFlags;
use anabranch_trial::testing::{Options, Suite, TestResults, Verdict, junit, placed, schema, update};
use clap::ValueEnum;
use serde_json::json;

use crate::cli::{Context, Exit, Report, compile_options, registry_with};
use crate::codes;

/// Run the tests of pipelines.
///
/// The tests of orders.yaml are in orders.test.yaml. A test feeds records to the sources and states the expected
/// results: records at the destinations, dead letters, acknowledgements, HTTP requests. The whole pipeline runs with
/// its real processors; nothing is written, no position is stored, and no network connection is made. Stubs answer HTTP
/// requests, faults can be injected, and time is virtual if everything runs in this process.
///
/// Exit codes: 0 all tests passed, 1 a test failed or the coverage is too low, 2 a test or pipeline is not valid.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example of a test, as orders.test.yaml:
  tests:
    - name: refunds are left out
      input:
        - after: { kind: order, amount: 5 }
        - after: { kind: refund, amount: 5 }
      expect:
        records:
          - after: { kind: order, amount: 5 }

`anabranch pipelines test --schema` prints the JSON Schema of such files, for editors.")]
pub(in crate::cli) struct Arguments {
    /// Test files, pipeline files with tests next to them, or directories. Default: all below `pipelines.path`.
    #[arg(value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
    /// Run only tests whose name contains this text.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Write the results as JUnit's XML to this file; one that exists is replaced only if it holds such results.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Replace the expected results in the test files by the actual ones.
    #[arg(long)]
    update: bool,
    /// Report which processors and which outcomes of conditions the tests covered, and draw them.
    #[arg(long, value_enum, value_name = "FORM", num_args = 0..=1, default_missing_value = "text")]
    coverage: Option<CoverageForm>,
    /// Directory for the drawings of the coverage.
    #[arg(long, value_name = "DIR", default_value = ".")]
    coverage_dir: PathBuf,
    /// Fail if the coverage of a pipeline is below this percentage.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    min_coverage: Option<u8>,
    /// Maximum number of tests that run at the same time. Default: the number of cores.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Print the JSON Schema of test files and exit.
    #[arg(long, exclusive = true)]
    schema: bool,
    /// Read a pipeline and its tests as JSON from standard input. They cannot name files.
    #[arg(long, hide = true, conflicts_with_all = ["paths", "junit", "update"])]
    stdin: bool,
    #[command(flatten)]
    settings: SettingFlags<false>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CoverageForm {
    /// A list, and the graph with counts.
    Text,
    /// A drawing of each pipeline, in a file.
    Svg,
    /// A page for each pipeline, in a file.
    Html,
}

const COMMAND: &str = "pipelines.test";
const JUNIT: output::OutputKind =
    output::OutputKind { what: "a JUnit report of this command", is_ours: junit::is_report };
const SVG: output::OutputKind = output::OutputKind { what: "a drawing", is_ours: |text| text.starts_with("<svg") };
const HTML: output::OutputKind =
    output::OutputKind { what: "a page", is_ours: |text| text.starts_with("<!DOCTYPE html>") };

pub(super) fn test(arguments: &Arguments, context: &Context) -> Report {
    if arguments.schema {
        let schema = schema::json_schema();
        return Report::new(COMMAND).text(format!("{schema:#}\n")).result(schema);
    }
    let settings = match context.settings(COMMAND, &arguments.settings) {
        Ok(settings) => settings,
        Err(report) => return *report,
    };
    let paths = match arguments.paths.as_slice() {
        [] => vec![settings.pipelines.path.clone()],
        paths => paths.to_vec(),
    };
    if let Some(path) = &arguments.junit
        && let Err(error) = output::check(path, JUNIT)
    {
        return Report::new(COMMAND).unwritable(codes::CLI_CANNOT_WRITE, &error);
    }
    let given = match arguments.stdin.then(read_stdin).transpose() {
        Ok(given) => given,
        Err(error) => return Report::new(COMMAND).fail(Exit::Invalid, codes::TEST_UNREADABLE, error),
    };
    let suite = match &given {
        Some(given) => Suite::of_text("test", &given.test),
        None => Suite::find(&paths),
    };
    let registry = registry_with(&settings);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let outcome = suite.run(&Options {
        registry: &registry,
        compile: compile_options(&settings, false),
        recovery: settings.pipelines.recovery,
        filter: arguments.filter.as_deref(),
        jobs: arguments.jobs.map_or(cores, usize::from),
        pipeline: given.as_ref().map(|given| given.pipeline.as_str()),
    });
    report(arguments, context, &paths, &suite, &outcome)
}

/// Reads a pipeline and its tests from a client of the API, which has limited their size.
fn read_stdin() -> Result<TestRequest, String> {
    serde_json::from_reader(std::io::stdin().lock()).map_err(|error| error.to_string())
}

fn report(arguments: &Arguments, context: &Context, paths: &[PathBuf], suite: &Suite, outcome: &TestResults) -> Report {
    let mut notes = context.rendered(&suite.findings, &suite.files);
    let mut text = show::text(suite, outcome, context.color, context.terminal);
    let failed = |outcome: &TestResults| outcome.tests.iter().any(|test| matches!(test.verdict, Verdict::Failed(_)));
    let invalid =
        suite.findings.has_errors() || outcome.tests.iter().any(|test| matches!(test.verdict, Verdict::Invalid(..)));
    let mut exit = match (invalid, failed(outcome)) {
        (true, _) => Exit::Invalid,
        (false, true) => Exit::Failed,
        (false, false) => Exit::Ok,
    };
    let cannot_write = |error: &Unwritable| Report::new(COMMAND).unwritable(codes::CLI_CANNOT_WRITE, error);
    let mut updates = Vec::new();
    if arguments.update && invalid {
        notes.push_str("no expectation was written, because a test or a pipeline is invalid\n");
    }
    if arguments.update && !invalid {
        let mut left = false;
        for updated in update(suite, outcome) {
            if updated.changes > 0
                && let Err(error) = output::replace(&updated.path, &updated.text)
            {
                return cannot_write(&Unwritable::System { path: updated.path, error });
            }
            let many = if updated.changes == 1 { "" } else { "s" };
            text.push_str(&format!("{}: {} expectation{many} written\n", updated.path.display(), updated.changes));
            for (span, why) in &updated.refused {
                text.push_str(&format!("{}: not changed: {why}\n", placed(&suite.files, *span)));
                left = true;
            }
            updates.push(json!({ "file": updated.path, "changes": updated.changes, "refused": updated.refused.len() }));
        }
        exit = if left { Exit::Failed } else { Exit::Ok };
    }
    if let Some(path) = &arguments.junit
        && let Err(error) = output::write(path, JUNIT, &junit::report(suite, outcome))
    {
        return cannot_write(&error);
    }
    let drawing = match arguments.coverage {
        Some(CoverageForm::Svg) => Some((Format::Svg, SVG, "svg")),
        Some(CoverageForm::Html) => Some((Format::Html, HTML, "html")),
        Some(CoverageForm::Text) | None => None,
    };
    if arguments.coverage.is_some() {
        let style = TextStyle { unicode: context.terminal, color: context.color };
        for coverage in &outcome.coverage {
            show::coverage(coverage, &mut text);
            match drawing {
                None => text.extend(["\n", &coverage.drawn(Format::Text, style)]),
                Some((format, kind, extension)) => {
                    let path = arguments.coverage_dir.join(format!("{}.coverage.{extension}", coverage.pipeline()));
                    if let Err(error) = output::write(&path, kind, &coverage.drawn(format, style)) {
                        return cannot_write(&error);
                    }
                    text.push_str(&format!("Wrote {}\n", path.display()));
                }
            }
        }
    }
    let mut too_little = Vec::new();
    if let Some(least) = arguments.min_coverage {
        too_little = outcome.coverage.iter().filter(|coverage| coverage.percent() < f64::from(least)).collect();
        for coverage in &too_little {
            let (pipeline, percent) = (coverage.pipeline(), coverage.percent());
            notes.push_str(&format!("the tests cover {percent} % of {pipeline}, less than {least} %\n"));
            if arguments.coverage.is_none() {
                show::coverage(coverage, &mut text);
            }
        }
    }
    if !too_little.is_empty() && exit == Exit::Ok {
        exit = Exit::Failed;
    }
    let mut result = show::json(suite, outcome);
    if arguments.update {
        result["updated"] = json!(updates);
    }
    let report = Report::new(COMMAND).notes(notes).text(text).summary(show::summary(outcome)).result(result);
    if outcome.tests.is_empty() && !invalid {
        let places: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        let (code, message) = match &arguments.filter {
            Some(filter) if !suite.tests.is_empty() => {
                (codes::TEST_NONE_CHOSEN, format!("the name of no test contains {filter:?}"))
            }
            _ => (codes::TEST_NONE_FOUND, format!("there are no tests in {}", places.join(", "))),
        };
        let report = report.fail(Exit::Invalid, code, message);
        return report.suggest("put the tests of orders.yaml into orders.test.yaml in the same directory");
    }
    report.found(exit)
}
