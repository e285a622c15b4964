//! Replacement of the collector in builds without traces.

use std::convert::Infallible;

use anabranch_plugin::trace::Span;
use anabranch_settings::TraceSettings;
use bytes::Bytes;

use super::SpansRejected;

/// A type without values.
pub(super) struct Collector(Infallible);

impl Collector {
    pub(super) fn new(_: &TraceSettings) -> Result<Self, String> {
        Err("this program was built without support for it (feature `traces`)".to_owned())
    }

    pub(super) fn encode(&self, _: &[Span]) -> Bytes {
        match self.0 {}
    }

    pub(super) async fn post(&self, _: Bytes) -> Result<Option<SpansRejected>, SpansRejected> {
        match self.0 {}
    }
}
