//! Patterns of paths, and the files that match them.

use std::io;
use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};
use walkdir::{DirEntry, WalkDir};

/// Characters that make a path a pattern.
const WILDCARDS: [char; 4] = ['*', '?', '[', '{'];

/// The files that a source reads.
#[derive(Clone, Debug)]
pub(super) enum PathPattern {
    /// One file.
    File(PathBuf),
    /// The files in a directory, not those in its subdirectories.
    Directory(PathBuf),
    /// The files whose path matches.
    Glob(Box<GlobFiles>),
}

/// The files whose path matches a glob pattern.
#[derive(Clone, Debug)]
pub(super) struct GlobFiles {
    /// The directory above the first part with a wildcard.
    base: PathBuf,
    /// Number of parts of matching paths below the base; `None` = any.
    depth: Option<usize>,
    /// True if a part of the pattern begins with a dot: then it also matches hidden files.
    hidden: bool,
    matcher: GlobMatcher,
}

impl PathPattern {
    /// Reads a pattern. A path that ends with a slash is a directory.
    ///
    /// # Errors
    /// The reason why the text is not a pattern.
    pub(super) fn new(text: &str) -> Result<Self, String> {
        if !text.contains(WILDCARDS) && !text.ends_with('/') {
            return Ok(PathPattern::File(PathBuf::from(text)));
        }
        // `./a` and `a` are the same file, but only one of them is listed.
        let text = match text.trim_start_matches("./") {
            "" => "./",
            text => text,
        };
        if !text.contains(WILDCARDS) {
            return Ok(PathPattern::Directory(PathBuf::from(if text == "./" { "" } else { text })));
        }
        let glob = GlobBuilder::new(text).literal_separator(true).backslash_escape(true).build();
        let matcher = glob.map_err(|error| error.kind().to_string())?.compile_matcher();
        let wild = text.find(WILDCARDS).unwrap_or(text.len());
        let base = text[..wild].rfind('/').map_or("", |slash| &text[..=slash]);
        let below = &text[base.len()..];
        // A slash within braces does not tell the depth.
        let is_plain = !(below.contains("**") || below.contains('{') && below.contains('/'));
        Ok(PathPattern::Glob(Box::new(GlobFiles {
            base: PathBuf::from(base),
            depth: is_plain.then(|| below.split('/').filter(|part| !part.is_empty()).count()),
            hidden: below.split(['/', '{', ',']).any(|part| part.starts_with('.')),
            matcher,
        })))
    }

    /// Returns `true` if the source may read several files.
    pub(super) fn is_of_several(&self) -> bool {
        !matches!(self, PathPattern::File(_))
    }

    /// Returns `true` if the source reads the file at a path.
    pub(super) fn contains(&self, path: &Path) -> bool {
        match self {
            PathPattern::File(file) => file == path,
            PathPattern::Directory(directory) => path.parent().is_some_and(|parent| parent == directory.as_path()),
            PathPattern::Glob(glob) => {
                let is_hidden = |part: &std::ffi::OsStr| part.as_encoded_bytes().starts_with(b".");
                let below = path.strip_prefix(&glob.base).unwrap_or(path);
                glob.matcher.is_match(path) && (glob.hidden || !below.iter().any(is_hidden))
            }
        }
    }

    /// Lists the files, in the order of their paths, with hidden ones left out unless the pattern names them. Blocks.
    ///
    /// # Errors
    /// A directory cannot be listed. A missing directory is empty, and so is one that disappears meanwhile.
    pub(super) fn list(&self) -> io::Result<Vec<ListedFile>> {
        let (base, depth, hidden) = match self {
            PathPattern::File(path) => return Ok(ListedFile::at(path.clone())?.into_iter().collect()),
            PathPattern::Directory(path) => (path, Some(1), false),
            PathPattern::Glob(glob) => (&glob.base, glob.depth, glob.hidden),
        };
        let root = if base.as_os_str().is_empty() { Path::new(".") } else { base.as_path() };
        let is_shown =
            |entry: &DirEntry| hidden || entry.depth() == 0 || !entry.file_name().as_encoded_bytes().starts_with(b".");
        let walk = WalkDir::new(root).min_depth(1).max_depth(depth.unwrap_or(usize::MAX));
        let mut files = Vec::new();
        for entry in walk.into_iter().filter_entry(is_shown) {
            let entry = match entry.map_err(io::Error::from) {
                Ok(entry) => entry,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            if entry.file_type().is_dir() {
                continue;
            }
            // Paths below the working directory are listed with `./`.
            let path = entry.path().strip_prefix("./").unwrap_or(entry.path());
            if self.contains(path) {
                files.extend(ListedFile::at(path.to_owned())?);
            }
        }
        files.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        Ok(files)
    }
}

/// A regular file that was found.
#[derive(Clone, Debug)]
pub(super) struct ListedFile {
    pub(super) path: PathBuf,
    pub(super) metadata: std::fs::Metadata,
}

impl ListedFile {
    /// Looks at a path. Returns `None` if it does not lead to a regular file.
    fn at(path: PathBuf) -> io::Result<Option<Self>> {
        match std::fs::metadata(&path) {
            Ok(metadata) => Ok(metadata.is_file().then_some(ListedFile { path, metadata })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn found(root: &Path, pattern: &str) -> Vec<String> {
        let pattern = PathPattern::new(&format!("{}/{pattern}", root.display())).unwrap();
        let files = pattern.list().unwrap();
        assert!(files.iter().all(|file| pattern.contains(&file.path)));
        files.iter().map(|file| file.path.strip_prefix(root).unwrap().display().to_string()).collect()
    }

    #[test]
    fn patterns_and_directories_find_files_in_the_order_of_their_paths() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::create_dir_all(root.join("b/c")).unwrap();
        for name in ["2.log", "10.log", "x.txt", "b/1.log", "b/c/3.log", ".hidden.log", "b/[x].log"] {
            fs::write(root.join(name), "").unwrap();
        }
        assert_eq!(found(root, "*.log"), ["10.log", "2.log"]);
        assert_eq!(found(root, "?.log"), ["2.log"]);
        assert_eq!(found(root, "**/*.log"), ["10.log", "2.log", "b/1.log", "b/[x].log", "b/c/3.log"]);
        assert_eq!(found(root, "*/*.log"), ["b/1.log", "b/[x].log"]);
        assert_eq!(found(root, "{2.log,b/*.log,x.*}"), ["2.log", "b/1.log", "b/[x].log", "x.txt"]);
        assert_eq!(found(root, "b/[[]x].log"), ["b/[x].log"]);
        assert_eq!(found(root, ".*.log"), [".hidden.log"]);
        assert_eq!(found(root, "b/"), ["b/1.log", "b/[x].log"]);
        assert_eq!(found(root, "x.txt"), ["x.txt"]);
        assert_eq!(found(root, "missing/*.log"), [""; 0]);
        assert!(PathPattern::new("a[").is_err());
    }
}
