//! Messages and output of standalone connectors: any bytes.

use anabranch_ops_grpc::untrusted;

pub(crate) fn check_messages(message: &[u8]) {
    untrusted::messages(message);
}

pub(crate) fn check_text(input: &[u8]) {
    for line in crate::text(input).lines() {
        untrusted::handshake(line);
        untrusted::log_line(line);
    }
    untrusted::printed(input);
}
