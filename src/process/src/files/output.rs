//! Writing a file that a user names: it replaces only what the same command wrote before.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::{parent_directory, read_text, system};
use crate::terminal::{self, Stream};

/// File names of standard output.
pub const STANDARD_OUTPUT: [&str; 3] = ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];
/// The largest file that is read to find out what wrote it.
const LARGEST: u64 = 64 << 20;

/// Kinds of files that commands write, each as the commands name it in messages.
#[derive(Clone, Copy, Debug)]
pub struct OutputKind {
    /// With its article: `a JUnit report`.
    pub what: &'static str,
    /// Returns `true` for a text that the command wrote before.
    pub is_ours: fn(&str) -> bool,
}

/// A file cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum Unwritable {
    /// A directory has that name.
    #[error("{} is a directory: nothing was written", .0.display())]
    Directory(PathBuf),
    /// It holds something that the command did not write.
    #[error("{} exists and is not {what}: nothing was written", .path.display())]
    Taken {
        /// The file.
        path: PathBuf,
        /// Name of the written content.
        what: &'static str,
    },
    /// The system refuses.
    #[error("cannot write {}: {}", .path.display(), system(.error))]
    System {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl Unwritable {
    /// Advice for the case that another name helps.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            Unwritable::Directory(_) => Some("give the path of a file in it"),
            Unwritable::Taken { .. } => Some("give a file that does not exist, or one that this command wrote"),
            Unwritable::System { .. } => None,
        }
    }
}

/// Content of a path to which a file may be written.
#[derive(Debug)]
enum PathState {
    /// Nothing exists: a file is created.
    Free,
    /// A file of the same kind or without content: it is replaced.
    Replaceable,
    /// A device, a pipe or an open file of this process: it is written to.
    Stream,
}

/// Returns `true` if a file of this kind may be written at a path. Reads a file that is there, up to 64 MiB.
///
/// # Errors
/// A directory is there, or a file that holds something else.
pub fn check(path: &Path, kind: OutputKind) -> Result<(), Unwritable> {
    state(path, kind).map(drop)
}

/// Writes a whole file or none, and syncs it. An existing file keeps its mode, and a link stays a link; devices and
/// pipes are written to.
///
/// # Errors
/// Fails if the path is a directory or a file with other content, or if the system refuses. The path stays unchanged.
pub fn write(path: &Path, kind: OutputKind, text: &str) -> Result<(), Unwritable> {
    let written = match state(path, kind)? {
        PathState::Stream => append(path, text),
        PathState::Free => {
            match draft(path, text, Permissions::from_mode(0o666)).map(|draft| draft.persist_noclobber(path)) {
                Ok(Ok(_)) => Ok(()),
                Ok(Err(failed)) if failed.error.kind() == ErrorKind::AlreadyExists => {
                    return Err(Unwritable::Taken { path: path.into(), what: kind.what });
                }
                // A file system without links.
                Ok(Err(failed)) => failed.file.persist(path).map(drop).map_err(|failed| failed.error),
                Err(error) => Err(error),
            }
        }
        PathState::Replaceable => replace(path, text),
    };
    written.map_err(|error| Unwritable::System { path: path.into(), error })
}

/// Replaces a file atomically: a concurrent reader sees either the old or the new text. Its mode stays, and a link to
/// it stays a link.
///
/// # Errors
/// A file-system operation failed; the file is unchanged.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    let path = fs::canonicalize(path)?;
    let mode = fs::metadata(&path)?.permissions();
    let draft = draft(&path, text, mode.clone())?;
    // The mode of a new file is subject to the umask.
    fs::set_permissions(draft.path(), mode)?;
    draft.persist(&path).map(drop).map_err(|failed| failed.error)
}

fn state(path: &Path, kind: OutputKind) -> Result<PathState, Unwritable> {
    // It may be a regular file, to which its other writers still write.
    if is_open_file(path) {
        return Ok(PathState::Stream);
    }
    let refused = |error| Unwritable::System { path: path.into(), error };
    let metadata = match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound && fs::symlink_metadata(path).is_err() => {
            return Ok(PathState::Free);
        }
        metadata => metadata.map_err(refused)?,
    };
    if metadata.is_dir() {
        return Err(Unwritable::Directory(path.into()));
    }
    if !metadata.is_file() {
        return Ok(PathState::Stream);
    }
    let is_ours = metadata.len() == 0 || read_text(path, LARGEST).is_ok_and(|text| (kind.is_ours)(&text));
    match is_ours {
        true => Ok(PathState::Replaceable),
        false => Err(Unwritable::Taken { path: path.into(), what: kind.what }),
    }
}

/// Returns `true` if a path names the standard output of this process.
pub fn is_standard_output(path: &Path) -> bool {
    path.to_str().is_some_and(|path| STANDARD_OUTPUT.contains(&path))
}

/// Returns `true` if a path names an open file of this process.
fn is_open_file(path: &Path) -> bool {
    let numbered = ["/dev/fd", "/proc/self/fd"].map(Path::new);
    let standard = ["/dev/stdout", "/dev/stderr"].map(Path::new);
    standard.contains(&path) || path.parent().is_some_and(|parent| numbered.contains(&parent))
}

