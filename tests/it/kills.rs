//! How often the tests that kill the service kill it, and when.
//!
//! A check kills it fifty times. `ANABRANCH_KILLS=1000 cargo test --test it -- --nocapture killed_again what_is_ack`
//! kills it a thousand times in each of the two pipelines; `ANABRANCH_SEED` repeats the choices of another time.

use std::io::Write;
use std::time::Duration;

use crate::fault_plan::choices;

/// Kills of one service before it may come to its end.
const PER_ROUND: usize = 25;

/// A time to kill.
pub enum When {
    /// Once the destination has grown by so many bytes.
    Grown(u64),
    /// So long after the start, whatever it is at: opening, resuming, or done.
    After(Duration),
}

/// The kills of a test.
pub struct Kills {
    random: fastrand::Rng,
    left: usize,
    killed: usize,
    /// Of the destination that was given most of them.
    repeated: usize,
    bound: usize,
}

impl Kills {
    pub fn new() -> Self {
        let (left, random) = choices(PER_ROUND);
        Kills { random, left, killed: 0, repeated: 0, bound: 0 }
    }

    /// Number of kills of the next service; zero after the last.
    pub fn round(&mut self) -> usize {
        let kills = self.left.min(PER_ROUND);
        self.left -= kills;
        kills
    }

    /// When the next one comes; `bytes` is how much one may write at most.
    pub fn when(&mut self, bytes: u64) -> When {
        match self.random.u32(..4) {
            0 => When::After(Duration::from_millis(self.random.u64(..200))),
            _ => When::Grown(self.random.u64(1..bytes)),
        }
    }

    /// Notes how a round ended: how many rows each destination was given again.
    ///
    /// # Panics
    /// There were more than `bound` of them per kill.
    pub fn add(&mut self, killed: usize, repeated: &[usize], bound: usize) {
        println!("{repeated:?} rows came again after {killed} kills");
        let most = repeated.iter().copied().max().unwrap_or(0);
        assert!(most <= killed * bound, "{most} rows came again after {killed} kills, {bound} may at each");
        self.killed += killed;
        self.repeated += most;
        self.bound = bound;
    }
}

impl Drop for Kills {
    /// Not to be captured: whoever reads the output of a check wants to know what was checked.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let Kills { killed, repeated, bound, .. } = self;
            let said = format!("killed {killed} times: no row lost, {repeated} came again, {bound} may at each kill");
            let _ = writeln!(std::io::stderr(), "{said}");
        }
    }
}
