//! Codes of errors and findings of this crate.

pub(crate) use anabranch_plugin::codes::{CREDENTIALS_REFUSED, FLOW_SUSPECT, SETTINGS_INVALID, TEMPLATE_FAILED};

anabranch_record::codes! {
    /// The connection broke during the response.
    HTTP_BROKEN: "http_broken", "Check the service. Retries follow the settings.";

    /// The service cannot be reached.
    HTTP_CONNECT: "http_connect", "Check the address and the network.";

    /// The request cannot be built from this record.
    HTTP_INVALID: "http_invalid", "Check the settings that contain templates.";

    /// The service responded with an error.
    HTTP_STATUS: "http_status", "The message has the reason of the service.";

    /// The service did not respond in time.
    HTTP_TIMEOUT: "http_timeout", "Raise the time limit, or check the service.";

    /// The response exceeds the size limit.
    HTTP_TOO_LARGE: "http_too_large", "Request less data.";

    /// The proxy cannot be used.
    PROXY_UNUSABLE: "proxy_unusable", "Check its address.";

    /// The certificates cannot be used.
    TLS_INVALID: "tls_invalid", "Check the files that the settings name.";
}
