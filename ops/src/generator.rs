//! The `generator` source: records with random data.

mod field;
mod pace;
mod settings;
mod vocabulary;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use bytes::Bytes;
use fastrand::Rng;
use tokio::io::AsyncReadExt as _;
use tokio::time::{Instant, sleep_until};

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{Fields, Keys, Operations, RecordShape, Shape, Uses};
use anabranch_plugin::host::Host;
use anabranch_plugin::kind;
use anabranch_plugin::source::{Backlog, OpenedSource, Read, Reader, Room, Source, SourceKind, Split};
use anabranch_record::fault::Fault;
use anabranch_record::json::write_data;
use anabranch_record::mark::{Mark, Partition};
use anabranch_record::metadata::{Metadata, key};
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Timestamp, Value};
use anabranch_record::{Change, Data, Operation, Position, Record};

use crate::arena::Arena;
use crate::codes;
use crate::unacknowledged::Unacknowledged;
use field::{Field, pick};
use pace::{Due, Pace};
use settings::{Format, Options, Settings};

/// Maximum number of records per read, so that the reader does not occupy its thread for long.
const LONGEST_READ: usize = 1024;

/// Returns the `generator` source for the registry.
pub fn kind() -> Arc<dyn SourceKind> {
    kind::source(settings::specification(), |options: Options| configure(&options))
}

fn configure(options: &Options) -> Result<Arc<dyn Source>, Diagnostics> {
    Ok(Arc::new(ConfiguredGenerator { settings: Settings::new(options)? }))
}

struct ConfiguredGenerator {
    settings: Settings,
}

#[async_trait]
impl Source for ConfiguredGenerator {
    fn catches_up(&self) -> bool {
        self.settings.count.is_some()
    }

    fn rereads(&self) -> bool {
        true
    }

    fn is_partitioned(&self) -> bool {
        self.settings.partitions > 1
    }

    fn split(&self) -> Split {
        if self.is_partitioned() { Split::Static("partitions") } else { Split::Whole }
    }

    fn check(&self, position: &Position) -> Option<Result<(), Fault>> {
        Some(number_of(position).map(drop))
    }

    fn shape(&self) -> RecordShape {
        let shapes = self.settings.collections.iter().flat_map(|collection| {
            let data = match &collection.format {
                Format::Structured(fields) => Shape::structured(Fields::closed(fields.iter().map(Field::shape))),
                Format::Raw(_) | Format::File(_) => Shape::RAW,
            };
            collection.operations.iter().map(move |operation| RecordShape {
                operations: Operations::only(*operation),
                metadata: Keys::of(
                    [key::CREATED_AT].into_iter().chain(collection.name.as_ref().map(|_| key::COLLECTION)),
                ),
                key: Shape::PLAIN,
                before: if has_before(*operation) { data.clone() } else { Shape::ABSENT },
                after: if has_after(*operation) { data.clone() } else { Shape::ABSENT },
                pieces: None,
                uses: Uses::default(),
            })
        });
        shapes.reduce(|a, b| a.join(&b)).unwrap_or_else(RecordShape::unknown)
    }

    async fn open(&self, resume: &BTreeMap<Partition, Mark>, host: &Host) -> Result<OpenedSource, Fault> {
        if self.settings.read_time {
            tracing::warn!(
                pipeline = %host.pipeline,
                connector = %host.node,
                "readTime is deprecated, use rate: {}",
                self.settings.rate
            );
        }
        let mut lanes = Vec::new();
        for first in 1..=self.settings.partitions {
            let partition = match self.is_partitioned() {
                true => Partition(itoa::Buffer::new().format(first - 1).into()),
                false => Partition::ONLY,
            };
            if !host.slots.has(&partition) {
                continue;
            }
            let next = match resume.get(&partition) {
                Some(mark) => number_of(&mark.position)?.saturating_add(self.settings.partitions),
                None => first,
            };
            lanes.push(Lane { partition, next });
        }
        // The rate is that of all partitions together.
        let share = lanes.len() as f64 / self.settings.partitions as f64;
        let mut collections = Vec::with_capacity(self.settings.collections.len());
        for settings in &self.settings.collections {
            let content = match &settings.format {
                Format::Structured(fields) => Content::Structured(fields.clone()),
                Format::Raw(fields) => Content::Raw(fields.clone()),
                Format::File(path) => Content::File(whole_file(path).await?),
            };
            collections.push(Collection {
                name: settings.name.clone(),
                operations: settings.operations.clone(),
                content,
                metadata: Metadata::new(),
            });
        }
        let reader = Generating {
            weight: collections.iter().map(Collection::longest).max().unwrap_or(1),
            collections,
            pace: Pace::new(self.settings.rate * share, self.settings.burst, Instant::now()),
            seed: self.settings.seed.unwrap_or_else(|| fastrand::u64(..)),
            lanes,
            turn: 0,
            step: self.settings.partitions,
            count: self.settings.count,
            caught_up: false,
            arena: Arena::default(),
            text: Vec::new(),
        };
        Ok(OpenedSource::new(Box::new(reader), Box::new(Unacknowledged)))
    }
}

