//! Codes of faults, those that the simulated parts raise included.

pub(crate) use anabranch_graph::codes::{DEAD_LETTER_FAILED, DEAD_LETTER_THRESHOLD, ENGINE_PANICKED, NOT_CONVERGING};
pub(crate) use anabranch_plugin::codes::{FENCED, MARKS_MOVED, OPERATOR_PANICKED, STORE_UNAVAILABLE, VERDICT_COUNT};
pub(crate) use anabranch_template::codes::CONDITION_NOT_BOOLEAN;

anabranch_record::codes! {
    /// A simulated part stops for ever.
    SIM_BROKEN: "sim_broken", "None: this is a simulation.";

    /// A simulated part fails for a moment.
    SIM_PASSING: "sim_passing", "None: this is a simulation.";
}
