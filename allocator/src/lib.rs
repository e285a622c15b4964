//! The global allocator of the binaries, configured to return free memory soon.
//!
//! A binary declares the allocator and configures it at the start of `main`:
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: anabranch_allocator::Allocator = anabranch_allocator::Allocator;
//!
//! fn main() {
//!     anabranch_allocator::settle();
//!     assert_eq!(vec![1; 1000].len(), 1000);
//! }
//! ```

use std::ffi::{c_int, c_long};

use libmimalloc_sys::{mi_option_get, mi_option_set_default};

/// The allocator type, to be declared as the global allocator.
pub use mimalloc::MiMalloc as Allocator;

/// Number of `mi_option_purge_delay` in `mimalloc.h`, which `libmimalloc-sys` does not define: the milliseconds for
/// which free pages are kept.
const PURGE_DELAY: c_int = 15;

/// Default value of the option. It serves to check that the option is the right one.
const USUAL_DELAY: c_long = 1000;

/// Value that is set. In a second, workers free pages in ever new places: a pipeline that needs 5 MB then holds 20 to
/// 40. With 50 ms it holds 8, and records cost no more (`docs/performance.md`). Returning pages immediately makes
/// records a third more expensive.
const DELAY: c_long = 50;

/// Configures the allocator for a service. Call it once, at the start of `main`. The variable `MIMALLOC_PURGE_DELAY`
/// (milliseconds) and all other variables of mimalloc take precedence.
pub fn settle() {
    small_pages();
    give_back_soon();
}

/// Disables huge pages. The allocator separates blocks by size: with huge pages, each size costs 2 MiB, zeroed on first
/// access. That is half of the memory and most of the start-up time of a small service, and records gain nothing from
/// it.
fn small_pages() {
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

fn give_back_soon() {
    if option(PURGE_DELAY) == USUAL_DELAY {
        set_default(PURGE_DELAY, DELAY);
    }
}

#[allow(unsafe_code, reason = "there is no safe way to ask")]
fn option(option: c_int) -> c_long {
    // SAFETY: reads a number; an option that does not exist reads as 0.
    unsafe { mi_option_get(option) }
}

#[allow(unsafe_code, reason = "there is no safe way to say it")]
fn set_default(option: c_int, value: c_long) {
    // SAFETY: sets a word that the allocator reads atomically whenever it frees a page, and for which any value is
    // valid. An option that does not exist is ignored.
    unsafe { mi_option_set_default(option, value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_pages_are_kept_for_the_delay() {
        assert_eq!(option(PURGE_DELAY), USUAL_DELAY, "the allocator counts its options differently now");
        settle();
        assert_eq!(option(PURGE_DELAY), DELAY);
    }
}
