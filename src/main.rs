//! The `anabranch` binary.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    small_pages();
    anabranch::panics::report();
    anabranch::cli::main()
}

/// The allocator spreads its blocks by size: with huge pages each size costs 2 MiB, zeroed at the first touch, which is
/// half of the memory and most of the start of a small service. Records gain nothing from them.
fn small_pages() {
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}
