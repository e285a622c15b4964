//! Codes of errors and findings of this crate.

pub(crate) use anabranch_service::codes::{
    DEAD_LETTER_NOT_FOUND, PIPELINE_INVALID, PIPELINE_NOT_FOUND, STORE_UNAVAILABLE,
};

anabranch_record::codes! {
    /// A request without a token named a host that is not this machine.
    API_FOREIGN_HOST: "api.foreign_host", "Connect to 127.0.0.1 or localhost, or set a token.";

    /// A page of another site sent a request through a browser.
    API_FOREIGN_ORIGIN: "api.foreign_origin",
        "If the page may do this, add its origin to api.http.cors.allowed-origins.";

    /// The request is not valid.
    API_MALFORMED_REQUEST: "api.malformed_request", "Check the description of the path at /openapi/.";

    /// The path does not support this method.
    API_NO_SUCH_METHOD: "api.no_such_method", "Check the description of the path at /openapi/.";

    /// The path does not exist.
    API_NO_SUCH_PATH: "api.no_such_path", "/openapi/ lists all paths; settings can disable some of them.";

    /// A probe named an unknown part of the service.
    API_NO_SUCH_SERVICE: "api.no_such_service", "Leave `service` out.";

    /// The response took longer than 30 seconds.
    API_TIMEOUT: "api.timeout", "Request less data, or check whether the state store is slow.";

    /// The token is missing or wrong.
    API_UNAUTHENTICATED: "api.unauthenticated", "Send it as `Authorization: Bearer TOKEN`.";

    /// The service is not a node of a cluster.
    CLUSTER_NONE: "cluster.none", "Set cluster.url, or ask a node.";

    /// The node that runs the pipeline does not answer.
    CLUSTER_NODE_UNREACHABLE: "cluster.node_unreachable",
        "Check that the nodes reach each other at their cluster.address. If the node has failed, another one runs the \
         pipeline soon.";

    /// A connector with this id exists already.
    CONNECTOR_EXISTS: "connector.exists", "Choose another id, or change the existing connector.";

    /// The connector still has processors.
    CONNECTOR_HAS_PARTS: "connector.has_parts", "Delete the processors first.";

    /// The connector does not exist.
    CONNECTOR_NOT_FOUND: "connector.not_found", "Check the id. Ids have the form `pipeline:connector`.";

    /// The record to replay is not valid.
    DEAD_LETTER_INVALID_RECORD: "dead_letter.invalid_record", "Correct the record; the message has the place.";

    /// The pipeline does not have this node.
    INSPECT_NODE_UNKNOWN: "inspect.node_unknown", "The message lists the nodes.";

    /// No record ever reaches the node.
    INSPECT_NODE_UNREACHED: "inspect.node_unreached", "`pipelines plan` shows the reason.";

    /// The number of records per second is out of range.
    INSPECT_SAMPLE_INVALID: "inspect.sample_invalid", "Use a number from 1 to 1000.";

    /// The side is neither `before` nor `after`.
    INSPECT_SIDE_UNKNOWN: "inspect.side_unknown", "Use `before` or `after`.";

    /// The maximum number of inspections is reached.
    INSPECT_TOO_MANY: "inspect.too_many", "Close an inspection.";

    /// The condition is not valid.
    INSPECT_WHERE_INVALID: "inspect.where_invalid", "Use the syntax of processor conditions.";

    /// A record cannot be formatted as text.
    JSON_NOT_TEXT: "json_not_text", "This is a defect: report it.";

    /// A file declares the pipeline, so its connectors and processors cannot be changed individually.
    PIPELINE_DECLARED_IN_FILE: "pipeline.declared_in_file", "Edit the file, or apply a new version of it.";

    /// A pipeline with this id exists already.
    PIPELINE_EXISTS: "pipeline.exists", "Choose another id, or change the existing pipeline.";

    /// The pipeline still has connectors or processors.
    PIPELINE_HAS_PARTS: "pipeline.has_parts", "Delete them first, or delete the whole pipeline.";

    /// The store still has positions of the pipeline.
    PIPELINE_HAS_POSITIONS: "pipeline.has_positions",
        "Delete the positions too, if its sources may restart from the beginning.";

    /// The text declares no pipeline or several pipelines.
    PIPELINES_ONE_EXPECTED: "pipelines.one_expected", "Provide exactly one pipeline.";

    /// The pipeline has changed since the plan was shown.
    PIPELINES_PLAN_STALE: "pipelines.plan_stale", "Create a new plan and review it.";

    /// The pipeline is running, and api.allow-live-restart-apply is false.
    PIPELINES_RESTART_NOT_ALLOWED: "pipelines.restart_not_allowed",
        "Stop the pipeline, apply the change and start it, or set the setting to true.";

    /// The new pipeline could not be started. The old pipeline continues.
    PIPELINES_SWITCH_FAILED: "pipelines.switch_failed", "The message has the reason.";

    /// The command matches several sources or partitions.
    POSITIONS_AMBIGUOUS: "positions.ambiguous", "Select one with --connector and --partition.";

    /// A position belongs to a partition, but its source has no partitions.
    POSITIONS_NO_PARTITION: "positions.no_partition", "Remove the position: it belongs to another source.";

    /// The pipeline has no source with this id.
    POSITIONS_NO_SOURCE: "positions.no_source",
        "The message lists its sources; --new allows a source that the pipeline does not have yet.";

    /// The store does not exist yet.
    POSITIONS_NONE: "positions.none", "The first run creates it; check db.path.";

    /// The source cannot resume after this position.
    POSITIONS_REFUSED: "positions.refused",
        "Use a position from `anabranch positions show` or from the `position` of a delivered record.";

    /// A processor with this id exists already.
    PROCESSOR_EXISTS: "processor.exists", "Choose another id, or change the existing processor.";

    /// The processor does not exist.
    PROCESSOR_NOT_FOUND: "processor.not_found",
        "Check the id. Ids have the form `pipeline:processor` or `pipeline:connector:processor`.";

    /// The service is still starting.
    SERVICE_STARTING: "service.starting", "Retry in a moment.";

    /// The service waits for its state store.
    SERVICE_WAITING: "service.waiting",
        "Retry when `/readyz` answers 200. Until then, its reason names the service that owns the store.";

    /// The service cannot run the tests of a pipeline.
    TEST_NOT_RUN: "test.not_run", "The message has the reason.";
}