/// Decodes the record number in a generator position.
fn number_of(position: &Position) -> Result<u64, Fault> {
    std::str::from_utf8(&position.0).ok().and_then(|text| text.parse().ok()).ok_or_else(|| {
        Fault::fatal(
            codes::POSITION_UNKNOWN,
            "the position is not that of a generator; run `anabranch positions reset` to start from the beginning",
        )
    })
}

/// Maximum size in bytes of a payload file.
const MOST_BYTES: u64 = 64 << 20;

async fn whole_file(path: &Path) -> Result<Bytes, Fault> {
    let refused = |why: String| Fault::fatal(codes::FILE_UNREADABLE, format!("cannot read {}: {why}", path.display()));
    // A device may be endless, and a pipe without a writer blocks.
    let metadata = tokio::fs::metadata(path).await.map_err(|error| refused(error.to_string()))?;
    if !metadata.is_file() {
        return Err(refused("it is not a regular file".to_owned()));
    }
    let file = tokio::fs::File::open(path).await.map_err(|error| refused(error.to_string()))?;
    let mut bytes = Vec::new();
    let read = file.take(MOST_BYTES + 1).read_to_end(&mut bytes).await.map_err(|error| refused(error.to_string()))?;
    if read as u64 > MOST_BYTES {
        return Err(refused("it is larger than 64 MiB, and each record would contain all of it".to_owned()));
    }
    Ok(bytes.into())
}

/// Payload content of a collection.
enum Content {
    Structured(Vec<Field>),
    Raw(Vec<Field>),
    File(Bytes),
}

struct Collection {
    name: Option<Str>,
    operations: Vec<Operation>,
    content: Content,
    /// Metadata of the current read, shared by all its records.
    metadata: Metadata,
}

impl Collection {
    /// Returns an upper bound of [`Record::weight`].
    fn longest(&self) -> usize {
        let of_fields = |fields: &[Field]| -> usize {
            let entry = size_of::<Str>() + size_of::<Value>();
            fields.iter().map(|field| entry + field.name.len() + field.kind.longest()).sum()
        };
        let payload = match &self.content {
            Content::Structured(fields) | Content::Raw(fields) => of_fields(fields),
            Content::File(bytes) => bytes.len(),
        };
        size_of::<Record>() + 2 * 64 + 16 + 2 * payload
    }
}

/// Reader of the source.
struct Generating {
    collections: Vec<Collection>,
    /// Upper bound of the weight of one record.
    weight: usize,
    pace: Pace,
    seed: u64,
    /// The partitions of this run.
    lanes: Vec<Lane>,
    /// The partition whose turn it is.
    turn: usize,
    /// Difference of the numbers of two records of a partition: the number of all partitions.
    step: u64,
    count: Option<u64>,
    caught_up: bool,
    /// Arena for positions and raw payloads: one allocation for some hundred records.
    arena: Arena,
    text: Vec<u8>,
}

/// A partition: every record whose number has the same remainder.
struct Lane {
    partition: Partition,
    /// Number of the next record, counted from 1 and across restarts. It is also the record's position.
    next: u64,
}

impl Lane {
    /// Returns how many records are left.
    fn left(&self, count: Option<u64>, step: u64) -> u64 {
        count.map_or(u64::MAX, |count| (count + step).saturating_sub(self.next) / step)
    }
}

