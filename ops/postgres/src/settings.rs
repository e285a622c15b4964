//! Validated settings of the destination.

use anabranch_record::Record;
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use anabranch_template::{InSetting, NO_VALUE, Template};

use crate::address::Address;
use crate::codes;
use crate::history::TableHistory;

/// The template that names the collection of a record.
pub(crate) const COLLECTION: &str = r#"{{ index .Metadata "recfmt.collection" }}"#;

/// Validated settings.
pub(crate) struct Settings {
    pub(crate) address: Address,
    pub(crate) table: TableSelector,
    pub(crate) exactly_once: bool,
    pub(crate) marks_schema: Option<String>,
    pub(crate) create_tables: bool,
    pub(crate) add_columns: bool,
    /// True if the tables follow the schemas of records.
    pub(crate) evolves: bool,
    pub(crate) history: TableHistory,
}

/// Choice of the table of a record.
pub(crate) enum TableSelector {
    /// The table in the record's metadata `recfmt.collection`.
    Collection,
    /// One table for all records.
    Fixed(Str),
    /// The table named by a template.
    Template(Template),
}

impl TableSelector {
    pub(crate) fn new(template: &Template) -> TableSelector {
        if template.source() == COLLECTION {
            return TableSelector::Collection;
        }
        match template.literal() {
            Some(text) => TableSelector::Fixed(text.trim().into()),
            None => TableSelector::Template(template.clone()),
        }
    }

    /// Returns the name of the table, stored in `rendered` if it is computed.
    pub(crate) fn of<'a>(&'a self, record: &'a Record, rendered: &'a mut String) -> Result<&'a str, Fault> {
        match self {
            TableSelector::Fixed(text) => Ok(text),
            TableSelector::Collection => record.collection().map(Str::as_str).ok_or_else(|| {
                let text = "the record has no metadata recfmt.collection that names its table: set it, or set table";
                Fault::record(codes::TABLE_UNKNOWN, text)
            }),
            TableSelector::Template(template) => {
                rendered.clear();
                template.render(record, rendered).map_err(|error| {
                    Fault::record(codes::TABLE_UNKNOWN, InSetting { setting: Str::from_static("table"), error })
                })?;
                match rendered.contains(NO_VALUE) {
                    true => {
                        let why = template.why_no_value(record);
                        let text = format!("the template of table produces {rendered:?}: {why}");
                        Err(Fault::record(codes::TABLE_UNKNOWN, text))
                    }
                    false => Ok(rendered),
                }
            }
        }
    }
}
