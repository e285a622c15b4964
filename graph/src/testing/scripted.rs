//! Minimal plugins with scripted behaviour.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::destination::{Destination, DestinationKind, Retry, WritePolicy, Writer};
use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics};
use anabranch_plugin::host::Host;
use anabranch_plugin::operator::{
    AsyncOperator, Class, Configured, Decision, Fan, Operator, OperatorContext, OperatorKind, Rows, Signature,
};
use anabranch_plugin::parameters::{Argument, Parameters, declared, shared};
use anabranch_plugin::registry::Registry;
use anabranch_plugin::source::{OpenedSource, Source, SourceKind};
use anabranch_plugin::specification::Specification;
use anabranch_plugin::testing::{kept, of_class};
use anabranch_record::Record;
use anabranch_record::access::Access;
use anabranch_record::fault::Fault;
use anabranch_record::mark::{Mark, Partition};
use anabranch_record::text::Str;

/// A registry of scripted plugins: sources `gen` and `endless`, destinations `out`, `once` and `tx`, and processors.
pub fn registry() -> Registry {
    let mut registry = Registry::new();
    for (name, catches_up) in [("gen", true), ("endless", false)] {
        let specification = Specification::builtin(name, "Reads nothing.").with_all(shared::source());
        registry.add_source(Arc::new(ScriptedSource { specification, catches_up }));
    }
    for (name, retry) in [("out", Retry::Idempotent), ("once", Retry::AtMostOnce), ("tx", Retry::Transactional)] {
        let specification = Specification::builtin(name, "Writes nothing.")
            .with_all(declared::<Target>())
            .with_all(shared::destination());
        registry.add_destination(Arc::new(ScriptedDestination { specification, retry }));
    }
    for step in Behaviour::ALL {
        registry.add_operator(Arc::new(ScriptedOperator { specification: step.specification(), step }));
    }
    registry.leave_out("custom.javascript", "js");
    registry
}

#[derive(Parameters)]
struct Target {
    /// Target.
    #[parameter(name = "path")]
    _path: Option<Str>,
    /// Who.
    #[parameter(name = "token", secret)]
    _token: Option<Str>,
}

/// Parameters of the steps that use texts; the others have none of them.
#[derive(Parameters)]
struct Texts {
    /// A metadata key.
    #[parameter(required)]
    key: Option<Str>,
    /// A text.
    #[parameter(default = "x")]
    value: Argument<Option<Str>>,
    /// Number of times.
    #[parameter(name = "times", default = 1)]
    _times: Option<i64>,
}

struct ScriptedSource {
    specification: Specification,
    catches_up: bool,
}

impl SourceKind for ScriptedSource {
    fn specification(&self) -> &Specification {
        &self.specification
    }

    fn configure(&self, _: &Arguments) -> Result<Arc<dyn Source>, Diagnostics> {
        Ok(Arc::new(Ends { catches_up: self.catches_up, retry: Retry::Idempotent }))
    }
}

struct ScriptedDestination {
    specification: Specification,
    retry: Retry,
}

impl DestinationKind for ScriptedDestination {
    fn specification(&self) -> &Specification {
        &self.specification
    }

    fn configure(&self, _: &Arguments) -> Result<Arc<dyn Destination>, Diagnostics> {
        Ok(Arc::new(Ends { catches_up: true, retry: self.retry }))
    }
}

/// A source and destination for plans, which never open it.
struct Ends {
    catches_up: bool,
    retry: Retry,
}

#[async_trait]
impl Source for Ends {
    fn catches_up(&self) -> bool {
        self.catches_up
    }

    async fn open(&self, _: &BTreeMap<Partition, Mark>, _: &Host) -> Result<OpenedSource, Fault> {
        unreachable!()
    }
}

#[async_trait]
impl Destination for Ends {
    async fn open(&self, _: &Host) -> Result<Box<dyn Writer>, Fault> {
        unreachable!()
    }

    fn policy(&self) -> WritePolicy {
        WritePolicy { rows: 1000, bytes: 1 << 20, linger: Duration::from_millis(10), retry: self.retry }
    }
}

/// Behaviour of a scripted operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behaviour {
    /// Appends `value` to the metadata `key`.
    Set,
    /// Like `Set`, but isolated on a thread, and with unknown writes.
    Script,
    /// Asynchronous; changes nothing.
    Call,
    /// Makes two records of each.
    Split,
    /// Makes three records of each.
    Clone,
    /// Drops every record.
    Filter,
    /// Keeps state, so it allows one worker only.
    Count,
    /// Fails records whose metadata `key` is as long as `value`.
    Picky,
}

