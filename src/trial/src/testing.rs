//! Tests of pipelines: YAML files next to the pipelines that define input records, injected faults and expected
//! results.
//!
//! A test runs the whole compiled graph with the production executor: real processors between scripted sources and
//! destinations. No position is stored outside of the test, and no network connection is made ([`run`]). `case` reads
//! the files, `script` contains the scripted ends, `stub` the HTTP services, `check` compares, `update` writes actual
//! results to the files.

pub mod case;
mod check;
pub mod coverage;
mod fields;
mod input;
pub mod junit;
mod pattern;
mod run;
pub mod schema;
mod script;
mod step;
mod stub;
mod update;
mod view;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anabranch_config::{PipelineConfig, Variables, load};
use anabranch_graph::plan::stage::{StageKind, StagePlan};
use anabranch_graph::plan::{CompileOptions, Compiled, ProbableMistake, compile};
use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics, FileId, Files, Span, Spanned};
use anabranch_plugin::operator::Class;
use anabranch_plugin::registry::{Registry, Role};
use anabranch_plugin::written::Content;
use anabranch_process::files::{MAX_PIPELINE_FILE, is_test, read_text};
use anabranch_record::fault::FaultClass;
use anabranch_record::near::did_you_mean;
use anabranch_record::text::Str;
use anabranch_service::pipelines::read_script;
use anabranch_settings::RecoveryPolicy;

use case::{FaultKind, FaultSpec, PerConnector, TestCase, TestFile};
use check::Expecting;

use crate::codes;
pub use check::Failure;
use coverage::Coverage;
use run::TestInput;
pub use update::{Updated, update};

/// Test files, with all findings about them.
#[derive(Default)]
pub struct Suite {
    /// The texts of the test files.
    pub files: Files,
    /// The test files that could be parsed.
    pub tests: Vec<TestFile>,
    /// Findings about the files.
    pub findings: Diagnostics,
}

/// Options of a test run.
pub struct Options<'a> {
    /// The available plugins.
    pub registry: &'a Registry,
    /// Options of the compiler.
    pub compile: CompileOptions,
    /// Restarts of failed pipelines.
    pub recovery: RecoveryPolicy,
    /// Run only tests whose name contains this text.
    pub filter: Option<&'a str>,
    /// Maximum number of tests that run at the same time.
    pub jobs: usize,
    /// The pipeline, if the test has no file.
    pub pipeline: Option<&'a str>,
}

/// The results of all tests that were run.
#[derive(Default)]
pub struct TestResults {
    /// The tests, in the order of the files.
    pub tests: Vec<TestResult>,
    /// The coverage of each pipeline.
    pub coverage: Vec<Coverage>,
    /// Total duration.
    pub elapsed: Duration,
}

/// The result of a test.
pub struct TestResult {
    /// Index of its file in [`Suite::tests`].
    pub file: usize,
    /// Its name.
    pub name: Str,
    /// Place of its name.
    pub span: Span,
    /// Its verdict.
    pub verdict: Verdict,
    /// Duration.
    pub elapsed: Duration,
    /// `true` if its time was virtual.
    pub virtual_time: bool,
    /// Number of starts of the pipeline.
    pub starts: usize,
    /// Probable mistakes in the pipeline that made no record fail; their places are in `files`.
    pub doubts: Vec<ProbableMistake>,
    /// The pipeline's files.
    pub files: Files,
}

/// The verdict of a test.
pub enum Verdict {
    /// All expectations are met.
    Passed,
    /// Some expectations are not met.
    Failed(Vec<Failure>),
    /// The test could not run: it does not match the pipeline (places in [`Suite::files`]), or the pipeline has errors
    /// (places in these files).
    Invalid(Diagnostics, Option<Files>),
}

/// Maximum depth of directories that are searched for tests.
const DEEPEST: usize = 16;

