//! Reading files of users: with size limits, and with errors that contain the remedy.

pub mod output;

use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use anabranch_ops_tls::open_regular;
use anabranch_plugin::diagnostic::{Diagnostic, Files};

use crate::codes;

/// Maximum size of a pipeline file in bytes.
pub const MAX_PIPELINE_FILE: u64 = 8 << 20;

/// Reason why a text file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UnreadableText {
    /// The file does not exist.
    #[error("no such file or directory")]
    Missing,
    /// The path is a directory, a device or a socket.
    #[error("it is not a regular file")]
    NotAFile,
    /// The file exceeds the size limit.
    #[error("it is too large: {bytes} bytes, the limit is {limit} bytes")]
    TooLarge {
        /// Its size, as far as it was read.
        bytes: u64,
        /// The size limit.
        limit: u64,
    },
    /// The content is not text.
    #[error("it is not text: byte {offset} is not valid UTF-8")]
    NotText {
        /// Offset of the first invalid byte.
        offset: usize,
    },
    /// An operation of the file system failed.
    #[error("{}", system(.0))]
    System(#[source] std::io::Error),
}

/// Returns the directory of a file; the working directory for a bare name.
pub fn parent_directory(file: &Path) -> &Path {
    file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns the message of an operating-system error without its number.
pub fn system(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "no such file or directory".to_owned(),
        ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => {
            let text = error.to_string();
            let end = text.find(" (os error").unwrap_or(text.len());
            text[..end].to_lowercase()
        }
    }
}

/// Returns the content of a text file of at most `limit` bytes. A larger file is refused without reading it.
///
/// # Errors
/// The file is missing, not regular, too large or not text, or the system refuses.
pub fn read_text(path: &Path, limit: u64) -> Result<String, UnreadableText> {
    let bytes = read_bytes(path, limit)?;
    String::from_utf8(bytes).map_err(|error| UnreadableText::NotText { offset: error.utf8_error().valid_up_to() })
}

/// Returns the content of a file of at most `limit` bytes. A larger file is refused without reading it.
///
/// # Errors
/// The file is missing, not regular or too large, or the system refuses.
fn read_bytes(path: &Path, limit: u64) -> Result<Vec<u8>, UnreadableText> {
    let refused = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => UnreadableText::Missing,
        _ => UnreadableText::System(error),
    };
    let metadata = std::fs::metadata(path).map_err(refused)?;
    if !metadata.is_file() {
        return Err(UnreadableText::NotAFile);
    }
    if metadata.len() > limit {
        return Err(UnreadableText::TooLarge { bytes: metadata.len(), limit });
    }
    let mut bytes = Vec::with_capacity(metadata.len() as usize);
    // Another file may have replaced it since: reading a named pipe would block.
    open_regular(path).and_then(|file| file.take(limit + 1).read_to_end(&mut bytes)).map_err(refused)?;
    if bytes.len() as u64 > limit {
        return Err(UnreadableText::TooLarge { bytes: bytes.len() as u64, limit });
    }
    Ok(bytes)
}

/// The result of a search for pipeline files.
#[derive(Debug, Default)]
pub struct PipelineFiles {
    /// Readable files, sorted by name.
    pub files: Files,
    /// Unreadable files, with the reason.
    pub unreadable: Vec<(PathBuf, Diagnostic)>,
}

/// Returns `true` if a file contains tests of pipelines, judging by its name: `orders.test.yaml`.
pub fn is_test(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    name.ends_with(".test.yaml") || name.ends_with(".test.yml")
}

/// Returns `true` if a file is hidden, judging by its name: editors keep locks and copies in such files, such as
/// `.#orders.yaml`.
fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'))
}

/// Returns `true` if a file in a directory declares pipelines, judging by its name.
pub fn is_pipeline_file(path: &Path) -> bool {
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase());
    matches!(extension.as_deref(), Some("yml" | "yaml")) && !is_test(path) && !is_hidden(path)
}

/// Finds pipeline files at `paths`: a file whatever its name; in a directory, the direct children named `*.yml` or
/// `*.yaml` that are neither tests nor hidden, sorted by name.
pub fn find_pipelines<P: AsRef<Path>>(paths: &[P]) -> PipelineFiles {
    let mut found = PipelineFiles::default();
    for path in paths {
        let path = path.as_ref();
        if !path.is_dir() {
            found.add(path);
            continue;
        }
        match children(path) {
            Ok(children) => children.iter().for_each(|child| found.add(child)),
            Err(error) => found.refuse(path, &UnreadableText::System(error)),
        }
    }
    found
}

/// Returns the paths of the pipeline files at a path, sorted: the file itself, or the direct children of a directory.
///
/// # Errors
/// The directory cannot be listed.
pub fn pipeline_files(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    if path.is_dir() { children(path) } else { Ok(vec![path.to_path_buf()]) }
}

