//! Files that replace plain ones and are compressed.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anabranch_record::fault::Fault;

use super::Lines;
use crate::file::compression::{Codec, Compression};
use crate::file::pattern::PathPattern;
use crate::file::source::partition::Begin;
use crate::file::source::partitions::FilePartitions;
use crate::file::source::several::SeveralFiles;
use crate::file::source::unreadable::unreadable;

impl Lines {
    /// Returns `true` if the bytes at the start of a file show that it is compressed.
    pub(super) fn is_compressed(&mut self) -> bool {
        let is_start = self.place.offset == 0 && self.place.tail == 0 && self.whole.is_empty();
        is_start
            && self.format.compression == Compression::Auto
            && self.input.here().is_some_and(|input| Codec::of_start(&input.rest).is_some())
    }

    /// Leaves the file, and those that replace it, to the reader of compressed files.
    pub(super) fn decompress(&mut self) -> Result<(), Fault> {
        let path = PathBuf::from(self.path.as_str());
        let pattern = PathPattern::File(path.clone());
        let pace = (self.polling, Begin::Beginning);
        let mut files =
            FilePartitions::new(&self.path, pattern, self.format.clone(), pace, &BTreeMap::new(), &self.host)?;
        if let Some(input) = self.input.here() {
            input.rest = Vec::new();
            if let Some(file) = input.follower.file() {
                files.read_open(&path, file.map_err(|error| unreadable(&self.path, &error))?);
            }
        }
        self.compressed = Some(SeveralFiles::new(self.path.clone(), files));
        Ok(())
    }
}
