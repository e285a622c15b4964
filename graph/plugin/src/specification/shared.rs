//! Parameters that all sources, destinations or processors accept.
//!
//! The executor implements them: a plugin only lists them in its specification.

use super::{Parameter, ParameterKind, Validation};

/// Returns the parameters of every source: batching, and schema inference, which is off by default.
pub fn source() -> Vec<Parameter> {
    let mut parameters = vec![
        Parameter::new(
            "sdk.batch.size",
            ParameterKind::Int,
            "Maximum number of records per batch; 0 = as they arrive.",
        )
        .default_value("0")
        .validate(Validation::GreaterThan(-1.0)),
        Parameter::new(
            "sdk.batch.delay",
            ParameterKind::Duration,
            "Maximum time a batch waits for more records after its first one; 0 = it does not wait.",
        )
        .default_value("0s"),
    ];
    parameters.extend(extraction("false"));
    parameters
}

/// Returns the parameters of [`source`] for a source of structured data: schema inference is on by default.
pub fn structured_source() -> Vec<Parameter> {
    let mut parameters = source();
    for extracted in extraction("true") {
        if let Some(parameter) = parameters.iter_mut().find(|parameter| parameter.name == extracted.name) {
            *parameter = extracted;
        }
    }
    parameters
}

fn extraction(enabled: &'static str) -> Vec<Parameter> {
    vec![
        Parameter::new("sdk.schema.extract.type", ParameterKind::Text, "Language of inferred schemas.")
            .default_value("avro")
            .one_of(&["avro"]),
        Parameter::new(
            "sdk.schema.extract.key.enabled",
            ParameterKind::Bool,
            "Infers and registers the schema of structured keys, and adds its subject and version to the metadata.",
        )
        .default_value(enabled),
        Parameter::new(
            "sdk.schema.extract.key.subject",
            ParameterKind::Text,
            "Subject of inferred schemas of keys. If the record has a collection, its name and a dot come first.",
        )
        .default_value("key")
        .only_with("sdk.schema.extract.key.enabled"),
        Parameter::new(
            "sdk.schema.extract.payload.enabled",
            ParameterKind::Bool,
            "Infers and registers the schema of structured payloads, and adds its subject and version to the metadata.",
        )
        .default_value(enabled),
        Parameter::new(
            "sdk.schema.extract.payload.subject",
            ParameterKind::Text,
            "Subject of inferred schemas of payloads. If the record has a collection, its name and a dot come first.",
        )
        .default_value("payload")
        .only_with("sdk.schema.extract.payload.enabled"),
        Parameter::new(
            "sdk.schema.context.enabled",
            ParameterKind::Bool,
            "Prefixes subjects with the name of the schema context and a colon.",
        )
        .default_value("true"),
        Parameter::new(
            "sdk.schema.context.name",
            ParameterKind::Text,
            "Name of the schema context. By default it consists of the ids of pipeline and connector; if it is set to an \
             empty text, there is no context.",
        )
        .only_with("sdk.schema.context.enabled"),
    ]
}

/// Returns the parameters of every destination: batching, rate limit, and decoding of data with a schema.
pub fn destination() -> Vec<Parameter> {
    let decoded = |name, description| Parameter::new(name, ParameterKind::Bool, description).default_value("true");
    vec![
        Parameter::new(
            "sdk.batch.size",
            ParameterKind::Int,
            "Maximum number of records per write; 0 = the plugin's default.",
        )
        .default_value("0")
        .validate(Validation::GreaterThan(-1.0)),
        Parameter::new(
            "sdk.batch.delay",
            ParameterKind::Duration,
            "Maximum time a write waits for more records; 0 = the plugin's default.",
        )
        .default_value("0s"),
        Parameter::new(
            "sdk.rate.perSecond",
            ParameterKind::Float,
            "Maximum number of records per second; 0 = no limit.",
        )
        .default_value("0")
        .validate(Validation::GreaterThan(-1.0)),
        Parameter::new(
            "sdk.rate.burst",
            ParameterKind::Int,
            "Maximum number of records in a burst if a rate is set; 0 = as many as in one second.",
        )
        .default_value("0")
        .validate(Validation::GreaterThan(-1.0))
        .only_with("sdk.rate.perSecond"),
        decoded("sdk.schema.extract.key.enabled", "Decodes raw keys with the schema in the metadata."),
        decoded("sdk.schema.extract.payload.enabled", "Decodes raw payloads with the schema in the metadata."),
    ]
}

/// Returns the parameters of every processor: decoding of schema-encoded data before it and encoding after it (spec §
/// 2.6).
pub fn processor() -> Vec<Parameter> {
    let flag = |name, description| Parameter::new(name, ParameterKind::Bool, description).default_value("true");
    vec![
        flag("sdk.schema.decode.key.enabled", "Decodes the key with the schema in the metadata before processing."),
        flag(
            "sdk.schema.decode.payload.enabled",
            "Decodes the payload with the schema in the metadata before processing.",
        ),
        flag("sdk.schema.encode.key.enabled", "Encodes the key with its schema after processing."),
        flag("sdk.schema.encode.payload.enabled", "Encodes the payload with its schema after processing."),
    ]
}
