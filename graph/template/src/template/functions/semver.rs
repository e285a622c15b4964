//! Semantic versions and version ranges.

use std::cmp::Ordering;
use std::rc::Rc;

use ::semver::{BuildMetadata, Prerelease, Version as Semantic};

use super::signature::function;
use super::{CallError, Function};
use crate::template::val::{Val, Version};

/// The table.
pub(super) static TABLE: &[Function] = &[
    function!("semver", (text: Text) => try {
        let original = text.to_key();
        parse(&original).map(|version| Val::Version(Rc::new(Version { version, original })))
    }),
    function!("semverCompare", (range: Text, version: Text) => try compare(&range.lossy(), &version.lossy())),
];

fn compare(range: &str, version: &str) -> Result<bool, CallError> {
    let range = Range::parse(range)?;
    Ok(range.holds(&parse(version)?))
}

/// Parses a version with up to three numbers and an optional `v`; missing numbers are 0, leading zeros are dropped.
fn parse(text: &str) -> Result<Semantic, CallError> {
    let wrong = || CallError::from(format!("{text:?} is not a semantic version"));
    let (parts, rest) =
        Parts::read(text.strip_prefix('v').unwrap_or(text), |b| b.is_ascii_digit()).ok_or_else(wrong)?;
    if !rest.is_empty() {
        return Err(wrong());
    }
    let number = |text: Option<&str>| text.map_or(Ok(0), |text| text.parse::<u64>().map_err(|_| wrong()));
    Ok(Semantic {
        major: number(Some(parts.numbers[0].unwrap_or_default()))?,
        minor: number(parts.numbers[1])?,
        patch: number(parts.numbers[2])?,
        pre: Prerelease::new(parts.pre).map_err(|_| wrong())?,
        build: BuildMetadata::new(parts.build).map_err(|_| wrong())?,
    })
}

/// The parts of a version as text.
struct Parts<'a> {
    numbers: [Option<&'a str>; 3],
    pre: &'a str,
    build: &'a str,
}

impl<'a> Parts<'a> {
    /// Parses from the front: numbers of `digit`s, then the labels after `-` and `+`. Also returns the rest.
    fn read(text: &'a str, digit: fn(u8) -> bool) -> Option<(Parts<'a>, &'a str)> {
        let run =
            |text: &'a str, belongs: fn(u8) -> bool| text.split_at(text.bytes().take_while(|b| belongs(*b)).count());
        let (major, mut rest) = run(text, digit);
        if major.is_empty() {
            return None;
        }
        let mut numbers = [Some(major), None, None];
        for number in &mut numbers[1..] {
            let Some((next, after)) = rest.strip_prefix('.').map(|after| run(after, digit)) else { break };
            if next.is_empty() {
                break;
            }
            (*number, rest) = (Some(next), after);
        }
        let mut label = |mark: char| {
            let found = rest
                .strip_prefix(mark)
                .map(|after| run(after, |b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.'));
            // A label ends before a point without text after it.
            let Some((label, _)) = found else { return "" };
            let len = label.split('.').take_while(|part| !part.is_empty()).map(|part| part.len() + 1).sum::<usize>();
            let label = &label[..len.saturating_sub(1)];
            if !label.is_empty() {
                rest = &rest[1 + label.len()..];
            }
            label
        };
        let pre = label('-');
        let build = label('+');
        Some((Parts { numbers, pre, build }, rest))
    }
}

/// The comparison of a version with the version of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    /// Equal, or equal in the given numbers.
    Equal,
    NotEqual,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
    /// The same minor version, or the same major version if only that is given.
    Tilde,
    /// Compatible versions only.
    Caret,
}

impl Operator {
    fn read(text: &str) -> (Operator, &str) {
        // Longest first.
        const ALL: &[(&str, Operator)] = &[
            ("!=", Operator::NotEqual),
            (">=", Operator::GreaterOrEqual),
            ("=>", Operator::GreaterOrEqual),
            ("<=", Operator::LessOrEqual),
            ("=<", Operator::LessOrEqual),
            ("~>", Operator::Tilde),
            ("=", Operator::Equal),
            (">", Operator::Greater),
            ("<", Operator::Less),
            ("~", Operator::Tilde),
            ("^", Operator::Caret),
        ];
        ALL.iter()
            .find_map(|(sign, operator)| text.strip_prefix(sign).map(|rest| (*operator, rest)))
            .unwrap_or((Operator::Equal, text))
    }
}

/// Number of given numbers in a condition's version; `1.x` has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum GivenNumbers {
    None,
    Major,
    Minor,
    Patch,
}

struct Condition {
    operator: Operator,
    version: Semantic,
    given: GivenNumbers,
}

/// A version range: at least one of its groups of conditions must hold completely.
struct Range(Vec<Vec<Condition>>);

impl Range {
    /// Parses groups separated by `||`; conditions in a group are separated by spaces or commas, `1.2 - 1.4` is an
    /// inclusive range.
    fn parse(text: &str) -> Result<Range, CallError> {
        let wrong = || CallError::from(format!("{text:?} is not a range of versions"));
        text.split("||").map(|group| Self::group(group).ok_or_else(wrong)).collect::<Result<_, _>>().map(Range)
    }