impl Suite {
    /// Reads the test files at the paths. A path is a test file, a pipeline file with tests next to it, or a directory
    /// that is searched recursively.
    pub fn find(paths: &[PathBuf]) -> Suite {
        let mut suite = Suite::default();
        let mut found = Vec::new();
        for path in paths {
            if path.is_dir() {
                let before = found.len();
                below(path, DEEPEST, &mut found);
                found[before..].sort();
            } else if is_test(path) || !path.exists() {
                found.push(path.clone());
            } else {
                found.push(tests_beside(path));
            }
        }
        found.dedup();
        for path in found {
            match read_text(&path, MAX_PIPELINE_FILE) {
                Ok(text) => {
                    let file = suite.files.add(path.display().to_string(), text);
                    suite.tests.extend(case::read(&suite.files, file, Some(&path), &mut suite.findings));
                }
                Err(error) => {
                    let message = format!("cannot read {}: {error}", path.display());
                    let hint = "put the tests of orders.yaml into orders.test.yaml in the same directory";
                    suite.findings.push(Diagnostic::error(codes::TEST_UNREADABLE, message).with_hint(hint));
                }
            }
        }
        suite
    }

    /// Reads a test file from a text, which cannot name files.
    pub fn of_text(name: &str, text: &str) -> Suite {
        let mut suite = Suite::default();
        let file = suite.files.add(name, text);
        suite.tests.extend(case::read(&suite.files, file, None, &mut suite.findings));
        suite
    }

    /// Runs the tests concurrently; they are independent of each other.
    pub fn run(&self, options: &Options<'_>) -> TestResults {
        let begin = Instant::now();
        let wanted = |case: &TestCase| options.filter.is_none_or(|text| case.name.value.contains(text));
        let all: Vec<(usize, &TestFile, &Arc<TestCase>)> = self
            .tests
            .iter()
            .enumerate()
            .flat_map(|(number, file)| file.tests.iter().map(move |case| (number, file, case)))
            .filter(|(_, _, case)| wanted(case))
            .collect();
        let next = AtomicUsize::new(0);
        let work = || {
            let mut done = Vec::new();
            while let Some((number, file, case)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                let at = done.len();
                done.push((*number, at, one(*number, file, case, options)));
            }
            done
        };
        let jobs = options.jobs.clamp(1, all.len().max(1));
        let mut done: Vec<_> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
            workers.into_iter().filter_map(|worker| worker.join().ok()).flatten().collect()
        });
        done.sort_by_key(|(_, _, (tested, _))| (tested.file, tested.span.start));
        let mut outcome = TestResults { elapsed: begin.elapsed(), ..TestResults::default() };
        for (_, _, (tested, covered)) in done {
            if let Some(covered) = covered {
                match outcome.coverage.iter_mut().find(|other| other.is_of_the_same(&covered)) {
                    Some(other) => other.add(&covered),
                    None => outcome.coverage.push(covered),
                }
            }
            outcome.tests.push(tested);
        }
        outcome
    }
}

