//! Protobuf formats of existing plugins: records, parameters and schemas.
//!
//! Records are encoded and decoded directly ([`record`]), because every record of a plugin's pipeline passes through
//! here. Small messages are `prost` types ([`wire`]). A message that contains records holds them as bytes, which is the
//! same on the wire. Plugins name metadata with `opencdc.` and `conduit.`, this service with `recfmt.` and `svc.`:
//! names are converted only here. [`line`] parses the log output of plugins.
//!
//! ```
//! use anabranch_ops_opencdc::line::{Level, read_line};
//!
//! let line = read_line(br#"{"level": "warn", "message": "slow answer", "seconds": 3}"#).unwrap();
//! assert_eq!(line.level, Some(Level::Warn));
//! assert_eq!(line.text, r#"slow answer {"seconds":3}"#);
//! ```

pub mod http;
pub mod line;
mod read;
mod record;
mod same;
pub mod specification;
pub mod wire;
mod write;

pub use self::read::DecodeError;
pub use self::record::{decode_answer, decode_record, encode_record};
pub use self::same::keep_types;
