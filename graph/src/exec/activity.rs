//! Activity of a run, derived from its counters on request, without a timer.

use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use anabranch_record::text::Str;

use super::meter::Meter;
use super::progress::{PATIENCE, Progress, Role};
use super::tap::NodeRole;

/// Activity of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Connectors and processors are being opened.
    Opening,
    /// Rows are moving, or moved recently.
    Moving,
    /// There is no work: everything that was read is settled, and nothing was read for some time.
    Idle {
        /// Time of the last movement of rows, or of the opening.
        since: SystemTime,
    },
    /// Rows are in flight, and none has moved for longer than the node that holds them is expected to take.
    Stalled {
        /// Id of the connector or processor that holds them; [`STATE_STORE`] if positions cannot be stored.
        node: Str,
        /// Kind of the node; `None` for [`STATE_STORE`].
        role: Option<NodeRole>,
        /// Time of the last movement of rows.
        since: SystemTime,
    },
}

/// Node of [`Activity::Stalled`] if positions cannot be stored.
pub const STATE_STORE: Str = Str::from_static("state-store");

/// Time after the last movement when a run without rows in flight counts as idle.
const IDLE: Duration = Duration::from_secs(5);

impl Progress {
    /// Returns the activity of the run. O(nodes + lanes).
    pub fn activity(&self) -> Activity {
        let opened = self.opened_at();
        if opened == 0 {
            return Activity::Opening;
        }
        let meters = self.stages.iter().flat_map(|stage| &stage.steps).chain([&self.letters]);
        let moved = meters.map(Meter::moved).fold(opened, u64::max);
        let quiet = Duration::from_nanos(self.clock.now().saturating_sub(moved));
        let since = self.clock.wall(moved);
        let lanes = self.lanes();
        let unsettled = lanes.iter().any(|lane| lane.read > lane.settled);
        let unstored = lanes.iter().any(|lane| !lane.unstored.is_zero());
        let (node, role, patience) = match unsettled || unstored {
            true => match self.holder() {
                Some(holder) => holder,
                None => return Activity::Moving,
            },
            false if quiet >= IDLE => return Activity::Idle { since },
            false => return Activity::Moving,
        };
        if quiet >= patience { Activity::Stalled { node, role, since } } else { Activity::Moving }
    }

    /// Returns the node that holds the rows in flight, and the time that it is expected to take at most.
    fn holder(&self) -> Option<(Str, Option<NodeRole>, Duration)> {
        let of = |meter: &Meter| (meter.node.clone(), Some(meter.role), meter.patience);
        let holds = |meter: &&Meter| meter.count().held > 0;
        // Flushing, storing and acknowledging all stop while this hangs.
        let storing = self.storing.load(Ordering::Relaxed);
        if storing > 0
            && self.clock.now().saturating_sub(storing) >= u64::try_from(PATIENCE.as_nanos()).unwrap_or(u64::MAX)
        {
            let told = self.stages.iter().flat_map(|stage| &stage.steps).find(|step| step.is_acknowledging());
            return Some(told.map_or((STATE_STORE, None, PATIENCE), of));
        }
        if self.letters.count().held > 0 {
            return Some(of(&self.letters));
        }
        // A step holds only rows of a running call and does not wait for other nodes. The same holds for a destination,
        // unless it writes whole rows and waits for their other pieces.
        let of_role = |wanted: fn(Role) -> bool| {
            let stages = self.stages.iter().rev().filter(move |stage| wanted(stage.kind));
            stages.flat_map(|stage| stage.steps.iter().rev()).find(holds)
        };
        let held = of_role(|role| role == Role::Process)
            .or_else(|| of_role(|role| role == Role::Write { transactional: false }))
            .or_else(|| of_role(|role| matches!(role, Role::Write { .. })));
        if let Some(meter) = held {
            return Some(of(meter));
        }
        let queued = (0..self.stages.len()).rev().find(|stage| self.queue(*stage).rows > 0)?;
        self.stages[queued].steps.first().map(of)
    }
}
