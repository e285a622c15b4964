//! Predicates with the same result for every record: `and (gt x 10) (lt x 5)`.

use super::Predicate;
use super::source::Source;

/// Maximum number of analysed comparisons of one `and`.
const MOST: usize = 64;

/// Returns the result for all records on which the condition does not fail, if its parts contradict each other or cover
/// all cases.
pub(super) fn settled(predicate: &Predicate) -> Option<bool> {
    match predicate {
        Predicate::Constant(verdict) => Some(*verdict),
        Predicate::Not(inner) => settled(inner).map(|verdict| !verdict),
        Predicate::All(parts) => joined(parts, true),
        Predicate::Any(parts) => joined(parts, false),
        _ => None,
    }
}

/// Returns the result of `and`, or, with all results negated, of `or`.
fn joined(parts: &[Predicate], all: bool) -> Option<bool> {
    let verdicts: Vec<Option<bool>> = parts.iter().map(settled).collect();
    if verdicts.contains(&Some(!all)) {
        return Some(!all);
    }
    if verdicts.iter().all(|verdict| *verdict == Some(all)) {
        return Some(all);
    }
    let mut limits = Vec::new();
    for part in parts {
        gather(part, all, &mut limits);
    }
    limits.iter().any(Limits::allow_nothing).then_some(!all)
}

/// Constraints on one value under which all comparisons hold.
struct Limits<'p> {
    of: &'p Source,
    low: Option<(f64, bool)>,
    high: Option<(f64, bool)>,
    /// The value must equal an element of each list.
    among: Vec<&'p [Source]>,
    but: Vec<&'p [Source]>,
    mixed: bool,
}

fn gather<'p>(predicate: &'p Predicate, holds: bool, limits: &mut Vec<Limits<'p>>) {
    match (predicate, holds) {
        (Predicate::Not(inner), _) => gather(inner, !holds, limits),
        (Predicate::All(parts), true) | (Predicate::Any(parts), false) => {
            parts.iter().for_each(|part| gather(part, holds, limits));
        }
        (Predicate::Equal(left, others), _) => {
            let (of, among) = match &**others {
                [right] if literal(left).is_some() => (right, std::slice::from_ref(left)),
                others => (left, others),
            };
            if literal(of).is_some() || among.iter().any(|other| literal(other).is_none()) {
                return;
            }
            let Some(limits) = limits_of(of, limits) else { return };
            if holds { limits.among.push(among) } else { limits.but.push(among) }
        }
        (Predicate::Less(a, b), true) => order(a, b, false, limits),
        (Predicate::LessOrEqual(a, b), true) => order(a, b, true, limits),
        (Predicate::Less(a, b), false) => order(b, a, true, limits),
        (Predicate::LessOrEqual(a, b), false) => order(b, a, false, limits),
        _ => {}
    }
}

/// Adds the constraint that `less` is below `more`, or equal to it.
fn order<'p>(less: &'p Source, more: &'p Source, or_equal: bool, limits: &mut Vec<Limits<'p>>) {
    match (number(less), number(more)) {
        (None, Some(bound)) => {
            let Some(limits) = limits_of(less, limits) else { return };
            let tighter = limits.high.is_none_or(|(high, equal)| bound < high || (bound == high && equal));
            limits.high = if tighter { Some((bound, or_equal)) } else { limits.high };
        }
        (Some(bound), None) => {
            let Some(limits) = limits_of(more, limits) else { return };
            let tighter = limits.low.is_none_or(|(low, equal)| bound > low || (bound == low && equal));
            limits.low = if tighter { Some((bound, or_equal)) } else { limits.low };
        }
        // A text, or two values of the record.
        _ => {
            for side in [less, more] {
                if let Some(limits) = limits_of(side, limits) {
                    limits.mixed = true;
                }
            }
        }
    }
}

fn limits_of<'l, 'p>(of: &'p Source, limits: &'l mut Vec<Limits<'p>>) -> Option<&'l mut Limits<'p>> {
    match limits.iter().position(|limits| limits.of == of) {
        Some(at) => limits.get_mut(at),
        None if limits.len() == MOST => None,
        None => {
            limits.push(Limits { of, low: None, high: None, among: Vec::new(), but: Vec::new(), mixed: false });
            limits.last_mut()
        }
    }
}

impl Limits<'_> {
    fn allow_nothing(&self) -> bool {
        if self.mixed || self.among.len() + self.but.len() > MOST {
            return false;
        }
        if let (Some((low, at_low)), Some((high, at_high))) = (self.low, self.high)
            && (low > high || (low == high && !(at_low && at_high)))
        {
            return true;
        }
        let Some((first, others)) = self.among.split_first() else { return false };
        let bounded = self.low.is_some() || self.high.is_some();
        let possible = |value: &&Source| {
            let Some(value) = literal(value) else { return true };
            let equals = |other: &Source| literal(other).is_none_or(|other| value.may_equal(&other));
            let within = match value {
                Literal::Number(n) => {
                    self.low.is_none_or(|(low, equal)| n > low || (equal && n == low))
                        && self.high.is_none_or(|(high, equal)| n < high || (equal && n == high))
                }
                // A comparison of a text with a number fails.
                _ => !bounded,
            };
            within
                && others.iter().all(|others| others.iter().any(equals))
                && !self.but.iter().any(|but| but.iter().any(|other| literal(other) == Some(value)))
        };
        // If a value is compared with a text and a number, one of the comparisons fails, and there is no result.
        let kinds = |value: &Source| literal(value).map(Literal::kind);
        let kind = first.first().and_then(kinds);
        let alike =
            self.among.iter().chain(&self.but).flat_map(|values| values.iter()).all(|value| kinds(value) == kind);
        alike && !first.iter().any(|value| possible(&value))
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Literal<'p> {
    Bool(bool),
    Number(f64),
    Text(&'p str),
}

impl Literal<'_> {
    fn kind(self) -> u8 {
        match self {
            Literal::Bool(_) => 0,
            Literal::Number(_) => 1,
            Literal::Text(_) => 2,
        }
    }

    fn may_equal(&self, other: &Literal<'_>) -> bool {
        self == other
    }
}

fn literal(source: &Source) -> Option<Literal<'_>> {
    Some(match source {
        Source::Bool(value) => Literal::Bool(*value),
        // Only integers that a float represents exactly.
        Source::Int(value) if value.unsigned_abs() < 1 << 53 => Literal::Number(*value as f64),
        Source::Float(value) => Literal::Number(*value),
        Source::Text(text) => Literal::Text(text),
        _ => return None,
    })
}

fn number(source: &Source) -> Option<f64> {
    match literal(source)? {
        Literal::Number(number) => Some(number),
        _ => None,
    }
}
