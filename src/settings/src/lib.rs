//! Settings of the service. Flags take precedence over environment variables, then `anabranch.yaml`, then defaults.
//!
//! Every setting is declared once, in [`declaration`]: parsing, checks, flags, the file that `init` writes and the
//! documentation come from there. [`Layers::resolve`] reads the layers and returns typed [`Settings`], or all findings.
//!
//! ```
//! use anabranch_settings::{Database, Layers};
//!
//! let flags = [("db.type", "inmemory".to_owned())];
//! let (settings, warnings) = Layers { flags: &flags, environment: &[] }.resolve().unwrap();
//! assert_eq!(settings.database, Database::InMemory);
//! assert!(warnings.findings.is_empty());
//! ```

pub mod codes;
mod credential;
pub mod declaration;
mod document;
mod file;
mod flags;
mod layers;
mod listener;
mod resolved;
mod settings;
mod traces;

pub use credential::Credential;
pub use document::document;
pub use flags::{ServiceFlags, SettingFlags, handed_down};
pub use layers::{Layers, SettingsFindings};
pub use listener::{ApiSettings, Compatibility, ServedSchemas, token_in};
pub use resolved::{Resolved, Source};
pub use settings::{
    ClusterSettings, ConfluentLogin, ConfluentSettings, ConnectorSettings, Database, EgressSettings, PipelineSettings,
    PostgresDatabase, ProcessorSettings, RecoveryPolicy, Schemas, Settings,
};
pub use traces::TraceSettings;
