//! The `file` source: reads one record per line and follows the file.

mod reader;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{Keys, RecordShape, Shape};
use anabranch_plugin::host::Host;
use anabranch_plugin::kind;
use anabranch_plugin::parameters::{Argument, ByteSize, Parameters, shared};
use anabranch_plugin::source::{OpenedSource, Source, SourceKind};
use anabranch_plugin::specification::Specification;
use anabranch_record::Position;
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::mark::{Mark, Partition};
use anabranch_record::metadata::key;
use anabranch_record::text::Str;

use reader::{Lines, unreadable};

use super::follower::Follower;
use super::position::Resume;
use crate::codes;
use crate::unacknowledged::Unacknowledged;

/// Returns the `file` source for the registry.
pub fn kind() -> Arc<dyn SourceKind> {
    let specification = Specification::builtin("file", "Reads the lines of a file and follows it as it grows.")
        .describe(
            "Reads each line as a record. The payload is the line without its line feed (a carriage return \
             stays), the key is the number of the line in the file, and the metadata contains `file.path`. If the \
             file does not exist yet, the source waits for it.\n\n\
             A restart continues after the last line. A file that was renamed and replaced is read to its end \
             before the new one, even if it was replaced between two runs, as long as the old file is in the same \
             directory. While the source runs on Linux, it opens each file as soon as it appears under the path, \
             up to 128 ahead of the one it reads. So files that are renamed, compressed and deleted meanwhile are \
             read completely. A file that disappeared before it could be opened is logged and counted in \
             `anabranch_source_missed_total`. So is a file that was truncated or rewritten in place before all \
             lines that the source had seen in it were read. If an uncompressed copy of those lines is beside it, \
             in a file whose name contains the name of the path as a separate word, the source reads the copy \
             instead.\n\n\
             A restart does not find deleted files. It finds files that replaced the one it read and \
             were renamed too, to names that differ only in numbers: `app.log.2`, then `app.log.1`. It reads them \
             in the order in which they were written. If the file that it read \
             is gone, it reads the files that were created after it, also while there is no file at the path. \
             This needs a file system that stores creation times, and names that consist of the name of the path \
             and numbers. If you change `path`, the source resumes at its position if the file there begins with \
             the data that it has read. Otherwise, it reads that file from the start.\n\n\
             A restart does not read compressed files. It logs and counts, in the same metric, the files that are missing \
             between the one that it read and the next, if their names show it: numbers without an uncompressed file, in \
             names that count up to 999 (`app.log.3` and `app.log.1` without `app.log.2`; `app.log.2` and a new file at \
             the path without `app.log.1`), and compressed files with dates in their names. Some files are neither read \
             nor counted: files that were moved to another directory, files that were renamed to a name of another form \
             (`app.log.save`; a date where the others have a number), deleted files with dates in their names, and files \
             that were deleted after a file that is gone itself.\n\n\
             A renamed file whose name contains the name of the path as a separate word is also recognized by its \
             content. This covers directories that were restored from a backup or copied from another host, and \
             rotations that copy and truncate the file. A copy must keep the times of the files (`cp -a`, `rsync \
             -a`), because they determine the order. If several files begin with the data that was read, for \
             example only a common first line, the oldest one and all files after it are read: some records may \
             be delivered again. A directory that is moved is followed to its new place. If a directory with \
             unread renamed files was removed or cannot be listed, the source waits for it. If a restart finds \
             another file at the path and cannot list the directory, it fails with `file_unreadable`.\n\n\
             A truncated or rewritten file is read again from its start. The data that was read is recognized by \
             its length and its first and last 1,024 bytes. After a restart, it is recognized by the last \
             delivered line instead (at least 64 and at most 256 bytes). A rewrite that keeps these bytes in \
             place and changes only others is not noticed.\n\n\
             Rotated files with the same time of the last write, in the resolution of the file system, are read \
             in the order of their numbers. If neither the other files nor the name show whether a larger number \
             means a newer file, as for `app-1.log` and `app-2.log`, all of them are read. Then no file is left \
             out, but one that an earlier run has read may be read again.\n\n\
             The source leaves a renamed file after it has not grown for a second, because its writer may still \
             have it open. If a restart finds several such files, it waits only at the newest one and at those \
             that were written or renamed within the last second.\n\n\
             A last line without line feed is delivered when the end of the file is first reached, and when the \
             file is replaced. If it grows later, the whole line is delivered again under the same number. While \
             the file is followed, an unterminated line waits for its line feed.\n\n\
             New lines are read as they are written. If another machine writes on a network file system that does \
             not report its changes, the first line may be read ten seconds late and later ones 160 milliseconds.",
        )
        .with_all(shared::source());
    kind::source(specification, configure)
}

