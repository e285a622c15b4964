//! Runs the workloads, interleaved with a second run of the same binary and, if requested, with another binary.

use std::path::Path;

use anyhow::{Context as _, ensure};
use serde::Serialize;

use crate::bench::Bench;
use crate::instructions;
use crate::job::{Cost, Job, Line};
use crate::kafka::Broker;
use crate::plot;
use crate::postgres::Server;
use crate::samples::{Samples, difference, verdict};
use crate::webhook;
use crate::workload::{Destination, Workload};

/// The costs of all workloads.
#[derive(Serialize)]
pub(crate) struct Comparison {
    /// The largest difference between the two series of the same binary, as a share.
    noise_floor: f64,
    /// The same for instructions per record, if they were counted.
    instruction_noise_floor: Option<f64>,
    workloads: Vec<Measured>,
}

#[derive(Serialize)]
struct Measured {
    name: &'static str,
    what: &'static str,
    measured: Samples,
    /// The second series of the same binary.
    control: Samples,
    against: Option<Samples>,
    instructions_per_record: Option<f64>,
    instructions_control: Option<f64>,
    instructions_against: Option<f64>,
    server: Option<ServerCost>,
}

/// CPU time per record of the server that a workload uses, in microseconds.
#[derive(Serialize)]
struct ServerCost {
    /// The best repetition.
    micros: f64,
    /// The same for plain upserts, if the server is a database.
    plain_upserts: Option<f64>,
}

/// Servers for the workloads, started on demand.
#[derive(Default)]
struct Ends {
    http: Option<u16>,
    postgres: Option<Server>,
    kafka: Option<Broker>,
}

/// Runs the workloads.
pub(crate) fn run(bench: &Bench, workloads: &[&Workload]) -> anyhow::Result<Comparison> {
    let mut ends = Ends::default();
    if workloads.iter().any(|w| w.needs_http()) {
        ends.http = Some(webhook::serve()?);
    }
    let mut workloads = workloads.to_vec();
    if workloads.iter().any(|w| w.needs_postgres()) {
        ends.postgres = Server::start()?;
        if ends.postgres.is_none() {
            eprintln!("PostgreSQL is not installed: what uses it is left out");
            workloads.retain(|w| !w.needs_postgres());
        }
    }
    if workloads.iter().any(|w| w.needs_kafka()) {
        ends.kafka = Broker::start()?;
        if ends.kafka.is_none() {
            eprintln!("Java or the classes of Kafka are missing (.ci/setup): what uses Kafka is left out");
            workloads.retain(|w| !w.needs_kafka());
        }
    }
    let mut measured: Vec<Measured> = workloads.iter().map(|w| Measured::new(w)).collect();
    for turn in 0..bench.repeat {
        for (workload, result) in workloads.iter().zip(&mut measured) {
            let records = bench.records / workload.fewer / workload.copies * workload.copies;
            let once = |binary: &Path, samples: &mut Samples, server: &mut Option<ServerCost>| {
                samples.records = records;
                samples.runs.push(run_once(workload, binary, records, &ends, server)?);
                anyhow::Ok(())
            };
            let Measured { measured, control, against, server, .. } = result;
            // The order alternates between turns.
            let mut names = [measured, control];
            if turn % 2 == 1 {
                names.reverse();
            }
            for samples in names {
                once(&bench.binary, samples, server)?;
            }
            if let Some(other) = &bench.against {
                once(other, against.get_or_insert_default(), &mut None)?;
            }
        }
    }
    for (workload, result) in workloads.iter().zip(&mut measured) {
        if let (Some(postgres), Some(server)) = (&ends.postgres, &mut result.server)
            && workload.destination == Destination::Table("bench")
        {
            let seconds = postgres.plain_upserts(result.measured.records)?;
            server.plain_upserts = Some(seconds * 1e6 / result.measured.records as f64);
        }
        // If the process waits for another one, the count is not stable, and the table would have to be cleared in
        // between. The processes of scripts end without a count.
        let is_alone = !workload.needs_http()
            && !workload.needs_kafka()
            && !workload.needs_postgres()
            && workload.needs != Some("custom.javascript");
        if bench.counting && is_alone {
            let count = |binary: &Path| {
                let lengths = [2000, 12_000].map(|n| n / workload.copies * workload.copies);
                instructions::per_record(binary, lengths, |records| job(workload, records, &ends))
            };
            result.instructions_per_record = Some(count(&bench.binary)?);
            result.instructions_control = Some(count(&bench.binary)?);
            result.instructions_against = bench.against.as_deref().map(count).transpose()?;
        }
    }
    let noise_floor = measured.iter().map(|m| difference(&m.measured, &m.control).abs()).fold(0.0, f64::max);
    let counts = measured.iter().filter_map(|m| Some((m.instructions_per_record?, m.instructions_control?)));
    let instruction_noise_floor = counts.map(|(a, b)| (b / a - 1.0).abs()).max_by(f64::total_cmp);
    Ok(Comparison { noise_floor, instruction_noise_floor, workloads: measured })
}

