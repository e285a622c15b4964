//! The records of a file are the same however its content arrives, and no byte is in none of them, except separators.

use anabranch_ops::file::framing::{SampleFraming, decompressed, records};

pub(crate) fn check(input: &[u8]) {
    let Some((piece, content)) = input.split_first() else { return };
    let piece = usize::from(*piece % 16) + 1;
    for framing in SampleFraming::ALL {
        let whole = records(*framing, content, content.len().max(1));
        assert_eq!(records(*framing, content, piece), whole, "{framing:?}");
        let kept: usize = whole.iter().map(Vec::len).sum();
        let separators = match framing {
            // A row leaves out its line break, and blank rows.
            SampleFraming::Csv => content.iter().filter(|byte| matches!(byte, b'\r' | b'\n')).count(),
            SampleFraming::Lines | SampleFraming::Multiline => content.iter().filter(|byte| **byte == b'\n').count(),
            SampleFraming::Json => content.iter().filter(|byte| b" \t\r\n,[]\xef\xbb\xbf".contains(byte)).count(),
        };
        assert!(kept <= content.len() && kept + separators >= content.len(), "{framing:?} loses bytes");
    }
    // Damaged data is an error.
    let _ = decompressed(content, piece);
}
