//! Any output of a guest is parsed to a line with a level.

use anabranch_ops_opencdc::line::read_line;

pub(crate) fn check(input: &[u8]) {
    let blank = String::from_utf8_lossy(input).trim().is_empty();
    assert_eq!(read_line(input).is_none(), blank);
}
