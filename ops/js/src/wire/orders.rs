//! Orders from the service to a worker, and their answers.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anabranch_plugin::operator::Decision;
use anabranch_record::Record;
use anabranch_record::code::Code;
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use bytes::Bytes;

use super::{
    Changes, FrameKind, LastMetadata, Malformed, NameCache, Reader, TooDeep, Wants, begin, write_bytes, write_made,
    write_number, write_record,
};
use crate::codes;
use crate::limits::Limits;
use crate::outcome::ScriptOutcome;
use crate::position::Position;
use crate::program::Program;

/// The first message to a worker.
#[derive(Clone, Debug)]
pub(crate) struct Opening {
    pub(crate) program: Program,
    pub(crate) limits: Limits,
    /// Maximum number of bytes that the script may hold.
    pub(crate) memory: usize,
    /// Number of the lowest level whose lines are kept.
    pub(crate) level: u8,
    /// Fixed time of day, if it is set.
    pub(crate) held: Option<SystemTime>,
}

impl Opening {
    pub(crate) fn write(&self, frame: &mut Vec<u8>) {
        begin(frame, FrameKind::Open);
        write_bytes(frame, self.program.name.as_bytes());
        write_bytes(frame, self.program.text.as_bytes());
        write_duration(frame, self.limits.time);
        write_number(frame, self.memory as u64);
        frame.push(self.level);
        frame.push(self.held.is_some().into());
        write_duration(frame, self.held.and_then(|at| at.duration_since(UNIX_EPOCH).ok()).unwrap_or_default());
    }

    pub(crate) fn read(content: Bytes) -> Result<Opening, Malformed> {
        let mut names = NameCache::default();
        let mut reader = Reader::new(content, &mut names);
        let (name, text) = (reader.text()?, reader.text()?);
        let limits = Limits { time: read_duration(&mut reader)? };
        let memory = usize::try_from(reader.number()?).map_err(|_| Malformed)?;
        let level = reader.byte()?;
        let held = reader.byte()? != 0;
        let since = read_duration(&mut reader)?;
        let held = held.then(|| UNIX_EPOCH + since);
        Ok(Opening { program: Program { text, name }, limits, memory, level, held })
    }
}

fn write_duration(out: &mut Vec<u8>, duration: Duration) {
    write_number(out, duration.as_secs());
    write_number(out, duration.subsec_nanos().into());
}

fn read_duration(reader: &mut Reader<'_>) -> Result<Duration, Malformed> {
    let (seconds, nanos) = (reader.number()?, reader.number()?);
    let nanos = u32::try_from(nanos).ok().filter(|nanos| *nanos < 1_000_000_000);
    Ok(Duration::new(seconds, nanos.ok_or(Malformed)?))
}

/// Writes the order to process records. A careful worker answers each record before it begins the next.
///
/// # Errors
/// Returns the index of the record that cannot be sent, and the reason.
pub(crate) fn write_order(
    frame: &mut Vec<u8>,
    careful: bool,
    records: &[&mut Record],
    wants: &Wants,
) -> Result<(), (usize, TooDeep)> {
    begin(frame, FrameKind::Process);
    frame.push(careful.into());
    write_number(frame, records.len() as u64);
    let mut before = None;
    for (row, record) in records.iter().enumerate() {
        write_record(frame, record, before, wants).map_err(|error| (row, error))?;
        before = Some(record);
    }
    Ok(())
}

/// Codes of faults that a worker reports.
const CODES: [Code; 8] = [
    codes::OPERATOR_PANICKED,
    codes::SCRIPT_FAILED,
    codes::SCRIPT_LIMIT,
    codes::SCRIPT_NO_PROCESS,
    codes::SCRIPT_RESULT,
    codes::SCRIPT_THREW,
    codes::SCRIPT_TIMEOUT,
    codes::SCRIPT_CRASHED,
];

/// Writes a record fault: code, place and message.
pub(crate) fn write_fault(out: &mut Vec<u8>, fault: &Fault) {
    let code = CODES.iter().position(|code| *code == fault.code()).unwrap_or_default();
    out.push(code as u8);
    let (line, column) = fault.in_text().map_or((0, 0), |at| (at.line, at.column));
    write_number(out, line as u64);
    write_number(out, column as u64);
    write_bytes(out, fault.message().as_bytes());
}

