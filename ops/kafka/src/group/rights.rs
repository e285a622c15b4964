//! The right of the login to take part in a group.

use std::time::Duration;

use anabranch_record::fault::Fault;
use krafka::__private::protocol as wire;
use krafka::Kafka;
use krafka::error::{ErrorCode, KrafkaError};
use tokio::time::{Instant, sleep};

use super::coordinator::{ANSWER, Coordinator, is_of_coordinator};
use super::member::HEARTBEAT;
use crate::fault::{Doing, answered, refused};

/// Time in which brokers that had no group before may choose a coordinator, and the wait between two looks.
const FIRST: Duration = Duration::from_secs(5);
const BETWEEN: Duration = Duration::from_millis(250);

/// Checks that the login may take part in a group. The group need not exist. The request is a heartbeat of an unknown member:
/// it needs the same right as joining, and changes nothing.
///
/// # Errors
/// The coordinator does not answer, or the right is missing.
pub(crate) async fn check_rights(kafka: &Kafka, group: &str) -> Result<(), Fault> {
    let doing = Doing::Group(group);
    let request = wire::HeartbeatRequest {
        group_id: group.to_owned(),
        generation_id: -1,
        member_id: String::new(),
        group_instance_id: None,
    };
    let coordinator = Coordinator::new(kafka.clone(), group.into());
    let begun = Instant::now();
    let answer: wire::HeartbeatResponse = loop {
        match coordinator.ask(HEARTBEAT, &request, ANSWER).await {
            Err(KrafkaError::Broker { code, .. }) if is_of_coordinator(code) && begun.elapsed() < FIRST => {
                sleep(BETWEEN).await;
            }
            answer => break answer.map_err(|error| refused(&doing, error))?,
        }
    };
    match answer.error_code {
        code @ ErrorCode::GroupAuthorizationFailed => Err(answered(&doing, code, "")),
        _ => Ok(()),
    }
}
