//! Any text is a valid script, or is refused at a place within it; the parser never overflows its stack.

use super::text;

pub(crate) fn check(input: &[u8]) {
    let text = text(input);
    if let Err(Some((line, column))) = anabranch_ops_js::check(text) {
        // JavaScript ends a line with any of these (ECMA-262, "Line Terminators").
        let ends = text.matches(['\n', '\r', '\u{2028}', '\u{2029}']).count();
        assert!(line >= 1 && column >= 1 && line <= ends + 2, "{line}:{column}");
    }
}
