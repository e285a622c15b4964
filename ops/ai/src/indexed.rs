//! Answers whose items say which part of the question they are of.

/// The items in the order of their indexes.
///
/// Where the indexes contradict each other, no item can be trusted to be of the part that it names.
///
/// # Errors
/// There is not exactly one item per index: why, in the names of items and parts.
pub(crate) fn by_index<T>(
    items: impl ExactSizeIterator<Item = (usize, T)>,
    (name, count, parts): (&str, usize, &str),
) -> Result<Vec<T>, String> {
    if items.len() != count {
        return Err(format!("{} {name} of {count} {parts}", items.len()));
    }
    let mut places: Vec<Option<T>> = Vec::new();
    places.resize_with(count, || None);
    for (index, item) in items {
        match places.get_mut(index) {
            None => return Err(format!("index {index} is beyond the {count} {parts}")),
            Some(Some(_)) => return Err(format!("index {index} occurs twice")),
            Some(place) => *place = Some(item),
        }
    }
    // As many items as places, and no place twice: each has its item.
    Ok(places.into_iter().flatten().collect())
}
