//! Growth series: cost as the number of something grows.

use crate::job::Job;

/// Cost as a function of one number.
pub(crate) struct Series {
    pub(crate) name: &'static str,
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    pub(crate) points: Vec<u64>,
    /// Number of records at a point, so that runs take about the same time at every point. `scale` is the requested
    /// number.
    pub(crate) records: fn(point: u64, scale: u64) -> u64,
    pub(crate) job: fn(point: u64, records: u64) -> Job,
    /// Lengths of the runs whose instructions are counted. If given, the counts decide, because they do not depend on
    /// the load of the machine.
    pub(crate) counted: Option<[u64; 2]>,
}

/// Returns all series.
pub(crate) fn series() -> Vec<Series> {
    let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get) as u64;
    let mut workers: Vec<u64> =
        std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|n| *n < cores * 2).collect();
    workers.push(cores * 2);
    vec![
        Series {
            name: "chain",
            x: "operators in a chain",
            y: "per record",
            points: vec![1, 3, 10, 30, 100],
            records: |operators, scale| scale * 4 / (operators + 4),
            job: chain,
            counted: Some([500, 2500]),
        },
        Series {
            name: "pipelines",
            x: "pipelines",
            y: "of all pipelines, per record of each",
            points: vec![1, 3, 10, 30, 100, 200],
            records: |_, scale| scale / 100,
            job: pipelines,
            counted: None,
        },
        Series {
            name: "record-size",
            x: "bytes of a record",
            y: "per record",
            points: vec![100, 1_000, 10_000, 100_000, 1_000_000],
            records: |bytes, scale| (scale * 200 / (bytes + 100)).max(32),
            job: record_size,
            counted: Some([16, 80]),
        },
        Series {
            name: "destinations",
            x: "destinations",
            y: "per record read",
            points: vec![1, 2, 4, 8],
            records: |destinations, scale| scale / destinations,
            job: destinations,
            counted: Some([1000, 5000]),
        },
        Series {
            name: "workers",
            x: "workers of a processor",
            y: "per record",
            points: workers,
            records: |_, scale| scale,
            job: workers_of_one,
            counted: None,
        },
    ]
}

const HEAD: &str = "version: \"2.2\"\npipelines:\n";

const GENERATOR: &str = "      - id: src
        type: source
        plugin: generator
        settings:
          format.type: structured
          format.options.id: int
          format.options.name: string
          format.options.active: bool
          format.options.score: int
          format.options.city: string
          operations: create
          seed: 1
          recordCount: \"${N}\"
";

fn head(id: &str) -> String {
    format!("{HEAD}  - id: {id}\n    status: running\n    connectors:\n")
}

fn file(id: &str, path: &str) -> String {
    format!(
        "      - id: {id}\n        type: destination\n        plugin: file\n        settings:\n          path: {path}\n"
    )
}

fn set(id: u64, more: &str) -> String {
    format!(
        "      - id: p{id}\n        plugin: field.set\n{more}        settings:\n          field: .Metadata[\"k\"]\n          \
         value: v{id}\n"
    )
}

fn job(name: String, records: u64, pipelines: Vec<String>, outputs: Vec<(String, u64)>) -> Job {
    Job { name, pipelines, records, outputs, ..Job::default() }
}

fn one(name: String, records: u64, pipeline: String) -> Job {
    job(name, records, vec![pipeline], vec![("out.ndjson".into(), records)])
}

fn chain(operators: u64, records: u64) -> Job {
    let steps: String = (0..operators).map(|i| set(i, "")).collect();
    let pipeline = format!("{}{GENERATOR}{}    processors:\n{steps}", head("chain"), file("dst", "${OUT}"));
    one(format!("chain of {operators}"), records, pipeline)
}

fn pipelines(count: u64, records: u64) -> Job {
    let output = |i: u64| format!("out{i}.ndjson");
    let pipelines = (0..count).map(|i| format!("{}{GENERATOR}{}", head(&format!("p{i}")), file("dst", &output(i))));
    let outputs = (0..count).map(|i| (output(i), records)).collect();
    job(format!("{count} pipelines"), records, pipelines.collect(), outputs)
}

fn record_size(bytes: u64, records: u64) -> Job {
    let source =
        "      - id: src\n        type: source\n        plugin: file\n        settings:\n          path: ${IN}\n";
    let line = move |i: u64| format!("{i:012} {}", "x".repeat(bytes.saturating_sub(13) as usize));
    let pipeline = format!("{}{source}{}", head("size"), file("dst", "${OUT}"));
    Job { input: Some((Box::new(line), records)), ..one(format!("records of {bytes} bytes"), records, pipeline) }
}

