//! Compilation of pipeline files, with all findings.

use std::path::{Path, PathBuf};

use anabranch_config::{InvalidPipeline, Loaded, PipelineConfig, load};
use anabranch_graph::plan::{CompileOptions, compile};
use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics, FileId, Files, Severity, Span};
use anabranch_plugin::registry::Registry;
use anabranch_process::files::{PipelineFiles, find_pipelines, is_pipeline_file};
use anabranch_record::code::Code;
use anabranch_record::text::Str;

pub use crate::pipeline::{Pipeline, ReloadError};
pub use crate::variables::{Script, read_script, script_path, value_of};

use crate::addresses;
use crate::codes;
use crate::local;
use crate::outputs::{self, OwnFiles};
use crate::taken;
use crate::variables::Environment;

/// The pipelines of the given paths.
pub struct Pipelines {
    /// Readable files.
    pub files: Files,
    /// Pipelines that can run, in the order of files, documents and lists.
    pub good: Vec<Pipeline>,
    /// Pipelines with errors.
    pub invalid: Vec<Invalid>,
    /// Unreadable files, with the reason.
    pub unreadable: Vec<(PathBuf, Diagnostic)>,
    /// Files that were read but could not be parsed completely: they may declare unknown pipelines.
    pub broken: Vec<FileId>,
    /// All findings with a place, in the order of files and places.
    pub findings: Diagnostics,
    /// The scripts that the files name, including those of pipelines with errors.
    pub scripts: Vec<Script>,
}

/// A pipeline with errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// Its id, if it has one.
    pub id: Option<Str>,
    /// Its place.
    pub span: Span,
}

/// Pipelines that use standalone processors that are not loaded yet.
pub struct Unloaded {
    /// The configurations in their files.
    pub configs: Vec<PipelineConfig>,
    files: Files,
    environment: Environment,
}

impl Unloaded {
    /// Loads the processors, which may take long, and compiles the pipelines.
    pub fn compile(self, registry: &Registry, options: &CompileOptions) -> Pipelines {
        let mut pipelines = Pipelines {
            files: self.files,
            good: Vec::new(),
            invalid: Vec::new(),
            unreadable: Vec::new(),
            broken: Vec::new(),
            findings: Diagnostics::new(),
            scripts: self.environment.scripts.take(),
        };
        pipelines.compile(self.configs, registry, options, &self.environment);
        pipelines
    }
}

impl Pipelines {
    /// Reads and compiles everything at `paths`. Opens only these files.
    pub fn load<P: AsRef<Path>>(paths: &[P], registry: &Registry, options: &CompileOptions) -> Pipelines {
        Pipelines::of(find_pipelines(paths), registry, options)
    }

    /// Compiles everything in files that were found.
    pub fn of(found: PipelineFiles, registry: &Registry, options: &CompileOptions) -> Pipelines {
        Pipelines::read(found, registry, options, |_| false).0
    }

    /// Compiles a text that is not a file; `name` is its name in findings.
    pub fn of_text(name: &str, text: String, registry: &Registry, options: &CompileOptions) -> Pipelines {
        let mut files = Files::new();
        files.add(name, text);
        Pipelines::of(PipelineFiles { files, unreadable: Vec::new() }, registry, options)
    }

    /// Reads and compiles everything at `paths`, except pipelines that have to wait for standalone processors.
    pub fn load_ready<P: AsRef<Path>>(
        paths: &[P],
        registry: &Registry,
        options: &CompileOptions,
    ) -> (Pipelines, Unloaded) {
        Pipelines::read(find_pipelines(paths), registry, options, |config| {
            let of_connectors = config.connectors.iter().flat_map(|connector| &connector.processors);
            config.processors.iter().chain(of_connectors).any(|processor| registry.has_to_load(&processor.plugin.value))
        })
    }

    fn read(
        found: PipelineFiles,
        registry: &Registry,
        options: &CompileOptions,
        is_for_later: impl Fn(&PipelineConfig) -> bool,
    ) -> (Pipelines, Unloaded) {
        let environment = Environment::default();
        let mut loaded = load(&found.files, &environment);
        if options.strict {
            refuse_warnings(&mut loaded);
        }
        let mut pipelines = Pipelines {
            files: found.files,
            good: Vec::with_capacity(loaded.pipelines.len()),
            invalid: loaded.invalid.iter().map(|i| Invalid { id: i.id.clone(), span: i.span }).collect(),
            unreadable: found.unreadable,
            broken: loaded.broken,
            findings: loaded.diagnostics,
            scripts: environment.scripts.borrow().clone(),
        };
        // The valid parts of pipelines with errors are checked too, so that all errors are reported together.
        for config in loaded.invalid.into_iter().filter_map(|i| i.sound_parts).filter(|config| !is_for_later(config)) {
            if let Err(findings) = compile(&config, registry, options) {
                let of_a_part = |d: &Diagnostic| d.severity == Severity::Error && !OF_THE_WHOLE.contains(&d.code);
                pipelines.take(&config, Diagnostics(findings.into_iter().filter(of_a_part).collect()));
            }
        }
        let (later, now) = loaded.pipelines.into_iter().partition(is_for_later);
        pipelines.compile(now, registry, options, &environment);
        let files = pipelines.files.clone();
        (pipelines, Unloaded { configs: later, files, environment })
    }

