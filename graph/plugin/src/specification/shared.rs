//! Parameters that all sources, destinations or processors accept.
//!
//! The executor implements them: a plugin only lists them in its specification.

use super::{Parameter, ParameterKind, Validation};

/// Returns the parameters of every source: batching, and schema inference, which is off by default.
pub fn source() -> Vec<Parameter> {
    let mut parameters = vec![
        Parameter::new("sdk.batch.size", ParameterKind::Int, "Records collected into one batch; 0 = as they come.")
            .default_value("0")
            .validate(Validation::GreaterThan(-1.0)),
        Parameter::new(
            "sdk.batch.delay",
            ParameterKind::Duration,
            "Longest time a batch waits for more records after its first; 0 = it does not wait.",
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
        Parameter::new("sdk.schema.extract.type", ParameterKind::Text, "The language of inferred schemas.")
            .default_value("avro")
            .one_of(&["avro"]),
        Parameter::new(
            "sdk.schema.extract.key.enabled",
            ParameterKind::Bool,
            "Infer and register the schema of structured keys, and name it in the metadata.",
        )
        .default_value(enabled),
        Parameter::new(
            "sdk.schema.extract.key.subject",
            ParameterKind::Text,
            "Subject of inferred schemas of keys, after the collection and a dot where the record has one.",
        )
        .default_value("key")
        .only_with("sdk.schema.extract.key.enabled"),
        Parameter::new(
            "sdk.schema.extract.payload.enabled",
            ParameterKind::Bool,
            "Infer and register the schema of structured payloads, and name it in the metadata.",
        )
        .default_value(enabled),
        Parameter::new(
            "sdk.schema.extract.payload.subject",
            ParameterKind::Text,
            "Subject of inferred schemas of payloads, after the collection and a dot where the record has one.",
        )
        .default_value("payload")
        .only_with("sdk.schema.extract.payload.enabled"),
        Parameter::new(
            "sdk.schema.context.enabled",
            ParameterKind::Bool,
            "Put the name of the schema context and a colon before subjects.",
        )
        .default_value("true"),
        Parameter::new(
            "sdk.schema.context.name",
            ParameterKind::Text,
            "Name of the schema context; the ids of pipeline and connector where it is not given, none where it is \
             empty.",
        )
        .only_with("sdk.schema.context.enabled"),
    ]
}

/// Returns the parameters of every destination: batching, rate limit, and decoding of data with a schema.
pub fn destination() -> Vec<Parameter> {
    let decoded = |name, description| Parameter::new(name, ParameterKind::Bool, description).default_value("true");
    vec![
        Parameter::new("sdk.batch.size", ParameterKind::Int, "Most records of one write; 0 = the plugin's own.")
            .default_value("0")
            .validate(Validation::GreaterThan(-1.0)),
        Parameter::new(
            "sdk.batch.delay",
            ParameterKind::Duration,
            "Longest time a write waits for more records; 0 = the plugin's own.",
        )
        .default_value("0s"),
        Parameter::new("sdk.rate.perSecond", ParameterKind::Float, "Most records written per second; 0 = no limit.")
            .default_value("0")
            .validate(Validation::GreaterThan(-1.0)),
        Parameter::new(
            "sdk.rate.burst",
            ParameterKind::Int,
            "Most records written at once under a rate; 0 = one second's worth.",
        )
        .default_value("0")
        .validate(Validation::GreaterThan(-1.0))
        .only_with("sdk.rate.perSecond"),
        decoded("sdk.schema.extract.key.enabled", "Decode raw keys by the schema named in the metadata."),
        decoded("sdk.schema.extract.payload.enabled", "Decode raw payloads by the schema named in the metadata."),
    ]
}

/// Returns the parameters of every processor: decoding of schema-encoded data before it and encoding after it (spec §
/// 2.6).
pub fn processor() -> Vec<Parameter> {
    let flag = |name, description| Parameter::new(name, ParameterKind::Bool, description).default_value("true");
    vec![
        flag("sdk.schema.decode.key.enabled", "Decode the key with the schema named in the metadata first."),
        flag("sdk.schema.decode.payload.enabled", "Decode the payload with the schema named in the metadata first."),
        flag("sdk.schema.encode.key.enabled", "Encode the key with its schema afterwards."),
        flag("sdk.schema.encode.payload.enabled", "Encode the payload with its schema afterwards."),
    ]
}
