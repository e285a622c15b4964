//! The `anabranch` binary.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: anabranch::Allocator = anabranch::Allocator;

fn main() -> ExitCode {
    anabranch::Service::builder().main()
}
