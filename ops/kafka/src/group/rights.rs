//! The right of the login to take part in a group.

use anabranch_record::fault::Fault;
use krafka::__private::protocol as wire;
use krafka::Kafka;
use krafka::error::ErrorCode;

use super::coordinator::{ANSWER, Coordinator};
use super::member::HEARTBEAT;
use crate::fault::{Doing, answered, refused};

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
    let answer: wire::HeartbeatResponse =
        coordinator.ask(HEARTBEAT, &request, ANSWER).await.map_err(|error| refused(&doing, error))?;
    match answer.error_code {
        code @ ErrorCode::GroupAuthorizationFailed => Err(answered(&doing, code, "")),
        _ => Ok(()),
    }
}
