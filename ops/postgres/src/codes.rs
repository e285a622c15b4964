//! Codes of errors and findings of this crate.

pub(crate) use anabranch_plugin::codes::{
    FENCED, FLOW_NO_METADATA, MARKS_MOVED, POSITION_UNKNOWN, SETTINGS_INVALID, SETTINGS_REQUIRED,
};

anabranch_record::codes! {
    /// The row violates a check constraint.
    CHECK_VIOLATION: "check_violation", "Change the record or the constraint; the message has the details.";

    /// The database computes the column, so it cannot be written.
    COLUMN_GENERATED: "column_generated", "Remove the field with field.exclude.";

    /// The table has no column for a field.
    COLUMN_MISSING: "column_missing", "Add the column, or remove the field with field.exclude.";

    /// The name of the field cannot be the name of a column.
    COLUMN_NAME: "column_name", "Rename the field with field.rename.";

    /// The server cannot be reached.
    CONNECT_FAILED: "connect_failed", "Check the address, the network, the credentials and TLS.";

    /// The connection broke. The pipeline reconnects.
    CONNECTION_LOST: "connection_lost", "No action is needed if it reconnects.";

    /// A table cannot be created.
    CREATE_FAILED: "create_failed", "Grant the user the permission, or create the table yourself.";

    /// Every record updates or deletes a row, but no record has a key that identifies the row.
    FLOW_KEY_MISSING: "flow.key_missing", "Keep the key, or set `.Key` to a JSON object with field.set.";

    /// The key is not a JSON object, but the destination needs an object with the key columns, or no key.
    FLOW_KEY_RAW: "flow.key_raw", "Remove `.Key` with field.exclude, or set it to a JSON object with field.set.";

    /// Every record arrives without key and data.
    FLOW_NOTHING_TO_WRITE: "flow.nothing_to_write", "Keep the key or the data.";

    /// The row refers to a row that does not exist.
    FOREIGN_KEY_VIOLATION: "foreign_key_violation",
        "Write the other row first, or change the constraint; the message has the details.";

    /// A column has different values in the key and in the payload.
    KEY_DIFFERS: "key_differs", "Derive the key from the field, or exclude one of them.";

    /// The record has no key, and this operation needs one.
    KEY_MISSING: "key_missing", "Set a key before the destination.";

    /// The table has no primary key or unique constraint on the key.
    KEY_NOT_UNIQUE: "key_not_unique", "Add one, or configure other key columns.";

    /// A field of the key is null.
    KEY_NULL: "key_null", "Set the field before the destination.";

    /// The key is raw bytes, but fields are required.
    KEY_RAW: "key_raw", "Decode the key before the destination.";

    /// A counter exceeds the range of the database.
    MARK_TOO_LARGE: "mark_too_large", "This is a defect: report it.";

    /// The positions that a transactional destination stores cannot be read.
    MARKS_DAMAGED: "marks_damaged", "Restore its tables from a backup.";

    /// The record has no key and no fields.
    NOTHING_TO_WRITE: "nothing_to_write", "Add a filter before the destination.";

    /// The row has no value for a column that requires one.
    NOT_NULL_VIOLATION: "not_null_violation", "Set the field, for example with field.set, or give the column a default.";

    /// The payload is raw bytes, but fields are required.
    PAYLOAD_RAW: "payload_raw", "Decode the payload before the destination.";

    /// A table has no primary key and no replica identity, so that the server would refuse updates and deletes of its
    /// rows once they are published.
    IDENTITY_MISSING: "postgres.identity_missing",
        "Add a primary key, or run `ALTER TABLE … REPLICA IDENTITY FULL`; the message has the statement.";

    /// The server is another one, or it took another history, than the one of the stored position.
    HISTORY_DIFFERS: "postgres.history_differs",
        "Connect to the right server, or set onGap: snapshot to read all rows again.";

    /// The server is not configured for logical replication.
    NOT_LOGICAL: "postgres.not_logical", "Set wal_level = logical and restart the server.";

    /// The publication does not exist any more, or does not contain what the source reads.
    PUBLICATION_NARROWED: "postgres.publication_narrowed",
        "Run the statement in the message, or correct the settings of the source.";

    /// Changes after the stored position do not exist any more: the slot is missing, invalid, or another program moved
    /// it.
    SLOT_GAP: "postgres.slot_gap",
        "Set onGap: snapshot to read all rows again; the message says what is lost.";

    /// Another program reads the slot.
    SLOT_IN_USE: "postgres.slot_in_use",
        "Stop the other program, or set another logrepl.slotName. The pipeline retries.";

    /// A slot with this name exists, and this pipeline did not create it.
    SLOT_FOREIGN: "postgres.slot_foreign",
        "Set another logrepl.slotName, drop the slot, or set logrepl.adoptSlot: true to read from it.";

    /// The source does not carry out a request of a user.
    REQUEST_REFUSED: "postgres.request_refused", "The message says what the source supports.";

    /// A table does not exist, or its changes cannot be read.
    SOURCE_TABLE: "postgres.source_table", "Correct tables; the message says what is wrong with it.";

    /// The server sends a message that the source does not support.
    STREAM_UNSUPPORTED: "postgres.stream_unsupported", "This is a defect: report it with the message.";

    /// The columns of a table changed, and schemaDrift is halt or dead-letter.
    SCHEMA_DRIFT: "postgres.schema_drift", "Check the change. With halt, start the pipeline again; with dead-letter, set schemaDrift: evolve and replay the dead letters.";

    /// A part of a split source cannot read from the state store how far the other parts are.
    SIBLINGS_UNKNOWN: "postgres.siblings_unknown", "No action is needed if the state store recovers.";

    /// The rows of a snapshot are read again, under another one: the connection that kept it was lost.
    SNAPSHOT_AGAIN: "postgres.snapshot_again", "No action is needed: the pipeline reads what is left.";

    /// The table was rewritten or dropped while its rows were read.
    SNAPSHOT_TABLE_REWRITTEN: "postgres.snapshot_table_rewritten",
        "No action is needed: the pipeline reads the rows of the table again.";

    /// All rows of a table were removed with TRUNCATE, and truncate is fail.
    TRUNCATED: "postgres.truncated", "Set truncate: ignore, or truncate: record, and restart the pipeline.";

    /// PostgreSQL denies access to a table, schema or database. The service retries.
    POSTGRES_DENIED: "postgres_denied", "Grant the permission that the message names.";

    /// PostgreSQL refuses the operation.
    POSTGRES_REFUSED: "postgres_refused", "The message comes from PostgreSQL.";

    /// The database rejects the row.
    ROW_REJECTED: "row_rejected", "The message comes from the database.";

    /// The server is not available. The service retries.
    SERVER_UNAVAILABLE: "server_unavailable", "No action is needed if it recovers.";

    /// The PostgreSQL address names no database, so the database with the name of the user is used.
    SETTINGS_NO_DATABASE: "settings.no_database", "Append the name of the database to the address.";

    /// The name of a table contains SQL or the notation of another tool. It is used literally.
    SETTINGS_NOT_A_NAME: "settings.not_a_name", "Write only the name, or put it in double quotes.";

    /// The table does not exist.
    TABLE_MISSING: "table_missing", "Create the table, or let the destination create it.";

    /// The text cannot be the name of a table.
    TABLE_NAME: "table_name", "Correct the template or the metadata.";

    /// The record does not name its table.
    TABLE_UNKNOWN: "table_unknown", "Set the table, or the metadata that names it.";

    /// The transaction conflicts with another one. The service retries.
    TRANSACTION_CONFLICT: "transaction_conflict", "No action is needed unless the error persists.";

    /// Another row has the same value in a unique column.
    UNIQUE_VIOLATION: "unique_violation", "Change the record or the constraint; the message has the details.";

    /// The value does not fit its column.
    VALUE_MISMATCH: "value_mismatch", "Convert the value before the destination, or change the column.";

    /// The database rejects a value.
    VALUE_REJECTED: "value_rejected", "The message comes from the database.";

    /// An interrupted write took effect, but the source then delivered other records in its place.
    WRITE_CHANGED: "write_changed", "The source does not replay exactly. Do not use exactlyOnce with it.";
}
