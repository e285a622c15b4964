//! Analysis of templates and conditions for a record shape.
//!
//! The walk follows a template like the evaluator, with known properties of values instead of values. It tracks
//! which parts every rendering reaches: only there does a failure concern every record.

mod call;
mod classes;
mod compare;
mod constant;
mod elsewhere;
mod expression;
mod failing;
mod fits;
mod impossible;
mod keys;
mod layouts;
mod never;
mod numbers;
mod operations;
mod order;
mod patterns;
mod printing;
mod quoted;
mod reading;
mod results;
mod suspect;
mod unaccepted;
mod used;
mod verdict;

use std::collections::BTreeSet;

use anabranch_template::Template;
use anabranch_template::condition::CompiledCondition;
use anabranch_template::tree::{Body, Branches, Node, Pipeline, Term, Tree};

use super::{Flow, Place, TrialCheck};
use crate::codes;
use crate::diagnostic::Severity;
use crate::flow::RecordShape;
use crate::secret::without_passwords;
use expression::ValueProperties;

impl Flow {
    /// Analyses the template of a setting that is rendered for every record.
    pub fn template(&mut self, place: impl Into<Place>, template: &Template) {
        if let Some(text) = template.literal() {
            self.literal(place, text);
        } else {
            self.may_fail();
            let place = place.into();
            self.look(&place, || TrialCheck::Template(template.clone()));
            let mut walk = Walk::of(self, place.clone(), template);
            walk.prints = true;
            walk.run(true);
            self.constant(&place, template);
        }
    }

    /// Checks a literal text in a setting for templates, which may have been intended as a template.
    pub fn literal(&mut self, place: impl Into<Place>, text: &str) {
        let text = text.trim();
        if let Some(meant) = elsewhere::meant(text) {
            // An address may contain a password.
            let (text, meant) = (without_passwords(text), without_passwords(&meant));
            let message = format!("this is the text {text:?}, not a value of the record");
            self.warn(codes::FLOW_SUSPECT, place, message, None, Some(format!("write '{meant}'")));
        }
    }

    /// Analyses a template whose failure does not fail the record, or that is not rendered for every record.
    pub fn optional_template(&mut self, place: impl Into<Place>, template: &Template) {
        if template.literal().is_none() {
            self.may_fail();
            let place = place.into();
            self.look(&place, || TrialCheck::Template(template.clone()));
            Walk::of(self, place, template).run(false);
        }
    }

    /// Analyses a condition that is evaluated for every record.
    pub fn condition(&mut self, condition: &CompiledCondition) {
        self.may_fail();
        let mut walk = Walk::of(self, Place::CONDITION, condition.template());
        walk.native = condition.is_native();
        walk.run(true);
        walk.verdict();
    }

    /// Returns the reason why a condition has no result for any record, regardless of the record shape, for example
    /// because it reads a part that no record has. Returns the problem and the remedy. O(length).
    pub fn no_verdict(condition: &CompiledCondition) -> Option<(String, Option<String>)> {
        if let Some(fault) = condition.failure() {
            return Some((fault.message(), None));
        }
        let mut flow = Flow::new(RecordShape::unknown());
        flow.condition(condition);
        flow.fails().then(|| flow.into_parts().1).and_then(|remarks| {
            let remark = remarks.into_iter().find(|remark| remark.severity == Severity::Error)?;
            Some((remark.message, remark.hint))
        })
    }
}

/// The state of the walk over a template.
struct Walk<'a> {
    flow: &'a mut Flow,
    place: Place,
    tree: &'a Tree,
    /// True if a missing key is an error.
    strict: bool,
    /// Known properties of the variables; slot 0 is the record.
    slots: Vec<ValueProperties>,
    /// True if the output is for people and other programs.
    prints: bool,
    /// True in one of several branches, some of which may be for records of other sources.
    branching: bool,
    /// True in the body of a `range`, which records without elements do not reach.
    looping: bool,
    /// True for a condition with a native predicate: contradictions are then found in the predicate.
    native: bool,
}

/// The known values at a place in the template.
#[derive(Clone)]
struct Scope {
    /// The value of `.`.
    dot: ValueProperties,
    /// True if every rendering reaches the place.
    certain: bool,
    /// True if `.` is certainly not the record: the value of a `with` or `range`.
    inner: bool,
}

impl Scope {
    /// Returns `true` if `.` is a field of the record, or an element of one.
    fn is_inside(&self) -> bool {
        self.inner && matches!(self.dot, ValueProperties::Way(_) | ValueProperties::Anything)
    }

    fn uncertain(&self) -> Scope {
        Scope { certain: false, ..self.clone() }
    }
}

impl<'a> Walk<'a> {
    fn of(flow: &'a mut Flow, place: Place, template: &'a Template) -> Self {
        let tree = template.tree();
        let slots = tree.templates.first().map_or(1, |main| main.slots.max(1));
        let mut slots = vec![ValueProperties::Anything; slots];
        slots[0] = ValueProperties::Record;
        Walk {
            flow,
            place,
            tree,
            strict: template.is_strict(),
            slots,
            prints: false,
            branching: false,
            looping: false,
            native: false,
        }
    }