    fn compile(
        &mut self,
        configs: Vec<PipelineConfig>,
        registry: &Registry,
        options: &CompileOptions,
        environment: &Environment,
    ) {
        let own = self.own_files();
        for config in configs {
            let compiled = compile(&config, registry, options).and_then(|mut compiled| {
                compiled.locate(&self.files, config.id.span.file);
                let outputs = outputs::check(&compiled, registry, &own);
                compiled.warnings.extend(if options.strict { outputs.raised() } else { outputs });
                if options.cluster {
                    compiled.warnings.extend(local::check(&config, &compiled));
                }
                if compiled.warnings.has_errors() { Err(compiled.warnings) } else { Ok(compiled) }
            });
            match compiled {
                Ok(compiled) => {
                    self.take(&config, compiled.warnings.clone());
                    self.good.push(Pipeline { config, compiled });
                }
                Err(findings) => {
                    self.take(&config, findings);
                    self.invalid.push(Invalid { id: Some(config.id.value.clone()), span: config.span });
                }
            }
        }
        for (index, finding) in outputs::cycles(&self.good.iter().collect::<Vec<_>>()).into_iter().rev() {
            let Pipeline { config, .. } = self.good.remove(index);
            self.invalid.push(Invalid { id: Some(config.id.value.clone()), span: config.span });
            self.take(&config, Diagnostics(vec![finding]));
        }
        let shared = addresses::shared(&self.good.iter().map(|pipeline| &pipeline.config).collect::<Vec<_>>());
        self.take_shared(shared, options.strict);
        let shared = taken::shared(&self.good);
        self.take_shared(shared, options.strict);
        let place = |d: &Diagnostic| d.label.as_ref().map(|l| (l.span.file, l.span.start));
        self.findings.0.sort_by_key(place);
        environment.hide(&mut self.findings);
    }

    /// Adds findings of good pipelines, by index in order. Those with errors are invalid.
    fn take_shared(&mut self, shared: Vec<(usize, Diagnostics)>, strict: bool) {
        for (index, findings) in shared.into_iter().rev() {
            let findings = if strict { findings.raised() } else { findings };
            if findings.has_errors() {
                let Pipeline { config, .. } = self.good.remove(index);
                self.invalid.push(Invalid { id: Some(config.id.value.clone()), span: config.span });
            }
            self.findings.0.extend(findings);
        }
    }

    /// Returns the files that declare these pipelines, and their scripts.
    fn own_files(&self) -> OwnFiles {
        // A text from HTTP has the id of its pipeline as its name, which is not a file.
        let named = self.files.iter().filter(|(_, declaring)| is_pipeline_file(Path::new(declaring.name.as_str())));
        let declaring = named.map(|(_, declaring)| (Path::new(declaring.name.as_str()), "a pipeline file"));
        let scripts =
            self.scripts.iter().map(|script| (Path::new(script.content.path.as_str()), "a script of a pipeline"));
        // A pipeline file that is also a script counts as a pipeline file.
        OwnFiles::of(scripts.chain(declaring))
    }

    /// Adds findings of a pipeline. A finding without a place gets the place of the id.
    fn take(&mut self, config: &PipelineConfig, findings: Diagnostics) {
        for finding in findings {
            let placed = if finding.label.is_some() { finding } else { finding.with_span(config.id.span) };
            self.findings.push(placed);
        }
    }

    /// Adds findings, in the order of their places.
    pub fn add(&mut self, found: Diagnostics) {
        self.findings.extend(found);
        self.findings.0.sort_by_key(|d| d.label.as_ref().map(|l| (l.span.file, l.span.start)));
    }

    /// Adds a warning for each parsed file without a pipeline: nothing was checked in it.
    pub fn warn_of_empty_files(&mut self) {
        let good = self.good.iter().map(|pipeline| pipeline.config.span.file);
        let declaring: Vec<FileId> = good.chain(self.invalid.iter().map(|invalid| invalid.span.file)).collect();
        let is_empty = |file: &FileId| !declaring.contains(file) && !self.broken.contains(file);
        let empty: Vec<FileId> = self.files.iter().map(|(id, _)| id).filter(is_empty).collect();
        for file in empty {
            let finding =
                Diagnostic::warning(codes::CONFIG_NO_PIPELINES, "the file declares no pipeline: nothing was checked")
                    .with_span(Span { file, start: 0, end: 0 })
                    .with_hint("list pipelines below `pipelines:`; `anabranch pipelines init` writes one");
            self.findings.push(finding);
        }
    }

