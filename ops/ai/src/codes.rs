//! Codes of errors and findings of this crate.

pub(crate) use anabranch_plugin::codes::SETTINGS_INVALID;

anabranch_record::codes! {
    /// The response of the service cannot be used.
    ANSWER_UNUSABLE: "answer_unusable", "The message has the details; try another model or other settings.";

    /// The record has no value at the reference.
    FIELD_MISSING: "field_missing", "Add a condition that tests for the field.";

    /// The prompt cannot be sent.
    PROMPT_REFUSED: "prompt_refused", "Shorten the text before this processor.";

    /// The request cannot be built.
    QUESTION_INVALID: "question_invalid", "Check the settings that contain templates.";

    /// The bytes are not UTF-8 text.
    TEXT_NOT_UTF8: "text_not_utf8", "Decode or convert them before this processor.";

    /// The value is not text.
    TEXT_TYPE: "text_type", "Convert the value before this processor.";
}
