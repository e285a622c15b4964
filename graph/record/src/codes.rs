//! Codes of errors and findings of this crate.

crate::codes! {
    /// JSON cannot represent infinity or not-a-number.
    JSON_NOT_FINITE: "json_not_finite", "Convert the value before this processor.";

    /// Lists and maps are nested too deep.
    JSON_TOO_DEEP: "json_too_deep", "Flatten them before this processor.";

    /// A field with the new name exists already.
    REFERENCE_EXISTS: "reference_exists", "Remove that field first, or choose another name.";

    /// This part of a record cannot be changed.
    REFERENCE_READ_ONLY: "reference_read_only", "Change another part.";

    /// This part of a record does not accept such a value.
    REFERENCE_TYPE: "reference_type", "Convert the value before this processor.";

    /// A reference goes through a value that has no fields.
    REFERENCE_UNRESOLVED: "reference_unresolved", "Add a condition, or decode the value first.";
}
