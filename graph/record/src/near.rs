//! Similar names, for suggestions in messages.

/// Returns the candidate closest to `text`, if it is close enough to be a typing error.
pub fn did_you_mean<'a>(text: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if !cfg!(feature = "suggestions") {
        return None;
    }
    let lower = text.to_lowercase();
    let len = lower.chars().count();
    candidates
        .into_iter()
        .filter_map(|c| {
            let c_len = c.chars().count();
            let most = 1 + c_len.min(len) / 4;
            // The distance is at least the difference in length: skips the comparison with long texts.
            let near = c_len.abs_diff(len) <= most;
            // Two different single letters are not similar.
            let most = most.min(c_len.max(len).saturating_sub(1));
            near.then(|| edit_distance(&lower, &c.to_lowercase())).filter(|d| *d <= most).map(|d| (d, c))
        })
        .min_by_key(|(d, _)| *d)
        .map(|(_, c)| c)
}

fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, cb) in b.iter().enumerate() {
            let replace = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// Returns the only name that differs from `text` by one letter: one too many, one too few, another one, or two
/// neighbours exchanged. Returns `None` if several names match, and for names so short that a letter is half of them.
pub fn slip<'a>(text: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const SHORTEST: usize = 3;
    if !cfg!(feature = "suggestions") {
        return None;
    }
    let lower = text.to_lowercase();
    let length = lower.chars().count();
    if length < SHORTEST {
        return None;
    }
    let mut near = names.into_iter().filter(|name| {
        let name = name.to_lowercase();
        let other = name.chars().count();
        other >= SHORTEST
            && other.abs_diff(length) <= 1
            && (edit_distance(&lower, &name) <= 1 || are_swapped(&lower, &name))
    });
    let found = near.next()?;
    near.all(|other| other == found).then_some(found)
}

/// Returns `true` if the texts differ only in two exchanged neighbours.
fn are_swapped(a: &str, b: &str) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut differing = a.chars().zip(b.chars()).enumerate().filter(|(_, (a, b))| a != b);
    let (Some((i, first)), Some((j, second)), None) = (differing.next(), differing.next(), differing.next()) else {
        return false;
    };
    j == i + 1 && first.0 == second.1 && first.1 == second.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_suggested_and_far_ones_are_not() {
        let names = ["field.set", "field.rename", "filter", "json.decode"];
        assert_eq!(did_you_mean("field.sett", names), Some("field.set"));
        assert_eq!(did_you_mean("json.decod", names), Some("json.decode"));
        assert_eq!(did_you_mean("kafka", names), None);
        assert_eq!(did_you_mean("b", ["a"]), None);
        assert_eq!(did_you_mean("B", ["b"]), Some("b"));
        assert_eq!(did_you_mean("i", ["id"]), Some("id"));
    }

    #[test]
    fn one_letter_is_a_slip_if_only_one_name_is_near() {
        let names = ["path", "paths", "field.set", "Status"];
        assert_eq!(slip("pathh", names), None, "two are near");
        assert_eq!(slip("pth", names), Some("path"));
        assert_eq!(slip("field.ste", names), Some("field.set"), "exchanged");
        assert_eq!(slip("field.sett", names), Some("field.set"));
        assert_eq!(slip("STATUS", names), Some("Status"));
        assert_eq!(slip("fild.st", names), None, "two letters");
        assert_eq!(slip("lt", ["eq", "le"]), None, "too short");
        assert_eq!(slip("path", ["path", "path"]), Some("path"));
    }
}
