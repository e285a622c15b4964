//! The two versions of the protocol and their differences.

use anabranch_ops_opencdc::wire::{Parameter, Validation};
use anabranch_record::Position;
use bytes::{BufMut as _, Bytes};
use prost::Message as _;

use crate::wire;

/// Version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// Version `connector.v1`: one record or position per message.
    V1,
    /// Version `connector.v2`.
    V2,
}

/// Role of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Source,
    Destination,
}

impl Role {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Role::Source => "source",
            Role::Destination => "destination",
        }
    }
}

/// A call of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Configure,
    Open,
    Run,
    Stop,
    Teardown,
    Created,
    Updated,
    Deleted,
}

/// Acknowledgement of a record by a destination.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ack {
    pub(crate) position: Bytes,
    /// Error message; empty if the record was written.
    pub(crate) error: String,
}

/// `Validation.Type` of a required parameter.
const REQUIRED: i32 = 1;

impl Protocol {
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        match number {
            1 => Some(Protocol::V1),
            2 => Some(Protocol::V2),
            _ => None,
        }
    }

    pub(crate) fn number(self) -> u32 {
        match self {
            Protocol::V1 => 1,
            Protocol::V2 => 2,
        }
    }

    pub(crate) fn specify(self) -> String {
        format!("/connector.v{}.SpecifierPlugin/Specify", self.number())
    }

    /// Returns the gRPC path of a call.
    pub(crate) fn path(self, role: Role, call: Call) -> String {
        let service = match role {
            Role::Source => "SourcePlugin",
            Role::Destination => "DestinationPlugin",
        };
        format!("/connector.v{}.{service}/{}", self.number(), self.method(call))
    }

    pub(crate) fn method(self, call: Call) -> &'static str {
        match call {
            Call::Configure => "Configure",
            Call::Open if self == Protocol::V1 => "Start",
            Call::Open => "Open",
            Call::Run => "Run",
            Call::Stop => "Stop",
            Call::Teardown => "Teardown",
            Call::Created => "LifecycleOnCreated",
            Call::Updated => "LifecycleOnUpdated",
            Call::Deleted => "LifecycleOnDeleted",
        }
    }

    pub(crate) fn read_specification(self, message: Bytes) -> Result<wire::Specification, prost::DecodeError> {
        match self {
            Protocol::V2 => Ok(wire::Specified::decode(message)?.specification.unwrap_or_default()),
            Protocol::V1 => wire::SpecifiedV1::decode(message).map(of_version_1),
        }
    }

    /// Decodes the records of a source's message.
    pub(crate) fn read_records(self, message: Bytes) -> Result<Vec<Bytes>, prost::DecodeError> {
        match self {
            Protocol::V2 => Ok(wire::Records::decode(message)?.records),
            Protocol::V1 => Ok(wire::OneRecord::decode(message)?.record.into_iter().collect()),
        }
    }

    /// Decodes the acknowledgements of a destination's message.
    pub(crate) fn read_acks(self, message: Bytes) -> Result<Vec<Ack>, prost::DecodeError> {
        let ack = |wire::Ack { position, error }| Ack { position, error };
        match self {
            Protocol::V2 => Ok(wire::Acks::decode(message)?.acks.into_iter().map(ack).collect()),
            Protocol::V1 => Ok(vec![ack(wire::Ack::decode(message)?)]),
        }
    }

    /// Encodes messages that acknowledge positions in order, each of at most about `limit` bytes.
    pub(crate) fn write_positions(self, positions: &[Position], limit: usize) -> Vec<Bytes> {
        let mut messages = Pieces::new(self, limit);
        for position in positions {
            messages.add(&position.0);
        }
        messages.finish()
    }
}

/// Builder of messages with one repeated bytes field with number 1: records or positions. Each message holds at least
/// one item. It exceeds the limit only if it holds a single item, as all messages of version 1 do.
pub(crate) struct Pieces {
    protocol: Protocol,
    limit: usize,
    messages: Vec<Bytes>,
    current: Vec<u8>,
}

impl Pieces {
    pub(crate) fn new(protocol: Protocol, limit: usize) -> Self {
        Pieces { protocol, limit, messages: Vec::new(), current: Vec::new() }
    }

    pub(crate) fn add(&mut self, piece: &[u8]) {
        const TAG: u8 = 1 << 3 | 2;
        let size = 1 + prost::length_delimiter_len(piece.len()) + piece.len();
        if !self.current.is_empty() && (self.protocol == Protocol::V1 || self.current.len() + size > self.limit) {
            self.cut();
        }
        self.current.reserve(size);
        self.current.put_u8(TAG);
        // Writing to a vector cannot fail.
        let _ = prost::encode_length_delimiter(piece.len(), &mut self.current);
        self.current.extend_from_slice(piece);
    }

    fn cut(&mut self) {
        self.messages.push(std::mem::take(&mut self.current).into());
    }

    pub(crate) fn finish(mut self) -> Vec<Bytes> {
        if !self.current.is_empty() {
            self.cut();
        }
        self.messages
    }
}

fn of_version_1(given: wire::SpecifiedV1) -> wire::Specification {
    let parameter = |given: wire::ParameterV1| {
        let mut validations = given.validations;
        if given.required && validations.iter().all(|validation| validation.kind != REQUIRED) {
            validations.push(Validation { kind: REQUIRED, value: String::new() });
        }
        Parameter { default: given.default, description: given.description, kind: given.kind, validations }
    };
    let parameters = |given: std::collections::HashMap<String, wire::ParameterV1>| {
        given.into_iter().map(|(k, v)| (k, parameter(v))).collect()
    };
    wire::Specification {
        name: given.name,
        summary: given.summary,
        description: given.description,
        version: given.version,
        author: given.author,
        destination_params: parameters(given.destination_params),
        source_params: parameters(given.source_params),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn positions(texts: &[&'static str]) -> Vec<Position> {
        texts.iter().map(|text| Position(Bytes::from_static(text.as_bytes()))).collect()
    }

    #[test]
    fn messages_stay_below_the_limit_and_are_never_empty() {
        let given = positions(&["aaaa", "bbbb", "cccccccccccccccccccc", "d"]);
        let read = |messages: Vec<Bytes>| -> Vec<Vec<Bytes>> {
            messages.into_iter().map(|message| wire::Positions::decode(message).unwrap().positions).collect()
        };
        let sizes = |messages: &[Vec<Bytes>]| messages.iter().map(Vec::len).collect::<Vec<_>>();
        let two = read(Protocol::V2.write_positions(&given, 12));
        assert_eq!(sizes(&two), [2, 1, 1]);
        assert_eq!(two.concat(), given.iter().map(|position| position.0.clone()).collect::<Vec<_>>());
        assert_eq!(sizes(&read(Protocol::V1.write_positions(&given, 1 << 20))), [1, 1, 1, 1]);
        assert!(Protocol::V2.write_positions(&[], 12).is_empty());
    }

    #[test]
    fn what_version_1_calls_required_is_a_rule() {
        let parameter = wire::ParameterV1 { required: true, kind: 0, ..wire::ParameterV1::default() };
        let message = wire::SpecifiedV1 { source_params: [("path".into(), parameter)].into(), ..Default::default() };
        let read = Protocol::V1.read_specification(message.encode_to_vec().into()).unwrap();
        assert_eq!(read.source_params["path"].validations, [Validation { kind: REQUIRED, value: String::new() }]);
    }
}