/// Reads the fault written by [`write_fault`].
pub(crate) fn read_fault(reader: &mut Reader<'_>) -> Result<Fault, Malformed> {
    let code = *CODES.get(usize::from(reader.byte()?)).ok_or(Malformed)?;
    let (line, column) = (reader.number()? as usize, reader.number()? as usize);
    let message = reader.text()?;
    Ok(match line {
        0 => Fault::record(code, message.as_str()),
        _ => Fault::record(code, Position { line, column }.fault(message.as_str().to_owned())),
    })
}

/// First byte of a record's outcome.
mod outcome {
    pub(super) const KEEP: u8 = 0;
    pub(super) const FILTER: u8 = 1;
    pub(super) const SPLIT: u8 = 2;
    pub(super) const FAIL: u8 = 3;
}

/// Maximum number of bytes of the output for one record.
const MOST_BYTES: usize = 1 << 30;

/// Writes the outcome of a record.
pub(crate) fn write_outcome(out: &mut Vec<u8>, made: &Result<ScriptOutcome, Fault>, of: &Record, wants: &Wants) {
    let begin = out.len();
    let unfit = match made {
        Ok(made) => match try_outcome(out, made, of, wants) {
            Ok(()) if out.len() - begin <= MOST_BYTES => return,
            Ok(()) => Fault::record(codes::SCRIPT_RESULT, format!("the result is larger than {MOST_BYTES} bytes")),
            Err(error) => Fault::record(codes::SCRIPT_RESULT, error.to_string()),
        },
        Err(fault) => fault.clone(),
    };
    out.truncate(begin);
    out.push(outcome::FAIL);
    write_fault(out, &unfit);
}

fn try_outcome(out: &mut Vec<u8>, made: &ScriptOutcome, of: &Record, wants: &Wants) -> Result<(), TooDeep> {
    match made {
        ScriptOutcome::Keep(record) => {
            out.push(outcome::KEEP);
            write_made(out, record, of, wants)
        }
        ScriptOutcome::Filter => {
            out.push(outcome::FILTER);
            Ok(())
        }
        ScriptOutcome::Split(records) => {
            out.push(outcome::SPLIT);
            write_number(out, records.len() as u64);
            records.iter().try_for_each(|record| write_made(out, record, of, wants))
        }
    }
}

/// Reads the outcome written by [`write_outcome`] and applies it to the record.
///
/// # Errors
/// Fails if the message is malformed; the record is unchanged.
pub(crate) fn read_outcome(
    reader: &mut Reader<'_>,
    record: &mut Record,
    wants: &Wants,
    remembered: &mut LastMetadata,
) -> Result<Result<Decision, Fault>, Malformed> {
    Ok(match reader.byte()? {
        outcome::KEEP => {
            Changes::read(reader, record, wants, remembered)?.apply(record);
            Ok(Decision::Keep)
        }
        outcome::FILTER => Ok(Decision::Filter),
        outcome::SPLIT => {
            let count = reader.count()?;
            let mut records = Vec::with_capacity(count);
            for _ in 0..count {
                let mut made = record.clone();
                Changes::read(reader, record, wants, remembered)?.apply(&mut made);
                records.push(made);
            }
            Ok(Decision::Split(records))
        }
        outcome::FAIL => Err(read_fault(reader)?),
        _ => return Err(Malformed),
    })
}

/// Writes a log line: the number of its level, and its text.
pub(crate) fn write_line(frame: &mut Vec<u8>, level: u8, text: &str) {
    begin(frame, FrameKind::Line);
    frame.push(level);
    write_bytes(frame, text.as_bytes());
}

/// Reads the line written by [`write_line`].
pub(crate) fn read_line(content: Bytes) -> Result<(u8, Str), Malformed> {
    let mut names = NameCache::default();
    let mut reader = Reader::new(content, &mut names);
    Ok((reader.byte()?, reader.text()?))
}
