//! The `store` dead-letter queue: keeps dead letters in the state store of the service, where users list, edit and
//! replay them.
//!
//! The executor writes the dead letters to the store itself; this plugin only configures the bounds.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use anabranch_plugin::destination::{Destination, DestinationKind, Retry, WritePolicy, Writer};
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::host::Host;
use anabranch_plugin::kind;
use anabranch_plugin::letter::{LetterBounds, WhenFull};
use anabranch_plugin::parameters::{ByteSize, Parameters};
use anabranch_plugin::specification::Specification;
use anabranch_record::fault::Fault;

use crate::codes;

/// Returns the `store` destination for the registry.
pub fn kind() -> Arc<dyn DestinationKind> {
    let specification = Specification::builtin("store", "Keeps dead letters in the state store.").describe(
        "A dead-letter queue that keeps failed records in the state store of the service, as they were when they \
         failed. `anabranch dlq` and the API list them, and replay them from the processor or destination that failed \
         them. When a limit is reached, the pipeline stops, so that no dead letter is lost. With `when-full: \
         drop-oldest`, the oldest dead letters are removed instead, which is counted and logged. Use it with \
         `window-size: 0`: otherwise the first failure stops the pipeline.",
    );
    kind::dead_letter_queue(specification, |settings: Settings| configure(&settings))
}

#[derive(Parameters)]
#[parameter(rename_all = "kebab-case")]
struct Settings {
    /// Maximum number of dead letters of the pipeline.
    #[parameter(default = 10000, greater_than = 0)]
    max_count: u64,
    /// Maximum size of all its dead letters.
    #[parameter(default = "64MiB")]
    max_bytes: ByteSize,
    /// Action when `max-count` or `max-bytes` is reached: `stop` stops the pipeline and loses nothing; `drop-oldest`
    /// removes the oldest dead letters.
    #[parameter(default = "stop")]
    when_full: WhenFull,
    /// Maximum age of a dead letter; 0 = unlimited. Older ones are removed when a dead letter is added and when the
    /// pipeline starts, even if no newer ones are left.
    #[parameter(default = "0s")]
    max_age: Duration,
}

fn configure(settings: &Settings) -> Result<Arc<dyn Destination>, Diagnostics> {
    let Settings { max_count, max_bytes, when_full, max_age } = *settings;
    Ok(Arc::new(Kept(LetterBounds {
        count: max_count,
        bytes: max_bytes.0,
        age: Some(max_age).filter(|age| !age.is_zero()),
        full: when_full,
    })))
}

struct Kept(LetterBounds);

#[async_trait]
impl Destination for Kept {
    async fn open(&self, _: &Host) -> Result<Box<dyn Writer>, Fault> {
        Err(Fault::fatal(codes::PLAN_BROKEN, "the dead letters of this queue go to the state store"))
    }

    fn policy(&self) -> WritePolicy {
        WritePolicy { rows: 1024, bytes: 1 << 20, linger: Duration::ZERO, retry: Retry::Idempotent }
    }

    fn keeps_letters(&self) -> Option<LetterBounds> {
        Some(self.0)
    }
}
