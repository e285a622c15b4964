//! Places in the pipeline file of templates, conditions and scripts that fail on a record.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use anabranch_plugin::diagnostic::{FileId, Files, SourceFile, Span};
use anabranch_plugin::flow::{Part, TrialCheck};
use anabranch_plugin::operator::Class;
use anabranch_plugin::written::Written;
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use anabranch_template::{EvalError, InSetting, condition};

use crate::plan::Compiled;
use crate::plan::graph::NodeKind;
use crate::plan::observe::looks;

/// Maximum number of cached places. A plan has few templates, and each fails in few places.
const MOST_KEPT: usize = 256;

/// The templates and conditions of a plan, with the text of the pipeline file.
pub struct LocatedTemplates {
    file: FileId,
    source: SourceFile,
    nodes: Vec<Templates>,
    /// Cache of places, since computing a line number is O(size of the file).
    found: Mutex<HashMap<u32, Str>>,
}

/// Templates and conditions of a node.
struct Templates {
    id: Str,
    condition: Option<Written>,
    /// Names and values of template settings.
    settings: Vec<(Str, Written)>,
    /// Settings of an isolated processor, which may be scripts.
    texts: Vec<(Str, Written)>,
}

impl fmt::Debug for LocatedTemplates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Located").field("file", &self.source.name).finish_non_exhaustive()
    }
}

impl Compiled {
    /// Adds the file and line of templates and conditions to their faults.
    pub fn locate(&mut self, files: &Files, file: FileId) {
        let Some(source) = files.get(file) else { return };
        let mut nodes = Vec::new();
        for node in self.rewritten.node_weights() {
            if let NodeKind::Route(route) = &node.kind {
                nodes.extend(route.rules.iter().filter_map(|rule| {
                    let condition = Some(rule.guard.as_ref()?.written.clone());
                    Some(Templates { id: rule.node(), condition, settings: Vec::new(), texts: Vec::new() })
                }));
            }
            let condition =
                node.kind.operator().and_then(|step| step.guard.as_ref()).map(|guard| guard.written.clone());
            let settings: Vec<(Str, Written)> = match &node.kind {
                NodeKind::Operator(_) | NodeKind::Split(_) | NodeKind::Destination(_) => {
                    let template = |(place, look)| match (place, look) {
                        (anabranch_plugin::flow::Place { part: Part::Setting(name), .. }, TrialCheck::Template(_)) => {
                            Some(name)
                        }
                        _ => None,
                    };
                    let names = looks(node).into_iter().filter_map(template);
                    let given = |name: Str| node.settings.iter().find(|given| given.name == name);
                    names.filter_map(given).map(|given| (given.name.clone(), given.value.clone())).collect()
                }
                _ => Vec::new(),
            };
            let is_apart = node.kind.operator().is_some_and(|step| step.operator.class() == Class::Isolate);
            let texts = if is_apart { &node.settings[..] } else { &[] };
            let texts: Vec<_> = texts.iter().map(|given| (given.name.clone(), given.value.clone())).collect();
            if condition.is_some() || !settings.is_empty() || !texts.is_empty() {
                nodes.push(Templates { id: node.id.clone(), condition, settings, texts });
            }
        }
        if nodes.is_empty() {
            return;
        }
        let located = LocatedTemplates { file, source: source.clone(), nodes, found: Mutex::default() };
        Arc::make_mut(&mut self.stages).located = Some(Arc::new(located));
    }
}

impl Compiled {
    /// Takes over the places of the same pipeline compiled earlier with other values of variables.
    pub fn keep_places(&mut self, before: &Compiled) {
        Arc::make_mut(&mut self.stages).located = before.stages.located.clone();
    }
}

impl LocatedTemplates {
    /// Returns `file:line:column` of the failed part of a template or condition; `None` for other faults, or if the
    /// place is not known.
    pub fn of(&self, fault: &Fault) -> Option<Str> {
        let span = self.span(fault)?;
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if found.len() >= MOST_KEPT {
            found.clear();
        }
        let place = found.entry(span.start).or_insert_with(|| {
            let (line, column) = self.source.position(span.start);
            format!("{}:{line}:{column}", self.source.name).into()
        });
        Some(place.clone())
    }

    /// The same as a place in the files that the pipeline was compiled from.
    pub fn span(&self, fault: &Fault) -> Option<Span> {
        let id = fault.node()?;
        let mut nodes = self.nodes.iter().filter(|node| node.id == *id);
        nodes.find_map(|node| node.span(fault)).filter(|span| span.file == self.file)
    }
}

impl Templates {
    fn span(&self, fault: &Fault) -> Option<Span> {
        if let Some(offset) = condition::failed_at(fault) {
            let written = self.condition.as_ref()?;
            return Some(offset.map_or_else(|| written.span(), |offset| written.place(offset, 1)));
        }
        if let Some(failed) = fault.in_text() {
            let (_, written) = self.texts.iter().find(|(name, _)| *name == failed.setting)?;
            return Some(written.place(failed.offset(written.value()), 1));
        }
        let (setting, error) = match fault.cause().downcast_ref::<InSetting>() {
            Some(InSetting { setting, error }) => (Some(setting), error),
            None => (None, fault.cause().downcast_ref::<EvalError>()?),
        };
        let written = match (setting, self.settings.as_slice()) {
            (Some(setting), all) => &all.iter().find(|(name, _)| name == setting)?.1,
            (None, [(_, written)]) => written,
            // The fault does not say which of several templates failed.
            (None, _) => return None,
        };
        Some(written.place(error.offset, 1))
    }
}
