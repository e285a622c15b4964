//! Codes of errors and findings of this crate.

pub(crate) use anabranch_plugin::codes::{
    FLOW_NO_FIELD, FLOW_NO_METADATA, OPERATOR_PANICKED, SCRIPT_FAILED, SCRIPT_MISTAKE, SCRIPT_NO_PROCESS,
};

anabranch_record::codes! {
    /// The operating system cannot create a process for a script.
    NO_WORKER: "no_worker", "Raise the limits of processes and open files.";

    /// custom.javascript has no script.
    SCRIPT_MISSING: "script.missing", "Set `script` or `script.path`.";

    /// A script imports a module that is not available.
    SCRIPT_MODULE: "script.module", "Put all code in one file.";

    /// The script declares no function named process.
    SCRIPT_WITHOUT_PROCESS: "script.no_process", "Declare it: `function process(record) { … }`.";

    /// The function process of a script never returns a value, so every record would be dropped.
    SCRIPT_NO_RESULT: "script.no_result", "Return the record, or `null` to drop every record on purpose.";

    /// The script is not valid JavaScript.
    SCRIPT_SYNTAX: "script.syntax", "Correct it at the place in the message.";

    /// The script nests brackets deeper than the parser allows.
    SCRIPT_TOO_DEEP: "script.too_deep", "Assign parts of the expression to variables, or move them into functions.";

    /// The script is too large to be checked.
    SCRIPT_TOO_LARGE: "script.too_large", "Remove unused code.";

    /// Both `script` and `script.path` are set.
    SCRIPT_TWICE: "script.twice", "Remove one of them.";

    /// The script could not be checked.
    SCRIPT_UNCHECKED: "script.unchecked", "Retry; check the memory and threads of the machine.";

    /// The file of the script cannot be read.
    SCRIPT_UNREADABLE: "script.unreadable", "Check its path and permissions.";

    /// A record crashed the process of its script twice.
    SCRIPT_CRASHED: "script_crashed",
        "Check the record in the dead letter, its nesting and size, and how the script handles it.";

    /// The script exceeds the maximum call depth.
    SCRIPT_LIMIT: "script_limit", "Check the script for infinite recursion.";

    /// The script exceeds its memory limit for this record.
    SCRIPT_MEMORY: "script_memory", "Check the script, or raise `processors.max-memory`.";

    /// The script returned a value that is not a record.
    SCRIPT_RESULT: "script_result", "Return the record, or null to drop it.";

    /// The script threw an error.
    SCRIPT_THREW: "script_threw", "The message comes from the script.";

    /// The script exceeds its time limit.
    SCRIPT_TIMEOUT: "script_timeout", "Raise `timeout`, or make the script faster.";

    /// The process of a script returned too few results.
    SCRIPT_UNANSWERED: "script_unanswered", "This is a defect: report it.";
}
