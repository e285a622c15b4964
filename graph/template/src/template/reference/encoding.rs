//! JSON, encodings and checksums.

use super::FunctionEntry;

pub(super) static JSON: &[FunctionEntry] = &[
    FunctionEntry::new(
        &["toJson"],
        "value",
        "Writes a value as JSON, with `<`, `>` and `&` escaped; returns an empty text if JSON cannot represent it.",
        r#"{{ toJson .Payload.After.customer }}"#,
    ),
    FunctionEntry::new(
        &["mustToJson"],
        "value",
        "Writes a value as `toJson` does, and fails the record if JSON cannot represent it.",
        r#"{{ mustToJson "1 < 2" }}"#,
    ),
    FunctionEntry::new(
        &["toRawJson", "mustToRawJson"],
        "value",
        "Writes a value as JSON without escaping `<`, `>` and `&`.",
        r#"{{ toRawJson "1 < 2" }}"#,
    ),
    FunctionEntry::new(
        &["toPrettyJson"],
        "value",
        "Writes a value as JSON over several indented lines; returns an empty text if JSON cannot represent it.",
        r#"{{ toPrettyJson .Payload.After.tags | printf "%q" }}"#,
    ),
    FunctionEntry::new(
        &["mustToPrettyJson"],
        "value",
        "Writes a value as `toPrettyJson` does, and fails the record if JSON cannot represent it.",
        r#"{{ mustToPrettyJson (dict "id" 7) | printf "%q" }}"#,
    ),
    FunctionEntry::new(
        &["fromJson"],
        "text",
        "Reads JSON; returns nothing for a text that is not JSON.",
        r#"{{ (fromJson "{\"id\": 7}").id }}"#,
    ),
    FunctionEntry::new(
        &["mustFromJson"],
        "text",
        "Reads JSON, and fails the record if the text is not JSON.",
        r#"{{ index (mustFromJson "[5, 6]") 1 }}"#,
    ),
];

pub(super) static ENCODINGS: &[FunctionEntry] = &[
    FunctionEntry::new(&["b64enc"], "text", "Encodes a text in base64.", r#"{{ b64enc "order-7" }}"#),
    FunctionEntry::new(
        &["b64dec"],
        "text",
        "Decodes base64; returns an error message as text if the text is not base64.",
        r#"{{ b64dec "b3JkZXItNw==" }}"#,
    ),
    FunctionEntry::new(&["b32enc"], "text", "Encodes a text in base32.", r#"{{ b32enc "order-7" }}"#),
    FunctionEntry::new(
        &["b32dec"],
        "text",
        "Decodes base32; returns an error message as text if the text is not base32.",
        r#"{{ b32dec "N5ZGIZLSFU3Q====" }}"#,
    ),
    FunctionEntry::new(
        &["sha1sum"],
        "text",
        "Returns the SHA-1 hash of a text in hexadecimal.",
        r#"{{ sha1sum "order-7" }}"#,
    ),
    FunctionEntry::new(
        &["sha256sum"],
        "text",
        "Returns the SHA-256 hash of a text in hexadecimal.",
        r#"{{ sha256sum "order-7" | trunc 16 }}"#,
    ),
    FunctionEntry::new(
        &["sha512sum"],
        "text",
        "Returns the SHA-512 hash of a text in hexadecimal.",
        r#"{{ sha512sum "order-7" | trunc 16 }}"#,
    ),
    FunctionEntry::new(
        &["adler32sum"],
        "text",
        "Returns the Adler-32 checksum of a text as a decimal number.",
        r#"{{ adler32sum "order-7" }}"#,
    ),
];
