//! Objects that are Parquet files.

use anabranch_ops_parquet::table::{TableSet, TableWriteError};
use anabranch_plugin::format::parquet::ParquetLayout;
use anabranch_record::Record;
use anabranch_record::fault::Fault;
use bytes::Bytes;

use super::{LARGEST, Objects};
use crate::codes;

/// The content type of Parquet files.
pub(super) const CONTENT_TYPE: &str = "application/vnd.apache.parquet";

impl Objects {
    /// Writes objects that are Parquet files. Returns the records that cannot be written.
    pub(super) async fn write_tables(
        &mut self,
        rows: &[Record],
        layout: &ParquetLayout,
    ) -> Result<Vec<(usize, Fault)>, Fault> {
        self.schemas.load(rows).await?;
        let most = usize::try_from(LARGEST).unwrap_or(usize::MAX);
        let (mut tables, mut failures) = (TableSet::new(layout.columns, most), Vec::new());
        for (row, record) in rows.iter().enumerate() {
            let added = self.layout.folder_of(record).and_then(|folder| tables.add(&folder, record, &self.schemas));
            if let Err(fault) = added {
                failures.push((row, fault));
            }
        }
        self.names.begin();
        for (folder, mut table) in tables.into_tables() {
            let name = self.names.name(&folder, table.take_identity());
            let key = format!("{}{folder}{name}.parquet", self.layout.prefix);
            let layout = *layout;
            let body = tokio::task::spawn_blocking(move || table.write(&layout, Vec::new()))
                .await
                .map_err(|error| Fault::fatal(codes::COMPRESSION_FAILED, error))?
                .map_err(|error: TableWriteError| Fault::record(codes::FORMAT_FAILED, error))?;
            self.put(&key, Bytes::from(body)).await?;
        }
        self.names.commit();
        Ok(failures)
    }
}