/// Runs one test.
fn one(number: usize, file: &TestFile, case: &Arc<TestCase>, options: &Options<'_>) -> (TestResult, Option<Coverage>) {
    let begin = Instant::now();
    let mut tested = TestResult {
        file: number,
        name: case.name.value.clone(),
        span: case.name.span,
        verdict: Verdict::Passed,
        elapsed: Duration::ZERO,
        virtual_time: false,
        starts: 0,
        doubts: Vec::new(),
        files: Files::new(),
    };
    let (config, compiled, pipeline_files) = match pipeline(file, case, options) {
        Ok(pipeline) => pipeline,
        Err((findings, files)) => {
            tested.verdict = Verdict::Invalid(findings, files);
            return (tested, None);
        }
    };
    let mut findings = Diagnostics::new();
    let parts = NamedNodes::of(&config, &compiled.stages);
    let sources = parts.resolved(&case.input, Role::Source, &mut findings, Clone::clone);
    let records = parts.resolved(&case.expect.records, Role::Destination, &mut findings, |expected| expected);
    let acks = parts.resolved(&case.expect.acks, Role::Source, &mut findings, |acks| acks);
    parts.check_faults(case, &mut findings);
    if case.input.entries.is_empty() {
        let finding =
            Diagnostic::error(codes::TEST_FIELD_REQUIRED, "a test needs `input`: without it, no record is read");
        let hint = "write `input: []` for a source without records";
        findings.push(finding.with_span(case.name.span).with_hint(hint));
    }
    if findings.has_errors() {
        tested.verdict = Verdict::Invalid(findings, None);
        return (tested, None);
    }
    let play = |faults: &[&FaultSpec]| {
        run::play(TestInput {
            case: case.clone(),
            compiled: compiled.clone(),
            sources: sources.iter().cloned().collect(),
            faults: faults.iter().copied().cloned().collect(),
            recovery: options.recovery,
        })
    };
    let (crashes, others): (Vec<&FaultSpec>, Vec<&FaultSpec>) =
        case.faults.iter().partition(|fault| fault.kind.value == FaultKind::Crash);
    let observed = play(&case.faults.iter().collect::<Vec<_>>());
    let name = case.name.span;
    let expecting = Expecting { expect: &case.expect, records, acks, stubs: &case.http, faults: &case.faults, name };
    let mut failures = check::check(&expecting, &observed);
    if let Some(crash) = crashes.first().filter(|_| observed.status.is_some()) {
        let stages = compiled.stages.stages.iter().filter(|stage| stage.is_transactional());
        let transactional: Vec<&Str> = stages
            .filter_map(|stage| match &stage.kind {
                StageKind::Write(write) => Some(&write.connector),
                _ => None,
            })
            .collect();
        failures.extend(check::lost(crash.span, &observed, &play(&others), &transactional));
    }
    tested.verdict = if failures.is_empty() { Verdict::Passed } else { Verdict::Failed(failures) };
    tested.elapsed = begin.elapsed();
    tested.virtual_time = observed.paused;
    tested.starts = observed.starts;
    tested.doubts = observed.doubts;
    tested.files = pipeline_files;
    let of = file.pipeline.as_ref().map(|path| path.value.clone());
    (tested, Some(Coverage::new(of, compiled, observed.measured)))
}

type SetupFailure = (Diagnostics, Option<Files>);

/// Compiles the pipeline of a test with the variables of the test only.
fn pipeline(
    file: &TestFile,
    case: &TestCase,
    options: &Options<'_>,
) -> Result<(PipelineConfig, Compiled, Files), SetupFailure> {
    let mut files = Files::new();
    match (&file.pipeline, options.pipeline) {
        (Some(path), _) => match read_text(&path.value, MAX_PIPELINE_FILE) {
            Ok(text) => drop(files.add(path.value.display().to_string(), text)),
            Err(error) => {
                let message = format!("cannot read the pipeline {}: {error}", path.value.display());
                let hint = "set the pipeline file with `pipeline: PATH`, relative to the test file";
                let finding = Diagnostic::error(codes::TEST_NO_PIPELINE, message).with_span(path.span).with_hint(hint);
                return Err((finding.into(), None));
            }
        },
        (None, Some(text)) => drop(files.add("pipeline", text)),
        (None, None) => {
            let finding =
                Diagnostic::error(codes::TEST_NO_PIPELINE, "there is no pipeline to test").with_span(case.name.span);
            return Err((finding.into(), None));
        }
    }
    let variables = TestVariables { env: &case.env, reads_files: file.path.is_some() };
    let loaded = load(&files, &variables);
    let errors = loaded.diagnostics.has_errors();
    let mut findings = loaded.diagnostics;
    for finding in findings.0.iter_mut().filter(|finding| finding.code == codes::CONFIG_VARIABLE_UNSET) {
        finding.hint = Some(format!("set its value in `env` of the test {:?}, or write a default", &*case.name.value));
    }
    if errors {
        return Err((findings, Some(files)));
    }
    let mut named: Vec<PipelineConfig> = loaded.pipelines;
    if let Some(id) = &file.id {
        let ids: Vec<Str> = named.iter().map(|config| config.id.value.clone()).collect();
        named.retain(|config| config.id.value == id.value);
        if named.is_empty() {
            let message = format!("there is no pipeline {:?} in the file", &*id.value);
            let finding = Diagnostic::error(codes::TEST_NO_PIPELINE, message).with_span(id.span);
            let near = did_you_mean(&id.value, ids.iter().map(Str::as_str)).map(|near| format!("did you mean {near}?"));
            return Err((Diagnostic { hint: near, ..finding }.into(), None));
        }
    }
    let config = match named.len() {
        1 => named.remove(0),
        count => {
            let ids: Vec<&str> = named.iter().map(|config| config.id.value.as_str()).collect();
            let finding = Diagnostic::error(codes::TEST_NO_PIPELINE, format!("the file has {count} pipelines"))
                .with_span(file.pipeline.as_ref().map_or(case.name.span, |path| path.span))
                .with_hint(format!("choose one with `id: ID`: {}", ids.join(", ")));
            return Err((finding.into(), None));
        }
    };
    match compile(&config, options.registry, &options.compile) {
        Ok(mut compiled) => {
            compiled.locate(&files, config.id.span.file);
            Ok((config, compiled, files))
        }
        Err(findings) => {
            let placed = |finding: Diagnostic| {
                if finding.label.is_some() { finding } else { finding.with_span(config.id.span) }
            };
            Err((Diagnostics(findings.into_iter().map(placed).collect()), Some(files)))
        }
    }
}

