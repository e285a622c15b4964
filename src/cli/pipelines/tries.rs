//! Trials with synthetic records, as commands that check pipelines run them.

use std::time::Duration;

use anabranch_trial::synthetic::TrialLimits;

use crate::cli::report::counted;

/// Flags about trials with synthetic records.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct TryFlags {
    /// Do not run the pipelines with synthetic records.
    #[arg(long, conflicts_with = "try_all")]
    no_try: bool,
    /// Run every pipeline with synthetic records. Default: as many as 10 s allow.
    #[arg(long = "try")]
    try_all: bool,
}

impl TryFlags {
    /// Returns how long the trials may take; `None` without trials.
    pub(super) fn limits(self) -> Option<TrialLimits> {
        let limits = TrialLimits::default();
        match self {
            TryFlags { no_try: true, .. } => None,
            TryFlags { try_all: true, .. } => Some(TrialLimits { all: Duration::MAX, ..limits }),
            TryFlags { .. } => Some(limits),
        }
    }
}

/// Returns a line about pipelines for which there was no time; empty if there are none.
pub(super) fn untried_line(untried: usize) -> String {
    match untried {
        0 => String::new(),
        _ => {
            let verb = if untried == 1 { "was" } else { "were" };
            let limit = TrialLimits::default().all.as_secs();
            let pipelines = counted(untried, "pipeline");
            format!("{pipelines} {verb} not tried with synthetic records within {limit} s: --try tries all\n")
        }
    }
}
