//! A large batch as a sequence of strips.

use anabranch_record::Record;

use super::Batch;
use super::lineage::Feed;

/// The strips of a batch, in order. Dropping the rest rings the alarm of the lineage.
#[derive(Debug)]
pub struct Strips {
    records: std::vec::IntoIter<Record>,
    feed: Feed,
    whole: Option<Batch>,
    rows: usize,
    each: usize,
    each_counted: usize,
}

impl Strips {
    pub(super) fn new(batch: Batch, most_rows: usize, most_bytes: usize) -> Self {
        let each = batch.bytes / batch.rows().max(1);
        let each_counted = batch.counted / batch.rows().max(1);
        let rows = (most_bytes / each.max(1)).clamp(1, most_rows.max(1));
        if batch.rows() <= rows {
            let lineage = batch.lineage.sibling();
            let whole = (batch.rows() > 0).then_some(batch);
            return Strips { records: Vec::new().into_iter(), feed: lineage.feed(), whole, rows, each, each_counted };
        }
        let Batch { records, lineage, .. } = batch;
        Strips { records: records.into_iter(), feed: lineage.feed(), whole: None, rows, each, each_counted }
    }
}

impl Iterator for Strips {
    type Item = Batch;

    fn next(&mut self) -> Option<Batch> {
        if let Some(whole) = self.whole.take() {
            return Some(whole);
        }
        if self.records.len() == 0 {
            return None;
        }
        let records: Vec<Record> = self.records.by_ref().take(self.rows).collect();
        let lineage = self.feed.next(records.len());
        let (bytes, counted) = (self.each * records.len(), self.each_counted * records.len());
        Some(Batch { records, lineage, bytes, counted })
    }
}
