//! How often tests of faults strike, and with which random choices: `ANABRANCH_KILLS` and `ANABRANCH_SEED`.

use std::io::Write as _;
use std::ops::Range;
use std::time::Duration;

/// Returns the number in a variable of the environment.
pub fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

/// Returns the seed of random choices, and prints it.
pub fn seed() -> u64 {
    let seed = number("ANABRANCH_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("ANABRANCH_SEED={seed}");
    seed
}

/// Returns the number of faults, and random choices.
pub fn choices(few: usize) -> (usize, fastrand::Rng) {
    (number("ANABRANCH_KILLS").map_or(few, |faults| faults as usize), fastrand::Rng::with_seed(seed()))
}

/// Prints a line that is not captured: who reads the output of a check wants to know what was checked.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Waits between two times, in milliseconds.
pub fn wait(random: &mut fastrand::Rng, millis: Range<u64>) {
    std::thread::sleep(Duration::from_millis(random.u64(millis)));
}
