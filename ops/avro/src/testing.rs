//! Runs processors on one record, and an in-memory schema registry with Confluent's protocol, for tests.

use std::sync::Arc;

use anabranch_ops_http::testing::{Received, Reply, Server};
use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::host::Host;
use anabranch_plugin::operator::{Configured, Decision, OperatorKind};
use anabranch_plugin::schema::{MemoryRegistry, SchemaError, SchemaKind, SchemaRegistry, SchemaVersion};
use anabranch_plugin::settings::Settings;
use anabranch_plugin::testing::{self, configured::Opened};
use anabranch_record::text::Str;
use anabranch_record::value::Value;
use anabranch_record::{Data, Position, Record};
use serde_json::{Value as Json, json};

/// Runs a future to completion.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

pub(crate) fn host(schemas: Arc<dyn SchemaRegistry>) -> Host {
    Host { schemas, ..testing::host() }
}

pub(crate) fn configured(kind: &Arc<dyn OperatorKind>, settings: &[(&str, &str)]) -> Result<Configured, Diagnostics> {
    Arguments::parse(kind.specification(), &Settings::from_pairs(settings.iter().copied()))
        .and_then(|arguments| kind.configure(&arguments))
}

/// Opens a processor.
pub(crate) fn opened(kind: &Arc<dyn OperatorKind>, settings: &[(&str, &str)], host: &Host) -> Opened {
    Opened::new(&configured(kind, settings).unwrap(), host.clone()).unwrap()
}

/// Returns the processed record, or the code and message of its fault.
pub(crate) fn process(operator: &mut Opened, record: Record) -> Result<Record, String> {
    let before = record.clone();
    let mut records = vec![record];
    match operator.process(&mut records, None).pop() {
        None => Ok(records.remove(0)),
        Some((_, Decision::Fail(fault))) => {
            assert_eq!(records[0], before, "a failed row changed");
            Err(format!("{}: {}", fault.code(), fault.message()))
        }
        Some(other) => panic!("{other:?}"),
    }
}

pub(crate) fn after(data: impl Into<Data>) -> Record {
    Record::create(Position::copy_from(b"1"), Data::Absent, data.into())
}

pub(crate) fn fields(json: &str) -> Data {
    match anabranch_record::json::parse_value(json.as_bytes()).unwrap() {
        Value::Map(map) => Data::Structured(map),
        other => panic!("{other:?}"),
    }
}

/// Starts a registry with Confluent's protocol.
pub(crate) fn confluent() -> Server {
    let memory = MemoryRegistry::new();
    Server::start(move |request| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (status, body) = match runtime.block_on(answer(&memory, request)) {
            Ok(body) => (200, body),
            Err(error) => {
                let code = match error {
                    SchemaError::SubjectNotFound(_) => 40401,
                    SchemaError::VersionNotFound { .. } => 40402,
                    SchemaError::SchemaNotFound(_) => 40403,
                    _ => 42201,
                };
                (code / 100, json!({ "error_code": code, "message": error.to_string() }))
            }
        };
        Reply::status(u16::try_from(status).unwrap(), body.to_string())
    })
}

async fn answer(memory: &MemoryRegistry, request: &Received) -> Result<Json, SchemaError> {
    let decode = |part| percent_encoding::percent_decode_str(part).decode_utf8_lossy().into_owned();
    let parts: Vec<String> = request.path.trim_start_matches('/').split('/').map(decode).collect();
    let path: Vec<&str> = parts.iter().map(String::as_str).collect();
    let text = || -> Result<Str, SchemaError> {
        let body: Json = serde_json::from_slice(&request.body).unwrap();
        let text = body["schema"].as_str().unwrap().to_owned();
        crate::check(&text).map_err(|error| SchemaError::Invalid(error.into()))?;
        Ok(text.into())
    };
    match (request.method.as_str(), path.as_slice()) {
        ("POST", ["subjects", subject, "versions"]) => {
            let schema = memory.create(&(*subject).into(), SchemaKind::Avro, &text()?).await?;
            Ok(json!({ "id": schema.id.get() }))
        }
        ("POST", ["subjects", subject]) => {
            let (subject, text) = (Str::from(*subject), text()?);
            for version in memory.versions(&subject).await? {
                let schema = memory.get(&subject, version).await?;
                if schema.text == text {
                    let (version, id) = (version.get(), schema.id.get());
                    return Ok(json!({ "subject": &*subject, "version": version, "id": id, "schema": &*text }));
                }
            }
            Err(SchemaError::SchemaNotFound("Schema not found".into()))
        }
        ("GET", ["subjects", subject, "versions", version]) => {
            let version: SchemaVersion = version.parse().unwrap();
            let schema = memory.get(&(*subject).into(), version).await?;
            let id = schema.id.get();
            Ok(json!({ "subject": subject, "version": version.get(), "id": id, "schema": &*schema.text }))
        }
        ("GET", ["subjects", subject, "versions"]) => {
            let versions = memory.versions(&(*subject).into()).await?;
            Ok(json!(versions.into_iter().map(SchemaVersion::get).collect::<Vec<_>>()))
        }
        ("GET", ["schemas", "ids", id]) => {
            let definition = memory.by_id(id.parse().unwrap()).await?;
            Ok(json!({ "schema": &*definition.text }))
        }
        ("PUT", ["config", _]) => Ok(json!({ "compatibility": "NONE" })),
        other => panic!("{other:?}"),
    }
}
