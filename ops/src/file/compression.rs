//! Compressed files: gzip with several members, and zstd with several frames.

use std::fmt;
use std::io::{self, BufRead, Read, Write as _};

use flate2::bufread::GzDecoder;
use zstd::stream::raw::{Decoder, Operation as _};

use anabranch_plugin::parameters::Choice;

/// The setting `compression` of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    /// The one that the first bytes of each file show.
    Auto,
    None,
    Always(Codec),
}

impl Choice for Compression {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("auto", Compression::Auto),
        ("none", Compression::None),
        ("gzip", Compression::Always(Codec::Gzip)),
        ("zstd", Compression::Always(Codec::Zstd)),
    ];
}

/// A compression of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Codec {
    Gzip,
    Zstd,
}

/// First bytes of a gzip member with deflated data, and of a zstd frame.
const GZIP_MAGIC: [u8; 3] = [0x1f, 0x8b, 8];
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// The default level of zstd.
const ZSTD_LEVEL: i32 = 3;

impl Codec {
    /// Returns the codec that the first bytes of a file show; `None` for plain data.
    pub(super) fn of_start(start: &[u8]) -> Option<Codec> {
        if start.starts_with(&GZIP_MAGIC) {
            return Some(Codec::Gzip);
        }
        start.starts_with(&ZSTD_MAGIC).then_some(Codec::Zstd)
    }

    /// Returns `true` if a file that begins with these bytes may turn out to be compressed when it grows.
    pub(super) fn may_follow(start: &[u8]) -> bool {
        let begins = |magic: &[u8]| start.len() < magic.len() && magic.starts_with(start);
        begins(&GZIP_MAGIC) || begins(&ZSTD_MAGIC)
    }

    /// Returns the codec that the ending of a path names.
    pub(super) fn of_name(path: &str) -> Option<Codec> {
        let (_, ending) = path.rsplit_once('.')?;
        match ending.to_ascii_lowercase().as_str() {
            "gz" | "gzip" => Some(Codec::Gzip),
            "zst" | "zstd" => Some(Codec::Zstd),
            _ => None,
        }
    }

    /// Returns the data as one complete member or frame.
    ///
    /// # Errors
    /// The compressor has no memory.
    pub(super) fn compress(self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        match self {
            Codec::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
                encoder.write_all(bytes)?;
                encoder.finish()
            }
            Codec::Zstd => zstd::bulk::compress(bytes, ZSTD_LEVEL),
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Codec::Gzip => "gzip",
            Codec::Zstd => "zstd",
        })
    }
}

/// Compressed bytes that were read and not decompressed yet. Reading from an empty one fails with `WouldBlock`, so that
/// a decoder keeps its state until more bytes arrive.
#[derive(Debug, Default)]
struct CompressedInput {
    bytes: Vec<u8>,
    at: usize,
}

impl CompressedInput {
    fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(bytes);
    }
}

impl Read for CompressedInput {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let len = available.len().min(into.len());
        into[..len].copy_from_slice(&available[..len]);
        self.consume(len);
        Ok(len)
    }
}

impl BufRead for CompressedInput {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        match self.bytes.get(self.at..) {
            Some(rest) if !rest.is_empty() => Ok(rest),
            _ => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn consume(&mut self, len: usize) {
        self.at += len;
    }
}

/// Decompresses a stream of members or frames as its bytes arrive.
pub(super) struct Decompressor {
    members: Members,
    /// The error after the bytes that were decompressed last.
    failure: Option<io::Error>,
}

enum Members {
    /// Before a member of a gzip stream.
    GzipBetween(CompressedInput),
    GzipInside(Box<GzDecoder<CompressedInput>>),
    Zstd {
        decoder: Decoder<'static>,
        input: CompressedInput,
        /// True if a frame has begun and has not ended.
        inside: bool,
    },
}

/// Bytes of one step of decompression.
const STEP: usize = 32 << 10;

impl Decompressor {
    /// Creates a decompressor at the start of a stream.
    ///
    /// # Errors
    /// The decoder has no memory.
    pub(super) fn new(codec: Codec) -> io::Result<Self> {
        let input = CompressedInput::default();
        let members = match codec {
            Codec::Gzip => Members::GzipBetween(input),
            Codec::Zstd => Members::Zstd { decoder: Decoder::new()?, input, inside: false },
        };
        Ok(Decompressor { members, failure: None })
    }

    /// Returns `true` if the stream ends in the middle of a member or frame.
    pub(super) fn is_inside(&self) -> bool {
        match &self.members {
            Members::GzipBetween(_) => false,
            Members::GzipInside(_) => true,
            Members::Zstd { inside, .. } => *inside,
        }
    }

