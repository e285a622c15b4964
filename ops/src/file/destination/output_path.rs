//! The paths that the destination writes: one for all records, or one for each record by a template.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::parameters::Argument;
use anabranch_record::Record;
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use anabranch_template::{MissingKey, Template};

use crate::codes;
use crate::file::appender::STANDARD_OUTPUT;
use crate::file::intent::Intents;

/// The setting `path`.
#[derive(Clone, Debug)]
pub(super) enum OutputPath {
    One(PathBuf),
    ByRecord(PathTemplate),
}

/// A template for paths below a directory.
#[derive(Clone, Debug)]
pub(super) struct PathTemplate {
    pub(super) template: Arc<Template>,
    /// The text before the first action, up to its last slash. Every path begins with it.
    pub(super) directory: Str,
}

/// The path that stands for standard output.
const DASH: &str = "-";

impl OutputPath {
    /// Reads the setting.
    ///
    /// # Errors
    /// The template does not compile, or does not begin with a directory.
    pub(super) fn new(path: &Argument<PathBuf>) -> Result<Self, Diagnostics> {
        let text = path.text();
        let Some((before, _)) = text.split_once("{{") else {
            let is_output = **text == *DASH;
            return Ok(OutputPath::One(if is_output { PathBuf::from(STANDARD_OUTPUT) } else { (**path).clone() }));
        };
        let template = path.compile_template(MissingKey::Error)?;
        let Some((directory, _)) = before.rsplit_once('/') else {
            let finding = path.invalid("the template does not begin with a directory");
            return Err(finding.with_hint("write a fixed directory first, as in out/{{ … }}.ndjson").into());
        };
        Ok(OutputPath::ByRecord(PathTemplate {
            template: Arc::new(template),
            directory: format!("{directory}/").into(),
        }))
    }

    /// Returns the only file, if its path is UTF-8.
    pub(super) fn file(&self) -> Option<&str> {
        match self {
            OutputPath::One(path) => path.to_str(),
            OutputPath::ByRecord(_) => None,
        }
    }

    /// Returns the directory that all files are in, if records choose them.
    pub(super) fn directory(&self) -> Option<&str> {
        match self {
            OutputPath::One(_) => None,
            OutputPath::ByRecord(paths) => Some(&paths.directory),
        }
    }
}

/// Maximum length of a part of a path in bytes, on all usual file systems.
const MOST_PART: usize = 255;

/// Maximum length of a name in bytes: files beside it have longer names, such as the one of unfinished writes.
const MOST_NAME: usize = MOST_PART - 35;

/// Maximum length of a path in bytes: that of Linux, without what precedes a relative path and follows in longer names.
const MOST_PATH: usize = 4096 - 1024;

impl PathTemplate {
    /// Appends the path of a record to `path`, which is empty.
    ///
    /// # Errors
    /// The template fails, or its output is not a path of a file below the directory.
    pub(super) fn render(&self, record: &Record, path: &mut String) -> Result<(), Fault> {
        self.template.render(record, path).map_err(|error| Fault::record(codes::TEMPLATE_FAILED, error))?;
        let refused = |why: &str| Err(Fault::record(codes::PATH_REFUSED, format!("the path {path:?} {why}")));
        let Some(below) = path.strip_prefix(self.directory.as_str()) else {
            return refused("does not begin with the directory of the template");
        };
        if below.is_empty() || below.ends_with('/') {
            return refused("does not name a file");
        }
        if below.contains('\0') {
            return refused("contains a zero byte");
        }
        let name = below.rsplit('/').next().unwrap_or_default();
        if Intents::is_named(name) {
            return refused("names a file that records unfinished writes");
        }
        let longest = below.split('/').map(str::len).max().unwrap_or_default();
        if longest > MOST_PART || name.len() > MOST_NAME || path.len() > MOST_PATH {
            return refused("is too long for a file system");
        }
        // `//` would be another name of the same file.
        let is_plain = Path::new(below).components().all(|part| matches!(part, Component::Normal(_)));
        if !is_plain || below.split('/').any(|part| part.is_empty() || part == ".") {
            return refused("has an empty part, `.` or `..`, so that it may lead out of the directory of the template");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use anabranch_record::{Data, Position};

    use super::*;

    #[test]
    fn a_path_stays_below_the_directory_of_the_template() {
        let template = Template::parse(r#"out/x-{{ printf "%s" .Payload.After }}"#, MissingKey::Error).unwrap();
        let paths = PathTemplate { template: Arc::new(template), directory: "out/".into() };
        let path = |text: &str| {
            let mut path = String::new();
            let record = Record::create(Position::default(), Data::Absent, Data::text(text));
            paths.render(&record, &mut path).map(|()| path).map_err(|fault| fault.code().name().to_owned())
        };
        assert_eq!(path("a.ndjson").unwrap(), "out/x-a.ndjson");
        assert_eq!(path("a/b/..c").unwrap(), "out/x-a/b/..c");
        for refused in ["/../a", "/..", "a/", "a//b", "a/./b", "a\0b", "a/../../../etc/passwd", "/.a.anabranch"] {
            assert_eq!(path(refused).unwrap_err(), "path_refused", "{refused}");
        }
        for (part, name, is_refused) in [(254, 210, false), (256, 10, true), (10, 255, true)] {
            let long = format!("{}/{}", "a".repeat(part - 2), "b".repeat(name));
            assert_eq!(path(&long).is_err(), is_refused, "{part} and {name} bytes");
        }
        assert_eq!(path(&"a/".repeat(2_000)).unwrap_err(), "path_refused");
        assert_eq!(path(&("a/".repeat(2_000) + "a")).unwrap_err(), "path_refused");
    }
}
