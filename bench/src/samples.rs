//! Repetitions, and which differences between them mean anything.

use crate::job::Cost;

/// The repetitions of one workload with one binary.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub(crate) struct Samples {
    pub(crate) records: u64,
    pub(crate) runs: Vec<Cost>,
}

impl Samples {
    /// Microseconds of CPU per record: of the best repetition, since what disturbs a run only adds to it.
    pub(crate) fn best(&self) -> f64 {
        self.micros().into_iter().fold(f64::MAX, f64::min)
    }

    /// The same of the median repetition.
    pub(crate) fn median(&self) -> f64 {
        let mut micros = self.micros();
        micros.sort_by(f64::total_cmp);
        micros.get(micros.len() / 2).copied().unwrap_or(f64::NAN)
    }

    fn micros(&self) -> Vec<f64> {
        self.runs.iter().map(|run| run.cpu_seconds * 1e6 / self.records as f64).collect()
    }

    /// Records per second of wall time, of the fastest repetition.
    pub(crate) fn rate(&self) -> f64 {
        self.records as f64 / self.runs.iter().map(|run| run.wall_seconds).fold(f64::MAX, f64::min)
    }

    /// The highest peak of resident memory, in MB.
    pub(crate) fn peak(&self) -> f64 {
        self.runs.iter().map(|run| run.peak_kib as f64 / 1024.0).fold(0.0, f64::max)
    }

    /// Milliseconds from the start of the process to the first record at the destination, of the fastest repetition.
    pub(crate) fn first_record(&self) -> Option<f64> {
        self.runs.iter().filter_map(|run| run.first_record_seconds).map(|s| s * 1e3).min_by(f64::total_cmp)
    }
}

/// How far the best repetitions are apart, as a share of the first.
pub(crate) fn difference(a: &Samples, b: &Samples) -> f64 {
    b.best() / a.best() - 1.0
}

/// What a difference amounts to, given that of the same binary from itself.
pub(crate) fn verdict(difference: f64, floor: f64) -> &'static str {
    if difference.abs() <= floor {
        "no change shown"
    } else if difference < 0.0 {
        "cheaper"
    } else {
        "dearer"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_within_the_noise_is_no_change() {
        assert_eq!(verdict(0.04, 0.05), "no change shown");
        assert_eq!(verdict(-0.04, 0.05), "no change shown");
        assert_eq!(verdict(-0.06, 0.05), "cheaper");
        assert_eq!(verdict(0.06, 0.05), "dearer");
    }
}
