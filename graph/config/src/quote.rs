//! Text of files in messages.

/// Quotes, escapes and truncates text from the file for use in a message.
pub(super) fn quoted(text: &str) -> String {
    const MAX_CHARS: usize = 60;
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{:?}", format!("{}…", &text[..end])),
        None => format!("{text:?}"),
    }
}