#[derive(Parameters)]
struct Settings {
    /// The file.
    path: Argument<PathBuf>,
    /// Maximum length of a line. A longer line stops the pipeline. It limits the memory of a line.
    #[parameter(default = "64MiB", greater_than = 0)]
    max_line_bytes: ByteSize,
}

fn configure(Settings { path, max_line_bytes }: Settings) -> Result<Arc<dyn Source>, Diagnostics> {
    let (path, limit) = (path.text().clone(), max_line_bytes.to_usize());
    Ok(Arc::new(ConfiguredFile { path, limit, opened: AtomicBool::new(false) }))
}

struct ConfiguredFile {
    path: Str,
    limit: usize,
    /// True if the file was opened before, in this run of the pipeline or an earlier one of the process.
    opened: AtomicBool,
}

#[async_trait]
impl Source for ConfiguredFile {
    fn catches_up(&self) -> bool {
        true
    }

    fn file(&self) -> Option<&str> {
        Some(&self.path)
    }

    fn locate(&self, position: &Position) -> Option<String> {
        let Resume { line, tail, .. } = Resume::decode(position).ok()?;
        Some(format!("{}:{}", self.path, line + u64::from(tail > 0)))
    }

    fn check(&self, position: &Position) -> Option<Result<(), Fault>> {
        Some(Resume::decode(position).map(drop))
    }

    fn is_partitioned(&self) -> bool {
        false
    }

    /// Acknowledged lines stay in the file, and in rotated files while these exist.
    fn rereads(&self) -> bool {
        true
    }

    async fn still_has(&self, position: &Position) -> Result<bool, Fault> {
        let mut follower = Follower::new(PathBuf::from(self.path.as_str()), Some(Resume::decode(position)?));
        let finds = tokio::task::spawn_blocking(move || follower.finds());
        match finds.await {
            Ok(found) => found.map_err(|error| unreadable(&self.path, &error)),
            Err(error) => Err(Fault::transient(codes::FILE_UNREADABLE, error.to_string())),
        }
    }

    fn shape(&self) -> RecordShape {
        RecordShape { metadata: Keys::of([key::FILE_PATH]), ..RecordShape::create(Shape::PLAIN, Shape::RAW) }
    }

    async fn open(&self, resume: &BTreeMap<Partition, Mark>, host: &Host) -> Result<OpenedSource, Fault> {
        let resume = resume.get(&Partition::ONLY).map(|mark| Resume::decode(&mark.position)).transpose()?;
        let mut reader = Lines::new(&self.path, self.limit, resume, host);
        // Report an unreadable file immediately; a missing file may be created later.
        let step = reader.look(0).await.map_err(|fault| {
            // A permission that was never granted is handled like a rejected login.
            let is_new = fault.is_of_login() && !self.opened.load(Ordering::Relaxed);
            if is_new { fault.with_class(FaultClass::Fatal) } else { fault }
        })?;
        self.opened.store(true, Ordering::Relaxed);
        reader.note(step);
        Ok(OpenedSource::new(Box::new(reader), Box::new(Unacknowledged)))
    }
}

#[cfg(test)]
mod tests;
