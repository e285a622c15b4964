//! Codes of errors and findings of this crate.

pub(crate) use anabranch_plugin::codes::{RECORD_TOO_LARGE, STORE_UNAVAILABLE, VERDICT_COUNT};

anabranch_record::codes! {
    /// A plugin acknowledged records that it did not receive.
    PLUGIN_ACKNOWLEDGED_WRONG: "plugin_acknowledged_wrong",
        "This is a defect of the plugin: report it to its author.";

    /// A plugin sent an invalid message.
    PLUGIN_GARBAGE: "plugin_garbage", "This is a defect of the plugin: report it to its author.";

    /// The plugin uses an incompatible version of the protocol.
    PLUGIN_INCOMPATIBLE: "plugin_incompatible", "Use a compatible version of the plugin.";

    /// The plugin did not respond in time. The service restarts it.
    PLUGIN_LATE: "plugin_late", "Raise connectors.timeout if the plugin is slow.";

    /// A lifecycle call of the plugin failed. The service retries.
    PLUGIN_LIFECYCLE_FAILED: "plugin_lifecycle_failed", "The message comes from the plugin.";

    /// The program of the plugin ended. The service restarts it.
    PLUGIN_LOST: "plugin_lost", "Check its output in the log.";

    /// The plugin could not be opened.
    PLUGIN_OPEN_FAILED: "plugin_open_failed", "The message comes from the plugin.";

    /// The plugin could not read records.
    PLUGIN_READ_FAILED: "plugin_read_failed", "The message comes from the plugin.";

    /// The plugin refused the record.
    PLUGIN_REFUSED_RECORD: "plugin_refused_record", "The message comes from the plugin.";

    /// The plugin refuses its settings.
    PLUGIN_REFUSED_SETTINGS: "plugin_refused_settings", "The message comes from the plugin.";

    /// The plugin refuses consecutive records with the same error. The service writes them again.
    PLUGIN_REFUSES_RECORDS: "plugin_refuses_records",
        "Check whether the message concerns the destination. If it concerns the records, raise \
         connectors.equal-refusals.";

    /// The program of the plugin cannot be started.
    PLUGIN_START_FAILED: "plugin_start_failed", "Check its path and permissions.";

    /// The plugin could not write records.
    PLUGIN_WRITE_FAILED: "plugin_write_failed", "The message comes from the plugin.";
}
