//! Settings of the source.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::parameters::{Argument, ByteSize, Choice, Parameters};
use anabranch_record::text::Str;
use memchr::memmem::Finder;
use regex::bytes::RegexBuilder;

use super::partition::{Begin, FileFormat};
use crate::csv::Dialect;
use crate::file::compression::Compression;
use crate::file::escapes::unescaped;
use crate::file::framing::{CsvDialect, Framing};

/// Maximum size of a compiled expression, in bytes.
const COMPILED_BYTES: usize = 4 << 20;

#[derive(Parameters)]
pub(super) struct Settings {
    /// The file. A path with `*`, `?`, `[` or `{` is a pattern, a path that ends with / means the files in that directory,
    /// and - is standard input.
    pub(super) path: Argument<PathBuf>,
    /// Compression of the files: auto (gzip or zstd, if a file begins like it), none, gzip or zstd.
    #[parameter(default = "auto")]
    compression: Argument<Compression>,
    /// Kind of records: lines, multiline (lines from one that matches multiline.startPattern to the next), csv (a row),
    /// json (a value), delimiter (the bytes before the delimiter), whole (the file) or parquet (a row of a Parquet file).
    #[parameter(default = "lines")]
    framing: Argument<FramingName>,
    /// The bytes between two records, for the framing delimiter. \n, \r, \t, \0, \\ and \xHH stand for bytes.
    delimiter: Argument<Option<Str>>,
    #[parameter(nested)]
    multiline: MultilineSettings,
    #[parameter(nested)]
    csv: CsvSettings,
    /// Where to begin in the files that exist when the pipeline starts for the first time: beginning or end. Files that
    /// appear later are read from their beginning.
    #[parameter(default = "beginning")]
    pub(super) start_at: Begin,
    /// Pause between two searches for new and changed files. One plain file with lines is read as it is written.
    #[parameter(default = "500ms", greater_than = 0)]
    pub(super) polling_period: Duration,
    /// Time without growth after which the rest of a file is a record, although its end is not there.
    #[parameter(default = "1s")]
    settling_period: Duration,
    /// Maximum length of a line or another record. A longer one stops the pipeline. It limits the memory of a record.
    #[parameter(default = "64MiB", greater_than = 0)]
    max_line_bytes: ByteSize,
}

#[derive(Parameters)]
struct MultilineSettings {
    /// A regular expression for the first line of a record, such as ^\d{4}-\d{2}-\d{2}, for the framing multiline. The
    /// syntax is that of the Rust library regex; the time is linear in the length of a line.
    start_pattern: Argument<Option<Str>>,
}

#[derive(Parameters)]
struct CsvSettings {
    /// True if the first row of each file names the columns, for the framing csv. The source then skips it.
    #[parameter(default = true)]
    header: bool,
    /// The character between two values, for the framing csv; \t is a tab.
    #[parameter(default = ",")]
    delimiter: Argument<Str>,
    /// The character around values that contain line breaks, for the framing csv.
    #[parameter(default = "\"")]
    quote: Argument<Str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FramingName {
    Lines,
    Multiline,
    Csv,
    Json,
    Delimiter,
    Whole,
    Parquet,
}

impl Choice for FramingName {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("lines", FramingName::Lines),
        ("multiline", FramingName::Multiline),
        ("csv", FramingName::Csv),
        ("json", FramingName::Json),
        ("delimiter", FramingName::Delimiter),
        ("whole", FramingName::Whole),
        ("parquet", FramingName::Parquet),
    ];
}

impl Choice for Begin {
    const CHOICES: &'static [(&'static str, Self)] = &[("beginning", Begin::Beginning), ("end", Begin::End)];
}

impl Settings {
    /// Returns the format of the files.
    ///
    /// # Errors
    /// A setting is missing, invalid, or has no effect with this framing.
    pub(super) fn format(&self) -> Result<FileFormat, Diagnostics> {
        let framing = *self.framing;
        if self.delimiter.is_some() && framing != FramingName::Delimiter {
            let finding = self.delimiter.invalid("it is used only with the framing delimiter");
            return Err(finding.with_hint("add framing: delimiter, or remove it").into());
        }
        let pattern = &self.multiline.start_pattern;
        if pattern.is_some() && framing != FramingName::Multiline {
            let finding = pattern.invalid("it is used only with the framing multiline");
            return Err(finding.with_hint("add framing: multiline, or remove it").into());
        }
        let framing = match framing {
            FramingName::Lines => Framing::Lines,
            FramingName::Json => Framing::Json,
            FramingName::Whole => Framing::Whole,
            FramingName::Parquet => self.parquet()?,
            FramingName::Csv => {
                let Dialect { delimiter, quote } = Dialect::new(&self.csv.delimiter, &self.csv.quote)?;
                Framing::Csv(CsvDialect { delimiter, quote })
            }
            FramingName::Delimiter => {
                let Some(text) = self.delimiter.as_ref() else {
                    return Err(self.framing.invalid("the framing delimiter needs the setting delimiter").into());
                };
                let bytes = unescaped(text).map_err(|why| self.delimiter.invalid(why))?;
                Framing::Delimiter(Arc::new(Finder::new(&bytes).into_owned()))
            }
            FramingName::Multiline => {
                let Some(text) = pattern.as_ref() else {
                    let what = "the framing multiline needs the setting multiline.startPattern";
                    return Err(self.framing.invalid(what).into());
                };
                let built = RegexBuilder::new(text).size_limit(COMPILED_BYTES).build();
                Framing::Multiline(Arc::new(built.map_err(|error| pattern.invalid(error))?))
            }
        };
        Ok(FileFormat {
            has_header: matches!(framing, Framing::Csv(_)) && self.csv.header,
            compression: match framing {
                // The pages of the file are compressed, and not the file.
                Framing::Parquet => Compression::None,
                _ => *self.compression,
            },
            limit: self.max_line_bytes.to_usize(),
            settling: self.settling_period,
            framing,
        })
    }

    /// Returns the framing parquet.
    ///
    /// # Errors
    /// Another setting contradicts it.
    #[cfg(feature = "parquet")]
    fn parquet(&self) -> Result<Framing, Diagnostics> {
        if matches!(*self.compression, Compression::Always(_)) {
            let finding = self.compression.invalid("a Parquet file is not compressed as a whole");
            return Err(finding.with_hint("remove it: the compression of the pages is in the file").into());
        }
        if **self.path.text() == *super::STANDARD_INPUT {
            let what = "a Parquet file cannot be read from standard input: it is read from its end";
            return Err(self.path.invalid(what).into());
        }
        Ok(Framing::Parquet)
    }

    #[cfg(not(feature = "parquet"))]
    fn parquet(&self) -> Result<Framing, Diagnostics> {
        let (what, hint) = crate::file::table::LEFT_OUT;
        Err(self.framing.invalid(what).with_hint(hint).into())
    }
}