impl Behaviour {
    const ALL: [Behaviour; 8] = [
        Behaviour::Set,
        Behaviour::Script,
        Behaviour::Call,
        Behaviour::Split,
        Behaviour::Clone,
        Behaviour::Filter,
        Behaviour::Count,
        Behaviour::Picky,
    ];

    fn specification(self) -> Specification {
        let name = match self {
            Behaviour::Set => "set",
            Behaviour::Script => "script",
            Behaviour::Call => "call",
            Behaviour::Split => "split",
            Behaviour::Clone => "clone",
            Behaviour::Filter => "filter",
            Behaviour::Count => "count",
            Behaviour::Picky => "picky",
        };
        let specification = Specification::builtin(name, "A step.").with_all(shared::processor());
        match self {
            Behaviour::Set | Behaviour::Script | Behaviour::Picky => specification.with_all(declared::<Texts>()),
            _ => specification,
        }
    }
}

struct ScriptedOperator {
    specification: Specification,
    step: Behaviour,
}

impl OperatorKind for ScriptedOperator {
    fn specification(&self) -> &Specification {
        &self.specification
    }

    fn configure(&self, arguments: &Arguments) -> Result<Configured, Diagnostics> {
        let Texts { key, value, .. } = arguments.read()?;
        if value.as_deref() == Some("refused") {
            let finding =
                Diagnostic::error(anabranch_plugin::testing::codes::SETTINGS_REFUSED, "value: \"refused\" is refused");
            return Err(finding.with_span(value.span()).into());
        }
        let value = value.into_value().unwrap_or_default();
        let step = ScriptedStep { step: self.step, key: key.unwrap_or_default(), value };
        Ok(of_class(step.class(), step.signature(), move |_| Ok(step.clone())))
    }
}

#[derive(Clone)]
struct ScriptedStep {
    step: Behaviour,
    key: Str,
    value: Str,
}

impl ScriptedStep {
    fn class(&self) -> Class {
        match self.step {
            Behaviour::Script => Class::Isolate,
            Behaviour::Call => Class::Async,
            _ => Class::Inline,
        }
    }

    fn signature(&self) -> Signature {
        let key = || Access::These(vec![vec!["Metadata".into(), self.key.clone()]]);
        let split_index = || Access::These(vec![vec!["Metadata".into(), "split.index".into()]]);
        let signature = Signature::new();
        match self.step {
            Behaviour::Set => signature.reads(key()).writes(key()),
            Behaviour::Picky => signature.reads(key()).writes(Access::NOTHING),
            Behaviour::Script | Behaviour::Call => signature,
            Behaviour::Split => signature.fan(Fan::Many).writes(split_index()).needs_arch_v2(true),
            Behaviour::Clone => signature.fan(Fan::Copies(3)).writes(split_index()).needs_arch_v2(true),
            Behaviour::Filter => signature.fan(Fan::Never).reads(Access::NOTHING).writes(Access::NOTHING),
            Behaviour::Count => signature.max_workers(1),
        }
    }
}

#[async_trait]
impl AsyncOperator for ScriptedStep {
    async fn call(&self, rows: &mut [Record], _: &OperatorContext) -> Vec<Decision> {
        kept(rows)
    }
}

impl Operator for ScriptedStep {
    fn process(&mut self, rows: &mut Rows<'_>, _: &OperatorContext) {
        rows.for_each(|record| {
            let held = record.metadata.get(&self.key).cloned().unwrap_or_default();
            Ok(match self.step {
                Behaviour::Set | Behaviour::Script => {
                    record.metadata.insert(self.key.clone(), format!("{held}{}", self.value));
                    Decision::Keep
                }
                Behaviour::Split | Behaviour::Clone => {
                    let pieces = if self.step == Behaviour::Split { 2 } else { 3 };
                    let piece = |i: i32| {
                        let mut piece = record.clone();
                        piece.metadata.insert("split.index", i.to_string());
                        piece
                    };
                    Decision::Split((0..pieces).map(piece).collect())
                }
                Behaviour::Filter => Decision::Filter,
                Behaviour::Picky if held.len() == self.value.len() => {
                    Decision::Fail(Fault::record(anabranch_plugin::testing::codes::PICKY, "no"))
                }
                Behaviour::Picky | Behaviour::Count | Behaviour::Call => Decision::Keep,
            })
        });
    }
}
