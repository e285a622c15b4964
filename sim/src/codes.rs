//! Codes of faults, including those of the simulated parts.

pub(crate) use anabranch_graph::codes::{
    DEAD_LETTER_FAILED, DEAD_LETTER_THRESHOLD, ENGINE_PANICKED, NOT_CONVERGING, UNMATCHED,
};
pub(crate) use anabranch_plugin::codes::{FENCED, MARKS_MOVED, OPERATOR_PANICKED, STORE_UNAVAILABLE, VERDICT_COUNT};
pub(crate) use anabranch_template::codes::CONDITION_NOT_BOOLEAN;

anabranch_record::codes! {
    /// A simulated part fails permanently.
    SIM_BROKEN: "sim_broken", "None: this is a simulation.";

    /// A simulated part fails temporarily.
    SIM_PASSING: "sim_passing", "None: this is a simulation.";
}
