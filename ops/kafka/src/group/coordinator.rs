//! Requests to the coordinator of a group.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anabranch_record::text::Str;
use krafka::__private::protocol::{
    ApiKey, FindCoordinatorRequest, FindCoordinatorResponse, VersionedDecode, VersionedEncode,
};
use krafka::__private::{kafka_metadata, kafka_pool};
use krafka::error::{ErrorCode, ProtocolErrorKind};
use krafka::{Kafka, KrafkaError};
use tokio::time::{Instant, timeout};

/// Time limit for connecting to a coordinator, and for an answer that it does not hold back.
pub(super) const ANSWER: Duration = Duration::from_secs(10);
/// Time limit for the answer of one broker that is asked for the coordinator, before the next one is asked.
const FIND: Duration = Duration::from_secs(2);

/// A kind of request, with the versions that this client speaks.
#[derive(Clone, Copy)]
pub(super) struct Api(pub(super) ApiKey, pub(super) i16, pub(super) i16);

/// The broker that coordinates a group.
pub(super) struct Coordinator {
    kafka: Kafka,
    group: Str,
    address: Mutex<Option<String>>,
    /// The last time when the coordinator did not answer, or was another broker.
    lost: Mutex<Option<Instant>>,
}

impl Coordinator {
    pub(super) fn new(kafka: Kafka, group: Str) -> Self {
        Coordinator { kafka, group, address: Mutex::new(None), lost: Mutex::new(None) }
    }

    /// Sends a request to the coordinator, and looks for the coordinator first if it is unknown. A coordinator that does not
    /// answer within `wait` is forgotten.
    pub(super) async fn ask<Q: VersionedEncode, A: VersionedDecode>(
        &self,
        api: Api,
        request: &Q,
        wait: Duration,
    ) -> krafka::Result<A> {
        // The client repeats nothing, and has a longer time limit of its own.
        let asked = async {
            let address = self.address().await?;
            let connection = kafka_pool(&self.kafka).get_connection(&address).await?;
            let version = connection.negotiate_api_version(api.0, api.2, api.1).ok_or_else(unsupported)?;
            let asked = connection.send_request(api.0, version, |buffer| request.encode_versioned(version, buffer));
            A::decode_versioned(version, &mut asked.await?)
        };
        let answer = timeout(wait, asked).await;
        self.noted(answer.unwrap_or_else(|_| Err(KrafkaError::timeout("the coordinator of the group"))))
    }

    /// Sends a request that the coordinator holds back, for `wait` at most. It has a connection of its own: a broker reads
    /// no further request of a connection while it holds one back.
    pub(super) async fn ask_held<Q: VersionedEncode, A: VersionedDecode>(
        &self,
        api: Api,
        request: &Q,
        wait: Duration,
    ) -> krafka::Result<A> {
        let connected = async {
            let address = self.address().await?;
            kafka_pool(&self.kafka).get_coordinator_connection(&address).await
        };
        let connected = timeout(ANSWER, connected).await;
        let asked = async {
            let connection = connected.unwrap_or_else(|_| Err(KrafkaError::timeout("the coordinator of the group")))?;
            let version = connection.negotiate_api_version(api.0, api.2, api.1).ok_or_else(unsupported)?;
            let encode = |buffer: &mut bytes::BytesMut| request.encode_versioned(version, buffer);
            let mut answer = connection.send_request_with_timeout(api.0, version, wait, encode).await?;
            A::decode_versioned(version, &mut answer)
        };
        self.noted(asked.await)
    }

    fn noted<A>(&self, answer: krafka::Result<A>) -> krafka::Result<A> {
        if answer.as_ref().is_err_and(is_elsewhere) {
            self.forget();
        }
        answer
    }

    /// Returns `true` if the coordinator changed or did not answer within the last `time`.
    pub(super) fn was_lost_within(&self, time: Duration) -> bool {
        let lost = *self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        lost.is_some_and(|lost| lost.elapsed() < time)
    }

    /// Forgets which broker is the coordinator.
    pub(super) fn forget(&self) {
        *self.lost.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        *self.address.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    async fn address(&self) -> krafka::Result<String> {
        let known = self.address.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match known {
            Some(address) => Ok(address),
            None => {
                let found = self.find().await?;
                *self.address.lock().unwrap_or_else(PoisonError::into_inner) = Some(found.clone());
                Ok(found)
            }
        }
    }

    async fn find(&self) -> krafka::Result<String> {
        let mut last = KrafkaError::timeout("looking for a broker");
        let mut brokers = kafka_metadata(&self.kafka).brokers();
        // A broker that is stopped is not always the first that is asked.
        fastrand::shuffle(&mut brokers);
        for broker in brokers {
            match timeout(FIND, self.ask_where(broker.address())).await {
                Ok(Ok(answer)) if answer.error_code.is_ok() => {
                    return Ok(match answer.host.contains(':') {
                        true => format!("[{}]:{}", answer.host, answer.port),
                        false => format!("{}:{}", answer.host, answer.port),
                    });
                }
                Ok(Ok(answer)) => {
                    last = KrafkaError::broker(answer.error_code, answer.error_message.unwrap_or_default());
                }
                Ok(Err(error)) => last = error,
                Err(_) => last = KrafkaError::timeout("looking for the coordinator of the group"),
            }
        }
        // The brokers that are known may all be gone.
        let _ = timeout(FIND, kafka_metadata(&self.kafka).refresh()).await;
        Err(last)
    }

    async fn ask_where(&self, broker: &str) -> krafka::Result<FindCoordinatorResponse> {
        // From version 4 on, a request may name several groups, and the answer has another form.
        let api = Api(ApiKey::FindCoordinator, 1, 3);
        let connection = kafka_pool(&self.kafka).get_connection(broker).await?;
        let version = connection.negotiate_api_version(api.0, api.2, api.1).ok_or_else(unsupported)?;
        let request = FindCoordinatorRequest::for_group(&self.group);
        let asked = connection.send_request(api.0, version, |buffer| request.encode_versioned(version, buffer));
        FindCoordinatorResponse::decode_versioned(version, &mut asked.await?)
    }
}

fn unsupported() -> KrafkaError {
    KrafkaError::protocol_kind(ProtocolErrorKind::UnknownApiVersion, "the broker does not support groups of this kind")
}

/// Returns `true` if another broker, or none, is the coordinator, or it cannot be reached.
fn is_elsewhere(error: &KrafkaError) -> bool {
    matches!(error, KrafkaError::Network(_) | KrafkaError::Timeout { .. } | KrafkaError::Closed { .. })
        || matches!(error, KrafkaError::Broker { code, .. } if is_of_coordinator(*code))
}

/// Returns `true` if the request may succeed at another coordinator, or later.
pub(super) fn is_of_coordinator(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::NotCoordinator | ErrorCode::CoordinatorNotAvailable | ErrorCode::CoordinatorLoadInProgress
    )
}
