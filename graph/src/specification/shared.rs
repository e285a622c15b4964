//! Parameters that every source, destination or processor takes, whatever its plugin.
//!
//! Their effect is the executor's: a plugin only lists them in its specification.

use super::{Parameter, ParameterKind, Validation};

/// Of every source: batching.
pub fn source() -> Vec<Parameter> {
    vec![
        Parameter::new("sdk.batch.size", ParameterKind::Int, "Records collected into one batch; 0 = as they come.")
            .default_value("0")
            .validate(Validation::GreaterThan(-1.0)),
        Parameter::new(
            "sdk.batch.delay",
            ParameterKind::Duration,
            "Longest time a batch waits for more records after its first; 0 = it does not wait.",
        )
        .default_value("0s"),
    ]
}

/// Of every destination: batching and rate.
pub fn destination() -> Vec<Parameter> {
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
        .validate(Validation::GreaterThan(-1.0)),
    ]
}

/// Of every processor: whether schema-encoded data is decoded before and encoded after it (spec § 2.6).
pub fn processor() -> Vec<Parameter> {
    let flag = |name, description| Parameter::new(name, ParameterKind::Bool, description).default_value("true");
    vec![
        flag("sdk.schema.decode.key.enabled", "Decode the key with the schema named in the metadata first."),
        flag("sdk.schema.decode.payload.enabled", "Decode the payload with the schema named in the metadata first."),
        flag("sdk.schema.encode.key.enabled", "Encode the key with its schema afterwards."),
        flag("sdk.schema.encode.payload.enabled", "Encode the payload with its schema afterwards."),
    ]
}