/// A synced file beside a path.
fn draft(path: &Path, text: &str, mode: Permissions) -> io::Result<tempfile::NamedTempFile> {
    let mut draft = tempfile::Builder::new().permissions(mode).tempfile_in(parent_directory(path))?;
    draft.write_all(text.as_bytes())?;
    draft.as_file().sync_all()?;
    Ok(draft)
}

fn append(path: &Path, text: &str) -> io::Result<()> {
    if is_standard_output(path) {
        return terminal::print(Stream::Out, text);
    }
    let mut file = match is_pipe(path) {
        true => open_pipe(path, |note| drop(terminal::print(Stream::Err, note)))?,
        false => OpenOptions::new().append(true).open(path)?,
    };
    file.write_all(text.as_bytes())
}

fn is_pipe(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo())
}

/// Opens a named pipe for writing. If nothing reads it yet, passes a note to `say` and waits for a reader.
fn open_pipe(path: &Path, say: impl FnOnce(&str)) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    match OpenOptions::new().write(true).custom_flags(flags).open(path) {
        Ok(file) => {
            let flags = rustix::fs::fcntl_getfl(&file)?;
            rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
            Ok(file)
        }
        Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => {
            say(&format!("{} is a named pipe: waiting for a program that reads it\n", path.display()));
            OpenOptions::new().write(true).open(path)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const KIND: OutputKind = OutputKind { what: "a list", is_ours: |text| text.starts_with("list") };

    #[test]
    fn only_what_the_same_command_wrote_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let read = |name: &str| fs::read(path(name)).unwrap();
        write(&path("new"), KIND, "list 1").unwrap();
        fs::set_permissions(path("new"), Permissions::from_mode(0o640)).unwrap();
        symlink("new", path("link")).unwrap();
        write(&path("link"), KIND, "list 2").unwrap();
        assert_eq!(read("new"), b"list 2");
        assert_eq!(fs::metadata(path("new")).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(fs::symlink_metadata(path("link")).unwrap().is_symlink());
        fs::write(path("empty"), "").unwrap();
        write(&path("empty"), KIND, "list 3").unwrap();
        assert_eq!(read("empty"), b"list 3");

        for content in [&b"version: 2.2"[..], b"redb\x1a\x0a\xa9", b"\xff", b" list"] {
            fs::write(path("other"), content).unwrap();
            symlink("other", path("to-other")).unwrap();
            for name in ["other", "to-other"] {
                let error = write(&path(name), KIND, "list").unwrap_err();
                assert!(matches!(error, Unwritable::Taken { .. }), "{error}");
                assert!(matches!(check(&path(name), KIND), Err(Unwritable::Taken { .. })));
            }
            assert_eq!(read("other"), content);
            fs::remove_file(path("to-other")).unwrap();
        }
        assert!(matches!(write(directory.path(), KIND, "list"), Err(Unwritable::Directory(_))));
        symlink("nowhere", path("dangling")).unwrap();
        assert!(matches!(write(&path("dangling"), KIND, "list"), Err(Unwritable::System { .. })));
    }

    fn pipe(directory: &Path) -> PathBuf {
        let path = directory.join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        path
    }

    #[test]
    fn a_pipe_without_a_reader_is_waited_for_with_a_note() {
        let directory = tempfile::tempdir().unwrap();
        let path = pipe(directory.path());
        let (said, note) = std::sync::mpsc::channel();
        let reader = std::thread::spawn({
            let path = path.clone();
            // Reads only when the note has come.
            move || note.recv().map(|note: String| (note, fs::read(path).unwrap().len())).unwrap()
        });
        let mut file = open_pipe(&path, |note| said.send(note.to_owned()).unwrap()).unwrap();
        // More than a pipe holds.
        file.write_all(&[b'x'; 1 << 20]).unwrap();
        drop(file);
        let note = format!("{} is a named pipe: waiting for a program that reads it\n", path.display());
        assert_eq!(reader.join().unwrap(), (note, 1 << 20));
    }

    #[test]
    fn a_pipe_with_a_reader_is_written_as_fast_as_it_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = pipe(directory.path());
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let reader = OpenOptions::new().read(true).custom_flags(flags).open(&path).unwrap();
        let mut file = open_pipe(&path, |note| panic!("{note}")).unwrap();
        rustix::fs::fcntl_setfl(&reader, OFlags::empty()).unwrap();
        let reader = std::thread::spawn(move || io::read_to_string(reader).unwrap().len());
        file.write_all(&[b'x'; 1 << 20]).unwrap();
        drop(file);
        assert_eq!(reader.join().unwrap(), 1 << 20);
    }

    #[test]
    fn devices_and_pipes_are_written_to() {
        let directory = tempfile::tempdir().unwrap();
        let path = pipe(directory.path());
        let reader = std::thread::spawn({
            let path = path.clone();
            move || fs::read_to_string(path).unwrap()
        });
        write(&path, KIND, "list").unwrap();
        assert_eq!(reader.join().unwrap(), "list");
        assert!(fs::symlink_metadata(&path).unwrap().file_type().is_fifo());
        write(Path::new("/dev/null"), KIND, "list").unwrap();
        let full = write(Path::new("/dev/full"), KIND, "list").unwrap_err();
        assert_eq!(full.to_string(), "cannot write /dev/full: no space left on device");
    }
}