fn job(workload: &Workload, records: u64, ends: &Ends) -> Job {
    let read = records / workload.copies;
    let outputs = match workload.destination {
        Destination::File => vec![("out.ndjson".to_owned(), records)],
        Destination::Log => vec![("log.txt".to_owned(), records)],
        Destination::Table(_) | Destination::Topic => Vec::new(),
        Destination::Nowhere => vec![("summary.txt".to_owned(), 1)],
    };
    let mut variables = Vec::new();
    variables.extend(ends.http.map(|port| ("STUB_PORT", port.to_string())));
    for name in ["PG_URL", "PG_SOURCE"] {
        variables.extend(ends.postgres.as_ref().map(|server| (name, server.url())));
    }
    Job {
        name: workload.name.to_owned(),
        pipelines: vec![workload.pipeline.to_owned()],
        input: workload.input.map(|line| (Box::new(line) as Line, read)),
        records: read,
        outputs,
        to_log: matches!(workload.destination, Destination::Log | Destination::Nowhere),
        delivered: (workload.destination == Destination::Nowhere).then_some(records),
        variables,
    }
}

fn run_once(
    workload: &Workload,
    binary: &Path,
    records: u64,
    ends: &Ends,
    spent: &mut Option<ServerCost>,
) -> anyhow::Result<Cost> {
    let job = job(workload, records, ends);
    if workload.needs_kafka() {
        let (cost, seconds) = ends.kafka.as_ref().context("no broker")?.run(workload, binary, job)?;
        note(spent, seconds * 1e6 / records as f64);
        return Ok(cost);
    }
    if !workload.needs_postgres() {
        return job.run(binary);
    }
    let server = ends.postgres.as_ref().context("no PostgreSQL server")?;
    match workload.reads_table() {
        Some(how) => server.fill(records, how)?,
        None => server.clear()?,
    }
    let before = server.cpu_seconds()?;
    let cost = job.run(binary)?;
    note(spent, (server.cpu_seconds()? - before) * 1e6 / records as f64);
    if let Destination::Table(table) = workload.destination {
        let arrived = server.rows(table)?;
        ensure!(arrived == records, "{}: {arrived} of {records} rows arrived", workload.name);
    }
    Ok(cost)
}

/// Notes the CPU time of a server in one repetition.
fn note(spent: &mut Option<ServerCost>, micros: f64) {
    let least = spent.as_ref().map_or(micros, |best| best.micros.min(micros));
    *spent = Some(ServerCost { micros: least, plain_upserts: None });
}

impl Measured {
    fn new(workload: &Workload) -> Self {
        Measured {
            name: workload.name,
            what: workload.what,
            measured: Samples::default(),
            control: Samples::default(),
            against: None,
            instructions_per_record: None,
            instructions_control: None,
            instructions_against: None,
            server: None,
        }
    }
}

impl Comparison {
    /// Prints a table.
    pub(crate) fn print(&self) {
        if self.workloads.is_empty() {
            return;
        }
        println!(
            "{:7} {:41} {:>8} {:>8} {:>7} {:>11} {:>12} {:>8} {:>9}",
            "", "", "µs CPU", "median", "A/A", "records/s", "instructions", "peak MB", "first ms"
        );
        for m in &self.workloads {
            let some = |value: Option<f64>, digits: usize| value.map_or("–".into(), |v| format!("{v:.digits$}"));
            println!(
                "{:7} {:41} {:8.3} {:8.3} {:>6.1}% {:11.0} {:>12} {:8.1} {:>9}",
                m.name,
                m.what,
                m.measured.best(),
                m.measured.median(),
                difference(&m.measured, &m.control) * 100.0,
                m.measured.rate(),
                some(m.instructions_per_record, 0),
                m.measured.peak(),
                some(m.measured.first_record(), 1),
            );
            match &m.server {
                Some(ServerCost { micros, plain_upserts: Some(plain) }) => println!(
                    "{:7} PostgreSQL itself {micros:.2} µs CPU per row, of plain multi-row upserts {plain:.2}",
                    ""
                ),
                Some(ServerCost { micros, plain_upserts: None }) => {
                    println!("{:7} the server itself {micros:.2} µs CPU per record", "");
                }
                None => {}
            }
        }
        print!("\nNoise floor (the same binary measured as two): {:.1} % of CPU time", self.noise_floor * 100.0);
        if let Some(floor) = self.instruction_noise_floor {
            print!(", {:.2} % of instructions", floor * 100.0);
        }
        println!();
        for m in &self.workloads {
            let Some(against) = &m.against else { continue };
            let cpu = difference(against, &m.measured);
            print!("{:7} {:+.1} % CPU: {}", m.name, cpu * 100.0, verdict(cpu, self.noise_floor));
            let counts = (m.instructions_against, m.instructions_per_record, self.instruction_noise_floor);
            if let (Some(a), Some(b), Some(floor)) = counts {
                let more = b / a - 1.0;
                print!("; {:+.2} % instructions: {}", more * 100.0, verdict(more, floor));
            }
            println!();
        }
    }

    /// Draws bars, if anything was measured.
    pub(crate) fn plot(&self) -> Option<String> {
        let row = |m: &Measured| (m.name.to_owned(), m.measured.best(), m.what.to_owned());
        let rows: Vec<_> = self.workloads.iter().map(row).collect();
        (!rows.is_empty()).then(|| plot::bars("CPU time per record, µs", &rows))
    }
}
