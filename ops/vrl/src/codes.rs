//! Codes of errors and findings of this crate.

pub(crate) use anabranch_plugin::codes::{FLOW_NO_FIELD, FLOW_NO_METADATA};

anabranch_record::codes! {
    /// The program does not compile.
    VRL_INVALID: "vrl.invalid", "Correct the program at the place in the message.";

    /// vrl has no program.
    VRL_MISSING: "vrl.missing", "Set `program` or `program.path`.";

    /// The program cannot succeed on the records that reach it, or an expression has no effect.
    VRL_MISTAKE: "vrl.mistake", "Correct it at the place in the message.";

    /// Expressions of the program are nested too deeply.
    VRL_TOO_DEEP: "vrl.too_deep", "Assign parts of the expression to variables.";

    /// The text of the program is too large to be checked.
    VRL_TOO_LARGE: "vrl.too_large", "Split it into several processors.";

    /// Both `program` and `program.path` are set.
    VRL_TWICE: "vrl.twice", "Remove one of them.";

    /// The program could not be checked.
    VRL_UNCHECKED: "vrl.unchecked", "Retry; check the memory and threads of the machine.";

    /// The file of the program cannot be read.
    VRL_UNREADABLE: "vrl.unreadable", "Check its path and permissions.";

    /// The program ended this record with `abort`.
    VRL_ABORTED: "vrl_aborted", "The message comes from the program. Set `onAbort` to drop or keep such records.";

    /// An expression of the program failed.
    VRL_FAILED: "vrl_failed", "Handle the error in the program, with `??` or an `err` variable, or correct the record.";

    /// The program sets a field of a payload or key that has no fields.
    VRL_NOT_STRUCTURED: "vrl_not_structured",
        "Decode the data first: with json.decode, or in the program with `. = parse_json!(.)`.";

    /// The program stored a value that a record cannot have at that place.
    VRL_RESULT: "vrl_result", "Store an object, a string or null there; see the page about vrl.";

    /// The record, or a value that the program made, exceeds the size limit.
    VRL_SIZE: "vrl_size", "Raise `maxBytes`, or make the record smaller.";

    /// The program exceeds its time limit.
    VRL_TIMEOUT: "vrl_timeout", "Raise `timeout`, or make the program faster.";

    /// The program does not compile for payloads of the record's form.
    VRL_UNFIT: "vrl_unfit", "Decode raw data first, or give the processor a condition.";

    /// The program reads a value that the language cannot represent exactly.
    VRL_VALUE: "vrl_value", "Convert the field before this processor, for example with field.convert.";
}
