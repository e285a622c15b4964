//! Codes of errors and findings of this crate.

pub(crate) use anabranch_api::codes::{
    API_NO_SUCH_PATH, DEAD_LETTER_INVALID_RECORD, PIPELINES_PLAN_STALE, POSITIONS_AMBIGUOUS, POSITIONS_NO_PARTITION,
    POSITIONS_NO_SOURCE, POSITIONS_NONE, POSITIONS_REFUSED, TEST_NOT_RUN,
};
pub(crate) use anabranch_config::codes::PROVISIONING_PIPELINE_ID_DUPLICATE;
pub(crate) use anabranch_graph::codes::{NO_THREAD, PLAN_CONDITION_FAILS};
pub(crate) use anabranch_plugin::codes::SCRIPT_FAILED;
pub(crate) use anabranch_plugin::codes::SCRIPT_NO_PROCESS;
pub(crate) use anabranch_process::codes::CONFIG_UNREADABLE;
pub(crate) use anabranch_service::codes::{
    CONFIG_NO_PIPELINES, DEAD_LETTER_NOT_FOUND, DEAD_LETTER_NOT_ONE, PIPELINE_INVALID, PIPELINE_NOT_FOUND,
    PIPELINE_RUNNING, STORE_UNAVAILABLE,
};
pub(crate) use anabranch_trial::codes::{INPUT_FAILED, OUTPUT_FAILED, TEST_UNREADABLE};