/// Variables of a test. Those of the process are not visible, so that the result is the same everywhere.
struct TestVariables<'a> {
    env: &'a BTreeMap<String, String>,
    reads_files: bool,
}

impl Variables for TestVariables<'_> {
    fn variable(&self, name: &str) -> Option<String> {
        self.env.get(name).cloned()
    }

    fn script(&self, path: &str, pipeline_file: &str) -> Content {
        match (self.env.get(&format!("file:{path}")), self.reads_files) {
            (Some(text), _) => Content { path: path.into(), text: Ok(text.as_str().into()), hint: None },
            (None, true) => read_script(path, pipeline_file),
            (None, false) => {
                let why = format!("the test does not set `file:{path}` in `env`");
                Content { path: path.into(), text: Err(why.into()), hint: None }
            }
        }
    }

    fn file(&self, path: &str) -> Result<String, String> {
        match self.env.get(&format!("file:{path}")) {
            Some(text) => Ok(text.clone()),
            None if self.reads_files => read_text(Path::new(path), 1 << 20).map_err(|error| error.to_string()),
            None => Err("the test does not set `file:PATH` in `env`".to_owned()),
        }
    }
}

/// The connectors and processors of a pipeline that a test can name.
struct NamedNodes<'a> {
    sources: Vec<&'a Str>,
    destinations: Vec<&'a Str>,
    steps: Vec<(&'a Str, Class)>,
}

impl<'a> NamedNodes<'a> {
    fn of(config: &'a PipelineConfig, plan: &'a StagePlan) -> Self {
        let connectors = |role| {
            config.connectors.iter().filter(move |c| c.role.value == role).map(|c| &c.id.value).collect::<Vec<_>>()
        };
        let steps = plan.stages.iter().flat_map(|stage| match &stage.kind {
            StageKind::Chain(steps) | StageKind::Parallel { steps, .. } | StageKind::Isolate { steps, .. } => {
                steps.as_slice()
            }
            StageKind::Async { step, .. } => std::slice::from_ref(step),
            StageKind::Read(_) | StageKind::Route(_) | StageKind::Write(_) => &[],
        });
        NamedNodes {
            sources: connectors(Role::Source),
            destinations: connectors(Role::Destination),
            steps: steps.map(|step| (&step.node, step.operator.class())).collect(),
        }
    }

    /// Assigns entries for connectors to ids.
    fn resolved<'t, T, U>(
        &self,
        of: &'t PerConnector<T>,
        role: Role,
        findings: &mut Diagnostics,
        take: impl Fn(&'t T) -> U,
    ) -> Vec<(Str, U)> {
        let (ids, what) = match role {
            Role::Source => (&self.sources, "source"),
            Role::Destination => (&self.destinations, "destination"),
        };
        let mut resolved = Vec::new();
        for (name, value) in &of.entries {
            let id = match name {
                Some(name) if ids.contains(&&name.value) => Some(name.value.clone()),
                Some(name) => {
                    findings.push(unknown(name, what, ids.iter().map(|id| id.as_str())));
                    None
                }
                None => match ids.as_slice() {
                    [only] => Some((*only).clone()),
                    _ => {
                        let names: Vec<&str> = ids.iter().map(|id| id.as_str()).collect();
                        let message = format!("the pipeline has {} {what}s: choose one", ids.len());
                        findings.push(
                            Diagnostic::error(codes::TEST_VALUE, message)
                                .with_span(of.span)
                                .with_hint(format!("write a map with their ids as keys: {}", names.join(", "))),
                        );
                        None
                    }
                },
            };
            resolved.extend(id.map(|id| (id, take(value))));
        }
        resolved
    }

