//! Write a processor of record-streaming pipelines in Rust, test it as any other crate, and run it as WebAssembly.
//!
//! `anabranch processors new NAME` makes a crate with everything below. A processor without parameters is a function:
//!
//! ```no_run
//! use anabranch_processor::{Error, Record, Specification, run_fn};
//!
//! fn main() {
//!     run_fn(Specification::new("mark", "v0.1.0"), |mut record: Record| {
//!         record.metadata.insert("seen".to_owned(), "yes".to_owned());
//!         Ok::<_, Error>(record)
//!     });
//! }
//! ```
//!
//! Any other implements [`Processor`], and derives its [`Parameters`]:
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
//!         Specification::new("upper", "v0.1.0").summary("Makes text upper case.")
//!     }
//!
//!     fn configure(settings: Settings) -> Result<Self, Error> {
//!         Ok(Upper(settings))
//!     }
//!
//!     fn process(&mut self, mut record: Record) -> Result<Output, Error> {
//!         let text = self.0.field.get(&record)?.and_then(|value| Some(value.as_str()?.to_uppercase()));
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
//! `cargo build --release --target wasm32-wasip1` makes a module, which is put into the directory `processors` of the
//! service and used as `standalone:upper`. [`testing`] runs the processor without WebAssembly. A module is small with
//! `opt-level = "s"`, `lto = true`, `codegen-units = 1`, `panic = "abort"` and `strip = true`.
//!
//! Rules that the host relies on: nothing is opened in [`Processor::configure`]; the same record may be processed
//! twice; an error belongs to one record. A panic ends the module: it fails all records of its batch.
//!
//! # Other hosts
//!
//! Modules speak the processor protocol that the service shares with others, and run in those too. Metadata keys have
//! other prefixes there (`opencdc.` and `conduit.` for `recfmt.` and `svc.`); the crate translates them in both
//! directions, so that a processor knows only the names in [`metadata`], and [`Reference`] takes both. Other text in
//! settings is left as it is.
//!
//! # Logging
//!
//! Everything logged by the crate [`log`], which is exported here, goes to the log of the service with its key-value
//! pairs, from the level on that the service has set for processors. A line costs more than most of what is done to a
//! record: use `trace` for what is said per record.

mod error;
mod guest;
mod host;
pub mod http;
mod logging;
pub mod metadata;
pub mod parameters;
mod processor;
mod record;
mod reference;
pub mod schema;
pub mod specification;
#[cfg(not(target_arch = "wasm32"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod text;
mod value;
mod wire;

pub use anabranch_processor_derive::Parameters;
pub use error::{Error, HostError};
pub use log;
pub use parameters::{Parameters, Setting};
pub use processor::{Output, Processor};
pub use record::{Change, Data, Operation, Record};
pub use reference::{Reference, ReferenceError};
pub use specification::Specification;
pub use value::{Map, Value};

use guest::{Configured, Function, Guest, Stages};

/// By which a host says that it is one.
const COOKIE: (&str, &str) =
    ("CONDUIT_MAGIC_COOKIE", "3stnegqd0x02axggy0vrc4izjeq2zik6g7somyb3ye4vy5iivvjm5s1edppl5oja");

/// Runs a processor until its host has no more commands: the whole of `main`.
///
/// Where there is no host it says so on standard error, and ends the program with code 1.
pub fn run<P: Processor>() {
    run_stages(&mut Configured::<P>::default());
}

/// Runs a function as a processor without parameters: the whole of `main`.
///
/// The function gives back a [`Record`], an optional one (`None` is filtered), a list of them, or an [`Output`].
pub fn run_fn<O: Into<Output>>(specification: Specification, function: impl FnMut(Record) -> Result<O, Error>) {
    run_stages(&mut Function { specification, function });
}

/// The id of the processor in its pipeline; `test` outside of a host.
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
