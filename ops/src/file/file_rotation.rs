//! Rotation of the files that the destination writes: by size and by age.

use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anabranch_plugin::parameters::{ByteSize, Parameters};

/// Maximum number of files that are moved away in the same second.
const MOST_IN_A_SECOND: u32 = 10_000;

/// When a file is moved away.
#[derive(Clone, Debug, Parameters)]
pub(super) struct FileRotation {
    /// Size from which the file is moved away: `app.log` to `app.20261128-120301.log`. The next records go to a new file.
    /// By default the size does not matter. With the format parquet: size of the records in memory of which a file is
    /// made, 32MiB by default.
    #[parameter(greater_than = 0)]
    pub(super) bytes: Option<ByteSize>,
    /// Age from which the file is moved away, at the next write. By default the age does not matter. With the format
    /// parquet: time for which the first record of a file waits for others, 10s by default.
    #[parameter(greater_than = 0)]
    pub(super) interval: Option<Duration>,
}

impl FileRotation {
    /// Returns `true` if files are moved away at all.
    pub(super) fn is_on(&self) -> bool {
        self.bytes.is_some() || self.interval.is_some()
    }

    /// Returns `true` if the file is to be moved away before the next write.
    pub(super) fn is_due(&self, file: &Metadata) -> bool {
        if file.len() == 0 {
            return false;
        }
        let is_old = |interval: Duration| {
            // Without a creation time, an idle file is moved away before the next write.
            let since = file.created().or_else(|_| file.modified());
            since.is_ok_and(|since| since.elapsed().is_ok_and(|age| age >= interval))
        };
        self.bytes.is_some_and(|limit| file.len() >= limit.0) || self.interval.is_some_and(is_old)
    }

    /// Gives a file the name with the current time. Never replaces another file.
    ///
    /// # Errors
    /// The file cannot be renamed.
    pub(super) fn move_away(&self, path: &Path) -> io::Result<()> {
        let now = chrono::DateTime::<chrono::Utc>::from(SystemTime::now()).format("%Y%m%d-%H%M%S").to_string();
        for number in 0..MOST_IN_A_SECOND {
            let number = if number > 0 { format!("-{number}") } else { String::new() };
            let target = named_with(path, &format!("{now}{number}"));
            if fs::symlink_metadata(&target).is_ok() {
                continue;
            }
            return fs::rename(path, target);
        }
        Err(io::Error::new(io::ErrorKind::AlreadyExists, "too many files were moved away in this second"))
    }
}

/// Returns `app.TEXT.log` for `app.log`.
pub(super) fn named_with(path: &Path, text: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // A leading dot belongs to the name.
    let dot = name.char_indices().skip(1).find(|(_, c)| *c == '.').map_or(name.len(), |(at, _)| at);
    let (stem, endings) = name.split_at(dot);
    path.with_file_name(format!("{stem}.{text}{endings}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_in_the_name_and_no_file_is_replaced() {
        let name = |path: &str, text: &str| named_with(Path::new(path), text).display().to_string();
        assert_eq!(name("a/app.log", "T"), "a/app.T.log");
        assert_eq!(name("app.ndjson.gz", "T-2"), "app.T-2.ndjson.gz");
        assert_eq!((name("app", "T"), name(".app", "T")), ("app.T".to_owned(), ".app.T".to_owned()));
        let directory = tempfile::tempdir().unwrap();
        let rotation = FileRotation { bytes: Some(ByteSize(1)), interval: None };
        for n in 0..5 {
            let path = directory.path().join("out.log");
            fs::write(&path, n.to_string()).unwrap();
            assert!(rotation.is_due(&fs::metadata(&path).unwrap()));
            rotation.move_away(&path).unwrap();
        }
        let files =
            fs::read_dir(directory.path()).unwrap().map(|file| fs::read_to_string(file.unwrap().path()).unwrap());
        let mut files: Vec<String> = files.collect();
        files.sort();
        assert_eq!(files, ["0", "1", "2", "3", "4"]);
    }
}