    fn check_faults(&self, case: &TestCase, findings: &mut Diagnostics) {
        for fault in &case.faults {
            if let Some(source) = fault.source.as_ref().filter(|source| !self.sources.contains(&&source.value)) {
                findings.push(unknown(source, "source", self.sources.iter().map(|id| id.as_str())));
            }
            let at = &fault.at.value;
            let kind = &fault.kind.value;
            let (possible, what) = if self.sources.contains(&at) {
                let known = matches!(
                    kind,
                    FaultKind::Fail(FaultClass::Transient | FaultClass::Fatal, _)
                        | FaultKind::Delay(_)
                        | FaultKind::Hang
                        | FaultKind::Panic
                        | FaultKind::Crash
                );
                (known, "a source can fail (transient, fatal), delay, hang, panic or crash")
            } else if self.destinations.contains(&at) {
                (true, "")
            } else if let Some((_, class)) = self.steps.iter().find(|(node, _)| *node == at) {
                match kind {
                    FaultKind::Fail(..) | FaultKind::Panic => (true, ""),
                    FaultKind::Delay(_) | FaultKind::Hang => {
                        (*class != Class::Inline, "a processor that only computes can fail or panic, nothing else")
                    }
                    FaultKind::Down(_) | FaultKind::Partial(_) | FaultKind::Crash => {
                        (false, "a processor can fail, delay, hang or panic; the other faults are for connectors")
                    }
                }
            } else {
                let steps = self.steps.iter().map(|(node, _)| node.as_str());
                let ids = self.sources.iter().chain(&self.destinations).map(|id| id.as_str()).chain(steps);
                findings.push(unknown(&fault.at, "processor or connector", ids));
                continue;
            };
            if !possible {
                let finding =
                    Diagnostic::error(codes::TEST_FAULT_IMPOSSIBLE, format!("this fault is not possible at {at}"));
                findings.push(finding.with_span(fault.kind.span).with_hint(what));
            }
        }
    }
}

fn unknown<'i>(name: &Spanned<Str>, what: &str, ids: impl Iterator<Item = &'i str> + Clone) -> Diagnostic {
    let finding = Diagnostic::error(codes::TEST_UNKNOWN_ID, format!("the pipeline has no {what} {:?}", &*name.value));
    let hint = match did_you_mean(&name.value, ids.clone()) {
        Some(near) => format!("did you mean {near}?"),
        None => {
            let ids = ids.collect::<Vec<_>>();
            match (case::is_of_list(&name.value), ids.first()) {
                (true, Some(first)) => format!(
                    "write {name} below the id of a connector: `{first}: {{ {name}: … }}`; for the number of all \
                     records, write `records: 1`",
                    name = &*name.value
                ),
                _ => format!("the ids are: {}", ids.join(", ")),
            }
        }
    };
    finding.with_span(name.span).with_hint(hint)
}

/// Returns the path of the test file for a pipeline file.
fn tests_beside(path: &Path) -> PathBuf {
    let extension =
        path.extension().map_or_else(|| "yaml".into(), |extension| extension.to_string_lossy().into_owned());
    path.with_extension(format!("test.{extension}"))
}

/// Collects all test files below a directory, except hidden directories.
fn below(directory: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for entry in entries.filter_map(Result::ok) {
        let path = entry.path();
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        // Links are not followed, because they may form cycles.
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && !hidden && depth > 0 => below(&path, depth - 1, found),
            Ok(kind) if !kind.is_dir() && is_test(&path) => found.push(path),
            _ => {}
        }
    }
}

/// Formats a place as `file:line:column`.
pub fn placed(files: &Files, span: Span) -> String {
    let place = files.locate(span);
    place.map_or_else(String::new, |place| format!("{}:{}:{}", place.file, place.line, place.column))
}

/// Returns the text of a file.
pub(crate) fn text_of(files: &Files, file: FileId) -> &str {
    files.get(file).map_or("", |file| file.text.as_str())
}
