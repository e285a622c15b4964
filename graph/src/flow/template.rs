//! What can be said of templates and conditions before they run.

use super::shape::Kinds;
use super::walk::{Access, Outcome, walk};
use super::{Flow, Place};
use crate::condition::CompiledCondition;
use crate::reference::Side;
use crate::template::Template;
use crate::template::readings::{Comparison, Reading, Side as Compared};
use crate::text::Str;

/// What a reading leads to.
enum Led {
    Entry(Str),
    Field(Outcome),
}

impl Flow {
    /// What a template in a setting reads, on every record.
    pub fn template(&mut self, place: impl Into<Place>, template: &Template) {
        if template.literal().is_none() {
            self.may_fail();
            self.readings(&place.into(), template, true);
        }
    }

    /// The same for a template whose failure is no failure of the record, or that not every record is given.
    pub fn optional_template(&mut self, place: impl Into<Place>, template: &Template) {
        if template.literal().is_none() {
            self.may_fail();
            self.readings(&place.into(), template, false);
        }
    }

    /// What a condition reads, on every record.
    pub(crate) fn condition(&mut self, condition: &CompiledCondition) {
        self.may_fail();
        self.readings(&Place::CONDITION, condition.template(), true);
    }

    fn readings(&mut self, place: &Place, template: &Template, certain: bool) {
        let readings = template.readings();
        for reading in &readings.fields {
            let place = place.at(reading.at.clone());
            let certain = certain && reading.certain;
            match self.follow(reading, template.is_strict()) {
                Some(Led::Entry(key)) if self.record.metadata.may_have(&key) => {}
                Some(Led::Entry(key)) if template.is_strict() && certain && reading.chained == 2 => {
                    let message = format!("every record fails here: none has the metadata {:?}", key.as_str());
                    self.fail("flow.no_metadata", place, message, None, Some("set it before".to_owned()));
                }
                Some(Led::Entry(key)) => self.entry(&place, &key),
                Some(Led::Field(outcome)) => self.judge(&place, &outcome, certain),
                None => {}
            }
        }
        for comparison in &readings.comparisons {
            self.comparison(place, comparison, template.is_strict());
        }
    }

    fn follow(&self, reading: &Reading, strict: bool) -> Option<Led> {
        let depth = match reading.names[0].as_str() {
            "Metadata" => return Some(Led::Entry(reading.names.get(1)?.clone())),
            "Key" => 1,
            _ => 2,
        };
        let side = match (reading.names[0].as_str(), reading.names.get(1).map(Str::as_str)) {
            ("Key", _) => Side::Key,
            ("Payload", Some("Before")) => Side::Before,
            ("Payload", Some("After")) => Side::After,
            _ => return None,
        };
        let names: Vec<&Str> = reading.names.get(depth..)?.iter().collect();
        let access = |name| match name < reading.chained {
            true if strict => Access::Strict,
            true => Access::Chain,
            false => Access::Index,
        };
        let accesses: Vec<Access> = (depth..reading.names.len()).map(access).collect();
        Some(Led::Field(walk(self.record.side(side), side, &names, &accesses)))
    }

    /// The kinds of a side of a comparison; `None` where it may be no value at all.
    fn kinds(&self, side: &Compared, strict: bool) -> Option<Vec<Compares>> {
        Some(match side {
            Compared::Operation => vec![Compares::Operation],
            Compared::Text => vec![Compares::Kind(Kinds::TEXT)],
            Compared::Bool => vec![Compares::Kind(Kinds::BOOL)],
            Compared::Int => vec![Compares::Literal],
            Compared::Float => vec![Compares::Kind(Kinds::FLOAT)],
            Compared::Unknown => return None,
            Compared::Field(reading) => match self.follow(reading, strict)? {
                Led::Entry(key) => {
                    let indexed = reading.chained == 1;
                    (indexed || self.record.metadata.has(&key)).then(|| vec![Compares::Kind(Kinds::TEXT)])?
                }
                Led::Field(outcome) => {
                    let kinds = outcome.ty.kinds;
                    if outcome.missing || kinds.overlaps(Kinds::NULL) || kinds == Kinds::NONE {
                        return None;
                    }
                    kinds.each().map(Compares::Kind).collect()
                }
            },
        })
    }

    fn comparison(&mut self, place: &Place, comparison: &Comparison, strict: bool) {
        let [left, right] = &comparison.sides;
        let (Some(ours), Some(theirs)) = (self.kinds(left, strict), self.kinds(right, strict)) else { return };
        if ours.iter().any(|a| theirs.iter().any(|b| a.compares_with(*b))) {
            return;
        }
        let named = |kinds: &[Compares]| kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(" or ");
        let message =
            format!("this comparison fails on every record: {} does not compare with {}", named(&ours), named(&theirs));
        let operation = ours.contains(&Compares::Operation) || theirs.contains(&Compares::Operation);
        let hint = match (&ours[..], &theirs[..]) {
            _ if operation => "write .Operation.String to compare its name",
            ([Compares::Literal], [Compares::Kind(Kinds::FLOAT)])
            | ([Compares::Kind(Kinds::FLOAT)], [Compares::Literal]) => "write the number with a point, as 10.0",
            (_, [Compares::Kind(Kinds::TEXT)]) | ([Compares::Kind(Kinds::TEXT)], _) => {
                "compare like with like: a literal text has quotes, a number or a boolean has none"
            }
            _ => "compare like with like",
        };
        let since = comparison.sides.iter().find_map(|side| match side {
            Compared::Field(reading) => match self.follow(reading, strict)? {
                Led::Field(outcome) => {
                    let kinds = outcome.ty.kinds.names().collect::<Vec<_>>().join(" or ");
                    outcome.ty.since.span().map(|_| (outcome.ty.since, format!("{kinds} since here")))
                }
                Led::Entry(_) => None,
            },
            _ => None,
        });
        self.warn("flow.never_comparable", place.at(comparison.at.clone()), message, since, Some(hint.to_owned()));
    }
}

/// What one side of a comparison is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compares {
    /// A value of the record, or a literal of a kind where that makes no difference.
    Kind(Kinds),
    /// An integer of the template, which does not compare with floats.
    Literal,
    /// The operation: a number for comparisons.
    Operation,
}

impl Compares {
    fn compares_with(self, other: Compares) -> bool {
        use Compares::{Kind, Literal, Operation};
        match (self, other) {
            (Kind(a), Kind(b)) if a == b => true,
            (Kind(a), Kind(b)) => (a | b) == (Kinds::INT | Kinds::FLOAT) || (a | b) == (Kinds::BYTES | Kinds::LIST),
            (Literal | Operation, Literal | Operation) => true,
            (Literal | Operation, Kind(kind)) | (Kind(kind), Literal | Operation) => kind == Kinds::INT,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Compares::Kind(kind) => kind.names().next().unwrap_or("nothing"),
            Compares::Literal => "a whole number",
            Compares::Operation => "an operation",
        }
    }
}
