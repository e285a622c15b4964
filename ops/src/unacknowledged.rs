//! Sources that have nothing to acknowledge to: lines stay in their file, generated records are stored nowhere.

use async_trait::async_trait;

use anabranch_plugin::source::Acker;
use anabranch_record::Position;
use anabranch_record::fault::Fault;
use anabranch_record::mark::Partition;

/// Acknowledges nothing.
pub(crate) struct Unacknowledged;

#[async_trait]
impl Acker for Unacknowledged {
    async fn ack(&mut self, _: &Partition, _: &[Position]) -> Result<(), Fault> {
        Ok(())
    }
}
