//! The files that the destination has open. Everything here blocks.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::file::appender::Appender;
use crate::file::compression::Codec;
use crate::file::file_rotation::FileRotation;
use crate::file::frame::Frame;

/// How files are written.
#[derive(Clone, Debug)]
pub(super) struct WriteOptions {
    /// True if records count as delivered only when they survive a power failure.
    pub(super) sync: bool,
    pub(super) codec: Option<Codec>,
    pub(super) rotation: FileRotation,
    /// The bytes after each record.
    pub(super) delimiter: Vec<u8>,
    /// The bytes that begin each new file.
    pub(super) header: Vec<u8>,
    /// Maximum number of open files.
    pub(super) most: usize,
    /// The directory that all files are in, if records choose them: missing directories below it are created.
    pub(super) below: Option<PathBuf>,
}

/// The open files, and the records that they receive next.
#[derive(Debug)]
pub(super) struct OpenFiles {
    options: WriteOptions,
    files: Vec<OutputFile>,
    /// Places in `files` by path.
    places: HashMap<PathBuf, usize>,
    /// The files of the current write, in the order of their first records.
    order: Vec<usize>,
    /// Number of writes to files so far.
    writes: u64,
    warnings: Vec<String>,
}

#[derive(Debug)]
struct OutputFile {
    path: PathBuf,
    appender: Option<Appender>,
    frame: Frame,
    /// Number of the last write to the file.
    used: u64,
    /// True if it was written since the last sync.
    is_unsynced: bool,
}

/// Something that is done with a file.
type Action = fn(&mut OpenFiles, usize) -> io::Result<()>;

/// An error, and the path of the file.
pub(super) type FileError = (PathBuf, io::Error);

impl OpenFiles {
    pub(super) fn new(options: WriteOptions) -> Self {
        let (files, places, order) = (Vec::new(), HashMap::new(), Vec::new());
        OpenFiles { options, files, places, order, writes: 0, warnings: Vec::new() }
    }

    /// Opens a file before there are records for it.
    pub(super) fn open(&mut self, path: &Path) -> Result<(), FileError> {
        let place = self.place(path);
        self.open_at(place).map_err(|error| (path.to_owned(), error))
    }

    /// Begins a write. Drops the records of an earlier one that failed.
    pub(super) fn begin(&mut self) {
        for place in self.order.drain(..) {
            self.files[place].frame.clear();
        }
    }

    /// Returns the records of this write for a file.
    pub(super) fn frame(&mut self, path: &Path) -> &mut Frame {
        let place = self.place(path);
        let file = &mut self.files[place];
        if file.frame.is_empty() && !self.order.contains(&place) {
            self.order.push(place);
        }
        &mut file.frame
    }

    fn place(&mut self, path: &Path) -> usize {
        if let Some(place) = self.places.get(path) {
            return *place;
        }
        let mut frame = Frame::new(&self.options.delimiter);
        frame.clear();
        self.files.push(OutputFile { path: path.to_owned(), appender: None, frame, used: 0, is_unsynced: false });
        self.places.insert(path.to_owned(), self.files.len() - 1);
        self.files.len() - 1
    }

    /// Returns `true` if this write has no records.
    pub(super) fn is_empty(&self) -> bool {
        self.order.iter().all(|place| self.files[*place].frame.is_empty())
    }

    /// Appends the records of this write. If a file fails, those before it have theirs.
    pub(super) fn append(&mut self) -> Result<(), FileError> {
        let order = std::mem::take(&mut self.order);
        // A file that cannot be opened is found before others have received their records, as long as they fit.
        let opened = order.iter().take(self.options.most).map(|place| (*place, OpenFiles::open_at as Action));
        let appended = order.iter().map(|place| (*place, OpenFiles::append_at as Action));
        let appended = opened.chain(appended).try_for_each(|(place, action)| {
            action(self, place).map_err(|error| (self.files[place].path.clone(), error))
        });
        self.order = order;
        self.begin();
        self.forget_closed();
        appended
    }

