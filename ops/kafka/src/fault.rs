//! Faults for the errors of the client and of the brokers, in plain words.

use anabranch_ops_tls::{Rejected, rejected, within};
use anabranch_record::code::Code;
use anabranch_record::fault::{Fault, FaultClass};
use krafka::KrafkaError;
use krafka::error::ErrorCode;

use crate::codes;

/// The operation that failed, for messages.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Doing<'a> {
    /// Connecting to the servers.
    Connecting(&'a str),
    /// Reading a topic.
    Reading(&'a str),
    /// Writing a topic.
    Writing(&'a str),
    /// Taking part in a consumer group.
    Group(&'a str),
    /// A transaction of a transactional id.
    Transaction(&'a str),
    /// Creating a topic.
    Creating(&'a str),
    /// Reading the settings or the partitions of a topic.
    Describing(&'a str),
}

impl Doing<'_> {
    fn phrase(&self) -> String {
        match self {
            Doing::Connecting(servers) => format!("Kafka at {servers}"),
            Doing::Reading(topic) => format!("reading the topic {topic}"),
            Doing::Writing(topic) => format!("writing the topic {topic}"),
            Doing::Group(group) => format!("the consumer group {group}"),
            Doing::Transaction(id) => format!("the transactional id {id}"),
            Doing::Creating(topic) => format!("creating the topic {topic}"),
            Doing::Describing(topic) => format!("looking up the topic {topic}"),
        }
    }

    /// Returns the right that the operation needs, as an operator grants it.
    fn right(&self) -> String {
        match self {
            Doing::Connecting(_) => "Describe on the cluster".to_owned(),
            Doing::Reading(topic) => format!("Read on the topic {topic}"),
            Doing::Writing(topic) => format!("Write on the topic {topic}"),
            Doing::Group(group) => format!("Read on the group {group}"),
            Doing::Transaction(id) => format!("Write on the transactional id {id}"),
            Doing::Creating(topic) => format!("Create on the topic {topic}"),
            Doing::Describing(topic) => format!("Describe on the topic {topic}"),
        }
    }
}

/// Returns the fault for an error of the client.
pub(crate) fn refused(doing: &Doing<'_>, error: KrafkaError) -> Fault {
    match &error {
        KrafkaError::Broker { code, message } => answered(doing, *code, message),
        KrafkaError::Auth { .. } => match within(&error) {
            Some(words) => {
                let remedy = match rejected(&error) {
                    Some(Rejected::Theirs) => "; caCert has the authorities to trust",
                    Some(Rejected::Ours) => "; clientCert and clientKey are the certificate of this client",
                    None => "",
                };
                let message = format!("{}: {words}{remedy}", doing.phrase());
                Fault::fatal(codes::CREDENTIALS_REFUSED, message).of_login()
            }
            None => Fault::fatal(codes::CREDENTIALS_REFUSED, Failed { what: doing.phrase(), error }).of_login(),
        },
        KrafkaError::UnknownTopic { topic } => {
            let message = format!("{}: the topic {topic} does not exist", doing.phrase());
            Fault::fatal(codes::TOPIC_MISSING, message)
        }
        KrafkaError::Fenced { .. } => fault(FaultClass::Fatal, codes::FENCED, doing, error),
        KrafkaError::Config { .. } => fault(FaultClass::Fatal, codes::SETTINGS_INVALID, doing, error),
        KrafkaError::Compression { .. } | KrafkaError::Serialization { .. } => {
            fault(FaultClass::Fatal, codes::DATA_DAMAGED, doing, error)
        }
        _ => fault(FaultClass::Transient, codes::UNAVAILABLE, doing, error),
    }
}

/// Returns the fault for the error code of a broker's answer.
pub(crate) fn answered(doing: &Doing<'_>, code: ErrorCode, message: &str) -> Fault {
    let (class, named, words) = match code {
        ErrorCode::TopicAuthorizationFailed
        | ErrorCode::GroupAuthorizationFailed
        | ErrorCode::ClusterAuthorizationFailed
        | ErrorCode::TransactionalIdAuthorizationFailed => {
            let message = format!("{}: not authorised: the right {} is missing", doing.phrase(), doing.right());
            return Fault::fatal(codes::NOT_AUTHORISED, message).of_login();
        }
        ErrorCode::UnknownTopicOrPartition | ErrorCode::UnknownTopicId => {
            (FaultClass::Fatal, codes::TOPIC_MISSING, "the topic does not exist")
        }
        ErrorCode::SaslAuthenticationFailed
        | ErrorCode::UnsupportedSaslMechanism
        | ErrorCode::DelegationTokenExpired => {
            let message = format!("{}: the login was refused: {message}", doing.phrase());
            return Fault::fatal(codes::CREDENTIALS_REFUSED, message).of_login();
        }
        ErrorCode::IllegalSaslState => {
            let text =
                "the listener at this port does not authenticate with SASL: remove saslMechanism, or use another port";
            (FaultClass::Fatal, codes::SETTINGS_INVALID, text)
        }
        ErrorCode::MessageTooLarge | ErrorCode::RecordListTooLarge => (
            FaultClass::Record,
            codes::RECORD_TOO_LARGE,
            "the record is larger than max.message.bytes of the topic allows",
        ),
        ErrorCode::InvalidTopic => (FaultClass::Record, codes::RECORD_INVALID, "the name of the topic is invalid"),
        ErrorCode::InvalidTimestamp => {
            (FaultClass::Record, codes::BATCH_REJECTED, "the broker rejects the timestamp of the record")
        }
        ErrorCode::InvalidRecord => (FaultClass::Record, codes::BATCH_REJECTED, "the broker rejects the record"),
        ErrorCode::NotEnoughReplicas | ErrorCode::NotEnoughReplicasAfterAppend => (
            FaultClass::Transient,
            codes::UNAVAILABLE,
            "fewer replicas are in sync than min.insync.replicas of the topic requires",
        ),
        ErrorCode::CorruptMessage => (FaultClass::Fatal, codes::DATA_DAMAGED, "a record is damaged"),
        ErrorCode::UnsupportedVersion | ErrorCode::UnsupportedForMessageFormat => {
            (FaultClass::Fatal, codes::BROKER_INCOMPATIBLE, "the broker does not support the request")
        }
        ErrorCode::InvalidProducerEpoch | ErrorCode::TransactionCoordinatorFenced => {
            (FaultClass::Fatal, codes::FENCED, "a later run uses the same transactional id")
        }
        ErrorCode::InvalidConfig
        | ErrorCode::InvalidRequest
        | ErrorCode::InvalidPartitions
        | ErrorCode::InvalidReplicationFactor
        | ErrorCode::PolicyViolation
        | ErrorCode::InvalidGroupId
        | ErrorCode::InvalidSessionTimeout
        | ErrorCode::InconsistentGroupProtocol
        | ErrorCode::InvalidTransactionTimeout => {
            (FaultClass::Fatal, codes::REQUEST_REFUSED, "the broker refuses the request")
        }
        _ => (FaultClass::Transient, codes::UNAVAILABLE, "the broker did not carry out the request"),
    };
    let name = format!("{code:?}");
    let detail = match message.is_empty() || message == name {
        true => name,
        false => format!("{name}, {message}"),
    };
    Fault::new(class, named, format!("{}: {words} ({detail})", doing.phrase()))
}

/// Returns the fault for servers of which none responds in time.
pub(crate) fn unreachable(servers: &str, why: &str) -> Fault {
    let message = format!(
        "Kafka at {servers}: no server responds; check the addresses, tls.enabled, clientCert and saslMechanism ({why})"
    );
    Fault::transient(codes::UNAVAILABLE, message)
}

fn fault(class: FaultClass, code: Code, doing: &Doing<'_>, error: KrafkaError) -> Fault {
    Fault::new(class, code, Failed { what: doing.phrase(), error })
}

/// An error of the client, after what failed.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
struct Failed {
    what: String,
    #[source]
    error: KrafkaError,
}
