//! Codes of errors and findings of this crate.

pub(crate) use anabranch_plugin::codes::{
    FENCED, FLOW_KEY_CONSTANT, FLOW_KEY_SHARED, FLOW_NO_FIELD, FLOW_NO_PART, MARKS_MOVED, OPERATOR_PANICKED,
    PARTITION_UNEXPECTED, PLAN_BROKEN, SCRIPT_MISTAKE, SETTINGS_UNUSED, STORE_UNAVAILABLE, VERDICT_COUNT,
};

anabranch_record::codes! {
    /// A processor, or several together, dropped every record of a dry run.
    CONDITION_ALL_DROPPED: "condition.all_dropped",
        "A filter drops the records for which its condition is true; `not` inverts the condition. A script drops a \
         record if `process` returns null. `--records` reads more records.";

    /// A condition was true for every record of a dry run.
    CONDITION_ALWAYS_HELD: "condition.always_held", "Check the comparison; `--records` reads more records.";

    /// A condition was true for no record of a dry run.
    CONDITION_NEVER_HELD: "condition.never_held", "Check the comparison; `--records` reads more records.";

    /// A condition panicked.
    CONDITION_PANICKED: "condition_panicked", "This is a defect: report it.";

    /// The engine detected an accounting error. No further positions are stored.
    CREDIT_OVERDRAWN: "credit_overdrawn", "This is a defect: report it. Restart the pipeline: no records are lost.";

    /// The dead-letter queue cannot be written.
    DEAD_LETTER_FAILED: "dead_letter_failed", "Fix the cause in the message. The pipeline stops until then.";

    /// More records failed than the dead-letter queue allows.
    DEAD_LETTER_THRESHOLD: "dead_letter_threshold",
        "Check the dead letters. If this number of failures is expected, raise window-nack-threshold.";

    /// The dead-letter queue is full. The pipeline stops, so that no dead letter is lost.
    DEAD_LETTERS_FULL: "dead_letters_full",
        "Replay or purge dead letters, raise `max-count` or `max-bytes`, or set `when-full: drop-oldest`. Then start \
         the pipeline.";

    /// A transactional destination lost records that it had confirmed, and the source cannot deliver them again.
    DESTINATION_WENT_BACK: "destination_went_back",
        "Restore the destination, or reset or rewind the position of the source.";

    /// A later stage ended before this one.
    DOWNSTREAM_GONE: "downstream_gone", "The message of that stage has the reason.";

    /// A source returned a record without a position.
    EMPTY_POSITION: "empty_position", "This is a defect of the source: report it to its author.";

    /// The engine panicked.
    ENGINE_PANICKED: "engine_panicked", "This is a defect: report it. Restart the pipeline: no records are lost.";

    /// The value that a processor sets is replaced before anything reads it.
    FLOW_OVERWRITTEN: "flow.overwritten", "Remove one of the two processors.";

    /// A processor returns several records for one, and all of them are equal.
    FLOW_SAME_PIECES: "flow.same_pieces",
        "Create a new object for each record in the script: an object that is returned several times has only one \
         state.";

    /// The thread of a processor ended.
    ISOLATE_DIED: "isolate_died", "This is a defect: report it.";

    /// Records disappeared inside the engine. No further positions are stored.
    LOST: "lost", "This is a defect: report it. Restart the pipeline: no records are lost.";

    /// The engine detected a missing position. No further positions are stored.
    MARK_MISSING: "mark_missing", "This is a defect: report it.";

    /// A processor returned several records for one, which is not enabled.
    NEEDS_ARCH_V2: "needs_arch_v2", "Set preview.pipeline-arch-v2.";

    /// The operating system cannot create a thread.
    NO_THREAD: "no_thread", "Raise the limits of the process.";

    /// Input and output records do not add up. No further positions are stored.
    NOT_CONSERVED: "not_conserved", "This is a defect: report it. Restart the pipeline: no records are lost.";

    /// A processor repeatedly returns no results.
    NOT_CONVERGING: "not_converging", "This is a defect of the processor: report it to its author.";

    /// The pipeline could not be opened.
    NOT_OPENED: "not_opened", "The message has the reason.";

    /// Two consecutive filters drop every record: each drops the records that the other keeps.
    PLAN_ALL_DROPPED: "plan.all_dropped",
        "A filter drops the records for which its condition is true; `not` inverts the condition.";

    /// A batch can never fill up: it needs more records than can be in flight.
    PLAN_BATCH_NEVER_FILLS: "plan.batch_never_fills", "Make the batch smaller, or set a delay.";

    /// A condition is true for no record.
    PLAN_CONDITION_ALWAYS_FALSE: "plan.condition_always_false", "Correct the condition, or remove what it belongs to.";

    /// A condition is true for every record.
    PLAN_CONDITION_ALWAYS_TRUE: "plan.condition_always_true", "Remove the condition.";

    /// A condition fails for every record.
    PLAN_CONDITION_FAILS: "plan.condition_fails", "Correct the condition.";

    /// A destination writes the file, the objects or the topics that a source of the same pipeline reads, or pipelines
    /// form a cycle.
    PLAN_FEEDBACK: "plan.feedback", "Use another path, prefix or topic.";

    /// The compiler produced an invalid plan.
    PLAN_INTERNAL: "plan.internal", "This is a defect: report it with the pipeline file.";

    /// A condition is not valid.
    PLAN_INVALID_CONDITION: "plan.invalid_condition", "Correct it at the place in the message.";

    /// The pipeline file contains a credential in plain text, and the state store keeps a copy of it.
    PLAN_LITERAL_SECRET: "plan.literal_secret",
        "Write `${NAME}` or `${file:/path}`. The store then keeps only the reference.";

    /// A processor returns several records for one, which is not enabled.
    PLAN_NEEDS_ARCH_V2: "plan.needs_arch_v2", "Set preview.pipeline-arch-v2.";

    /// `run --once` waits until a source has nothing more to read, but this source never reports that.
    PLAN_NEVER_CATCHES_UP: "plan.never_catches_up", "Use another source, or run without --once.";

    /// A destination with exactlyOnce may write rows twice after a crash: they have no key, and their source has
    /// another destination.
    PLAN_NOT_EXACTLY_ONCE: "plan.not_exactly_once",
        "Give the records a key, or move one of the destinations to a pipeline of its own.";

    /// The pipeline has no destination.
    PLAN_NO_DESTINATION: "plan.no_destination", "Add a destination.";

    /// The dead-letter queue keeps nothing: the first failure stops the pipeline, or the queue writes to /dev/null.
    PLAN_NO_LETTER_KEPT: "plan.no_letter_kept",
        "Set window-size and window-nack-threshold of the dead-letter queue, or `plugin: store`.";

    /// The pipeline has no source.
    PLAN_NO_SOURCE: "plan.no_source", "Add a source.";

    /// This build does not contain the plugin.
    PLAN_PLUGIN_LEFT_OUT: "plan.plugin_left_out", "Use a build with the feature that the message names.";

    /// The standalone plugin is not installed.
    PLAN_PLUGIN_NOT_INSTALLED: "plan.plugin_not_installed", "Copy its file to connectors.path or processors.path.";

    /// A dead-letter queue is configured to store positions with its records, but it has no positions.
    PLAN_QUEUE_TRANSACTIONAL: "plan.queue_transactional", "Remove exactlyOnce from the queue.";

    /// The processor does not support this number of workers.
    PLAN_TOO_MANY_WORKERS: "plan.too_many_workers", "Lower `workers`.";

    /// The plugin does not exist.
    PLAN_UNKNOWN_PLUGIN: "plan.unknown_plugin", "`connectors list` and `processors list` list the plugins.";

    /// The text before the colon is not a type of plugins.
    PLAN_UNKNOWN_PLUGIN_TYPE: "plan.unknown_plugin_type", "Write builtin, standalone or any.";

    /// Records that fulfil the condition of no destination are dropped, and the file does not say that this is meant.
    PLAN_UNMATCHED_DROPPED: "plan.unmatched_dropped", "Say with `unmatched` what becomes of them.";

    /// `unmatched` names no destination.
    PLAN_UNMATCHED_UNKNOWN: "plan.unmatched_unknown", "Write drop, dead-letter, fail, or the id of a destination.";

    /// `unmatched` has no effect, because some destination receives every record.
    PLAN_UNMATCHED_UNUSED: "plan.unmatched_unused", "Remove it, or add conditions to all destinations.";

    /// Some nodes never receive a record.
    PLAN_UNREACHABLE: "plan.unreachable", "Remove them, or correct the condition before them.";

    /// The plugin cannot be used in this role.
    PLAN_WRONG_ROLE: "plan.wrong_role", "The message lists the plugins for this role.";

    /// The plugin exists in another version.
    PLAN_WRONG_VERSION: "plan.wrong_version", "Name that version, or leave the version out.";

    /// A path begins or ends with a blank, which is part of its name.
    SETTINGS_BLANK_AROUND: "settings.blank_around", "Remove the blank; `pipelines validate --fix` does.";

    /// A value has typographic quotes, which are part of the value.
    SETTINGS_CURLY_QUOTES: "settings.curly_quotes", "Write straight quotes.";

    /// A template ends with the newline of a YAML block, which becomes part of a field, a body or each line.
    SETTINGS_LINE_FEED: "settings.line_feed", "Write `|-` instead of `|`.";

    /// A setting that does not support templates contains one. It is used literally.
    SETTINGS_NOT_A_TEMPLATE: "settings.not_a_template", "Write the text itself.";

    /// A value contains a variable in the notation of another tool (`$NAME`, `$(NAME)`, `{{ env.NAME }}`, `~`). It is
    /// used literally.
    SETTINGS_NOT_A_VARIABLE: "settings.not_a_variable", "Write `${NAME}`.";

    /// The value of an environment variable contains a template, which is evaluated for every record.
    SETTINGS_TEMPLATE_IN_VARIABLE: "settings.template_in_variable",
        "Write the template in the file, or remove the braces from the variable.";

    /// The state store is damaged.
    STORE_DAMAGED: "store_damaged", "Restore it from a backup; see the page on operations.";

    /// The file of the state store is missing or was replaced, or another program truncated or overwrote it. The
    /// pipeline stops.
    STORE_GONE: "store_gone",
        "Restore the file, or a copy of the store, before you restart the service. With an empty store, every source \
         starts from its beginning.";

    /// A template that builds JSON by hand produces a text that is not JSON.
    TEMPLATE_NOT_JSON: "template.not_json",
        "Write {{ toJson .Payload.After.name }} for each value, which adds quotes to texts.";

    /// A pipeline can have at most 65536 partitions.
    TOO_MANY_LANES: "too_many_lanes", "Split the source into several sources.";

    /// A processor returned more results than it received records.
    TOO_MANY_VERDICTS: "too_many_verdicts", "This is a defect of the processor: report it to its author.";

    /// The record fulfils the condition of no destination, and `unmatched` is `dead-letter` or `fail`.
    UNMATCHED: "unmatched", "Add a destination for such records, or set unmatched: drop.";

    /// A destination reported a result that is not allowed.
    VERDICT_KIND: "verdict_kind", "This is a defect of the destination: report it to its author.";

    /// A worker ended unexpectedly.
    WORKER_GONE: "worker_gone", "This is a defect: report it.";
}
