//! Codes of errors and findings of this crate.

#[cfg(feature = "parquet")]
pub(crate) use anabranch_plugin::codes::FORMAT_FAILED;
pub(crate) use anabranch_plugin::codes::{
    CREDENTIALS_REFUSED, POSITION_UNKNOWN, RECORD_TOO_LARGE, SETTINGS_INVALID, SETTINGS_REQUIRED,
};

anabranch_record::codes! {
    /// The server does not allow these credentials to perform the operation.
    ACCESS_DENIED: "access_denied", "Grant the permissions that the page of the plugin lists.";

    /// The server's response does not follow its protocol.
    ANSWER_INVALID: "answer_invalid", "Check that the address is that of the intended server.";

    /// The bucket does not exist.
    BUCKET_MISSING: "bucket_missing", "Create the bucket, or correct its name.";

    /// Data cannot be compressed.
    COMPRESSION_FAILED: "compression_failed", "This is a defect: report it.";

    /// The template of the folder failed.
    FOLDER_FAILED: "folder_failed", "Correct the template for records like this one.";

    /// The template's output cannot be part of an object key.
    FOLDER_INVALID: "folder_invalid", "Correct the template.";

    /// A key of an object is not UTF-8.
    KEY_INVALID: "key_invalid", "Rename the object.";

    /// The server does not list keys in order.
    LISTING_UNORDERED: "listing_unordered", "Use a server that lists keys in order.";

    /// The server does not know what was requested.
    NOT_FOUND: "not_found", "Check objstore.endpoint and the names of bucket and objects.";

    /// The object must be restored before it can be read.
    OBJECT_ARCHIVED: "object_archived", "Restore the object, or exclude it.";

    /// The object exceeds the size limit.
    OBJECT_TOO_LARGE: "object_too_large", "Raise maxObjectBytes.";

    /// The stored position belongs to another bucket or prefix.
    POSITION_OF_ANOTHER_BUCKET: "position_of_another_bucket", "Reset the position, or give the connector another id.";

    /// The region of the bucket is unknown.
    REGION_MISSING: "region_missing", "Set the region in the settings or in AWS_REGION.";

    /// The server rejects the request as invalid.
    REQUEST_INVALID: "request_invalid", "Check the settings; the message has the details.";

    /// The service refuses the request.
    REQUEST_REFUSED: "request_refused", "The message has the reason of the service.";

    /// The object store does not respond as expected. The service retries.
    S3_UNAVAILABLE: "s3_unavailable", "No action is needed if it recovers.";

    /// The bucket is in another region.
    WRONG_REGION: "wrong_region", "Set the region.";
}
