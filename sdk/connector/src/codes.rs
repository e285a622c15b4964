//! The reasons why records fail or a run ends.

anabranch_record::codes! {
    /// A system call on the directory of an inbox failed.
    INBOX_IO: "inbox_io", "Check the path and its permissions.";

    /// The stored position is not the name of a file.
    INBOX_POSITION: "inbox_position", "Reset the position with `anabranch positions reset`.";

    /// The field to mask is not a text.
    MASK_NOT_A_TEXT: "mask_not_a_text", "Convert the field with field.convert, or choose another one.";

    /// A system call on the directory of an outbox failed.
    OUTBOX_IO: "outbox_io", "Check the path and its permissions.";

    /// The key of the record is not the name of a file.
    OUTBOX_KEY: "outbox_key", "Set a key without slashes with field.set.";
}
