//! Codes of errors and findings of this crate.

anabranch_record::codes! {
    /// A condition failed for this record. The message names the comparison or the call.
    CONDITION_FAILED: "condition_failed",
        "Compare values of one type: convert a field with `field.convert`, `int`, `float64` or `toString`. If a \
         field may be missing, test for it first: `and .Payload.After.a (gt .Payload.After.a 1)`.";

    /// A condition returned neither true nor false.
    CONDITION_NOT_BOOLEAN: "condition_not_boolean", "Write a condition that returns true or false.";

    /// The condition of an inspection or a list needs too many steps or too much time.
    CONDITION_TOO_COSTLY: "condition_too_costly", "Simplify the condition.";

    /// A verb of `printf` does not match its value: the text contains `%!d(…)`.
    TEMPLATE_BAD_FORMAT: "template.bad_format", "Use %v, or a verb that matches.";

    /// A regular expression does not compile for some records, so it never matches.
    TEMPLATE_BAD_PATTERN: "template.bad_pattern", "Write a valid expression.";

    /// `toJson` writes raw data as base64.
    TEMPLATE_BASE64_PRINTED: "template.base64_printed",
        "Use printf \"%s\" for the text, or decode the data first, for example with json.decode.";

    /// `index` of a text returns the number of a byte, such as 97.
    TEMPLATE_BYTE_PRINTED: "template.byte_printed",
        "Use the field for the whole text, or substr 0 1 for its first letter.";

    /// Bytes print as a list of numbers.
    TEMPLATE_BYTES_PRINTED: "template.bytes_printed", "Use printf \"%s\".";

    /// A function for integers cuts off the fraction of a number.
    TEMPLATE_FRACTION_CUT: "template.fraction_cut", "Use the function for floats, such as addf instead of add.";

    /// A list prints as `[a b]`, which is not JSON.
    TEMPLATE_LIST_PRINTED: "template.list_printed", "Use toJson or join.";

    /// A map prints as `map[name:value]`, which is not JSON.
    TEMPLATE_MAP_PRINTED: "template.map_printed", "Use toJson.";

    /// A field that a template prints is missing or null: the text contains `<no value>` or `<nil>`.
    TEMPLATE_NO_VALUE: "template.no_value",
        "Correct the name, test the field with `if`, or set another value with `default`.";

    /// A value that is not a number counts as 0.
    TEMPLATE_NOT_A_NUMBER: "template.not_a_number", "Check the field, or test it with `if`.";

    /// A value that is not a time is formatted as one: the result is the current time or the year 1.
    TEMPLATE_NOT_A_TIME: "template.not_a_time", "Parse the text first: (toDate \"2006-01-02\" .Payload.After.when).";

    /// A text is not in the encoding that a template decodes: the result is an error message.
    TEMPLATE_NOT_ENCODED: "template.not_encoded", "Check which field is encoded, and how.";

    /// A time prints as `2006-01-02 15:04:05 +0000 UTC`, which few programs can parse.
    TEMPLATE_TIME_PRINTED: "template.time_printed", "Use date with a layout: date \"2006-01-02T15:04:05Z07:00\".";
}