    /// Walks the main template. Only there are `.` and `$` known to be the record.
    fn run(&mut self, certain: bool) {
        let tree = self.tree;
        if let Some(main) = tree.templates.first() {
            self.body(&main.body, &Scope { dot: ValueProperties::Record, certain, inner: false });
        }
    }

    fn body(&mut self, body: &Body, scope: &Scope) {
        let mut scope = scope.clone();
        for node in body {
            match node {
                Node::Text(_) => {}
                Node::Break | Node::Continue => scope.certain = false,
                Node::Print(pipeline) => {
                    let value = self.pipeline(pipeline, &scope);
                    if self.prints {
                        self.printed_value(pipeline, &value);
                    }
                }
                Node::Let(pipeline) => {
                    self.pipeline(pipeline, &scope);
                }
                Node::If(branches) => self.branches(branches, false, &scope),
                Node::With(branches) => self.branches(branches, true, &scope),
                Node::Range(range) => {
                    let value = self.pipeline(&range.pipeline, &scope);
                    self.no_loop(range, &value, &scope);
                    let element = self.element(&range.pipeline, &scope);
                    let own = range.key.into_iter().chain(range.element);
                    self.forget(own.chain(assigned(&range.body)).collect());
                    // Only a list that is written out certainly has elements.
                    let listed = matches!(&*range.pipeline.commands, [command]
                        if matches!(command.head.term, Term::Function(function) if function.name == "list"));
                    let certain = scope.certain && listed && !matches!(element, ValueProperties::Anything);
                    let inner = matches!(value, ValueProperties::Way(_));
                    let looping = std::mem::replace(&mut self.looping, true);
                    self.body(&range.body, &Scope { dot: element, certain, inner });
                    self.looping = looping;
                    self.body(&range.otherwise, &scope.uncertain());
                    self.forget(assigned(&range.body).into_iter().chain(assigned(&range.otherwise)).collect());
                }
                Node::Template(call) => {
                    if let Some(argument) = &call.argument {
                        self.pipeline(argument, &scope);
                    }
                    if call.target.is_none() {
                        let at = call.at.start as usize..call.at.end as usize;
                        let message = format!(
                            "every record that reaches this action fails: the template {:?} is not defined",
                            &*call.name
                        );
                        let hint = format!("define it first: {{{{ define {:?} }}}}…{{{{ end }}}}", &*call.name);
                        self.fails(codes::FLOW_NO_TEMPLATE, at, message, hint, scope.certain);
                    }
                }
            }
        }
    }

    fn branches(&mut self, branches: &Branches, with: bool, scope: &Scope) {
        let mut scope = scope.clone();
        for (pipeline, body) in &branches.arms {
            let branching = std::mem::replace(&mut self.branching, true);
            let value = self.unsettled(pipeline, &scope);
            self.branching = branching;
            if !with {
                self.text_as_truth(pipeline);
            }
            self.field_as_truth(pipeline, &value);
            let truth = self.truth(&value);
            if truth != Some(false) {
                let certain = scope.certain && truth == Some(true);
                let within = match with {
                    true => Scope {
                        inner: !matches!(value, ValueProperties::Anything | ValueProperties::Record),
                        dot: value,
                        certain,
                    },
                    false => Scope { certain, ..scope.clone() },
                };
                self.body(body, &within);
                self.forget(assigned(body));
            }
            match truth {
                // The other arms are unreachable.
                Some(true) => return,
                Some(false) => {}
                None => scope.certain = false,
            }
        }
        self.body(&branches.otherwise, &scope);
        self.forget(assigned(&branches.otherwise));
    }

    /// Marks variables as unknown that only some renderings set.
    fn forget(&mut self, slots: BTreeSet<usize>) {
        for slot in slots {
            if let Some(known) = self.slots.get_mut(slot) {
                *known = ValueProperties::Anything;
            }
        }
    }
}

/// Returns the variables that a body sets.
fn assigned(body: &Body) -> BTreeSet<usize> {
    fn of(pipeline: &Pipeline, slots: &mut BTreeSet<usize>) {
        slots.extend(pipeline.variable);
    }
    fn within(body: &Body, slots: &mut BTreeSet<usize>) {
        for node in body {
            match node {
                Node::Text(_) | Node::Break | Node::Continue | Node::Template(_) => {}
                Node::Print(pipeline) | Node::Let(pipeline) => of(pipeline, slots),
                Node::If(branches) | Node::With(branches) => {
                    for (pipeline, body) in &branches.arms {
                        of(pipeline, slots);
                        within(body, slots);
                    }
                    within(&branches.otherwise, slots);
                }
                Node::Range(range) => {
                    slots.extend(range.key.into_iter().chain(range.element));
                    within(&range.body, slots);
                    within(&range.otherwise, slots);
                }
            }
        }
    }
    let mut slots = BTreeSet::new();
    within(body, &mut slots);
    slots
}
