//! The `store` dead-letter queue: keeps dead letters in the state store of the service, where users list, edit and
//! replay them.
//!
//! The executor writes the dead letters to the store itself; this plugin only configures the bounds.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::destination::{Destination, DestinationKind, Retry, WritePolicy, Writer};
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::host::Host;
use anabranch_plugin::letter::{LetterBounds, WhenFull};
use anabranch_plugin::specification::{Parameter, ParameterKind, Specification, Validation};
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;

const COUNT: u64 = 10_000;
const BYTES: u64 = 64 << 20;

/// Returns the `store` destination for the registry.
pub fn kind() -> Arc<dyn DestinationKind> {
    let specification = Specification::builtin("store", "Keeps dead letters in the state store.")
        .describe(
            "A dead-letter queue that keeps failed records in the state store of the service, as they were when they \
             failed. `anabranch dlq` and the API list them, and replay them from the processor or destination that \
             failed them. When a limit is reached, the pipeline stops, so that no dead letter is lost. With \
             `when-full: drop-oldest`, the oldest dead letters are removed instead, which is counted and logged. Use \
             it with `window-size: 0`: otherwise the first failure stops the pipeline.",
        )
        .with(
            Parameter::new("max-count", ParameterKind::Int, "Maximum number of dead letters of the pipeline.")
                .default_value("10000")
                .validate(Validation::GreaterThan(0.0)),
        )
        .with(
            Parameter::new("max-bytes", ParameterKind::Bytes, "Maximum size of all its dead letters.")
                .default_value("64MiB"),
        )
        .with(
            Parameter::new(
                "when-full",
                ParameterKind::Text,
                "Action when `max-count` or `max-bytes` is reached: `stop` stops the pipeline and loses nothing; \
                 `drop-oldest` removes the oldest dead letters.",
            )
            .default_value("stop")
            .one_of(&["stop", "drop-oldest"]),
        )
        .with(
            Parameter::new(
                "max-age",
                ParameterKind::Duration,
                "Maximum age of a dead letter; 0 = unlimited. Older ones are removed when a dead letter is added and \
                 when the pipeline starts, even if no newer ones are left.",
            )
            .default_value("0s"),
        );
    Arc::new(Kind { specification })
}

struct Kind {
    specification: Specification,
}

impl DestinationKind for Kind {
    fn specification(&self) -> &Specification {
        &self.specification
    }

    fn configure(&self, arguments: &Arguments) -> Result<Arc<dyn Destination>, Diagnostics> {
        let count = arguments.int("max-count").and_then(|count| u64::try_from(count).ok());
        Ok(Arc::new(Kept(LetterBounds {
            count: count.unwrap_or(COUNT).max(1),
            bytes: arguments.bytes("max-bytes").unwrap_or(BYTES),
            age: arguments.duration("max-age").filter(|age| !age.is_zero()),
            full: match arguments.text("when-full").map(Str::as_str) {
                Some("drop-oldest") => WhenFull::DropOldest,
                _ => WhenFull::Stop,
            },
        })))
    }

    fn takes_only_letters(&self) -> bool {
        true
    }
}

struct Kept(LetterBounds);

#[async_trait]
impl Destination for Kept {
    async fn open(&self, _: &Host) -> Result<Box<dyn Writer>, Fault> {
        Err(Fault::fatal("plan_broken", "the dead letters of this queue go to the state store"))
    }

    fn policy(&self) -> WritePolicy {
        WritePolicy { rows: 1024, bytes: 1 << 20, linger: Duration::ZERO, retry: Retry::Idempotent }
    }

    fn keeps_letters(&self) -> Option<LetterBounds> {
        Some(self.0)
    }
}
