//! Repetitions of a measurement, and the significance of differences.

use crate::job::Cost;

/// The repetitions of one workload with one binary.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub(crate) struct Samples {
    pub(crate) records: u64,
    pub(crate) runs: Vec<Cost>,
}

impl Samples {
    /// Returns the CPU time per record of the best repetition, in microseconds: disturbances only add to it.
    pub(crate) fn best(&self) -> f64 {
        self.micros().into_iter().fold(f64::MAX, f64::min)
    }

    /// Returns the CPU time per record of the median repetition, in microseconds.
    pub(crate) fn median(&self) -> f64 {
        let mut micros = self.micros();
        micros.sort_by(f64::total_cmp);
        micros.get(micros.len() / 2).copied().unwrap_or(f64::NAN)
    }

    fn micros(&self) -> Vec<f64> {
        self.runs.iter().map(|run| run.cpu_seconds * 1e6 / self.records as f64).collect()
    }

    /// Returns the records per second of real time of the fastest repetition.
    pub(crate) fn rate(&self) -> f64 {
        self.records as f64 / self.runs.iter().map(|run| run.wall_seconds).fold(f64::MAX, f64::min)
    }

    /// Returns the highest peak of resident memory, in MB.
    pub(crate) fn peak(&self) -> f64 {
        self.runs.iter().map(|run| run.peak_kib as f64 / 1024.0).fold(0.0, f64::max)
    }

    /// Returns the milliseconds from the start of the process to the first record at the destination, of the fastest
    /// repetition.
    pub(crate) fn first_record(&self) -> Option<f64> {
        self.runs.iter().filter_map(|run| run.first_record_seconds).map(|s| s * 1e3).min_by(f64::total_cmp)
    }
}

/// Returns the relative difference between the best repetitions.
pub(crate) fn difference(a: &Samples, b: &Samples) -> f64 {
    b.best() / a.best() - 1.0
}

/// Returns the meaning of a difference, given the noise floor.
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
