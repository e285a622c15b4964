//! What goes between the service and the process that runs a script: frames, and the records in them.
//!
//! A frame is the length of the rest (4 bytes, the lowest first), a byte that says what it is, and its content. Numbers
//! are in groups of seven bits, the lowest first; texts and bytes have their length before them.

mod made;
pub(crate) mod orders;
mod read;
mod wants;
mod write;

use std::io::{self, Read, Write};

use bytes::Bytes;

pub(crate) use made::{Changes, Remembered, write_made};
pub(crate) use read::{Names, Reader};
pub(crate) use wants::{Want, Wants};
pub(crate) use write::{TooDeep, write_bytes, write_number, write_record};

/// Lists and maps in lists and maps that a message may hold.
pub(crate) const MOST_DEPTH: usize = 256;

/// Kinds of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// To the worker, once: the script and its limits.
    Open = 1,
    /// To the worker: records.
    Process,
    /// From the worker: the script is ready, and what it is to be sent of records.
    Opened,
    /// From the worker: it is not, and why.
    Refused,
    /// From the worker: what became of the next records.
    Made,
    /// From the worker: a line for the log.
    Line,
    /// From the worker: what it is to be sent of records from now on, beginning with the rest of those at hand again.
    Wants,
}

impl Kind {
    const ALL: [Kind; 7] =
        [Kind::Open, Kind::Process, Kind::Opened, Kind::Refused, Kind::Made, Kind::Line, Kind::Wants];
}

/// A message that cannot be understood.
#[derive(Debug, thiserror::Error)]
#[error("a message that makes no sense")]
pub(crate) struct Malformed;

impl From<Malformed> for io::Error {
    fn from(malformed: Malformed) -> Self {
        io::Error::new(io::ErrorKind::InvalidData, malformed)
    }
}

/// Begins a frame in an empty buffer.
pub(crate) fn begin(frame: &mut Vec<u8>, kind: Kind) {
    frame.clear();
    frame.extend([0, 0, 0, 0, kind as u8]);
}

/// Sends what [`begin`] began.
pub(crate) fn send(frame: &mut [u8], to: &mut impl Write) -> io::Result<()> {
    let length = frame.len().checked_sub(4).and_then(|length| u32::try_from(length).ok());
    let Some(length) = length else { return Err(io::Error::from(io::ErrorKind::InvalidInput)) };
    frame[..4].copy_from_slice(&length.to_le_bytes());
    to.write_all(frame)
}

/// The next frame; `None` where the other side has ended.
pub(crate) fn receive(from: &mut impl Read) -> io::Result<Option<(Kind, Bytes)>> {
    let mut head = [0; 5];
    loop {
        match from.read(&mut head[..1]) {
            Ok(0) => return Ok(None),
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    from.read_exact(&mut head[1..])?;
    let [length @ .., kind] = head;
    let length = u32::from_le_bytes(length).checked_sub(1).ok_or(Malformed)?;
    let kind = *Kind::ALL.iter().find(|known| **known as u8 == kind).ok_or(Malformed)?;
    // Grows as it comes: what a broken worker announces takes no memory.
    let mut content = Vec::with_capacity((length as usize).min(1 << 20));
    from.take(length.into()).read_to_end(&mut content)?;
    if content.len() != length as usize {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
    }
    Ok(Some((kind, Bytes::from(content))))
}

#[cfg(test)]
mod tests;
