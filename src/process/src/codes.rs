//! Codes of errors and findings of this crate.

anabranch_record::codes! {
    /// A pipeline file cannot be read.
    CONFIG_UNREADABLE: "config.unreadable", "Check its path and permissions.";
}
