//! Any text is a script or is refused, at a place that it has; the parser never overflows its stack.

use super::text;

pub(crate) fn check(input: &[u8]) {
    let text = text(input);
    if let Err(Some((line, column))) = anabranch_ops_js::check(text) {
        assert!(line >= 1 && column >= 1 && line <= text.split('\n').count() + 1, "{line}:{column}");
    }
}
