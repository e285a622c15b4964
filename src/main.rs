//! The `anabranch` binary.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: anabranch_allocator::Allocator = anabranch_allocator::Allocator;

fn main() -> ExitCode {
    anabranch_allocator::settle();
    anabranch_process::panics::report();
    anabranch::cli::main()
}
