//! Write processors of record-streaming pipelines in Rust, test them like any other crate, and run them as WebAssembly.
//!
//! `anabranch processors new NAME` creates a crate with everything below. A processor without parameters is a function:
//!
//! ```no_run
//! use anabranch_processor::{Error, Record, Specification, run_fn};
//!
//! fn main() {
//!     run_fn(Specification::new("mark", "v0.1.0", "Marks records."), |mut record: Record| {
//!         record.metadata.insert("seen", "yes");
//!         Ok::<_, Error>(record)
//!     });
//! }
//! ```
//!
//! All others implement [`Processor`] and derive their [`Parameters`]:
//!
//! ```no_run
//! use anabranch_processor::{Error, Output, Parameters, Processor, Record, Reference, Specification, log, run};
//!
//! #[derive(Parameters)]
//! struct Settings {
//!     /// The text to change.
//!     #[parameter(default = ".Payload.After.name")]
//!     field: Reference,
//! }
//!
//! struct Upper(Settings);
//!
//! impl Processor for Upper {
//!     type Parameters = Settings;
//!
//!     fn specification() -> Specification {
//!         Specification::new("upper", "v0.1.0", "Makes text upper case.")
//!     }
//!
//!     fn configure(settings: Settings) -> Result<Self, Error> {
//!         Ok(Upper(settings))
//!     }
//!
//!     fn process(&mut self, mut record: Record) -> Result<Output, Error> {
//!         let text = self.0.field.get(&record)?.and_then(|part| Some(part.as_str()?.to_uppercase()));
//!         let Some(text) = text else { return Ok(Output::Filtered) };
//!         log::trace!(length = text.len(); "text changed");
//!         self.0.field.set(&mut record, text)?;
//!         Ok(record.into())
//!     }
//! }
//!
//! fn main() {
//!     run::<Upper>();
//! }
//! ```
//!
//! # From the crate to the pipeline
//!
//! `cargo build --release --target wasm32-wasip1` builds a module. Put it into the directory `processors` of the service
//! and use it as `standalone:upper`. [`testing`] runs the processor without WebAssembly. For a small module, set
//! `opt-level = "s"`, `lto = true`, `codegen-units = 1`, `panic = "abort"` and `strip = true`.
//!
//! The host relies on these rules: [`Processor::configure`] opens no resources; the same record may be processed twice;
//! an error concerns a single record. A panic ends the module and fails all records of its batch.
//!
//! # Records
//!
//! Records, values and references are those of the service, from the crate `anabranch-record`. Copies are cheap: they share
//! their content until one of them changes it. The position and raw data of a record are slices of the buffer in which
//! the host passed the batch. A processor that keeps raw data for long calls [`Data::compact`], so that it does not keep
//! the buffer.
//!
//! Numbers travel as 64-bit floats between processors: those without fraction up to ±2⁵³ arrive as [`Value::Int`]. Bytes
//! in fields and times arrive as text. Data with a schema keeps all types.
//!
//! # Other hosts
//!
//! Other services use the same processor protocol, so modules run there too. Metadata keys have other prefixes there
//! (`opencdc.` and `conduit.` for `recfmt.` and `svc.`). The crate translates them in both directions, so that a
//! processor uses only the names in [`metadata::key`]; [`Reference`] accepts both. Other text in settings is unchanged.
//!
//! # Logging
//!
//! The service logs everything that you log with the crate [`log`], which is re-exported here, including key-value
//! pairs, from the level on that is set for processors. A line costs more than most other work on a record: use `trace`
//! for lines per record.

mod error;
mod guest;
mod host;
pub mod http;
mod logging;
pub mod parameters;
mod processor;
pub mod schema;
#[cfg(not(target_arch = "wasm32"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod wire;

pub use anabranch_processor_derive::Parameters;
pub use anabranch_record::reference::{Part, Reference, ReferenceError};
pub use anabranch_record::specification::{self, Specification};
pub use anabranch_record::text::Str;
pub use anabranch_record::value::{Object, Value};
pub use anabranch_record::{Change, Data, Operation, Position, Record, json, metadata};
pub use error::{Error, HostError};
pub use log;
pub use parameters::{Parameters, Setting};
pub use processor::{Output, Processor};

use guest::{Configured, Function, Guest, Stages};

/// Environment variable by which a host identifies itself.
const COOKIE: (&str, &str) =
    ("CONDUIT_MAGIC_COOKIE", "3stnegqd0x02axggy0vrc4izjeq2zik6g7somyb3ye4vy5iivvjm5s1edppl5oja");

/// Runs a processor until its host has no more commands. This is the whole body of `main`.
///
/// Without a host, prints an error to standard error and exits with code 1.
pub fn run<P: Processor>() {
    run_stages(&mut Configured::<P>::default());
}

/// Runs a function as a processor without parameters. This is the whole body of `main`.
///
/// The function returns a [`Record`], an optional one (`None` filters the record), a list of records, or an [`Output`].
pub fn run_fn<O: Into<Output>>(specification: Specification, function: impl FnMut(Record) -> Result<O, Error>) {
    run_stages(&mut Function { specification, function });
}

/// Returns the id of the processor in its pipeline; `test` without a host.
pub fn processor_id() -> String {
    std::env::var("CONDUIT_PROCESSOR_ID").unwrap_or_else(|_| "test".to_owned())
}

fn run_stages(stages: &mut dyn Stages) {
    let ended = if cfg!(not(target_arch = "wasm32")) {
        Err("this program is a processor: build it with `--target wasm32-wasip1` and put it into the directory \
             `processors` of the service"
            .to_owned())
    } else if std::env::var(COOKIE.0).is_ok_and(|cookie| cookie == COOKIE.1) {
        logging::install();
        Guest::new(stages).serve().map_err(|error| error.to_string())
    } else {
        Err("this module is a processor: put it into the directory `processors` of the service".to_owned())
    };
    if let Err(message) = ended {
        eprintln!("{message}");
        std::process::exit(1);
    }
}
