//! Plans as JSON.

use super::Picture;

/// Members are in a fixed order. Nodes are referred to by `index`, stages by `id`.
pub(super) fn print(picture: &Picture<'_>) -> String {
    // The picture holds only texts, numbers and maps with text keys, so this cannot fail.
    let mut text = serde_json::to_string_pretty(picture).unwrap_or_default();
    text.push('\n');
    text
}