    /// Returns `true` if every file was read and parsed.
    pub fn is_complete(&self) -> bool {
        self.unreadable.is_empty() && self.broken.is_empty()
    }

    /// Returns `true` if there is an error that keeps a pipeline from running.
    pub fn has_errors(&self) -> bool {
        !self.is_complete() || !self.invalid.is_empty() || self.findings.has_errors()
    }

    /// Returns the number of findings of a severity.
    pub fn count(&self, severity: Severity) -> usize {
        let unreadable = if severity == Severity::Error { self.unreadable.len() } else { 0 };
        self.findings.iter().filter(|d| d.severity == severity).count() + unreadable
    }

    /// Returns the first error of a pipeline in one line, with its place.
    pub fn first_error(&self, invalid: &Invalid) -> Str {
        let inside = |span: Span| {
            span.file == invalid.span.file && (invalid.span.start..=invalid.span.end).contains(&span.start)
        };
        let of_it =
            |d: &&Diagnostic| d.severity == Severity::Error && d.label.as_ref().is_some_and(|label| inside(label.span));
        let of_its_file = |d: &&Diagnostic| {
            d.severity == Severity::Error && d.label.as_ref().is_some_and(|label| label.span.file == invalid.span.file)
        };
        let found = self.findings.iter().find(of_it).or_else(|| self.findings.iter().find(of_its_file));
        found.map_or_else(|| "its file has errors".into(), |d| self.placed(d).into())
    }

    /// Returns a finding in one line, with its place if it has one.
    fn placed(&self, finding: &Diagnostic) -> String {
        match finding.label.as_ref().and_then(|label| self.files.locate(label.span)) {
            Some(place) => format!("{}:{}:{}: {}", place.file, place.line, place.column, finding.message),
            None => finding.message.clone(),
        }
    }

    /// Returns all findings; those about unreadable files come first.
    pub fn all_findings(&self) -> Diagnostics {
        Diagnostics(self.unreadable.iter().map(|(_, d)| d).chain(self.findings.iter()).cloned().collect())
    }
}

/// Turns the warnings in pipeline files into errors. A warning outside of all pipelines refuses all pipelines of its
/// file.
fn refuse_warnings(loaded: &mut Loaded) {
    let spans: Vec<Span> = loaded.pipelines.iter().map(|pipeline| pipeline.span).collect();
    let contains = |span: Span, place: Span| span.file == place.file && (span.start..=span.end).contains(&place.start);
    let places: Vec<Span> = loaded.diagnostics.iter().filter_map(|d| Some(d.label.as_ref()?.span)).collect();
    let is_refused = |span: Span| {
        let concerns = |place: &Span| {
            contains(span, *place) || (place.file == span.file && !spans.iter().any(|other| contains(*other, *place)))
        };
        places.iter().any(concerns)
    };
    loaded.diagnostics = std::mem::take(&mut loaded.diagnostics).raised();
    let (refused, good) = std::mem::take(&mut loaded.pipelines).into_iter().partition(|it| is_refused(it.span));
    loaded.pipelines = good;
    loaded.invalid.extend(Vec::into_iter(refused).map(|config: PipelineConfig| InvalidPipeline {
        id: Some(config.id.value.clone()),
        span: config.span,
        sound_parts: Some(Box::new(config)),
    }));
}

/// Findings that do not apply to a pipeline with unreadable parts.
const OF_THE_WHOLE: &[Code] =
    &[codes::PLAN_NO_SOURCE, codes::PLAN_NO_DESTINATION, codes::PLAN_UNREACHABLE, codes::PLAN_INTERNAL];

/// The ids that the pipeline files at a path declare, in the order of the files. Compiles nothing; files and pipelines
/// with errors are left out.
pub fn declared_ids(path: &Path) -> Vec<Str> {
    let files = find_pipelines(&[path]).files;
    anabranch_config::load(&files, &Environment::default())
        .pipelines
        .into_iter()
        .map(|pipeline| pipeline.id.value)
        .collect()
}

/// Compiles files with the plugins that need no heavy dependency.
#[cfg(test)]
pub(crate) fn of_files(files: Files) -> Pipelines {
    let mut registry = Registry::new();
    anabranch_ops::register(&mut registry);
    Pipelines::of(PipelineFiles { files, unreadable: Vec::new() }, &registry, &CompileOptions::default())
}

/// Compiles a file with this text.
#[cfg(test)]
pub(crate) fn of_text(text: &str) -> Pipelines {
    let mut files = Files::new();
    files.add("p.yaml", text);
    of_files(files)
}
