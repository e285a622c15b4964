//! What a guest prints is a line with a level, whatever it is.

use anabranch_ops_opencdc::line::read_line;

pub(crate) fn check(input: &[u8]) {
    let blank = String::from_utf8_lossy(input).trim().is_empty();
    assert_eq!(read_line(input).is_none(), blank);
}
