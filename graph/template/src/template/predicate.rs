//! Conditions as native predicates, evaluated on the borrowed record without text or allocations.
//!
//! A predicate returns a result only if it is certain. If the template would fail, or the types are
//! unusual, it returns `None` and the caller runs the template instead. So all results and failures are
//! those of the template.

use anabranch_record::Record;

use super::tree::Tree;

mod compile;
mod contradiction;
mod source;

use source::{PrintedForms, Source};

/// The structure of a condition.
#[derive(Debug)]
pub(crate) enum Predicate {
    Constant(bool),
    Not(Box<Predicate>),
    All(Box<[Predicate]>),
    Any(Box<[Predicate]>),
    /// `eq left a b …`: true if the left side equals one of the others.
    Equal(Source, Box<[Source]>),
    /// `lt`.
    Less(Source, Source),
    /// `le`.
    LessOrEqual(Source, Source),
    /// `eq (printf "%v" left) "text"`.
    Shows(Source, PrintedForms),
    /// A text function of sprig, with the text to search for and the text to search in.
    Text(TextTest, Source, Source),
    /// True if `if` treats the value as true.
    Truth(Source),
    /// The printed value is the result.
    Printed(Source),
    /// The first arm whose condition holds, otherwise the last field.
    Choose(Box<[(Predicate, Predicate)]>, Box<Predicate>),
}

/// A test of a text.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TextTest {
    Prefix,
    Suffix,
    Contains,
}

impl Predicate {
    /// Returns the predicate of a whole template, if its structure allows one.
    pub(super) fn of(tree: &Tree) -> Option<Predicate> {
        compile::template(tree)
    }

    /// Returns the result for all records on which the condition does not fail, if its parts contradict each other or
    /// cover all cases. O(comparisons).
    pub(crate) fn settled(&self) -> Option<bool> {
        contradiction::settled(self)
    }

    /// Evaluates the predicate; `None` if only the template can decide.
    pub(crate) fn holds(&self, record: &Record) -> Option<bool> {
        match self {
            Predicate::Constant(verdict) => Some(*verdict),
            Predicate::Not(inner) => inner.holds(record).map(|verdict| !verdict),
            Predicate::All(parts) => {
                for part in parts {
                    if !part.holds(record)? {
                        return Some(false);
                    }
                }
                Some(true)
            }
            Predicate::Any(parts) => {
                for part in parts {
                    if part.holds(record)? {
                        return Some(true);
                    }
                }
                Some(false)
            }
            Predicate::Equal(left, others) => {
                // The template evaluates all arguments before it compares them, so each must be readable.
                let left = left.read(record)?;
                let mut equal = false;
                for other in others {
                    let other = other.read(record)?;
                    equal = equal || left.equals(other)?;
                }
                Some(equal)
            }
            Predicate::Less(a, b) => Some(a.read(record)?.compare(b.read(record)?)? == Some(std::cmp::Ordering::Less)),
            Predicate::LessOrEqual(a, b) => Some(matches!(
                a.read(record)?.compare(b.read(record)?)?,
                Some(std::cmp::Ordering::Less | std::cmp::Ordering::Equal)
            )),
            Predicate::Shows(source, shown) => shown.is_of(source.read(record)?),
            Predicate::Text(test, sought, text) => {
                let (sought, text) = (sought.read(record)?.text()?, text.read(record)?.text()?);
                Some(match test {
                    TextTest::Prefix => text.starts_with(sought),
                    TextTest::Suffix => text.ends_with(sought),
                    TextTest::Contains => memchr::memmem::find(text.as_bytes(), sought.as_bytes()).is_some(),
                })
            }
            Predicate::Truth(source) => Some(source.read(record)?.is_true()),
            Predicate::Printed(source) => source.read(record)?.printed(),
            Predicate::Choose(arms, otherwise) => {
                for (condition, verdict) in arms {
                    if condition.holds(record)? {
                        return verdict.holds(record);
                    }
                }
                otherwise.holds(record)
            }
        }
    }
}

/// Parses the output of a condition like `strconv.ParseBool`; surrounding white space is allowed.
pub fn verdict(output: &str) -> Option<bool> {
    match output.trim() {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}
