//! Answers whose items contain the index of their part of the request.

/// Returns the items in the order of their indexes.
///
/// If the indexes are contradictory, no item can be attributed to its part.
///
/// # Errors
/// Fails unless there is exactly one item per index. The error uses the given names of items and parts.
pub(crate) fn by_index<T>(
    items: impl ExactSizeIterator<Item = (usize, T)>,
    (name, count, parts): (&str, usize, &str),
) -> Result<Vec<T>, String> {
    if items.len() != count {
        return Err(format!("it has {} {name} for {count} {parts}", items.len()));
    }
    let mut places: Vec<Option<T>> = Vec::new();
    places.resize_with(count, || None);
    for (index, item) in items {
        match places.get_mut(index) {
            None => return Err(format!("index {index} is larger than that of the last of {count} {parts}")),
            Some(Some(_)) => return Err(format!("index {index} occurs twice")),
            Some(place) => *place = Some(item),
        }
    }
    // There are as many items as places, and no place is used twice: each has its item.
    Ok(places.into_iter().flatten().collect())
}