    fn group(text: &str) -> Option<Vec<Condition>> {
        let mut conditions = Vec::new();
        let mut rest = text.trim();
        loop {
            let (operator, after) = Operator::read(rest);
            let (mut condition, after) = Condition::read(operator, after.trim_start())?;
            rest = after;
            if let Some(upper) = hyphen(rest)
                && let Some((upper, after)) = Condition::read(Operator::LessOrEqual, upper)
                && operator == Operator::Equal
            {
                condition.operator = Operator::GreaterOrEqual;
                conditions.push(upper);
                rest = after;
            }
            conditions.push(condition);
            if rest.is_empty() {
                return Some(conditions);
            }
            let next = rest.trim_start();
            let separated = next.len() < rest.len() || next.starts_with(',');
            rest = next.strip_prefix(',').unwrap_or(next).trim_start();
            if !separated {
                return None;
            }
        }
    }

    fn holds(&self, version: &Semantic) -> bool {
        self.0.iter().any(|group| {
            let with_pre = group.iter().any(|condition| !condition.version.pre.is_empty());
            (with_pre || version.pre.is_empty()) && group.iter().all(|condition| condition.holds(version))
        })
    }
}

/// Returns the text after a hyphen that is surrounded by spaces.
fn hyphen(text: &str) -> Option<&str> {
    let after = text.trim_start();
    let upper = after.strip_prefix('-')?;
    (after.len() < text.len() && upper.starts_with(char::is_whitespace)).then(|| upper.trim_start())
}

impl Condition {
    fn read(operator: Operator, text: &str) -> Option<(Condition, &str)> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let (parts, rest) = Parts::read(text, |b| b.is_ascii_digit() || matches!(b, b'x' | b'X' | b'*'))?;
        let known = parts.numbers.map(|part| part.filter(|part| !matches!(*part, "x" | "X" | "*")));
        let numbers = match known {
            [None, ..] => (GivenNumbers::None, ["0", "0", "0"]),
            [Some(major), None, _] => (GivenNumbers::Major, [major, "0", "0"]),
            [Some(major), Some(minor), None] => (GivenNumbers::Minor, [major, minor, "0"]),
            [Some(major), Some(minor), Some(patch)] => (GivenNumbers::Patch, [major, minor, patch]),
        };
        let (given, [major, minor, patch]) = numbers;
        let version = Semantic {
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
            patch: patch.parse().ok()?,
            pre: Prerelease::new(parts.pre).ok()?,
            build: BuildMetadata::EMPTY,
        };
        Some((Condition { operator, version, given }, rest))
    }

    fn holds(&self, version: &Semantic) -> bool {
        let Condition { operator, version: wanted, given } = self;
        let order = version.cmp_precedence(wanted);
        match operator {
            Operator::Equal if *given == GivenNumbers::Patch => order == Ordering::Equal,
            Operator::Equal | Operator::Tilde => self.tilde(version, order),
            Operator::NotEqual => match given {
                GivenNumbers::Major => version.major != wanted.major,
                GivenNumbers::Minor => {
                    (version.major, version.minor) != (wanted.major, wanted.minor) || version.pre != wanted.pre
                }
                GivenNumbers::None | GivenNumbers::Patch => order != Ordering::Equal,
            },
            Operator::Greater => match given {
                GivenNumbers::Major => version.major > wanted.major,
                GivenNumbers::Minor => (version.major, version.minor) > (wanted.major, wanted.minor),
                GivenNumbers::None | GivenNumbers::Patch => order == Ordering::Greater,
            },
            Operator::GreaterOrEqual => order != Ordering::Less,
            Operator::Less => order == Ordering::Less,
            Operator::LessOrEqual => match given {
                GivenNumbers::None | GivenNumbers::Minor => {
                    (version.major, version.minor) <= (wanted.major, wanted.minor)
                }
                GivenNumbers::Major => version.major <= wanted.major,
                GivenNumbers::Patch => order != Ordering::Greater,
            },
            Operator::Caret => self.caret(version, order),
        }
    }

    fn tilde(&self, version: &Semantic, order: Ordering) -> bool {
        let Condition { version: wanted, given, .. } = self;
        let zero = (wanted.major, wanted.minor, wanted.patch) == (0, 0, 0);
        order != Ordering::Less
            && match given {
                GivenNumbers::None => true,
                GivenNumbers::Major => version.major == wanted.major,
                GivenNumbers::Patch if zero => true,
                GivenNumbers::Minor | GivenNumbers::Patch => {
                    (version.major, version.minor) == (wanted.major, wanted.minor)
                }
            }
    }

    fn caret(&self, version: &Semantic, order: Ordering) -> bool {
        let Condition { version: wanted, given, .. } = self;
        if order == Ordering::Less {
            return false;
        }
        if wanted.major > 0 || *given == GivenNumbers::Major {
            return version.major == wanted.major;
        }
        if version.major > 0 {
            return false;
        }
        if wanted.minor > 0 || *given == GivenNumbers::Minor {
            return version.minor == wanted.minor;
        }
        // The first number that is not 0 may not change; `^*` has none.
        version.minor == 0 && version.patch == wanted.patch
    }
}
