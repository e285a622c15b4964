//! `anabranch pipelines plan`.

use std::time::Duration;

use anabranch_graph::exec::Trial;
use anabranch_graph::plan::Measured;
use anabranch_picture::{Format, Pass, TextStyle};
use anabranch_process::terminal::adopt;
use anabranch_service::pipelines::Pipeline;
use anabranch_settings::SettingFlags;
use clap::ValueEnum;
use serde_json::{Value, json};

use super::analyze;
use super::chosen::{ChosenPipelines, NoRunnablePipeline};
use super::tries::{TryFlags, untried_line};
use crate::cli::completions;
use crate::cli::{Context, Exit, Report};
use crate::codes;

/// Show the compiled plan of a pipeline.
///
/// Prints the graph that a pipeline is compiled to. Opens nothing and shows no credentials. Also runs the pipeline over
/// about a hundred synthetic records, as `pipelines validate` does, and warns of processors and destinations that fail
/// all of them.
///
/// With --analyze, the command runs the pipeline from the beginning of its sources, and the plan shows for every node:
/// records in and out, records for which its condition was true, time in calls over all workers, and its share of the
/// time of all nodes. The output records are discarded, no position is stored, and no record is acknowledged to its
/// source.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Arguments {
    /// A pipeline file, or the id of a pipeline in `pipelines.path`. Default: all pipelines.
    #[arg(value_name = "FILE|ID", add = completions::files_or_pipelines())]
    which: Option<String>,
    /// Format of the graph.
    #[arg(long, value_enum, default_value_t = FormatName::Text)]
    format: FormatName,
    /// The compiler pass after which to show the graph.
    #[arg(long, value_enum, default_value_t = StageName::Fused)]
    stage: StageName,
    /// Treat warnings as errors: do not show the plan of a pipeline that has warnings.
    #[arg(long)]
    strict: bool,
    /// Run the pipeline, and show counts and times of every node.
    #[arg(long)]
    analyze: bool,
    /// Maximum number of records to read from each source.
    #[arg(long, value_name = "N", requires = "analyze", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    records: u32,
    /// Also write to the destinations and the dead-letter queue. The next run writes the same records again.
    #[arg(long, requires = "analyze")]
    write: bool,
    #[command(flatten)]
    tries: TryFlags,
    #[command(flatten)]
    settings: SettingFlags<false>,
}

/// Time limit of an analysis, because a source with fewer records than requested may never end.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FormatName {
    /// Readable text.
    Text,
    /// Graphviz.
    Dot,
    /// Mermaid.
    Mermaid,
    /// JSON.
    Json,
    /// A drawing in the light or dark colours of the viewer.
    Svg,
    /// A page with the graph after each pass and the settings of every node.
    Html,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum StageName {
    /// The pipeline as written.
    Lowered,
    /// After all rewrites.
    Rewritten,
    /// The stages that run.
    Fused,
}

const COMMAND: &str = "pipelines.plan";

const REFUSAL: NoRunnablePipeline =
    NoRunnablePipeline { command: COMMAND, invalid: "there is no plan of a pipeline that has errors" };

pub(super) fn plan(arguments: &Arguments, context: &Context) -> Report {
    let settings = match context.settings(COMMAND, &arguments.settings) {
        Ok(settings) => settings,
        Err(report) => return *report,
    };
    let mut chosen = ChosenPipelines::load(arguments.which.as_deref(), &settings);
    if let Err(report) = chosen.good(&REFUSAL, context) {
        return *report;
    }
    let untried = arguments.tries.limits().map_or(0, |limits| chosen.try_synthetic(limits));
    let good = match chosen.good(&REFUSAL, context) {
        Ok(good) => good,
        Err(report) => return *report,
    };
    let pipelines = &chosen.pipelines;
    if arguments.strict && !pipelines.findings.is_empty() {
        let (code, message) =
            (codes::PIPELINE_INVALID, "there is no plan of a pipeline that has warnings, with --strict");
        return Report::new(COMMAND).notes(context.rendered(&pipelines.findings, &pipelines.files)).fail(
            Exit::Invalid,
            code,
            message,
        );
    }
    let pass = match arguments.stage {
        StageName::Lowered => Pass::Lowered,
        StageName::Rewritten => Pass::Rewritten,
        StageName::Fused => Pass::Fused,
    };
    let format = match (arguments.format, context.json) {
        (_, true) | (FormatName::Json, _) => Format::Json,
        (FormatName::Text, _) => Format::Text,
        (FormatName::Dot, _) => Format::Dot,
        (FormatName::Mermaid, _) => Format::Mermaid,
        (FormatName::Svg, _) => Format::Svg,
        (FormatName::Html, _) => Format::Html,
    };
    if matches!(format, Format::Svg | Format::Html) && good.len() > 1 {
        let message = format!("a drawing is of one pipeline, and there are {}", good.len());
        let ids: Vec<&str> = good.iter().map(|p| p.config.id.value.as_str()).collect();
        return Report::new(COMMAND)
            .fail(Exit::Invalid, codes::PLAN_SEVERAL_PIPELINES, message)
            .suggest(format!("name one: {}", ids.join(", ")));
    }
    let style = TextStyle { unicode: context.terminal, color: context.color };
    let measured = match arguments.analyze {
        false => vec![None; good.len()],
        true => {
            let trial = Trial { records: arguments.records as usize, write: arguments.write, patience: PATIENCE };
            match analyze::analyze(&good, trial, &settings) {
                Ok(measured) => measured.into_iter().map(Some).collect(),
                Err(error) => return error.report(Report::new(COMMAND)),
            }
        }
    };
    let broken = measured.iter().flatten().any(|measured| measured.broken);
    let explain = |(pipeline, measured): (&&Pipeline, &Option<Measured>)| {
        adopt(&anabranch_picture::explain_measured(&pipeline.compiled, pass, format, style, measured.as_ref()))
    };
    let mut plans: Vec<String> = good.iter().zip(&measured).map(explain).collect();
    for plan in &mut plans {
        if !plan.ends_with('\n') {
            plan.push('\n');
        }
    }
    let as_json = |text: &String| serde_json::from_str::<Value>(text).unwrap_or(Value::Null);
    let text = match (format, plans.as_slice()) {
        (Format::Json, [_, _, ..]) => {
            format!("{}\n", json!({ "pipelines": plans.iter().map(as_json).collect::<Vec<_>>() }))
        }
        _ => plans.join("\n"),
    };
    let result = match format {
        Format::Json => json!({ "plans": plans.iter().map(as_json).collect::<Vec<_>>() }),
        Format::Text | Format::Outline | Format::Dot | Format::Mermaid | Format::Svg | Format::Html | Format::Live => {
            Value::Null
        }
    };
    Report::new(COMMAND)
        .notes(context.rendered(&pipelines.findings, &pipelines.files) + &untried_line(untried))
        .summary(json!({ "pipelines": plans.len() }))
        .result(result)
        .text(text)
        .found(if broken { Exit::Failed } else { Exit::Ok })
}
