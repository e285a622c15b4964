//! Positions in a bucket.
//!
//! The source reads a bucket in *sweeps*. Each lists all keys in order. A sweep delivers the changes before its
//! *horizon* that are not before the horizon of the previous sweep. So a position consists of two horizons and a key,
//! however many objects there are; usually about twenty bytes and the key.

use anabranch_record::Position;
use anabranch_record::fault::Fault;

use super::listing::Version;
use crate::codes;
use crate::fingerprint::fingerprint;

/// Maximum number of multipart uploads in a horizon.
pub(super) const MOST_UPLOADS: usize = 32;

/// A time by the server's clock up to which all changes were seen.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(super) struct Horizon {
    /// Seconds since the epoch. Changes in earlier seconds were seen; this second itself was not over.
    pub(super) time: i64,
    /// Exceptions: uploads in progress.
    pub(super) uploads: Vec<Upload>,
}

/// A multipart upload in progress. When it completes, its object gets the time at which it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Upload {
    key: u32,
    pub(super) begun: i64,
}

impl Upload {
    pub(super) fn new(key: &str, begun: i64) -> Self {
        Upload { key: short(key), begun }
    }

    /// Returns `true` if this is the object of the upload.
    pub(super) fn made(&self, key: &str, version: &Version) -> bool {
        self.begun == version.modified.seconds && self.key == short(key)
    }
}

impl Horizon {
    /// Returns `true` if a sweep up to here saw this version of `key`.
    pub(super) fn covers(&self, key: &str, version: &Version) -> bool {
        version.modified.seconds < self.time && !self.uploads.iter().any(|upload| upload.made(key, version))
    }
}

fn short(key: &str) -> u32 {
    let sum = fingerprint(&[key.as_bytes()]);
    (sum ^ (sum >> 32)) as u32
}

/// Purpose of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Delivers the objects that existed when the source was first opened.
    Snapshot,
    /// Delivers later changes.
    Changes,
}

/// Progress of a sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cursor {
    pub(super) key: String,
    /// The version of the key that was delivered last, if newer ones may follow.
    pub(super) version: Option<u64>,
}

/// State of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SweepProgress {
    pub(super) purpose: Purpose,
    /// Horizon of the last completed sweep; `None` during the first.
    pub(super) since: Option<Horizon>,
    /// Horizon and progress of the current sweep.
    pub(super) under_way: Option<(Horizon, Cursor)>,
}

const FORMAT: u8 = 1;
const SNAPSHOT: u8 = 1;
const SINCE: u8 = 2;
const UNDER_WAY: u8 = 4;
const VERSION: u8 = 8;

impl SweepProgress {
    /// Encodes the position. `bucket` is the fingerprint of the bucket.
    pub(super) fn encode(&self, bucket: u32) -> Position {
        let mut out = Vec::with_capacity(64);
        let flag = |set, flag| if set { flag } else { 0 };
        let cursor = self.under_way.as_ref().map(|(_, cursor)| cursor);
        out.push(FORMAT);
        out.push(
            flag(self.purpose == Purpose::Snapshot, SNAPSHOT)
                | flag(self.since.is_some(), SINCE)
                | flag(cursor.is_some(), UNDER_WAY)
                | flag(cursor.is_some_and(|cursor| cursor.version.is_some()), VERSION),
        );
        out.extend_from_slice(&bucket.to_le_bytes());
        for horizon in self.since.iter().chain(self.under_way.iter().map(|(horizon, _)| horizon)) {
            out.extend_from_slice(&horizon.time.to_le_bytes());
            out.push(horizon.uploads.len() as u8);
            for upload in &horizon.uploads {
                out.extend_from_slice(&upload.key.to_le_bytes());
                out.extend_from_slice(&upload.begun.to_le_bytes());
            }
        }
        if let Some(cursor) = cursor {
            if let Some(version) = cursor.version {
                out.extend_from_slice(&version.to_le_bytes());
            }
            out.extend_from_slice(cursor.key.as_bytes());
        }
        Position(out.into())
    }

    /// Decodes a position.
    ///
    /// # Errors
    /// Fatal if the position is not one of this source, or belongs to another bucket or prefix.
    pub(super) fn decode(position: &Position, bucket: u32) -> Result<SweepProgress, Fault> {
        let (found, place) = read(&position.0).ok_or_else(|| {
            Fault::fatal(
                codes::POSITION_UNKNOWN,
                "the position is not that of an s3 source; run `anabranch positions reset` to read from the beginning",
            )
        })?;
        if found != bucket {
            return Err(Fault::fatal(
                codes::POSITION_OF_ANOTHER_BUCKET,
                "the position belongs to another bucket or prefix: the source would skip the objects before it as \
                 if it had read them; run `anabranch positions reset` to read from the beginning, or restore the \
                 former settings",
            ));
        }
        Ok(place)
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*taken)
}

fn read_horizon(bytes: &mut &[u8]) -> Option<Horizon> {
    let time = i64::from_le_bytes(take(bytes)?);
    let [uploads] = take(bytes)?;
    let upload = |_| {
        let key = u32::from_le_bytes(take(bytes)?);
        Some(Upload { key, begun: i64::from_le_bytes(take(bytes)?) })
    };
    Some(Horizon { time, uploads: (0..uploads).map(upload).collect::<Option<_>>()? })
}

fn read(mut bytes: &[u8]) -> Option<(u32, SweepProgress)> {
    let bytes = &mut bytes;
    let [FORMAT, flags] = take(bytes)? else { return None };
    let bucket = u32::from_le_bytes(take(bytes)?);
    let purpose = if flags & SNAPSHOT == 0 { Purpose::Changes } else { Purpose::Snapshot };
    let since = if flags & SINCE == 0 { None } else { Some(read_horizon(bytes)?) };
    let under_way = if flags & UNDER_WAY == 0 {
        None
    } else {
        let until = read_horizon(bytes)?;
        let version = if flags & VERSION == 0 { None } else { Some(u64::from_le_bytes(take(bytes)?)) };
        let key = str::from_utf8(bytes).ok()?.to_owned();
        *bytes = &[];
        Some((until, Cursor { key, version }))
    };
    bytes.is_empty().then_some((bucket, SweepProgress { purpose, since, under_way }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_come_back() {
        let horizon = |time, uploads| Horizon { time, uploads };
        let late = vec![Upload::new("big", 90), Upload::new("bigger", 95)];
        for place in [
            SweepProgress { purpose: Purpose::Changes, since: Some(horizon(100, late.clone())), under_way: None },
            SweepProgress {
                purpose: Purpose::Snapshot,
                since: None,
                under_way: Some((horizon(100, Vec::new()), Cursor { key: "a/ü b".into(), version: None })),
            },
            SweepProgress {
                purpose: Purpose::Changes,
                since: Some(horizon(100, Vec::new())),
                under_way: Some((horizon(200, late.clone()), Cursor { key: "k".into(), version: Some(7) })),
            },
        ] {
            let position = place.encode(5);
            assert_eq!(SweepProgress::decode(&position, 5).unwrap(), place);
            assert_eq!(SweepProgress::decode(&position, 6).unwrap_err().code().name(), "position_of_another_bucket");
            for cut in 0..5 {
                let short = Position::copy_from(&position.0[..cut]);
                assert_eq!(SweepProgress::decode(&short, 5).unwrap_err().code().name(), "position_unknown");
            }
        }
        assert!(SweepProgress::decode(&Position::copy_from(b"key_s170000"), 5).is_err());
    }
}
