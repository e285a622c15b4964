//! Codes of the faults that parts of tests raise.

anabranch_record::codes! {
    /// A failure that the test requested.
    ASKED: "asked", "None: this is a test.";

    /// The other side is away.
    AWAY: "away", "None: this is a test.";

    /// The record is not accepted.
    BAD: "bad", "None: this is a test.";

    /// The row is not accepted.
    BAD_ROW: "bad_row", "None: this is a test.";

    /// The script is not accepted.
    BAD_SCRIPT: "bad_script", "None: this is a test.";

    /// The part does not work.
    BROKEN: "broken", "None: this is a test.";

    /// A row violates a constraint.
    CONSTRAINT: "constraint", "None: this is a test.";

    /// The other side does not answer.
    DOWN: "down", "None: this is a test.";

    /// The record failed.
    FAILED: "failed", "None: this is a test.";

    /// The other side has no room.
    FULL: "full", "None: this is a test.";

    /// The other side is gone.
    GONE: "gone", "None: this is a test.";

    /// There is no table.
    NO_TABLE: "no_table", "None: this is a test.";

    /// The processor does not want the record.
    PICKY: "picky", "None: this is a test.";

    /// The record is raw.
    RAW: "raw", "None: this is a test.";

    /// The other side refuses the request.
    REFUSED: "refused", "None: this is a test.";

    /// The destination does not want the record.
    REJECTED: "rejected", "None: this is a test.";

    /// The settings are refused.
    SETTINGS_REFUSED: "settings.refused", "None: this is a test.";

    /// A finding of a test.
    TEST: "test", "None: this is a test.";
}
