//! Deterministic simulation of Anabranch: random pipelines, random failures, and the promises that hold all the same.
//!
//! A seed makes a [`scenario`]. [`pipeline`] has the compiler make a plan of it, [`run`] has the executor run it on a
//! paused clock with the [`ends`] and [`steps`] of the scenario, over crashes and restarts until the sources are
//! exhausted. The [`oracle`] says of every row what must become of it, and the [`world`] checks at every write, commit
//! and acknowledgement that no promise is broken. Those who look on (`watch`) come and go meanwhile:
//!
//! * no row is lost, and none is stored or acknowledged before all that became of it is durable;
//! * acknowledgements come in the order of reading, each once in a run;
//! * a destination is given the rows of a lane in order, each once in a run unless a call's outcome is unknown;
//! * no more rows of a lane than `replay_rows` are read and not stored, which bounds what a crash repeats;
//! * letters have the same name in every run;
//! * the counters add up;
//! * whatever can go on does: nothing stalls.

pub mod ends;
pub mod mutants;
pub mod oracle;
pub mod origins;
pub mod pipeline;
pub mod run;
pub mod scenario;
pub mod shrink;
pub mod steps;
pub mod transaction;
pub mod watch;
pub mod world;

/// Keeps the panics of simulated processors off the screen.
pub fn hush() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let simulated = panic.payload_as_str().is_some_and(|text| text.contains("simulated"));
        if !simulated {
            report(panic);
        }
    }));
}
