//! Codes of errors and findings of this crate.

pub(crate) use anabranch_plugin::codes::{
    CREDENTIALS_REFUSED, FLOW_SUSPECT, POSITION_UNKNOWN, SETTINGS_INVALID, SETTINGS_REQUIRED, SETTINGS_UNUSED,
    TEMPLATE_FAILED,
};

anabranch_record::codes! {
    /// The source cannot listen on its address.
    HTTP_ADDRESS: "http_address", "Choose another address, or end the program that uses it.";

    /// The connection broke during the response.
    HTTP_BROKEN: "http_broken", "Check the service. Retries follow the settings.";

    /// The service cannot be reached.
    HTTP_CONNECT: "http_connect", "Check the address and the network.";

    /// The request cannot be built from this record.
    HTTP_INVALID: "http_invalid", "Check the settings that contain templates.";

    /// The record is not JSON, as a batch needs it.
    HTTP_NOT_JSON: "http_not_json", "Decode the payload first, or set batch to single.";

    /// An answer has no records, or no valid next page.
    HTTP_PAGE: "http_page", "Correct the settings records and paging.*.";

    /// The server refused a record of a batch.
    HTTP_RECORD_REFUSED: "http_record_refused", "The message has the reason of the server.";

    /// The answer to a batch has not one result per record.
    HTTP_RESULTS: "http_results", "Correct the setting results.pointer.";

    /// The service responded with an error.
    HTTP_STATUS: "http_status", "The message has the reason of the service.";

    /// The service did not respond in time.
    HTTP_TIMEOUT: "http_timeout", "Raise the time limit, or check the service.";

    /// The server of OAuth 2.0 gives no usable token.
    HTTP_TOKEN: "http_token", "Check the settings auth.oauth2.*.";

    /// The response exceeds the size limit.
    HTTP_TOO_LARGE: "http_too_large", "Request less data.";

    /// The proxy cannot be used.
    PROXY_UNUSABLE: "proxy_unusable", "Check its address.";

    /// The certificates cannot be used.
    TLS_INVALID: "tls_invalid", "Check the files that the settings name.";
}
