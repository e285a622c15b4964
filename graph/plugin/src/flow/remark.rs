//! Findings about a node, with their places.

use std::ops::Range;
use std::time::Duration;

use anabranch_record::code::Code;
use anabranch_record::text::Str;

use super::{Flow, ShapeOrigin};
use crate::codes;
use crate::diagnostic::{Severity, Span};

/// The place of a remark in a node's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The part of the configuration.
    pub part: Part,
    /// A range of bytes in the part; `None` means the whole part.
    pub range: Option<Range<usize>>,
}

/// A part of a node's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The node as a whole.
    Node,
    /// The value of the setting with this name.
    Setting(Str),
    /// The condition.
    Condition,
}

impl Place {
    /// The node as a whole: the name of its plugin.
    pub const NODE: Place = Place { part: Part::Node, range: None };

    /// A range of bytes of a setting's value.
    pub fn within(setting: impl Into<Str>, range: Range<usize>) -> Place {
        Place { part: Part::Setting(setting.into()), range: Some(range) }
    }

    /// The whole condition.
    pub const CONDITION: Place = Place { part: Part::Condition, range: None };

    /// Returns a range of bytes inside the place.
    pub fn at(&self, range: Range<usize>) -> Place {
        let start = self.range.as_ref().map_or(0, |outer| outer.start);
        Place { part: self.part.clone(), range: Some(start + range.start..start + range.end) }
    }
}

impl From<&'static str> for Place {
    /// The whole value of a setting.
    fn from(setting: &'static str) -> Place {
        Place { part: Part::Setting(Str::from_static(setting)), range: None }
    }
}

/// A finding about a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// An error if every record fails, provided that the node is applied to every record.
    pub severity: Severity,
    /// Stable code, dotted.
    pub code: Code,
    /// The message, in one line.
    pub message: String,
    /// The place.
    pub place: Place,
    /// A place that explains the finding.
    pub related: Option<(Span, String)>,
    /// Remedy.
    pub hint: Option<String>,
    /// The replacement text, if there is only one.
    pub correction: Option<(Place, String)>,
}

impl Remark {
    fn is_of_nothing_in(&self, place: &Place) -> bool {
        let within = |inner: &Range<usize>, outer: &Range<usize>| outer.start <= inner.start && inner.end <= outer.end;
        matches!(self.code, codes::FLOW_NO_FIELD | codes::FLOW_NO_METADATA)
            && self.place.part == place.part
            && self.place.range.as_ref().zip(place.range.as_ref()).is_some_and(|(inner, outer)| within(inner, outer))
    }
}

impl Flow {
    /// Returns `true` if a remark is about this part of the configuration, or about a range in it.
    pub fn has_remark(&self, place: impl Into<Place>) -> bool {
        let part = place.into().part;
        self.remarks.iter().any(|remark| remark.place.part == part)
    }

    /// Returns `true` if there is a finding with the same code at the same place.
    pub fn says(&self, other: &Remark) -> bool {
        self.remarks.iter().any(|remark| remark.code == other.code && remark.place == other.place)
    }

    /// Returns the messages of the findings.
    pub fn messages(&self) -> impl Iterator<Item = &str> {
        self.remarks.iter().map(|remark| remark.message.as_str())
    }

    /// Reports that every record fails here: `message` is the reason, `since` the place that causes it.
    pub fn fail(
        &mut self,
        code: Code,
        place: impl Into<Place>,
        message: impl Into<String>,
        since: Option<(ShapeOrigin, String)>,
        hint: Option<String>,
    ) {
        self.fails = true;
        self.remark(Severity::Error, code, place.into(), message.into(), since, hint);
    }

    /// Reports that something is probably not intended.
    pub fn warn(
        &mut self,
        code: Code,
        place: impl Into<Place>,
        message: impl Into<String>,
        since: Option<(ShapeOrigin, String)>,
        hint: Option<String>,
    ) {
        self.remark(Severity::Warning, code, place.into(), message.into(), since, hint);
    }

    pub(super) fn remark(
        &mut self,
        severity: Severity,
        code: Code,
        place: Place,
        message: String,
        since: Option<(ShapeOrigin, String)>,
        hint: Option<String>,
    ) {
        let related = since.and_then(|(since, text)| Some((since.span()?, text)));
        let remark = Remark { severity, code, message, place, related, hint, correction: None };
        if !self.remarks.contains(&remark) {
            self.remarks.push(remark);
        }
    }

    /// Reports a processor that does nothing, because its input is missing or already has the result.
    pub fn needless(&mut self, place: impl Into<Place>, message: impl Into<String>, hint: impl Into<String>) {
        self.warn(codes::FLOW_NEEDLESS, place, message, None, Some(hint.into()));
    }

    /// Warns of a time limit below 1 ms, which is hardly meant: it probably lacks its unit. `example` is a usual limit.
    pub fn need_unit(&mut self, place: impl Into<Place>, limit: Duration, message: impl Into<String>, example: &str) {
        if limit < Duration::from_millis(1) {
            self.warn(codes::FLOW_SUSPECT, place, message, None, Some(format!("write it with its unit, as {example}")));
        }
    }

    /// Replaces a text in the message of the last finding.
    pub(super) fn amend_last(&mut self, was: &str, becomes: &str) {
        if let Some(remark) = self.remarks.last_mut() {
            remark.message = remark.message.replacen(was, becomes, 1);
        }
    }

    /// Adds a correction to the last finding.
    pub(super) fn correct(&mut self, place: Place, becomes: String) {
        if let Some(remark) = self.remarks.last_mut() {
            remark.correction = Some((place, becomes));
        }
    }

    /// Returns `true` if a finding concerns a part of this place, or all of it.
    pub(super) fn is_remarked(&self, place: &Place) -> bool {
        let overlap = |a: &Range<usize>, b: &Range<usize>| a.start < b.end && b.start < a.end;
        self.remarks.iter().any(|remark| {
            remark.place.part == place.part
                && remark.place.range.as_ref().zip(place.range.as_ref()).is_none_or(|(a, b)| overlap(a, b))
        })
    }

    /// Returns `true` if there is a finding about a missing value in this place.
    pub(super) fn is_said_of(&self, place: &Place) -> bool {
        self.remarks.iter().any(|remark| remark.is_of_nothing_in(place))
    }

    /// Converts findings about missing values at this place to findings that concern every record.
    pub(super) fn always(&mut self, place: &Place) {
        for remark in self.remarks.iter_mut().filter(|remark| remark.is_of_nothing_in(place)) {
            self.fails = true;
            if remark.severity == Severity::Warning {
                remark.severity = Severity::Error;
                remark.message.insert_str(0, "every record fails here: ");
            }
        }
    }
}
