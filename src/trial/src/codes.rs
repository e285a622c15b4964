//! Codes of errors and findings of this crate.

pub(crate) use anabranch_config::codes::{CONFIG_PARSE_ERROR, CONFIG_VARIABLE_UNSET};
pub(crate) use anabranch_graph::codes::{NEEDS_ARCH_V2, NO_THREAD};
pub(crate) use anabranch_ops::codes::ERROR_TRIGGERED;
pub(crate) use anabranch_plugin::codes::SCRIPT_FAILED;
pub(crate) use anabranch_template::codes::CONDITION_NOT_BOOLEAN;

anabranch_record::codes! {
    /// A test of a pipeline injected the failure.
    INJECTED: "injected", "This is intended: check the test.";

    /// Records cannot be read from standard input.
    INPUT_FAILED: "input_failed", "Check the file or pipe.";

    /// A line of the input is not a record.
    INVALID_LINE: "invalid_line", "Provide one JSON record per line.";

    /// Records cannot be written to standard output.
    OUTPUT_FAILED: "output_failed", "Check where standard output goes.";

    /// An input that can be read only once was read again.
    STREAM_USED: "stream_used", "Restart the service.";

    /// The fault cannot happen at this node.
    TEST_FAULT_IMPOSSIBLE: "test.fault_impossible", "The message lists where it can happen.";

    /// A required field of a test is missing.
    TEST_FIELD_REQUIRED: "test.field_required", "Add the field.";

    /// A test contains an unknown field.
    TEST_FIELD_UNKNOWN: "test.field_unknown", "Correct its name; `pipelines test --schema` lists the fields.";

    /// The pipeline of a test does not exist.
    TEST_NO_PIPELINE: "test.no_pipeline", "Put the tests of orders.yaml in orders.test.yaml.";

    /// The pattern does not exist.
    TEST_PATTERN_UNKNOWN: "test.pattern_unknown", "The message suggests similar patterns.";

    /// A value of a test has the wrong type.
    TEST_TYPE: "test.type", "Change the value as the message says.";

    /// A test refers to an id that the pipeline does not have.
    TEST_UNKNOWN_ID: "test.unknown_id", "The message suggests similar ids.";

    /// A test file cannot be read.
    TEST_UNREADABLE: "test.unreadable", "Check its path and permissions.";

    /// A value of a test is not allowed.
    TEST_VALUE: "test.value", "The message lists the allowed values.";

    /// Every synthetic record fails at a step, for a reason that is not the data.
    TRIAL_ALWAYS_FAILS: "trial.always_fails",
        "Correct the step. If real records can be right, `pipelines dry-run` shows it.";
}
