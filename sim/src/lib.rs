//! Deterministic simulation of Anabranch: random pipelines, random failures, and the guarantees that must hold in spite
//! of them.
//!
//! A [`scenario`] is generated from a seed. [`pipeline`] compiles it to a plan. [`run`] runs the plan with the executor
//! on a paused clock, with the [`ends`] and [`processors`] of the scenario, through crashes and restarts until the
//! sources are exhausted. The [`oracle`] computes the required outcome of every row, and the [`world`] checks at every
//! write, commit and acknowledgement that no guarantee is broken. Inspections ([`inspect`]) start and end meanwhile.
//! The guarantees:
//!
//! * no row is lost, and no row is stored as settled or acknowledged before all its results are durable;
//! * acknowledgements come in the order of reading, each once in a run;
//! * a destination receives the rows of a lane in order, each once in a run unless the outcome of a call is unknown;
//! * no more rows of a lane than `replay_rows` are read and not stored, which limits what a crash repeats;
//! * dead letters have the same name in every run;
//! * the counters add up;
//! * everything that can make progress does: nothing stalls.
//!
//! ```
//! use std::sync::Arc;
//!
//! use anabranch_sim::run::simulate;
//! use anabranch_sim::scenario::Scenario;
//!
//! anabranch_sim::hush();
//! let scenario = Arc::new(Scenario::generate(7));
//! assert!(simulate(&scenario, false).is_ok(), "a guarantee is broken:\n{scenario}");
//! ```

pub mod capture;
pub mod cluster;
mod codes;
pub mod coordinator;
pub mod ends;
pub mod inspect;
pub mod mutants;
pub mod oracle;
pub mod origins;
pub mod pipeline;
mod plain;
pub mod processors;
pub mod record;
pub mod run;
pub mod scenario;
pub mod shrink;
pub mod source;
pub mod transaction;
pub mod world;

/// Suppresses the output of simulated panics.
pub fn hush() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let simulated = panic.payload_as_str().is_some_and(|text| text.contains("simulated"));
        if !simulated {
            report(panic);
        }
    }));
}
