//! The source `singer`: runs taps, programs that speak the Singer protocol.
//!
//! [`tap`] starts a tap under a supervisor, with private files for its configuration, its [`catalog`] and its state.
//! [`output`] splits its output into lines, [`message`] parses them, and [`decoder`] makes records and positions of them:
//! [`declared`] holds the types of a stream, by which [`convert`] converts values and [`avro`] makes schemas. A position
//! ([`place`]) is the last STATE message. [`source`] runs the tap again when everything before the last state is settled.
//!
//! ```
//! let mut registry = anabranch_plugin::registry::Registry::new();
//! anabranch_ops_singer::register(&mut registry, None);
//! assert!(registry.source("singer").is_ok());
//! ```

mod avro;
mod catalog;
pub mod codes;
mod config;
mod convert;
mod declared;
mod decoder;
mod log;
mod message;
mod output;
mod place;
mod settings;
mod source;
mod tap;

use std::ffi::OsString;
use std::sync::Arc;

use anabranch_plugin::kind;
use anabranch_plugin::registry::Registry;

/// Registers the source. `supervisor` is the program that supervises taps, with its first arguments; see
/// [`command`](anabranch_ops_program::command). Without it, the source can be configured and not opened.
pub fn register(registry: &mut Registry, supervisor: Option<Vec<OsString>>) {
    let supervisor: Option<Arc<[OsString]>> = supervisor.map(Into::into);
    registry.add_source(kind::source(settings::specification(), move |options: settings::SingerOptions| {
        Ok(Arc::new(source::SingerSource::new(settings::configure(options, supervisor.clone())?)) as _)
    }));
}

/// Parsers of bytes from taps, for fuzzing. They must not panic for any input.
pub mod untrusted {
    use crate::catalog::TapCatalog;
    use crate::declared::Properties;
    use crate::message::{TapMessage, parse, without_unreal_numbers};
    use crate::output::{LineBuffer, OutputLine};
    use crate::{avro, convert, log, place};

    /// Splits the output of a tap into lines and decodes them. Records have the last schema.
    pub fn output(bytes: &[u8]) {
        let mut lines = LineBuffer::new(10_000);
        let mut properties = Properties::default();
        for piece in bytes.chunks(97) {
            lines.push(piece);
            while let Some(line) = lines.line() {
                let OutputLine::Whole(line) = line else { continue };
                match parse(line) {
                    Ok(TapMessage::Record(message)) => {
                        drop(message.record.map(|record| convert::record(record, &properties)));
                    }
                    Ok(TapMessage::Schema(message)) => {
                        properties = Properties::of(&message.schema);
                        avro::payload(&properties);
                        avro::key(&properties, &message.key);
                    }
                    Ok(TapMessage::State(state)) => drop(place::StatePlace::new(Some(state.to_owned()))),
                    Ok(TapMessage::ActivateVersion { .. }) => {}
                    Err(_) => drop(without_unreal_numbers(line)),
                }
            }
        }
    }

    /// Reads a catalogue and selects its streams.
    pub fn catalog(bytes: &[u8]) {
        if let Ok(mut catalog) = TapCatalog::parse(bytes) {
            let _ = catalog.choose(&crate::catalog::StreamSelection::default(), true);
            catalog.offered();
        }
    }

    /// Parses a line of a tap's standard error.
    pub fn log_line(line: &str) {
        log::TapLog::default().parse(line);
    }
}
