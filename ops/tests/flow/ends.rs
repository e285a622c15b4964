//! Pipelines in few words, and ends that say more or less of their records.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anabranch_config::{PipelineConfig, Variables, load};
use anabranch_graph::plan::{CompileOptions, Compiled, compile};
use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::destination::{Destination, DestinationKind, Retry, WritePolicy, Writer};
use anabranch_plugin::diagnostic::{Diagnostics, Files};
use anabranch_plugin::flow::{Flow, Place, RecordShape};
use anabranch_plugin::host::Host;
use anabranch_plugin::parameters::shared;
use anabranch_plugin::registry::Registry;
use anabranch_plugin::source::{OpenedSource, Source, SourceKind};
use anabranch_plugin::specification::Specification;
use anabranch_record::access::Access;
use anabranch_record::fault::Fault;
use anabranch_record::mark::{Mark, Partition};
use anabranch_record::reference::Side;
use async_trait::async_trait;

/// No variables, no files.
pub(crate) struct Bare;

impl Variables for Bare {
    fn variable(&self, name: &str) -> Option<String> {
        match name {
            "SECRET" => Some("hunter22".to_owned()),
            "N" => Some("7".to_owned()),
            _ => None,
        }
    }

    fn file(&self, _: &str) -> Result<String, String> {
        Err("no files here".to_owned())
    }
}

/// The built-in plugins, and `anything` (a source that says nothing of its records) `table` (a destination
/// that takes only structured data) and `keyed` (one that overwrites what has the same key).
pub(crate) fn registry() -> Registry {
    let mut registry = Registry::new();
    anabranch_ops::register(&mut registry);
    registry.add_source(Arc::new(Said::new("anything", RecordShape::unknown())));
    registry.add_destination(Arc::new(Table {
        specification: Specification::builtin("table", "Takes fields.").with_all(shared::destination()),
        keyed: false,
    }));
    registry.add_destination(Arc::new(Table {
        specification: Specification::builtin("keyed", "Overwrites by key.").with_all(shared::destination()),
        keyed: true,
    }));
    registry
}

/// A source whose records are as is said; it is never opened.
pub(crate) struct Said {
    specification: Specification,
    shape: RecordShape,
}

impl Said {
    pub(crate) fn new(name: &'static str, shape: RecordShape) -> Said {
        let specification = Specification::builtin(name, "Says what it reads.").with_all(shared::source());
        Said { specification, shape }
    }
}

impl SourceKind for Said {
    fn specification(&self) -> &Specification {
        &self.specification
    }

    fn configure(&self, _: &Arguments) -> Result<Arc<dyn Source>, Diagnostics> {
        Ok(Arc::new(SaidSource(self.shape.clone())))
    }
}

struct SaidSource(RecordShape);

#[async_trait]
impl Source for SaidSource {
    fn catches_up(&self) -> bool {
        true
    }

    fn shape(&self) -> RecordShape {
        self.0.clone()
    }

    async fn open(&self, _: &BTreeMap<Partition, Mark>, _: &Host) -> Result<OpenedSource, Fault> {
        Err(Fault::fatal(anabranch_graph::codes::NOT_OPENED, "only its shape matters"))
    }
}

struct Table {
    specification: Specification,
    keyed: bool,
}

impl DestinationKind for Table {
    fn specification(&self) -> &Specification {
        &self.specification
    }

    fn configure(&self, _: &Arguments) -> Result<Arc<dyn Destination>, Diagnostics> {
        Ok(Arc::new(Rows { keyed: self.keyed }))
    }
}

struct Rows {
    keyed: bool,
}

#[async_trait]
impl Destination for Rows {
    async fn open(&self, _: &Host) -> Result<Box<dyn Writer>, Fault> {
        Err(Fault::fatal(anabranch_graph::codes::NOT_OPENED, "only its needs matter"))
    }

    fn flow(&self, flow: &mut Flow) {
        match self.keyed {
            true => {
                let key = Access::These(vec![vec!["Key".into()]]);
                flow.one_each(Place::NODE, &key);
                flow.replaces_by(Place::NODE, &key);
            }
            false => flow.need_fields(Place::NODE, Side::After, true),
        }
    }

    fn policy(&self) -> WritePolicy {
        WritePolicy { rows: 1000, bytes: 1 << 20, linger: Duration::ZERO, retry: Retry::Idempotent }
    }
}

/// The sources of [`yaml`].
const SOURCES: [(&str, &str); 7] = [
    ("anything", "plugin: anything"),
    ("lines", "plugin: file, settings: { path: in.txt }"),
    (
        "created",
        "plugin: generator, settings: { format.type: structured, format.options.id: int, format.options.name: string, \
         format.options.price: float, format.options.active: bool, format.options.at: time }",
    ),
    ("deleted", "plugin: generator, settings: { operations: delete, format.type: structured, format.options.id: int }"),
    (
        "mixed",
        "plugin: generator, settings: { operations: \"create,update,delete\", format.type: structured, \
         format.options.id: int, format.options.name: string }",
    ),
    ("raw", "plugin: generator, settings: { format.type: raw, format.options.id: int }"),
    (
        "orders",
        "plugin: generator, settings: { collections.orders.format.type: structured, \
         collections.orders.format.options.id: int, collections.refunds.format.type: structured, \
         collections.refunds.format.options.id: int, collections.refunds.format.options.reason: sentence }",
    ),
];

/// The file of a pipeline: sources by the names above, processors and a destination as YAML flow mappings.
pub(crate) fn yaml(sources: &[&str], processors: &[String], destination: &str) -> String {
    let mut text = String::from("version: \"2.2\"\npipelines:\n  - id: p\n    connectors:\n");
    for (i, name) in sources.iter().enumerate() {
        let source = SOURCES.iter().find(|(known, _)| known == name).map_or(*name, |(_, source)| source);
        text.push_str(&format!("      - {{ id: in{i}, type: source, {source} }}\n"));
    }
    text.push_str(&format!("      - {{ id: out, type: destination, {destination} }}\n"));
    if !processors.is_empty() {
        text.push_str("    processors:\n");
    }
    for (i, processor) in processors.iter().enumerate() {
        text.push_str(&format!("      - {{ id: p{i}, {processor} }}\n"));
    }
    text
}

/// The only pipeline of a file.
pub(crate) fn pipeline(text: &str) -> (Files, PipelineConfig) {
    let mut files = Files::new();
    files.add("p.yaml", text);
    let mut loaded = load(&files, &Bare);
    assert!(!loaded.diagnostics.has_errors(), "{}\n{text}", loaded.diagnostics.render(&files, Default::default()));
    (files, loaded.pipelines.remove(0))
}

pub(crate) const OPTIONS: CompileOptions = CompileOptions {
    split: true,
    once: false,
    strict: false,
    cluster: false,
    limits: anabranch_config::limits::MemoryLimits {
        replay_rows: 16_384,
        held_bytes: 64 << 20,
        queue_bytes: 8 << 20,
        queue_strips: 4,
    },
};

/// Compiles a file, and returns the plan and all findings.
pub(crate) fn compiled(text: &str, registry: &Registry) -> (Files, Option<Compiled>, Diagnostics) {
    let (files, config) = pipeline(text);
    match compile(&config, registry, &OPTIONS) {
        Ok(compiled) => {
            let warnings = compiled.warnings.clone();
            (files, Some(compiled), warnings)
        }
        Err(findings) => (files, None, findings),
    }
}
