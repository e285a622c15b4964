//! Plans as JSON.

use super::Picture;

/// Members in a fixed order; nodes are referred to by `index`, stages by `id`.
pub(super) fn print(picture: &Picture<'_>) -> String {
    // Only texts, numbers and maps with text keys are in it, so this cannot fail.
    let mut text = serde_json::to_string_pretty(picture).unwrap_or_default();
    text.push('\n');
    text
}
