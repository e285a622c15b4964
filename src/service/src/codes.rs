//! Codes of errors and findings of this crate.

pub(crate) use anabranch_config::codes::{CONFIG_NO_DESTINATION, CONFIG_NO_SOURCE};
pub(crate) use anabranch_graph::codes::{
    PLAN_CONDITION_FAILS, PLAN_FEEDBACK, PLAN_INTERNAL, PLAN_NO_DESTINATION, PLAN_NO_LETTER_KEPT, PLAN_NO_SOURCE,
    PLAN_UNREACHABLE,
};
pub(crate) use anabranch_ops::codes::SETTINGS_NOT_A_PATH;
pub(crate) use anabranch_plugin::codes::SETTINGS_INVALID;

anabranch_record::codes! {
    /// A file declares no pipelines, so nothing in it was checked.
    CONFIG_NO_PIPELINES: "config.no_pipelines", "List pipelines below `pipelines:`.";

    /// A file that a setting reads its value from cannot be read any more, or its content makes the pipeline invalid.
    CREDENTIALS_UNREADABLE: "credentials_unreadable",
        "Restore the file. The pipeline retries for some time; after that, start it yourself.";

    /// The dead letter does not exist.
    DEAD_LETTER_NOT_FOUND: "dead_letter.not_found",
        "`dlq list` lists dead letters; this one may have been replayed or purged.";

    /// An edited record replaces exactly one dead letter.
    DEAD_LETTER_NOT_ONE: "dead_letter.not_one", "Give exactly one number.";

    /// The record cannot enter the pipeline at this step: the pipeline has no such step, or records only leave there.
    DEAD_LETTER_NO_STEP: "dead_letter.no_step", "`anabranch pipelines describe ID` lists the steps.";

    /// The condition needs more steps or time than a request may use.
    DLQ_CONDITION_TOO_COSTLY: "dlq.condition_too_costly",
        "Simplify the condition, or restrict the dead letters with `--node` or `--since`.";

    /// The condition is not valid.
    DLQ_INVALID_CONDITION: "dlq.invalid_condition", "Use the syntax of processor conditions.";

    /// Dead letters cannot be read from the store.
    LETTERS_UNREADABLE: "letters_unreadable", "Check the state store.";

    /// Another operation on the pipeline is in progress.
    PIPELINE_BUSY: "pipeline.busy", "Retry when it has finished.";

    /// Another node of the cluster runs the pipeline.
    PIPELINE_ELSEWHERE: "pipeline.elsewhere", "Send the request to the node that runs the pipeline.";

    /// The pipeline has errors and cannot be started.
    PIPELINE_INVALID: "pipeline.invalid", "Correct what `pipelines validate` reports.";

    /// The plugins of the pipeline are still loading.
    PIPELINE_LOADING: "pipeline.loading", "Retry in a moment.";

    /// The pipeline does not exist.
    PIPELINE_NOT_FOUND: "pipeline.not_found", "`pipelines list` lists the pipelines.";

    /// The pipeline has no source with this id.
    PIPELINE_NO_SOURCE: "pipeline.no_source", "The message lists the sources of the pipeline.";

    /// The pipeline does not run.
    PIPELINE_NOT_RUNNING: "pipeline.not_running", "Start the pipeline first.";

    /// The source of a pipeline did not store a request in time, because the pipeline is busy.
    PIPELINE_REQUEST_LATE: "pipeline.request_late",
        "The source may carry it out later; ask again when its records are delivered.";

    /// The pipeline is running.
    PIPELINE_RUNNING: "pipeline.running", "Stop the pipeline first.";

    /// The pipeline is being stopped.
    PIPELINE_STOPPING: "pipeline.stopping", "Wait until it has stopped, or stop it with --force.";

    /// Two connectors or processors have the same address in the API, which reaches only one of them.
    PLAN_ADDRESS_SHARED: "plan.address_shared", "Leave the `:` out of the ids.";

    /// Two sources of a pipeline read the same file, so every record is read twice.
    PLAN_INPUT_SHARED: "plan.input_shared", "Change the path of one source, or remove it.";

    /// Two sources of the service read standard input or listen at the same address, which only one of them can.
    PLAN_INPUT_TAKEN: "plan.input_taken", "Change the path or the address of one source, or remove it.";

    /// The dead-letter queue writes to the file of a destination.
    PLAN_LETTERS_AMONG_RECORDS: "plan.letters_among_records", "Use another path, or `plugin: store`.";

    /// The directory of an output file does not exist.
    PLAN_NO_DIRECTORY: "plan.no_directory", "Create it before the pipeline starts.";

    /// A pipeline of a cluster names a file, and not which nodes have it.
    PLAN_NO_PLACEMENT: "plan.no_placement", "Set `placement` of the pipeline.";

    /// A destination or a dead-letter queue writes to a file of the service: a pipeline file, a script, its
    /// configuration or its state store.
    PLAN_OUTPUT_RESERVED: "plan.output_reserved", "Use another path.";

    /// Two destinations of a pipeline write to the same file, so a record for both is written twice.
    PLAN_OUTPUT_SHARED: "plan.output_shared", "Change the path of one destination, or remove it.";

    /// The service is stopping.
    SERVICE_STOPPING: "service.stopping", "Restart the service.";

    /// The state store cannot be read or written.
    STORE_UNAVAILABLE: "store.unavailable", "Check db.path or the database, its permissions and its disk.";
}