impl PipelineFiles {
    fn add(&mut self, path: &Path) {
        match read_bytes(path, MAX_PIPELINE_FILE) {
            // The parser refuses a file that is not text, and can show the place.
            Ok(bytes) => {
                self.files.add_bytes(path.display().to_string(), bytes);
            }
            Err(error) => self.refuse(path, &error),
        }
    }

    fn refuse(&mut self, path: &Path, error: &UnreadableText) {
        let finding = Diagnostic::error(codes::CONFIG_UNREADABLE, format!("cannot read {}: {error}", path.display()));
        let name = path.to_string_lossy();
        let is_id = !name.contains(['/', '.', '\\']);
        let hint = match error {
            UnreadableText::Missing if is_id => Some(
                "if this is the id of a pipeline, give the path of its file; without a path, the command checks all \
                 pipelines in `pipelines.path`",
            ),
            UnreadableText::Missing => {
                Some("`anabranch init` creates the directory, `anabranch pipelines init` writes a pipeline")
            }
            UnreadableText::TooLarge { .. } => Some("if this is a pipeline file, split it"),
            UnreadableText::NotText { .. } | UnreadableText::NotAFile | UnreadableText::System(_) => None,
        };
        let finding = match hint {
            Some(hint) => finding.with_hint(hint),
            None => finding,
        };
        self.unreadable.push((path.to_path_buf(), finding));
    }
}

/// Returns the files of a directory whose names do not begin with a dot, in the order of their names, or none if the directory
/// cannot be read. Follows links.
pub fn visible_files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_hidden = |path: &Path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let mut files: Vec<PathBuf> = entries.filter(|path| !is_hidden(path) && path.is_file()).collect();
    files.sort();
    files
}

fn children(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        // A directory or device with such a name is not a pipeline file; a dangling link counts as a missing file.
        let file = std::fs::metadata(&path).map_or(true, |m| m.is_file());
        if file && is_pipeline_file(&path) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_directory_gives_its_yaml_files_in_order() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["b.yaml", "a.YML", "c.txt", "d.yaml.bak", "b.test.yaml"] {
            std::fs::write(directory.path().join(name), "x").unwrap();
        }
        std::fs::create_dir(directory.path().join("sub.yml")).unwrap();
        let found = find_pipelines(&[directory.path()]);
        let names: Vec<_> = (0..3).filter_map(|i| found.files.get(anabranch_plugin::diagnostic::FileId(i))).collect();
        assert_eq!(names.len(), 2);
        assert!(names[0].name.ends_with("a.YML") && names[1].name.ends_with("b.yaml"));
    }

    #[test]
    #[cfg(unix)]
    fn what_editors_leave_in_a_directory_is_no_pipeline() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["a.yaml", ".a.yaml", "._a.yml", ".#b.yaml"] {
            std::fs::write(directory.path().join(name), "x").unwrap();
        }
        // A lock file of Emacs is a dangling link.
        std::os::unix::fs::symlink("me@host.1:2", directory.path().join(".#a.yaml")).unwrap();
        let found = find_pipelines(&[directory.path()]);
        assert_eq!((found.files.iter().count(), found.unreadable.len()), (1, 0));
        assert_eq!(pipeline_files(directory.path()).unwrap(), [directory.path().join("a.yaml")]);
        // The user named the file explicitly.
        assert_eq!(find_pipelines(&[directory.path().join(".a.yaml")]).files.iter().count(), 1);
    }

    #[test]
    fn what_is_not_text_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let binary = directory.path().join("binary.yaml");
        std::fs::write(&binary, b"ok\xff\xfe").unwrap();
        assert!(matches!(read_text(&binary, 100), Err(UnreadableText::NotText { offset: 2 })));
        assert!(matches!(read_text(&binary, 3), Err(UnreadableText::TooLarge { bytes: 4, limit: 3 })));
        assert!(matches!(read_text(Path::new("/dev/zero"), 3), Err(UnreadableText::NotAFile)));
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        let directory = tempfile::tempdir().unwrap();
        let large = directory.path().join("large.yaml");
        File::create(&large).unwrap().set_len(100 << 20).unwrap();
        let found = find_pipelines(&[directory.path(), Path::new("/nowhere")]);
        let messages: Vec<_> = found.unreadable.iter().map(|(_, d)| d.message.clone()).collect();
        assert!(messages[0].ends_with("it is too large: 104857600 bytes, the limit is 8388608 bytes"), "{messages:?}");
        assert_eq!(messages[1], "cannot read /nowhere: no such file or directory");
        let hint = |path: &str| find_pipelines(&[Path::new(path)]).unreadable.remove(0).1.hint.unwrap_or_default();
        assert!(hint("/nowhere").starts_with("`anabranch init`"));
        assert!(hint("orders-of-nobody").starts_with("if this is the id of a pipeline"));
    }
}
