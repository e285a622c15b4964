//! Answers whose items contain the index of their part of the request.

use anabranch_record::phrase::counted;

/// Returns the items in the order of their indexes.
///
/// If the indexes are contradictory, no item can be attributed to its part.
///
/// # Errors
/// Fails unless there is exactly one item per index. The error uses the given names of an item and a part, in the
/// singular.
pub(crate) fn by_index<T>(
    items: impl ExactSizeIterator<Item = (usize, T)>,
    (item, count, part): (&str, usize, &str),
) -> Result<Vec<T>, String> {
    if items.len() != count {
        return Err(format!("it has {} for {}", counted(items.len(), item), counted(count, part)));
    }
    let mut places: Vec<Option<T>> = Vec::new();
    places.resize_with(count, || None);
    for (index, item) in items {
        match places.get_mut(index) {
            None => return Err(format!("index {index} is beyond the last of {}", counted(count, part))),
            Some(Some(_)) => return Err(format!("index {index} occurs twice")),
            Some(place) => *place = Some(item),
        }
    }
    // The number of items equals the number of places, and no place is used twice, so each place has an item.
    Ok(places.into_iter().flatten().collect())
}
