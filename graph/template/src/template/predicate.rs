//! Conditions that need no template: decided on the record where it lies, without text or allocation.
//!
//! A predicate answers only when it is certain. Wherever the template would fail, or the types are
//! unusual, it gives no answer and the template is run instead: results and failures are the
//! template's by construction.

use anabranch_record::Record;

use super::tree::Tree;

mod compile;
mod contradiction;
mod source;

use source::{Shown, Source};

/// A condition's shape.
#[derive(Debug)]
pub(crate) enum Predicate {
    Constant(bool),
    Not(Box<Predicate>),
    All(Box<[Predicate]>),
    Any(Box<[Predicate]>),
    /// `eq left a b …`: whether the left side equals one of the others.
    Equal(Source, Box<[Source]>),
    /// `lt`.
    Less(Source, Source),
    /// `le`.
    LessOrEqual(Source, Source),
    /// `eq (printf "%v" left) "text"`.
    Shows(Source, Shown),
    /// Text functions of sprig: what is looked for, where.
    Text(TextTest, Source, Source),
    /// Whether `if` takes it for true.
    Truth(Source),
    /// The value is printed, and what it prints is the verdict.
    Printed(Source),
    /// The first arm whose condition holds, else the last field.
    Choose(Box<[(Predicate, Predicate)]>, Box<Predicate>),
}

/// What is asked of a text.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TextTest {
    Prefix,
    Suffix,
    Contains,
}

impl Predicate {
    /// The predicate of a whole template, if its shape has one.
    pub(super) fn of(tree: &Tree) -> Option<Predicate> {
        compile::template(tree)
    }

    /// The verdict on every record that gets one, where it is the same because the parts contradict each other or leave
    /// nothing out. O(comparisons).
    pub(crate) fn settled(&self) -> Option<bool> {
        contradiction::settled(self)
    }

    /// The verdict; `None` where only the template knows.
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
                // The template evaluates all arguments before it compares, so each must be readable.
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

/// The verdict that a condition's output stands for: `strconv.ParseBool`, blanks around it allowed.
pub fn verdict(output: &str) -> Option<bool> {
    match output.trim() {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}
