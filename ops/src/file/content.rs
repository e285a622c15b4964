//! The content of a file: its bytes, decompressed if they are compressed. Everything here blocks.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use super::compression::{Codec, Compression, Decompressor};
use super::content_position::{ContentPosition, ContentResume, TRAIL};
use super::position::{HEAD, born, identity};

/// Bytes per read of a file, and approximately per read of content.
const CHUNK: usize = 256 << 10;

/// Content cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ContentError {
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The compressed data is damaged before this byte of the file.
    #[error("the {codec} data is damaged before byte {at}: {error}")]
    Corrupt { codec: Codec, at: u64, error: io::Error },
}

/// An open file that is read from its start on.
pub(super) struct Content {
    file: Arc<File>,
    /// Number of bytes of the file that were read.
    raw: u64,
    decompressor: Option<(Codec, Decompressor)>,
}

/// Content that is opened at a place.
pub(super) struct OpenedContent {
    pub(super) content: Content,
    pub(super) place: ContentPosition,
    /// The bytes around the place: at most [`TRAIL`] before it, and the delivered ones after it.
    pub(super) around: Vec<u8>,
    /// Index of the place in `around`.
    pub(super) at: usize,
    /// The first bytes of the content, as many as were asked for unless the place is before them.
    pub(super) start: Vec<u8>,
}

impl Content {
    /// Opens the content at its start. Returns `None` if the file is so short that it does not show its compression.
    pub(super) fn open(file: Arc<File>, compression: Compression, is_whole: bool) -> Result<Option<Self>, io::Error> {
        let codec = match compression {
            Compression::None => None,
            Compression::Always(codec) => Some(codec),
            Compression::Auto => {
                let mut start = [0; 4];
                let got = read_at(&file, &mut start, 0)?;
                if !is_whole && Codec::may_follow(&start[..got]) {
                    return Ok(None);
                }
                Codec::of_start(&start[..got])
            }
        };
        let decompressor = codec.map(|codec| Ok((codec, Decompressor::new(codec)?)) as io::Result<_>).transpose()?;
        Ok(Some(Content { file, raw: 0, decompressor }))
    }

    /// Opens the content at the place of a position. Keeps the first `start` bytes of the content. Returns `None` if the
    /// content is not the one that was read. Decompresses everything before the place.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged before the place.
    pub(super) fn resume(
        file: Arc<File>,
        compression: Compression,
        resume: &ContentResume,
        start: usize,
    ) -> Result<Option<OpenedContent>, ContentError> {
        let metadata = file.metadata()?;
        let delivered = resume.delivered();
        let Some(mut content) = Content::open(file, compression, true)? else { return Ok(None) };
        let start = start.max(HEAD);
        let mut first = Vec::new();
        let around_from = resume.offset.saturating_sub(TRAIL as u64);
        let mut around = Vec::new();
        let mut at = 0;
        let mut piece = Vec::new();
        while at < delivered {
            if content.decompressor.is_none() && at >= start as u64 && at < around_from {
                // Plain bytes need not be read to be passed.
                (at, content.raw) = (around_from, around_from);
            }
            piece.clear();
            let want = usize::try_from(delivered - at).unwrap_or(usize::MAX).min(CHUNK);
            if content.read_at_most(&mut piece, want)? == 0 {
                return Ok(None);
            }
            if first.len() < start && at == first.len() as u64 {
                first.extend_from_slice(&piece[..piece.len().min(start - first.len())]);
            }
            let skipped = usize::try_from(around_from.saturating_sub(at)).unwrap_or(usize::MAX).min(piece.len());
            around.extend_from_slice(&piece[skipped..]);
            at += piece.len() as u64;
        }
        // Decompressed bytes come in steps: those after the delivered ones are not lost, they wait in `around`.
        let seen = around.len() - usize::try_from(at - delivered).unwrap_or(0);
        let file = (identity(&metadata), born(&metadata));
        let Some(place) = resume.matches(&first, &around[..seen], file) else { return Ok(None) };
        let at = usize::try_from(resume.offset - around_from).unwrap_or(0);
        Ok(Some(OpenedContent { content, place, around, at, start: first }))
    }

    /// Returns the number of bytes of the file that were read.
    pub(super) fn raw(&self) -> u64 {
        self.raw
    }

    /// Returns the compression of the content.
    pub(super) fn codec(&self) -> Option<Codec> {
        self.decompressor.as_ref().map(|(codec, _)| *codec)
    }

    /// Returns `true` if the bytes that were read end in the middle of a compressed member.
    pub(super) fn is_inside(&self) -> bool {
        self.decompressor.as_ref().is_some_and(|(_, decompressor)| decompressor.is_inside())
    }

    /// Appends the next bytes of the content: about 256 KiB at most. Returns their number: 0 at the end.
    ///
    /// # Errors
    /// The file cannot be read, or the compressed data is damaged. Bytes before the damage are appended.
    pub(super) fn read(&mut self, buffer: &mut Vec<u8>) -> Result<usize, ContentError> {
        self.read_at_most(buffer, CHUNK)
    }

    fn read_at_most(&mut self, buffer: &mut Vec<u8>, most: usize) -> Result<usize, ContentError> {
        let before = buffer.len();
        let Some((codec, decompressor)) = &mut self.decompressor else {
            buffer.resize(before + most, 0);
            let got = read_at(&self.file, &mut buffer[before..], self.raw);
            buffer.truncate(before + *got.as_ref().unwrap_or(&0));
            self.raw += (buffer.len() - before) as u64;
            got?;
            return Ok(buffer.len() - before);
        };
        let mut piece = vec![0; CHUNK / 4];
        loop {
            match decompressor.pull(buffer, most) {
                Ok(true) => return Ok(buffer.len() - before),
                Ok(false) => {}
                Err(error) => return Err(ContentError::Corrupt { codec: *codec, at: self.raw, error }),
            }
            let got = read_at(&self.file, &mut piece, self.raw)?;
            if got == 0 {
                return Ok(0);
            }
            self.raw += got as u64;
            decompressor.push(&piece[..got]);
        }
    }
}

/// Fills `bytes` from a place in a file. Returns how many bytes were available.
fn read_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    let mut got = 0;
    while got < bytes.len() {
        match file.read_at(&mut bytes[got..], at + got as u64) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(got)
}
