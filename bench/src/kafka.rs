//! The benchmark's own Kafka broker, its CPU time, and the records in its files.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::ensure;
use tempfile::TempDir;

use crate::job::{Cost, Job, Line};
use crate::process::ticks_of;
use crate::workload::{Destination, LINES_TO_TOPIC, Workload, event_line};

/// The classes of the broker, where `.ci/setup` puts them.
const CLASSES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/kafka/lib");

/// A broker, which is stopped when it is dropped.
pub(crate) struct Broker {
    directory: TempDir,
    port: u16,
    process: Child,
    /// The topics that are filled, by the number of their records.
    filled: RefCell<BTreeMap<u64, String>>,
    /// The number of runs. Topics and groups of different runs have different names.
    runs: Cell<u32>,
}

impl Broker {
    /// Starts a broker; returns `None` if Java or the classes are missing.
    pub(crate) fn start() -> anyhow::Result<Option<Broker>> {
        let has_classes = fs::read_dir(CLASSES).is_ok_and(|mut files| files.next().is_some());
        let version = Command::new("java").arg("-version").stdin(Stdio::null()).output();
        if !has_classes || !version.is_ok_and(|output| output.status.success()) {
            return Ok(None);
        }
        let base = Path::new("/dev/shm");
        let directory = if base.is_dir() { tempfile::tempdir_in(base)? } else { tempfile::tempdir()? };
        let free = || anyhow::Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port());
        let (port, controller) = (free()?, free()?);
        let properties = format!(
            "process.roles=broker,controller\nnode.id=1\n\
             listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
             advertised.listeners=PLAINTEXT://127.0.0.1:{port}\ncontroller.listener.names=CONTROLLER\n\
             listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n\
             controller.quorum.bootstrap.servers=127.0.0.1:{controller}\nlog.dirs={}\n\
             offsets.topic.replication.factor=1\noffsets.topic.num.partitions=4\n\
             transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n\
             transaction.state.log.num.partitions=4\nshare.coordinator.state.topic.replication.factor=1\n\
             share.coordinator.state.topic.min.isr=1\ngroup.initial.rebalance.delay.ms=0\n\
             log.segment.delete.delay.ms=0\nlog.cleaner.dedupe.buffer.size=4194304\n\
             num.network.threads=2\nnum.io.threads=2\nauto.create.topics.enable=false\n",
            directory.path().join("data").display(),
        );
        fs::write(directory.path().join("server.properties"), properties)?;
        let made = java("128m", directory.path())
            .args(["kafka.tools.StorageTool", "format", "--standalone", "-t", "AnabranchTestCluster00"])
            .args(["-c", "server.properties"])
            .output()?;
        ensure!(made.status.success(), "StorageTool: {}", String::from_utf8_lossy(&made.stderr));
        let log = fs::File::create(directory.path().join("broker.log"))?;
        let process = java("512m", directory.path())
            .args(["kafka.Kafka", "server.properties"])
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let mut broker = Broker { directory, port, process, filled: RefCell::default(), runs: Cell::default() };
        let start = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            let is_alive = broker.process.try_wait()?.is_none() && start.elapsed() < Duration::from_secs(60);
            ensure!(is_alive, "the broker does not start: {}", broker.log());
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(Some(broker))
    }

    /// Runs a workload once, counts the records that arrived, and returns its cost and the CPU seconds of the broker.
    pub(crate) fn run(&self, workload: &Workload, binary: &Path, mut job: Job) -> anyhow::Result<(Cost, f64)> {
        if workload.reads_topic() {
            job.variables.push(("IN_TOPIC", self.filled(binary, job.records)?));
        }
        let (cost, seconds, topic) = self.run_job(binary, &mut job)?;
        if workload.destination == Destination::Topic {
            let arrived = self.records(&topic)?;
            ensure!(arrived == job.records, "{}: {arrived} of {} records arrived", job.name, job.records);
            self.delete(&topic)?;
        }
        Ok((cost, seconds))
    }

    /// Runs a job with names of its own. Returns its cost, the CPU seconds of the broker and the topic that it may write.
    fn run_job(&self, binary: &Path, job: &mut Job) -> anyhow::Result<(Cost, f64, String)> {
        let run = self.runs.replace(self.runs.get() + 1);
        let topic = format!("out-{run}");
        job.variables.extend([("KAFKA", self.address()), ("RUN", format!("run-{run}")), ("OUT_TOPIC", topic.clone())]);
        let before = self.cpu_seconds()?;
        let cost = job.run(binary)?;
        Ok((cost, self.cpu_seconds()? - before, topic))
    }

    /// Returns a topic with this many records.
    fn filled(&self, binary: &Path, records: u64) -> anyhow::Result<String> {
        if let Some(topic) = self.filled.borrow().get(&records) {
            return Ok(topic.clone());
        }
        let mut job = Job {
            name: "filling a topic".to_owned(),
            pipelines: vec![LINES_TO_TOPIC.to_owned()],
            input: Some((Box::new(event_line) as Line, records)),
            records,
            ..Job::default()
        };
        let (_, _, topic) = self.run_job(binary, &mut job)?;
        let arrived = self.records(&topic)?;
        ensure!(arrived == records, "{}: {arrived} of {records} records arrived", job.name);
        self.filled.borrow_mut().insert(records, topic.clone());
        Ok(topic)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("broker.log")).unwrap_or_default()
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Returns the number of records of a topic, with all records of transactions, from the files of the broker.
    pub(crate) fn records(&self, topic: &str) -> anyhow::Result<u64> {
        let mut records = 0;
        for directory in fs::read_dir(self.directory.path().join("data"))? {
            let directory = directory?.path();
            if partition_of(&directory).is_some_and(|of| of == topic) {
                for file in fs::read_dir(directory)? {
                    let file = file?.path();
                    if file.extension().is_some_and(|extension| extension == "log") {
                        records += records_of(&fs::read(file)?);
                    }
                }
            }
        }
        Ok(records)
    }

    /// Deletes a topic, and its files.
    pub(crate) fn delete(&self, topic: &str) -> anyhow::Result<()> {
        // DeleteTopics, version 1, with the header of version 1: correlation id and client id, then the names and a time
        // limit in milliseconds.
        let mut request = Vec::new();
        request.extend([20_i16, 1].map(i16::to_be_bytes).concat());
        request.extend(1_i32.to_be_bytes());
        request.extend((-1_i16).to_be_bytes());
        request.extend(1_i32.to_be_bytes());
        request.extend(i16::try_from(topic.len())?.to_be_bytes());
        request.extend(topic.as_bytes());
        request.extend(30_000_i32.to_be_bytes());
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        stream.write_all(&[&u32::try_from(request.len())?.to_be_bytes(), &request[..]].concat())?;
        let mut size = [0; 4];
        stream.read_exact(&mut size)?;
        let mut answer = vec![0; usize::try_from(u32::from_be_bytes(size))?];
        stream.read_exact(&mut answer)?;
        let code = answer.last_chunk().map(|code| i16::from_be_bytes(*code));
        ensure!(code == Some(0), "the broker does not delete the topic {topic}: error {code:?}");
        Ok(())
    }

    /// Returns the CPU time of the broker.
    pub(crate) fn cpu_seconds(&self) -> anyhow::Result<f64> {
        Ok(ticks_of(self.process.id(), 2)? as f64 / 100.0)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn java(memory: &str, directory: &Path) -> Command {
    let mut command = Command::new("java");
    command
        .arg(format!("-Xmx{memory}"))
        .args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Dlog4j2.configurationFile="])
        .arg("-cp")
        .arg(PathBuf::from(CLASSES).join("*"))
        .current_dir(directory)
        .stdin(Stdio::null());
    command
}

/// Returns the topic of the directory of a partition.
fn partition_of(directory: &Path) -> Option<&str> {
    let (topic, number) = directory.file_name()?.to_str()?.rsplit_once('-')?;
    number.bytes().all(|byte| byte.is_ascii_digit()).then_some(topic)
}

/// Counts the records in a file of batches of version 2, without the markers of transactions.
fn records_of(mut bytes: &[u8]) -> u64 {
    let mut records = 0;
    while let Some((header, _)) = bytes.split_first_chunk::<61>() {
        let number = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let Some(rest) = bytes.get(12 + number(8) as usize..) else { break };
        bytes = rest;
        let is_control = header[22] & 0x20 != 0;
        if !is_control {
            records += u64::from(number(57));
        }
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_counted_and_markers_are_not() {
        let batch = |attributes: u8, records: u32, more: usize| {
            let mut bytes = vec![0; 61 + more];
            bytes[8..12].copy_from_slice(&(49 + u32::try_from(more).unwrap()).to_be_bytes());
            bytes[22] = attributes;
            bytes[57..61].copy_from_slice(&records.to_be_bytes());
            bytes
        };
        let file = [batch(0x12, 7, 30), batch(0x30, 1, 5), batch(0, 300, 0)].concat();
        assert_eq!(records_of(&file), 307);
        // The first batch is being written.
        assert_eq!(records_of(&file[..80]), 0);
    }

    #[test]
    fn a_broker_starts_and_ends() {
        let Some(broker) = Broker::start().unwrap() else {
            assert!(std::env::var_os("ANABRANCH_TEST_REQUIRE").is_none(), "Java or the classes of Kafka are missing");
            eprintln!("skipped: Java or the classes of Kafka are missing");
            return;
        };
        let process = broker.process.id();
        assert!(broker.cpu_seconds().unwrap() > 0.0);
        assert_eq!(broker.records("missing").unwrap(), 0);
        assert!(broker.delete("missing").unwrap_err().to_string().contains("error Some(3)"));
        drop(broker);
        assert!(ticks_of(process, 2).is_err(), "the broker has ended");
    }
}
