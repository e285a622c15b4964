//! Measures growth series.

use serde::Serialize;

use crate::bench::Bench;
use crate::growth::{Growth, Series, judge};
use crate::instructions;
use crate::plot::{self, Curve};
use crate::samples::{Samples, difference};

/// A measured series.
#[derive(Serialize)]
pub(crate) struct Grown {
    pub(crate) name: &'static str,
    x: &'static str,
    y: &'static str,
    points: Vec<Point>,
    noise_floor: f64,
    cost: Growth,
    /// The measure that the verdict on the cost is based on.
    by: &'static str,
    memory: Growth,
}

#[derive(Serialize)]
struct Point {
    x: u64,
    measured: Samples,
    control: Samples,
    instructions_per_record: Option<f64>,
}

/// Relative error of a count of instructions: see the spread in docs/performance.md.
const COUNT_NOISE: f64 = 0.012;
/// Relative error of a peak of memory.
const MEMORY_NOISE: f64 = 0.05;

/// Runs a series, with all points interleaved with each other and with a second run of each.
pub(crate) fn grow(bench: &Bench, series: &Series) -> anyhow::Result<Grown> {
    let point = |x: &u64| Point {
        x: *x,
        measured: Samples::default(),
        control: Samples::default(),
        instructions_per_record: None,
    };
    let mut points: Vec<Point> = series.points.iter().map(point).collect();
    for turn in 0..bench.repeat {
        for point in &mut points {
            let records = (series.records)(point.x, bench.records).max(1);
            let mut names = [&mut point.measured, &mut point.control];
            if turn % 2 == 1 {
                names.reverse();
            }
            for samples in names {
                samples.records = records;
                samples.runs.push((series.job)(point.x, records).run(&bench.binary)?);
            }
        }
    }
    if let (true, Some(lengths)) = (bench.counting, series.counted) {
        for point in &mut points {
            let count = instructions::per_record(&bench.binary, lengths, |records| (series.job)(point.x, records))?;
            point.instructions_per_record = Some(count);
        }
    }
    let noise_floor = points.iter().map(|p| difference(&p.measured, &p.control).abs()).fold(0.0, f64::max);
    let of = |y: &dyn Fn(&Point) -> f64| -> Vec<(f64, f64)> { points.iter().map(|p| (p.x as f64, y(p))).collect() };
    let counts: Option<Vec<(f64, f64)>> =
        points.iter().map(|p| Some((p.x as f64, p.instructions_per_record?))).collect();
    let (cost, by) = match &counts {
        Some(counts) => (judge(counts, COUNT_NOISE), "instructions"),
        None => (judge(&of(&Point::best), noise_floor), "CPU time"),
    };
    let memory = judge(&of(&|p| p.measured.peak()), MEMORY_NOISE);
    Ok(Grown { name: series.name, x: series.x, y: series.y, points, noise_floor, cost, by, memory })
}

impl Point {
    /// Returns the best cost of all repetitions in both series.
    fn best(&self) -> f64 {
        self.measured.best().min(self.control.best())
    }
}

impl Grown {
    /// Prints a table.
    pub(crate) fn print(&self) {
        println!("\n{} (cost {})", self.name, self.y);
        println!("{:>24} {:>10} {:>7} {:>12} {:>9}", self.x, "µs CPU", "A/A", "instructions", "peak MB");
        for p in &self.points {
            println!(
                "{:>24} {:10.3} {:6.1}% {:>12} {:9.1}",
                p.x,
                p.best(),
                difference(&p.measured, &p.control) * 100.0,
                p.instructions_per_record.map_or("–".into(), |count| format!("{count:.0}")),
                p.measured.peak()
            );
        }
        println!("  cost: {} (by {})\n  memory: {}", self.cost, self.by, self.memory);
    }

    /// Draws two curves.
    pub(crate) fn plot(&self) -> String {
        let points = |y: &dyn Fn(&Point) -> f64| self.points.iter().map(|p| (p.x as f64, y(p))).collect();
        let cost = format!("µs of CPU {}", self.y);
        plot::curves(&[
            Curve { title: &format!("{}: cost", self.name), x: self.x, y: &cost, points: points(&Point::best) },
            Curve {
                title: &format!("{}: peak memory", self.name),
                x: self.x,
                y: "MB",
                points: points(&|p| p.measured.peak()),
            },
        ])
    }
}
