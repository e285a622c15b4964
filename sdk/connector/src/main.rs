//! Anabranch with three more plugins.

use std::process::ExitCode;

use anabranch::Service;
use my_anabranch::{inbox, mask, outbox};

fn main() -> ExitCode {
    Service::builder().register(inbox::kind()).register(mask::kind()).register(outbox::kind()).main()
}
