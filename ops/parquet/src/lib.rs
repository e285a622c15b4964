//! Parquet: records become the rows of files, and rows become records. The processor `parquet.decode`.
//!
//! The `file` and the `s3` destination write tables ([`table`]), and the `file` source reads them ([`table_reader`]). Types of
//! columns are inferred from the values of the records of a file, or come from the schemas that the records name.
//!
//! ```
//! use anabranch_ops_parquet::table_reader::TableReader;
//!
//! assert!(TableReader::open(bytes::Bytes::from_static(b"not a table"), 0).is_err());
//! ```

mod arrays;
pub mod codes;
mod column;
mod declared;
mod decode;
mod nesting;
pub mod table;
pub mod table_reader;
mod values;

#[cfg(test)]
mod tests;

pub use declared::DeclaredSchemas;

use anabranch_plugin::registry::Registry;

/// Registers every plugin of this crate.
pub fn register(registry: &mut Registry) {
    registry.add_operator(decode::kind());
}
