//! The allocator of the binaries, and how soon it gives memory back.

use std::ffi::{c_int, c_long};

use libmimalloc_sys::{mi_option_get, mi_option_set_default};

/// To be declared as the global allocator.
pub use mimalloc::MiMalloc as Allocator;

/// `mi_option_purge_delay` of `mimalloc.h`, which `libmimalloc-sys` does not name: for how many milliseconds free pages
/// are kept.
const PURGE_DELAY: c_int = 15;

/// What it is when nobody says anything. By it the option is known to be the right one.
const USUAL_DELAY: c_long = 1000;

/// In a second, workers leave free pages behind in ever new places: a pipeline that needs 5 MB held 20 to 40. After
/// 50 ms it holds 8, and records cost no more (`docs/performance.md`); given back at once they cost a third more.
const DELAY: c_long = 50;

/// Tells the allocator how a service wants its memory. To be called once, first of all. `MIMALLOC_PURGE_DELAY`
/// (milliseconds) says otherwise, as do all variables of mimalloc.
pub fn settle() {
    small_pages();
    give_back_soon();
}

/// The allocator spreads its blocks by size: with huge pages each size costs 2 MiB, zeroed at the first touch, which is
/// half of the memory and most of the start of a small service. Records gain nothing from them.
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
    // SAFETY: sets a word that the allocator reads whole each time it frees a page, and which any value suits; an option
    // that does not exist is left alone.
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
