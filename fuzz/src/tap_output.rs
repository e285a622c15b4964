//! Messages, catalogues and log lines of Singer taps: any bytes.

use anabranch_ops_singer::untrusted;

pub(crate) fn check(input: &[u8]) {
    untrusted::output(input);
    untrusted::catalog(input);
    crate::text(input).lines().for_each(untrusted::log_line);
}