#[async_trait]
impl Reader for Generating {
    async fn read(&mut self, room: Room) -> Result<Read, Fault> {
        let (count, step) = (self.count, self.step);
        let turns = self.lanes.len();
        let mut order = (0..turns).map(|turn| (self.turn + turn) % turns);
        let Some(turn) = order.find(|turn| self.lanes[*turn].left(count, step) > 0) else {
            if !std::mem::replace(&mut self.caught_up, true) {
                return Ok(Read::CaughtUp);
            }
            return std::future::pending().await;
        };
        let left = self.lanes[turn].left(count, step);
        let due = loop {
            match self.pace.due(Instant::now()) {
                Due::Now(due) => break due,
                Due::At(then) => sleep_until(then).await,
            }
        };
        let fitting = room.rows.min(room.bytes / self.weight).clamp(1, LONGEST_READ);
        let rows = due.min(fitting).min(usize::try_from(left).unwrap_or(usize::MAX));
        let records = self.records(self.lanes[turn].next, rows)?;
        self.pace.gave(rows);
        self.lanes[turn].next += rows as u64 * step;
        self.turn = turn + 1;
        Ok(Read::Rows { partition: self.lanes[turn].partition.clone(), records })
    }

    async fn backlog(&mut self) -> Option<Backlog> {
        let count = Some(self.count?);
        let left = self.lanes.iter().map(|lane| lane.left(count, self.step)).sum();
        Some(Backlog { records: Some(left), ..Backlog::default() })
    }
}

impl Generating {
    /// Returns the next records. Each depends only on the seed and its number, so read boundaries and restarts do not
    /// change the data. Reads the clock once.
    fn records(&mut self, first: u64, rows: usize) -> Result<Vec<Record>, Fault> {
        let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as i64);
        let (now, created) = (Timestamp::from_timestamp_nanos(nanos), Str::from(itoa::Buffer::new().format(nanos)));
        for collection in &mut self.collections {
            let mut metadata = Metadata::with_capacity(4);
            metadata.insert(key::CREATED_AT, created.clone());
            if let Some(name) = &collection.name {
                metadata.insert(key::COLLECTION, name.clone());
            }
            collection.metadata = metadata;
        }
        let mut records = Vec::with_capacity(rows);
        for number in (0..rows as u64).map(|row| first + row * self.step) {
            let random = &mut Rng::with_seed(scatter(self.seed ^ scatter(number)));
            let collection = match &self.collections[..] {
                [only] => only,
                several => &several[random.usize(..several.len())],
            };
            let operation = match &collection.operations[..] {
                [only] => *only,
                several => several[random.usize(..several.len())],
            };
            let key = Data::Raw(Bytes::from_static(pick(random, vocabulary::WORDS).as_bytes()));
            let mut data = || -> Result<Data, Fault> {
                match &collection.content {
                    Content::Structured(fields) => Ok(structured(fields, random, &now)),
                    Content::Raw(fields) => {
                        self.text.clear();
                        write_data(&structured(fields, random, &now), &mut self.text)?;
                        Ok(Data::Raw(self.arena.copy(&self.text)))
                    }
                    Content::File(bytes) => Ok(Data::Raw(bytes.clone())),
                }
            };
            let payload = Change {
                before: if has_before(operation) { data()? } else { Data::Absent },
                after: if has_after(operation) { data()? } else { Data::Absent },
            };
            let position = self.arena.copy(itoa::Buffer::new().format(number).as_bytes());
            let mut record = Record::at(Position(position));
            record.operation = operation;
            record.metadata = collection.metadata.clone();
            record.key = key;
            record.payload = payload;
            records.push(record);
        }
        Ok(records)
    }
}

/// Returns `true` if records of this operation have data before the change.
fn has_before(operation: Operation) -> bool {
    matches!(operation, Operation::Update | Operation::Delete)
}

/// Returns `true` if records of this operation have data after the change.
fn has_after(operation: Operation) -> bool {
    operation != Operation::Delete
}

fn structured(fields: &[Field], random: &mut Rng, now: &Timestamp) -> Data {
    let entries = fields.iter().map(|field| (field.name.clone(), field.kind.value(random, now))).collect();
    Data::from(Object::from_entries(entries))
}

/// Maps neighbouring numbers to distant ones (the finaliser of splitmix64, a bijection).
fn scatter(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests;