fn destinations(count: u64, records: u64) -> Job {
    let output = |i: u64| format!("out{i}.ndjson");
    let ends: String = (0..count).map(|i| file(&format!("dst{i}"), &output(i))).collect();
    let outputs = (0..count).map(|i| (output(i), records)).collect();
    job(format!("{count} destinations"), records, vec![format!("{}{GENERATOR}{ends}", head("fan"))], outputs)
}

fn workers_of_one(workers: u64, records: u64) -> Job {
    let step = set(0, &format!("        workers: {workers}\n"));
    let pipeline = format!("{}{GENERATOR}{}    processors:\n{step}", head("workers"), file("dst", "${OUT}"));
    one(format!("{workers} workers"), records, pipeline)
}

/// The growth of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Growth {
    /// Each additional unit costs at most as much as the units before it.
    LinearOrBetter,
    /// The cost of a unit grows with their number.
    WorseThanLinear,
    /// The noise allows both.
    Undecided,
}

impl std::fmt::Display for Growth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Growth::LinearOrBetter => "linear or better",
            Growth::WorseThanLinear => "WORSE THAN LINEAR",
            Growth::Undecided => "undecided: the noise is larger than the difference",
        })
    }
}

/// A unit may cost this many times as much as the units before it and still count as costing the same.
const SLACK: f64 = 1.15;

/// Compares the cost of a unit between the last two points with that between the two points before. For costs of the
/// form `a + b·x`, both are `b`, for any `a`; x·log x gives 1.3 with steps of factor three. `noise` is the relative
/// error of a cost.
pub(crate) fn judge(points: &[(f64, f64)], noise: f64) -> Growth {
    let [.., a, b, c] = points else { return Growth::Undecided };
    let slope = |p: &(f64, f64), q: &(f64, f64)| {
        let error = noise * (p.1.abs() + q.1.abs());
        let (step, rise) = (q.0 - p.0, q.1 - p.1);
        ((rise - error) / step, (rise + error) / step)
    };
    let (before_low, before_high) = slope(a, b);
    let (last_low, last_high) = slope(b, c);
    if last_low > SLACK * before_high.max(0.0) {
        Growth::WorseThanLinear
    } else if last_high <= SLACK * before_low || last_high <= 0.0 || c.1 / c.0 < 0.5 * b.1 / b.0 {
        Growth::LinearOrBetter
    } else if (last_low + last_high) / 2.0 <= SLACK * (before_low + before_high) / 2.0 {
        // The measured values show it, and the noise does not contradict them.
        Growth::LinearOrBetter
    } else {
        Growth::Undecided
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(cost: impl Fn(f64) -> f64, noise: f64) -> Growth {
        let points: Vec<_> = [1.0, 3.0, 10.0, 30.0, 100.0].iter().map(|x| (*x, cost(*x))).collect();
        judge(&points, noise)
    }

    #[test]
    fn growth_is_told_from_the_cost_of_a_unit_more() {
        assert_eq!(of(|x| 50.0 + 2.0 * x, 0.005), Growth::LinearOrBetter);
        assert_eq!(of(|_| 50.0, 0.01), Growth::LinearOrBetter);
        assert_eq!(of(|x| 10.0 + x.sqrt(), 0.01), Growth::LinearOrBetter);
        assert_eq!(of(|x| x * x, 0.05), Growth::WorseThanLinear);
        assert_eq!(of(|x| 500.0 + x * x, 0.01), Growth::WorseThanLinear);
        assert_eq!(of(|x| x * (1.0 + x.ln()), 0.002), Growth::WorseThanLinear);
        assert_eq!(of(|x| x * (1.0 + x.ln()), 0.2), Growth::Undecided);
        assert_eq!(judge(&[(1.0, 1.0), (2.0, 2.0)], 0.01), Growth::Undecided);
    }

    #[test]
    fn every_run_counts_its_records() {
        for series in series() {
            for point in series.points {
                let job = (series.job)(point, 7);
                assert!(!job.outputs.is_empty() && job.outputs.iter().all(|(_, lines)| *lines == 7), "{}", job.name);
                assert!((series.records)(point, 1000) > 0);
            }
        }
    }
}
