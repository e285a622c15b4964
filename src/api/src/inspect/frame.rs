//! The frames of an inspection: one JSON object per frame.

use anabranch_graph::exec::{TapPoint, TappedRecord};
use anabranch_record::fault::Fault;
use anabranch_record::json::{write_data, write_record};
use anabranch_record::{Data, Operation, Record};
use axum::extract::ws::{Message, Utf8Bytes};
use serde_json::json;
use tokio_tungstenite::tungstenite;

use crate::codes;
use crate::error::{ApiError, Error};

/// JSON format of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameFormat {
    /// The format of all other endpoints, with the place, and with frames about skipped records.
    Own,
    /// The JSON encoding of the connector protocol's messages, and only records.
    Protobuf,
}

/// Returns the frame of a record. O(its size).
pub(super) fn record(form: FrameFormat, tapped: &TappedRecord, places: &[TapPoint]) -> Result<Message, Fault> {
    let mut out = Vec::with_capacity(tapped.record.weight() + 128);
    out.extend_from_slice(b"{\"result\":");
    match form {
        FrameFormat::Own => {
            write_record(&tapped.record, &mut out)?;
            if let Some(place) = places.get(tapped.place) {
                let at = json!({ "node": &*place.node, "side": place.side.as_str() });
                out.extend_from_slice(format!(",\"at\":{at}").as_bytes());
            }
        }
        FrameFormat::Protobuf => protobuf(&tapped.record, &mut out)?,
    }
    out.push(b'}');
    let text = Utf8Bytes::try_from(out)
        .map_err(|_| Fault::record(codes::JSON_NOT_TEXT, "the record cannot be written as JSON"))?;
    Ok(Message::Text(text))
}

fn protobuf(record: &Record, out: &mut Vec<u8>) -> Result<(), Fault> {
    out.extend_from_slice(b"{\"position\":");
    write_data(&Data::Raw(record.position().0.clone()), out)?;
    let operation = match record.operation {
        Operation::Create => "OPERATION_CREATE",
        Operation::Update => "OPERATION_UPDATE",
        Operation::Delete => "OPERATION_DELETE",
        Operation::Snapshot => "OPERATION_SNAPSHOT",
    };
    let metadata: serde_json::Map<_, _> =
        record.metadata.iter().map(|(key, value)| (key.to_string(), value.as_str().into())).collect();
    out.extend_from_slice(format!(",\"operation\":\"{operation}\",\"metadata\":{}", json!(metadata)).as_bytes());
    out.extend_from_slice(b",\"key\":");
    data(&record.key, out)?;
    out.extend_from_slice(b",\"payload\":{\"before\":");
    data(&record.payload.before, out)?;
    out.extend_from_slice(b",\"after\":");
    data(&record.payload.after, out)?;
    out.extend_from_slice(b"}}");
    Ok(())
}

fn data(data: &Data, out: &mut Vec<u8>) -> Result<(), Fault> {
    let name: &[u8] = match data {
        Data::Absent => {
            out.extend_from_slice(b"null");
            return Ok(());
        }
        Data::Raw(_) => b"{\"rawData\":",
        Data::Structured(_) => b"{\"structuredData\":",
    };
    out.extend_from_slice(name);
    write_data(data, out)?;
    out.push(b'}');
    Ok(())
}

/// Returns the frame that reports skipped records.
pub(super) fn dropped(records: u64) -> Message {
    text(&json!({ "dropped": records }))
}

/// Returns the frame that reports records for which the condition failed or that cannot be written as JSON.
pub(super) fn failed(records: u64, message: &str) -> Message {
    text(&json!({ "failed": records, "message": message }))
}

/// Returns the frame with the status of the pipeline.
pub(super) fn status(status: &impl serde::Serialize) -> Message {
    text(&json!({ "status": status }))
}

/// Returns the frame with the reason why the inspection ends.
pub(super) fn error(error: ApiError) -> Message {
    text(&json!({ "error": Error::of(error) }))
}

fn text(value: &serde_json::Value) -> Message {
    Message::text(value.to_string())
}

/// Returns the frame of another node, if it is about records: the status is that of this node.
pub(super) fn relayed(frame: tungstenite::Message) -> Option<Message> {
    let tungstenite::Message::Text(text) = frame else { return None };
    let is_of_records = ["{\"result\"", "{\"dropped\"", "{\"failed\""].iter().any(|start| text.starts_with(start));
    is_of_records.then(|| Message::Text(text.as_str().into()))
}

#[cfg(test)]
mod tests {
    use anabranch_graph::exec::{NodeRole, Side};
    use anabranch_record::Position;

    use super::*;

    fn text_of(form: FrameFormat, record: Record) -> String {
        let places = [TapPoint { role: NodeRole::Processor, node: "a\"b".into(), side: Side::Before }];
        let message = super::record(form, &TappedRecord { place: 0, record }, &places).unwrap();
        message.into_text().unwrap().to_string()
    }

    #[test]
    fn records_are_written_in_both_forms() {
        let fields = anabranch_record::json::parse_record(
            br#"{"position":"cA==","operation":"delete","metadata":{"k":"\"v\""},"key":"a2V5","payload":{"before":{"n":1},"after":null}}"#,
        );
        let record = fields.unwrap();
        assert_eq!(
            text_of(FrameFormat::Own, record.clone()),
            r#"{"result":{"position":"cA==","operation":"delete","metadata":{"k":"\"v\""},"key":"a2V5","payload":{"before":{"n":1},"after":null}},"at":{"node":"a\"b","side":"before"}}"#
        );
        assert_eq!(
            text_of(FrameFormat::Protobuf, record),
            r#"{"result":{"position":"cA==","operation":"OPERATION_DELETE","metadata":{"k":"\"v\""},"key":{"rawData":"a2V5"},"payload":{"before":{"structuredData":{"n":1}},"after":null}}}"#
        );
    }

    #[test]
    fn what_is_no_json_is_no_frame() {
        let object = [("x", anabranch_record::value::Value::Float(f64::NAN))].into_iter().collect();
        let mut record = Record::at(Position::copy_from(b"p"));
        record.payload.after = Data::Structured(std::sync::Arc::new(object));
        for form in [FrameFormat::Own, FrameFormat::Protobuf] {
            let tapped = TappedRecord { place: 0, record: record.clone() };
            assert_eq!(super::record(form, &tapped, &[]).unwrap_err().code().name(), "json_not_finite");
        }
    }
}
