//! Limits of repeated warnings and errors: the first of a kind are written, further ones are counted, and the count is
//! logged once a minute.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;

/// Maximum number of lines of one kind within [`EVERY`].
const MOST: u64 = 10;
/// Period after which suppressed lines are counted.
pub const EVERY: Duration = Duration::from_secs(60);
/// Maximum number of kinds: lines of further kinds are all written.
const KINDS: usize = 4096;

/// Fields whose values distinguish the kinds of log lines, together with the place in the program.
pub(super) const TELLING: [&str; 9] =
    ["pipeline", "connector", "processor", "node", "source", "destination", "step", "code", "plugin"];

/// The place in the program that writes a line, and the subject of the line.
pub(super) type LineKind = (Identifier, LineIdentity);

/// The distinguishing fields of a line.
pub(super) type LineIdentity = Vec<(&'static str, String)>;

/// The lines of a kind.
struct RepeatedLines {
    since: Instant,
    written: u64,
    left_out: u64,
    /// The latest suppressed line.
    latest: String,
}

/// The kinds of recent lines.
#[derive(Default)]
pub(super) struct Repeated(Mutex<HashMap<LineKind, RepeatedLines>>);

impl Repeated {
    /// Returns `true` if a line should be written.
    pub(super) fn admits(&self, kind: LineKind, message: &str, now: Instant) -> bool {
        let mut kinds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !kinds.contains_key(&kind) && kinds.len() >= KINDS {
            kinds.retain(|_, lines| lines.left_out > 0 || now.duration_since(lines.since) < EVERY);
            if kinds.len() >= KINDS {
                return true;
            }
        }
        let fresh = || RepeatedLines { since: now, written: 0, left_out: 0, latest: String::new() };
        let lines = kinds.entry(kind).or_insert_with(fresh);
        if lines.left_out == 0 && now.duration_since(lines.since) >= EVERY {
            *lines = fresh();
        }
        if lines.written < MOST {
            lines.written += 1;
            return true;
        }
        lines.left_out += 1;
        message.clone_into(&mut lines.latest);
        false
    }

    /// Returns the number of suppressed lines per kind, with its fields and the latest line: of the kinds that are due,
    /// or of all. Lines of these kinds are written again after this.
    pub(super) fn counts(&self, all: bool, now: Instant) -> Vec<(u64, LineIdentity, String)> {
        let mut kinds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due = |lines: &RepeatedLines| lines.left_out > 0 && (all || now.duration_since(lines.since) >= EVERY);
        let mut counts: Vec<(u64, LineIdentity, String)> = kinds
            .iter_mut()
            .filter(|(_, lines)| due(lines))
            .map(|((_, about), lines)| {
                // The next period begins, and the count is one of its lines.
                (lines.since, lines.written) = (now, MOST - 1);
                (std::mem::take(&mut lines.left_out), about.clone(), std::mem::take(&mut lines.latest))
            })
            .collect();
        counts.sort();
        counts
    }
}