    fn append_at(&mut self, place: usize) -> io::Result<()> {
        if self.files[place].frame.is_empty() {
            return Ok(());
        }
        self.open_at(place)?;
        self.writes += 1;
        let file = &mut self.files[place];
        let Some(appender) = &mut file.appender else { return Ok(()) };
        if self.options.rotation.is_on() {
            appender.rotate_if_due(&self.options.rotation)?;
        }
        if !self.options.header.is_empty() && appender.is_at_start()? {
            file.frame.begin_with(&self.options.header);
        }
        if let Some(codec) = self.options.codec {
            file.frame.compress(codec)?;
        }
        let appended = appender.append(&mut file.frame);
        self.warnings.extend(appender.warnings());
        (file.used, file.is_unsynced) = (self.writes, true);
        appended
    }

    /// Opens a file, unless it is open. Closes another one if too many are.
    fn open_at(&mut self, place: usize) -> io::Result<()> {
        if self.files[place].appender.is_some() {
            return Ok(());
        }
        while self.files.iter().filter(|file| file.appender.is_some()).count() >= self.options.most {
            let open = self.files.iter_mut().filter(|file| file.appender.is_some());
            let Some(oldest) = open.min_by_key(|file| file.used) else { break };
            if let Some(appender) = oldest.appender.as_ref().filter(|_| oldest.is_unsynced && self.options.sync) {
                appender.sync()?;
            }
            (oldest.appender, oldest.is_unsynced) = (None, false);
        }
        let path = &self.files[place].path;
        if let Some(directory) = &self.options.below {
            stays_below(directory, path)?;
            create_directories(path, self.options.sync)?;
        }
        let mut appender = Appender::open(path, self.options.sync)?;
        self.warnings.extend(appender.warnings());
        self.files[place].appender = Some(appender);
        Ok(())
    }

    /// Forgets the files that are closed.
    fn forget_closed(&mut self) {
        if self.files.len() > self.options.most {
            self.files.retain(|file| file.appender.is_some());
            self.places = self.files.iter().enumerate().map(|(at, file)| (file.path.clone(), at)).collect();
        }
    }

    /// Makes all records survive a power failure.
    pub(super) fn sync(&mut self) -> Result<(), FileError> {
        for file in self.files.iter_mut().filter(|file| file.is_unsynced) {
            if let Some(appender) = &file.appender {
                appender.sync().map_err(|error| (file.path.clone(), error))?;
            }
            file.is_unsynced = false;
        }
        Ok(())
    }

    /// Returns the warnings since the last call and removes them.
    pub(super) fn warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }
}

/// Checks that no symbolic link on a path below a directory leads out of this directory, which may itself be behind links.
///
/// # Errors
/// `InvalidFilename` if one does.
pub(super) fn stays_below(directory: &Path, path: &Path) -> io::Result<()> {
    let root = match fs::canonicalize(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        root => root?,
    };
    let mut known = path;
    let is_below = loop {
        match fs::canonicalize(known) {
            Ok(real) => break real.starts_with(&root),
            // A link to a missing file would create it.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !known.is_symlink() => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => break false,
            Err(error) => return Err(error),
        }
        match known.parent() {
            Some(parent) if known != directory => known = parent,
            _ => break true,
        }
    };
    let what = "a symbolic link in it leads out of the directory of the template";
    if is_below { Ok(()) } else { Err(io::Error::new(io::ErrorKind::InvalidFilename, what)) }
}

/// Creates the missing directories of a path. With `sync`, they survive a power failure.
pub(super) fn create_directories(path: &Path, sync: bool) -> io::Result<()> {
    let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) else { return Ok(()) };
    if directory.is_dir() {
        return Ok(());
    }
    create_directories(directory, sync)?;
    match fs::create_dir(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if sync {
        let above = directory.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(above)?.sync_all()?;
    }
    Ok(())
}