anabranch_record::codes! {
    /// Another program listens on the address.
    API_ADDRESS_IN_USE: "api.address_in_use",
        "Stop that program, or set another address with api.http.address (for `mcp`: --http).";

    /// The certificate, its key, or the trusted authorities cannot be used, or there is no certificate.
    API_CERTIFICATE_UNUSABLE: "api.certificate_unusable",
        "Correct the file that the message names. The key must belong to the certificate and have no passphrase.";

    /// The service cannot listen on the address.
    API_NOT_LISTENING: "api.not_listening",
        "The message has the reason. Often the address does not belong to this machine, or the port needs more \
         permissions.";

    /// The file with the token cannot be used.
    API_TOKEN_UNREADABLE: "api.token_unreadable",
        "Make the file readable for this user. It must contain only the token.";

    /// A file with this name exists already.
    BACKUP_EXISTS: "backup.exists", "Choose another name with --to.";

    /// The copy of the store cannot be written, or is damaged.
    BACKUP_FAILED: "backup.failed", "The message has the details.";

    /// The store is not in a file, so there is nothing to copy.
    BACKUP_NOT_A_FILE: "backup.not_a_file", "Back up a store in PostgreSQL with `pg_dump`.";

    /// A file cannot be written.
    CLI_CANNOT_WRITE: "cli.cannot_write", "Check its path and the permissions of the directory.";

    /// A command that changes something was not confirmed.
    CLI_NOT_CONFIRMED: "cli.not_confirmed", "Answer y, or add --yes.";

    /// The output file of a command is a directory, or exists and was not written by the same command.
    CLI_OUTPUT_TAKEN: "cli.output_taken", "Name another file.";

    /// The operating system refused something that every command needs.
    CLI_SYSTEM: "cli.system", "The message comes from the operating system.";

    /// The command line is not valid.
    CLI_USAGE: "cli.usage", "`--help` lists commands and options.";

    /// No source names its streams.
    CONNECTORS_NOTHING_TO_DISCOVER: "connectors.nothing_to_discover", "Name a pipeline with a source such as `singer`.";

    /// The replay stopped before all dead letters were replayed.
    DEAD_LETTER_REPLAY_STOPPED: "dead_letter.replay_stopped",
        "The message has the reason. The remaining dead letters stay in the queue.";

    /// No editor can be started.
    DLQ_NO_EDITOR: "dlq.no_editor", "Set VISUAL or EDITOR, or provide the record in a file.";

    /// The file with the record cannot be read.
    DLQ_UNREADABLE: "dlq.unreadable", "Check its path and permissions.";

    /// The check does not exist.
    DOCTOR_UNKNOWN_CHECK: "doctor.unknown_check", "`doctor` without --check lists all checks.";

    /// A source or processor failed in a dry run.
    DRY_RUN_FAILED: "dry_run.failed", "The message names it. It would also fail in a real run.";

    /// A dry run read no records, so nothing was tested.
    DRY_RUN_NOTHING_READ: "dry_run.nothing_read", "Check that the source has records; `--timeout` waits longer.";

    /// The time was up before any record of a dry run had passed all processors.
    DRY_RUN_TIMED_OUT: "dry_run.timed_out", "Check the last processor that is shown; `--timeout` waits longer.";

    /// `--json` prints one object at the end, but the inspection has no end.
    INSPECT_LIMIT_MISSING: "inspect.limit_missing", "Add --limit.";

    /// Records cannot be written to standard output.
    INSPECT_OUTPUT: "inspect.output", "Check where standard output goes.";

    /// The service refused the inspection.
    INSPECT_REFUSED: "inspect.refused", "The message has the reason.";

    /// The client cancelled the call.
    MCP_CANCELLED: "mcp.cancelled", "Check the service: a requested change may have happened.";

    /// The arguments of a tool are not valid.
    MCP_INVALID_ARGUMENTS: "mcp.invalid_arguments", "Check the schema of the tool.";

    /// A call exceeded the time limit and was stopped.
    MCP_TIMED_OUT: "mcp.timed_out", "Request less at once. Check the service: a requested change may have happened.";

    /// With --http, requests must carry a token, but no token is set.
    MCP_TOKEN_MISSING: "mcp.token_missing", "Add --token-file, or set ANABRANCH_MCP_TOKEN.";

    /// The code does not exist.
    MCP_UNKNOWN_CODE: "mcp.unknown_code", "This index lists all codes.";

    /// A file that the migration would write exists already. Nothing was written.
    MIGRATE_FILE_EXISTS: "migrate.file_exists", "Remove the file, or choose another directory.";

    /// The input is not a configuration of the other service.
    MIGRATE_INVALID_INPUT: "migrate.invalid_input", "The message names the place. Export the configuration again.";

    /// A configuration of the other service cannot be read.
    MIGRATE_UNREADABLE: "migrate.unreadable", "Check its path and permissions.";

    /// There are no pipelines.
    PIPELINES_NONE: "pipelines.none", "Create one with `pipelines init`.";

    /// The pipeline did not reach the requested status in time.
    PIPELINE_TIMEOUT: "pipeline.timeout", "Check its status; --force drops records in flight.";

    /// The file exists already.
    PIPELINES_INIT_DESTINATION_EXISTS: "pipelines.init_destination_exists",
        "Choose another name, or overwrite it with --force.";

    /// The text cannot be the id of a pipeline.
    PIPELINES_INVALID_NAME: "pipelines.invalid_name", "Use letters, digits, `-` and `_`.";

    /// The checked paths contain no pipeline files.
    PIPELINES_NOTHING_FOUND: "pipelines.nothing_found", "Name a file, or a directory with `.yaml` or `.yml` files.";

    /// A template cannot be filled in.
    PIPELINES_TEMPLATE: "pipelines.template", "This is a defect: report it.";

    /// The plugin does not exist.
    PIPELINES_UNKNOWN_PLUGIN: "pipelines.unknown_plugin", "`connectors list` lists the plugins.";

    /// The template does not exist.
    PIPELINES_UNKNOWN_TEMPLATE: "pipelines.unknown_template", "`pipelines init --template list` lists the templates.";

    /// The pipeline cannot be analyzed because it cannot be opened.
    PLAN_NOT_OPENED: "plan.not_opened", "The message has the reason.";

    /// A drawing shows one pipeline, but there are several.
    PLAN_SEVERAL_PIPELINES: "plan.several_pipelines", "Name one of them.";

    /// A program with plugins of its own registers one that cannot be used: its name is taken or not valid.
    PLUGINS_NOT_REGISTERED: "plugins.not_registered",
        "The message names the plugin. Give it another name in its specification, or register it once.";

    /// The plugin does not exist.
    PLUGINS_UNKNOWN: "plugins.unknown", "`connectors list` and `processors list` list the plugins.";

    /// The file does not contain exported positions.
    POSITIONS_MALFORMED: "positions.malformed", "Write the file with `anabranch positions export`.";

    /// A directory with this name exists already.
    PROCESSORS_EXISTS: "processors.exists", "Choose another name or path.";

    /// The settings of the processor are not valid.
    PROCESSORS_INVALID: "processors.invalid", "Correct the errors in the findings.";

    /// The text cannot be the name of a processor.
    PROCESSORS_INVALID_NAME: "processors.invalid_name", "Use a name such as my-processor.";

    /// A `--set` does not have the form NAME=VALUE.
    PROCESSORS_INVALID_SETTING: "processors.invalid_setting", "Write NAME=VALUE.";

    /// The SDK cannot be found or copied.
    PROCESSORS_SDK: "processors.sdk", "Check the path in --sdk.";

    /// A source under a new id would deliver everything again.
    PROVISIONING_REREADS: "provisioning.rereads",
        "Copy the position with `anabranch positions copy`, or add --accept-rereads.";

    /// The temporary directory cannot be created.
    QUICKSTART_NO_DIRECTORY: "quickstart.no_directory", "Check TMPDIR and its permissions.";

    /// The defaults cannot be used.
    QUICKSTART_SETTINGS: "quickstart.settings", "The findings have the reason.";

    /// A pipeline failed for good.
    RUN_DEGRADED: "run.degraded", "`pipelines describe` shows the cause. Fix it and start the pipeline.";

    /// `run --once` was stopped before everything was read.
    RUN_INTERRUPTED: "run.interrupted", "Run it again: it resumes from there.";

    /// A pipeline file has errors.
    RUN_INVALID_PIPELINES: "run.invalid_pipelines", "Correct what `pipelines validate` reports.";

    /// `run --once` ended, and a source left objects for a later run: they are dated ahead of the clock of their store.
    RUN_LEFT: "run.left", "Run it again after that time, and correct the clocks of the store.";

    /// A limit of a dead-letter queue removed dead letters during `run --once`. Their records are lost.
    RUN_LETTERS_DROPPED: "run.letters_dropped", "Raise max-count, max-bytes or max-age of the queue.";

    /// The log cannot be written to standard output.
    RUN_NO_OUTPUT: "run.no_output", "Check where standard output goes.";

    /// No pipeline can be started.
    RUN_NO_VALID_PIPELINES: "run.no_valid_pipelines", "Correct what `pipelines validate` reports.";

    /// Records that were read were not delivered before the service ended. They are read again at the next start.
    RUN_NOT_DRAINED: "run.not_drained", "Raise shutdown.timeout if this happens often.";

    /// `run --once` read nothing: the input of a source does not exist, the source never had a record, or no pipeline
    /// was started.
    RUN_NOTHING_READ: "run.nothing_read",
        "Correct the path in the message, or start the pipeline with `status: running`.";

    /// The schema registry cannot be used.
    RUN_SCHEMA_REGISTRY: "run.schema_registry", "Check the settings schema-registry.*.";

    /// Traces of records cannot be sent.
    RUN_TRACES: "run.traces", "The message has the reason. Remove traces.endpoint to run without traces.";

    /// The response of the service ended early.
    SERVICE_BROKEN_ANSWER: "service.broken_answer", "Check the log of the service, and retry.";

    /// The program at this address is not an Anabranch service of a compatible version.
    SERVICE_FOREIGN: "service.foreign", "Correct --api.http.address, or use the same version.";

    /// The settings are not valid.
    SERVICE_INVALID_SETTINGS: "service.invalid_settings", "Correct the errors in the findings.";

    /// The settings contain no address of a service.
    SERVICE_NO_ADDRESS: "service.no_address", "Start one with `anabranch run`, or set --api.http.address.";

    /// The service refused the request.
    SERVICE_REFUSED: "service.refused", "The message has the reason.";

    /// The service is stopping.
    SERVICE_STOPPED: "service.stopped", "Restart the service.";

    /// The service did not respond in time.
    SERVICE_TIMEOUT: "service.timeout", "Check its log and load.";

    /// No service responds at the address.
    SERVICE_UNREACHABLE: "service.unreachable", "Start one with `anabranch run`, or set --api.http.address.";

    /// No secure connection to the service is possible: its certificate is not trusted, or it does not use TLS.
    SERVICE_UNTRUSTED: "service.untrusted",
        "Set the authority of its certificate with --api.http.tls.ca, and use a host name from the certificate.";

    /// A signal stopped the copy of a store.
    STORE_COPY_STOPPED: "store.copy_stopped", "Run it again: it begins from the start.";

    /// Another process uses the state store.
    STORE_IN_USE: "store.in_use", "Stop it, or use another store: two services need two stores.";

    /// The store does not exist yet, and no service responds.
    STORE_NONE: "store.none", "The first run creates it; check db.path.";

    /// The store to copy to has contents, or its file exists.
    STORE_NOT_EMPTY: "store.not_empty", "Copy to an empty table or a new file.";

    /// Another service took over the state store after this one lost its session, so this service ends.
    STORE_TAKEN: "store.taken", "Restart it. With `db.wait`, it starts when the other service has ended.";

    /// A condition is blank.
    TEMPLATE_BLANK: "template.blank", "Write a condition, or leave it out.";

    /// Records cannot be read.
    TEMPLATE_CANNOT_READ: "template.cannot_read", "Check the file or pipe.";

    /// Results cannot be written.
    TEMPLATE_CANNOT_WRITE: "template.cannot_write", "Check where standard output goes.";

    /// A template failed for this record.
    TEMPLATE_FAILED: "template.failed", "The message names the part of the template.";

    /// The template is not valid.
    TEMPLATE_INVALID: "template.invalid", "Correct it at the place in the message.";

    /// A line is not a record.
    TEMPLATE_INVALID_LINE: "template.invalid_line", "Provide one JSON record per line.";

    /// The function does not exist.
    TEMPLATE_UNKNOWN_FUNCTION: "template.unknown_function", "`template functions` lists all functions.";

    /// No test has this text in its name.
    TEST_NONE_CHOSEN: "test.none_chosen", "Change the text in --filter.";

    /// There are no tests.
    TEST_NONE_FOUND: "test.none_found", "Put the tests of orders.yaml in orders.test.yaml.";

    /// The terminal cannot be used.
    TOP_TERMINAL: "top.terminal", "Use a terminal that supports cursor movement, or `pipelines list`.";
}