    /// Adds compressed bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        match &mut self.members {
            Members::GzipBetween(input) | Members::Zstd { input, .. } => input.push(bytes),
            Members::GzipInside(decoder) => decoder.get_mut().push(bytes),
        }
    }

    /// Appends decompressed bytes: at least one, and about `most` at most. Returns `false` if it needs more compressed
    /// bytes for that.
    ///
    /// # Errors
    /// The data is corrupt. The bytes before the damage are appended by earlier calls.
    pub(super) fn pull(&mut self, output: &mut Vec<u8>, most: usize) -> io::Result<bool> {
        if let Some(error) = self.failure.take() {
            return Err(error);
        }
        let start = output.len();
        while output.len() - start < most {
            let before = output.len();
            output.resize(before + STEP, 0);
            let step = self.step(&mut output[before..]);
            output.truncate(before + step.as_ref().map_or(0, |step| step.unwrap_or(0)));
            match step {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(error) if output.len() > start => {
                    self.failure = Some(error);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(output.len() > start)
    }

    /// Decompresses a few bytes; possibly none, at the end of a member. Returns `None` if it needs more compressed bytes.
    fn step(&mut self, room: &mut [u8]) -> io::Result<Option<usize>> {
        match &mut self.members {
            Members::GzipBetween(input) => {
                // Tapes and `dd` pad the last member with zeros.
                let padding = input.rest().iter().take_while(|byte| **byte == 0).count();
                input.consume(padding);
                let start = &input.rest()[..input.rest().len().min(GZIP_MAGIC.len())];
                if start.is_empty() {
                    return Ok(None);
                }
                if !GZIP_MAGIC.starts_with(start) {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "these bytes are not a gzip member"));
                }
                let decoder = GzDecoder::new(std::mem::take(input));
                self.members = Members::GzipInside(Box::new(decoder));
                Ok(Some(0))
            }
            Members::GzipInside(decoder) => match decoder.read(room) {
                Ok(0) => {
                    let input = std::mem::take(decoder.get_mut());
                    self.members = Members::GzipBetween(input);
                    Ok(Some(0))
                }
                Ok(got) => Ok(Some(got)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
                Err(error) => Err(error),
            },
            Members::Zstd { decoder, input, inside } => {
                if input.rest().is_empty() && !*inside {
                    return Ok(None);
                }
                let status = decoder.run_on_buffers(input.rest(), room)?;
                input.consume(status.bytes_read);
                *inside = status.remaining > 0;
                let is_stuck = status.bytes_read == 0 && status.bytes_written == 0;
                Ok((!is_stuck).then_some(status.bytes_written))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Decompresses a stream that arrives in pieces of `piece` bytes.
    fn decompressed(codec: Codec, bytes: &[u8], piece: usize) -> io::Result<(Vec<u8>, bool)> {
        let mut decompressor = Decompressor::new(codec)?;
        let mut output = Vec::new();
        for piece in bytes.chunks(piece) {
            decompressor.push(piece);
            while decompressor.pull(&mut output, 1)? {}
        }
        Ok((output, decompressor.is_inside()))
    }

    proptest! {
        #[test]
        fn members_are_decompressed_however_they_arrive(
            parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..3000), 1..4),
            piece in 1usize..5000,
            cut in any::<proptest::sample::Index>(),
        ) {
            for codec in [Codec::Gzip, Codec::Zstd] {
                let members: Vec<Vec<u8>> = parts.iter().map(|part| codec.compress(part).unwrap()).collect();
                let (stream, all) = (members.concat(), parts.concat());
                prop_assert_eq!(Codec::of_start(&stream), Some(codec));
                prop_assert_eq!(decompressed(codec, &stream, piece).unwrap(), (all.clone(), false));
                // Of a part of the stream, a part of the data is there, and whether a member is incomplete.
                let cut = cut.index(stream.len());
                let (some, inside) = decompressed(codec, &stream[..cut], piece).unwrap();
                prop_assert!(all.starts_with(&some));
                let mut end = 0;
                let is_boundary = std::iter::once(0).chain(members.iter().map(|member| { end += member.len(); end }));
                prop_assert_eq!(inside, !is_boundary.into_iter().any(|end| end == cut), "{} of {}", cut, stream.len());
            }
        }
    }

    #[test]
    fn damage_is_an_error_and_zeros_after_a_gzip_member_are_none() {
        for codec in [Codec::Gzip, Codec::Zstd] {
            let mut stream = codec.compress(&b"line\n".repeat(1000)).unwrap();
            stream.extend_from_slice(b"garbage");
            assert!(decompressed(codec, &stream, 64).is_err(), "{codec}");
        }
        let mut stream = Codec::Gzip.compress(b"text").unwrap();
        let crc = stream.len() - 8;
        stream[crc] ^= 1;
        assert!(decompressed(Codec::Gzip, &stream, 64).is_err());
        stream[crc] ^= 1;
        stream.extend_from_slice(&[0; 100]);
        assert_eq!(decompressed(Codec::Gzip, &stream, 7).unwrap(), (b"text".to_vec(), false));
    }

    #[test]
    fn names_and_first_bytes_show_the_codec() {
        assert_eq!(Codec::of_name("a/b.log.GZ"), Some(Codec::Gzip));
        assert_eq!(Codec::of_name("b.zst"), Some(Codec::Zstd));
        assert_eq!(Codec::of_name("gz"), None);
        assert_eq!(Codec::of_start(b"a,b\n"), None);
        assert!(Codec::may_follow(b"") && Codec::may_follow(&GZIP_MAGIC[..2]) && !Codec::may_follow(&GZIP_MAGIC));
        assert!(!Codec::may_follow(b"x"));
    }
}
