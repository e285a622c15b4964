//! The input of a simulation, generated from a seed.

use std::time::Duration;

use fastrand::Rng;

use crate::scenario::mix;

/// The input.
#[derive(Clone, Debug)]
pub struct CaptureScenario {
    /// Seed of the random numbers.
    pub seed: u64,
    /// True if the rows are read beside the changes; otherwise they are read before.
    pub is_incremental: bool,
    /// Number of keys.
    pub keys: u32,
    /// Number of pages of the table, each of which is a range.
    pub pages: u32,
    /// Number of transactions.
    pub transactions: u32,
    /// Number of ranges that are read at the same time.
    pub parallel: usize,
    /// Maximum number of records of one read.
    pub per_read: usize,
    /// Maximum number of rows of a chunk.
    pub chunk: usize,
    /// Maximum number of rows of one write.
    pub per_write: usize,
    /// Maximum time between two steps of the database, in milliseconds.
    pub pause: u64,
    /// Maximum duration of the reading of rows, in milliseconds.
    pub chunk_delay: u64,
    /// Maximum duration of a write, in milliseconds.
    pub write_delay: u64,
    /// Maximum duration of a commit, in milliseconds.
    pub store_delay: u64,
    /// One in this many writes fails; 0 = none.
    pub write_fails: u64,
    /// The connection breaks after one in this many messages; 0 = never.
    pub disconnects: u64,
    /// The events at which runs 0, 1, … crash.
    pub crashes: Vec<u64>,
    /// Times at which a user asks for all rows, in milliseconds from the beginning of runs 0, 1, …
    pub requests: Vec<u64>,
    /// Limit of rows of a lane that are read and not stored.
    pub replay_rows: usize,
}

impl CaptureScenario {
    /// Generates the scenario of a seed.
    pub fn generate(seed: u64) -> CaptureScenario {
        let mut rng = Rng::with_seed(seed);
        let delay = |rng: &mut Rng| [0, 3, 40, 400][rng.usize(..4)];
        CaptureScenario {
            seed,
            is_incremental: rng.bool(),
            keys: rng.u32(2..24),
            pages: rng.u32(1..6),
            transactions: rng.u32(1..40),
            parallel: rng.usize(1..4),
            per_read: [1, rng.usize(1..6), 100][rng.usize(..3)],
            chunk: rng.usize(1..8),
            per_write: [1, rng.usize(1..6), 100][rng.usize(..3)],
            pause: [1, 8, 60][rng.usize(..3)],
            chunk_delay: delay(&mut rng),
            write_delay: delay(&mut rng),
            store_delay: delay(&mut rng),
            write_fails: if rng.u32(..4) == 0 { rng.u64(2..12) } else { 0 },
            disconnects: if rng.u32(..3) == 0 { rng.u64(10..80) } else { 0 },
            crashes: (0..rng.usize(..5)).map(|_| rng.u64(..250)).collect(),
            requests: (0..rng.usize(..4)).map(|_| rng.u64(..3000)).collect(),
            replay_rows: [1, rng.usize(2..12), 1000][rng.usize(..3)],
        }
    }

    fn up_to(&self, most: u64, call: u64) -> Duration {
        Duration::from_millis(if most == 0 { 0 } else { mix(self.seed, call) % (most + 1) })
    }

    /// Returns the time until the next step of the database.
    pub(super) fn pause(&self, call: u64) -> Duration {
        Duration::from_millis(1) + self.up_to(self.pause, call)
    }

    /// Returns the duration of the reading of rows.
    pub(super) fn chunk_time(&self, call: u64) -> Duration {
        self.up_to(self.chunk_delay, call)
    }

    /// Returns the duration of a write.
    pub(super) fn write_time(&self, call: u64) -> Duration {
        self.up_to(self.write_delay, call)
    }

    /// Returns the duration of a commit.
    pub(super) fn store_time(&self, call: u64) -> Duration {
        self.up_to(self.store_delay, call)
    }
}
