//! The connector against a real broker, judged by another client.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]
#![allow(unreachable_pub, reason = "one crate, shared by its modules")]

#[path = "../../../tests/it/servers/certificates.rs"]
mod certificates;
#[path = "kafka/churn.rs"]
mod churn;
#[path = "kafka/destination.rs"]
mod destination;
#[path = "kafka/exactly_once.rs"]
mod exactly_once;
#[path = "kafka/group.rs"]
mod group;
#[path = "kafka/idle.rs"]
mod idle;
#[path = "kafka/login.rs"]
mod login;
#[path = "kafka/members.rs"]
mod members;
#[path = "kafka/oldest.rs"]
mod oldest;
#[path = "../../../tests/it/servers/port.rs"]
mod port;
#[path = "../../../tests/it/servers/kafka.rs"]
mod server;
#[path = "kafka/source.rs"]
mod source;
#[path = "kafka/units.rs"]
mod units;
#[path = "kafka/zombie.rs"]
mod zombie;

use std::sync::Arc;

use anabranch_ops_kafka::register;
use anabranch_plugin::destination::{Destination, Verdicts, Write, Writer};
use anabranch_plugin::registry::Registry;
use anabranch_plugin::testing::{configured, host};
use anabranch_record::fault::Fault;
use anabranch_record::{Data, Position, Record};
use base64::Engine as _;
use port::Port;
use serde_json::Value;

/// Returns the destination for settings, or the messages of the findings.
fn configure(settings: &[(&str, &str)]) -> Result<Arc<dyn Destination>, Vec<String>> {
    let mut registry = Registry::new();
    register(&mut registry);
    let kind = registry.destination("kafka").unwrap();
    configured::destination(kind, settings)
}

/// Returns the destination for settings without a mistake.
fn destination(settings: &[(&str, &str)]) -> Arc<dyn Destination> {
    configure(settings).unwrap()
}

async fn open(settings: &[(&str, &str)]) -> Box<dyn Writer> {
    destination(settings).open(&host()).await.unwrap()
}

/// Returns a record with a raw key and value.
fn record(key: &str, value: &str) -> Record {
    Record::create(
        Position::copy_from(value.as_bytes()),
        Data::Raw(key.as_bytes().to_vec().into()),
        Data::Raw(value.as_bytes().to_vec().into()),
    )
}

/// Writes rows, and returns the faults by row.
async fn write(writer: &mut dyn Writer, rows: &[Record]) -> Result<Vec<Option<Fault>>, Fault> {
    let verdicts = writer.write(Write::new(rows)).await?;
    writer.flush().await?;
    Ok(match verdicts {
        Verdicts::All(_) => rows.iter().map(|_| None).collect(),
        Verdicts::Each(each) => each.into_iter().map(Result::err).collect(),
        Verdicts::Refused(refused) => {
            let mut faults: Vec<Option<Fault>> = rows.iter().map(|_| None).collect();
            refused.into_iter().for_each(|(row, fault)| faults[row] = Some(fault));
            faults
        }
    })
}

/// Returns the text of a field in base64.
fn text(message: &Value, field: &str) -> Option<String> {
    let coded = message[field].as_str()?;
    Some(String::from_utf8(base64::engine::general_purpose::STANDARD.decode(coded).unwrap()).unwrap())
}

fn values(messages: &[Value]) -> Vec<String> {
    messages.iter().map(|message| text(message, "value").unwrap_or_else(|| "null".to_owned())).collect()
}
