//! Names that a template looks up without an error if they are missing, and that no record has.

use anabranch_plugin::flow::{LookedUpField, Place, TrialCheck};
use anabranch_record::near::did_you_mean;
use anabranch_record::reference::push_part;
use anabranch_record::text::Str;
use anabranch_record::value::Value;
use anabranch_record::{Data, Record};

use super::{ObservationCount, ObservationKey, ObservedProblems, Observer};

/// Minimum number of records before a missing name is reported.
pub(super) const ENOUGH: u64 = 2;

impl ObservationCount {
    /// Returns `true` if the missing field is probably a mistake.
    pub(super) fn is_worth_a_word(&self, named: &LookedUpField) -> bool {
        !self.message.is_empty() && (named.sure || self.hint.is_some())
    }
}

impl Observer {
    /// Returns `true` if the template itself reported a problem that overlaps the range of `place`, or any problem if
    /// `place` has no range.
    pub(super) fn is_doubted(&self, seen: &ObservedProblems, key: &ObservationKey, place: &Place) -> bool {
        let Some(step) = self.step(key.stage, key.step) else { return false };
        seen.doubts.keys().any(|other| {
            let of_template = step.looks.get(other.part).filter(|(_, look)| matches!(look, TrialCheck::Template(_)));
            let at = of_template.map(|(whole, _)| whole.at(other.start..other.end));
            (other.stage, other.step) == (key.stage, key.step)
                && at.is_some_and(|at| {
                    let ranges = at.range.zip(place.range.as_ref());
                    at.part == place.part
                        && ranges.is_none_or(|(at, range)| at.start < range.end && range.start < at.end)
                })
        })
    }
}

/// Describes a missing field and the field that is probably meant. The message is empty if the parent of the field is
/// not a map.
pub(super) fn lacking(named: &LookedUpField, record: &Record) -> Option<(String, Option<String>)> {
    const NOTHING: Option<(String, Option<String>)> = Some((String::new(), None));
    let Data::Structured(object) = named.side.of(record) else { return NOTHING };
    let mut object = object;
    let mut parent = named.side.as_str().to_owned();
    for (depth, name) in named.names.iter().enumerate() {
        match object.get(name) {
            None => {
                let mut missing = parent.clone();
                push_part(name, &mut missing);
                let so = if named.sure { ", so there is no value to use" } else { ", which counts as empty" };
                let hint = meant(named, name, object.iter().map(|(name, _)| name)).map(|near| {
                    push_part(near, &mut parent);
                    format!("did you mean {parent}?")
                });
                return Some((format!("the record has no {missing}{so}"), hint));
            }
            Some(_) if depth + 1 == named.names.len() => return None,
            Some(Value::Map(inner)) => object = inner,
            Some(_) => return NOTHING,
        }
        push_part(name, &mut parent);
    }
    None
}

/// Returns the name that is probably meant. Names that the template also reads are not candidates.
fn meant<'a>(named: &LookedUpField, name: &str, names: impl Iterator<Item = &'a Str>) -> Option<&'a str> {
    let others = names.map(Str::as_str).filter(|other| !has_word(&named.source, other));
    match named.sure {
        true => did_you_mean(name, others),
        false => others.into_iter().find(|other| is_slip(name, other)),
    }
}

/// Returns `true` if a text contains a word.
fn has_word(text: &str, word: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word)
        .any(|(at, _)| !text[..at].ends_with(is_word) && !text[at + word.len()..].starts_with(is_word))
}

/// Returns `true` if two names differ only in capitals and separators, two swapped adjacent letters, or a doubled
/// letter. Other similar names may be separate fields, such as `county` and `country`.
fn is_slip(name: &str, other: &str) -> bool {
    const SHORTEST: usize = 4;
    let plain = |name: &str| -> Vec<char> {
        name.chars().filter(|c| !matches!(c, '_' | '-' | ' ')).flat_map(char::to_lowercase).collect()
    };
    let (a, b) = (plain(name), plain(other));
    if a.len().min(b.len()) == 0 || a == b {
        return a == b && !a.is_empty();
    }
    let single = |letters: &[char]| {
        let mut letters = letters.to_vec();
        letters.dedup();
        letters
    };
    if a.len().min(b.len()) < SHORTEST || a.iter().chain(&b).any(char::is_ascii_digit) {
        return false;
    }
    if a.len().abs_diff(b.len()) == 1 {
        return single(&a) == single(&b);
    }
    if a.len() != b.len() {
        return false;
    }
    let differing: Vec<usize> = (0..a.len()).filter(|&i| a[i] != b[i]).collect();
    matches!(differing[..], [i, j] if j == i + 1 && a[i] == b[j] && a[j] == b[i])
}

#[cfg(test)]
mod tests {
    use super::is_slip;

    #[test]
    fn slips_are_told_from_other_names() {
        for (name, other) in [
            ("Mail", "mail"),
            ("nmae", "name"),
            ("user_id", "userId"),
            ("adress", "address"),
            ("ID", "id"),
            ("first-name", "firstName"),
        ] {
            assert!(is_slip(name, other), "{name} {other}");
        }
        for (name, other) in [
            ("county", "country"),
            ("email", "mail"),
            ("mode", "code"),
            ("line1", "line2"),
            ("address", "address2"),
            ("item", "items"),
            ("ab", "ba"),
            ("x", "y"),
            ("", "_"),
        ] {
            assert!(!is_slip(name, other), "{name} {other}");
        }
    }
}
