//! Where a source begins that has no position.

use std::io;
use std::path::{Path, PathBuf};

use anabranch_record::Position;
use anabranch_record::fault::Fault;

use super::{Input, Lines};
use crate::codes;
use crate::file::follower::{Follower, open_regular};
use crate::file::position::{FilePosition, LONGEST, PathSum, Resume, born, identity};
use crate::file::source::unreadable::unreadable;
use crate::offload::Offload;

impl Lines {
    /// Begins at the end of the file that is at the path, if there is one. Reads the whole file, because a
    /// position holds the number of its line.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(in super::super) async fn begin_at_end(&mut self) -> Result<(), Fault> {
        let path = PathBuf::from(self.path.as_str());
        let end = tokio::task::spawn_blocking({
            let path = path.clone();
            move || end_of_lines(&path)
        });
        let end = end.await.map_err(|e| Fault::fatal(codes::FILE_UNREADABLE, e))?;
        let Some(end) = end.map_err(|e| unreadable(&self.path, &e))? else {
            // A file that appears later is read from its beginning, also by the next run.
            self.begun_at = Some(encoded(&FilePosition::default()));
            return Ok(());
        };
        let position = encoded(&end);
        let follower = Follower::new(path, Some(Resume::decode(&position)?));
        self.input = Offload::Here(Input { follower, rest: Vec::new(), watch: None });
        (self.begun_at, self.has_begun) = (Some(position), true);
        Ok(())
    }
}

/// Returns the position of a place.
pub(super) fn encoded(place: &FilePosition) -> Position {
    let mut room = [0; LONGEST];
    let len = place.encode(&mut room);
    Position::copy_from(&room[..len])
}

/// Returns the place at the end of a file. `None` if the file does not exist or is empty. Blocks.
fn end_of_lines(path: &Path) -> io::Result<Option<FilePosition>> {
    let mut file = match open_regular(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let metadata = file.metadata()?;
    let mut place = FilePosition::start(identity(&metadata), born(&metadata));
    place.path = PathSum::of(path);
    let (mut lines, mut piece) = (Vec::new(), vec![0; 256 << 10]);
    loop {
        let got = io::Read::read(&mut file, &mut piece)?;
        if got == 0 {
            if !lines.is_empty() {
                place = place.with_tail(&lines);
            }
            return Ok((place.offset + place.tail > 0).then_some(place));
        }
        lines.extend_from_slice(&piece[..got]);
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', &lines) {
            place.advance(&lines[..=end], end + 1 - start);
            start = end + 1;
        }
        place.turn(&lines[..start]);
        lines.drain(..start);
    }
}
