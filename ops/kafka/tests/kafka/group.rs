//! Groups with several members, of which one may be another client.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use super::members::{Kind, Other, Said};
use super::server::broker;
use super::source::{Session, produce, settings, source};

/// Another member joins, reads and leaves while we read. In a cooperative group, each record is read once, and the
/// partitions that stay are not touched. A group that changes from the cooperative protocol to the eager one moves partitions
/// at once, so that records that are not committed are read again.
async fn share(kind: Kind, cooperative: bool) {
    let Some(broker) = broker() else { return };
    let (topic, group) = (broker.topic("shared", 4, &json!({})), broker.name("group"));
    let values: Vec<String> = (0..400).map(|n| n.to_string()).collect();
    let spread: Vec<(&str, u32)> = values.iter().enumerate().map(|(n, value)| (value.as_str(), n as u32 % 4)).collect();
    produce(broker, &topic, &spread[..200]);
    let address = broker.address();
    let settings = settings(&address, &topic, &group);
    let mut session = Session::open(&*source(&settings), &BTreeMap::new()).await.unwrap();
    let mut ours = session.drain().await.unwrap();
    assert_eq!(ours.len(), 200);

    let other = Other::join(broker, &topic, &group, kind);
    let mut said = Vec::new();
    // Both have partitions when it was assigned some.
    while !said.iter().any(|said| matches!(said, Said::Assigned(partitions) if !partitions.is_empty())) {
        assert_eq!(session.pause().await, Vec::<String>::new());
        said.extend(other.said());
    }
    // The broker turns a group with a member of KIP-848 into one of that protocol.
    let of_group = if kind == Kind::Java("consumer") { "CONSUMER" } else { "CLASSIC" };
    assert_eq!(broker.judge("group_type", &json!({ "group": group })), of_group);
    produce(broker, &topic, &spread[200..]);
    let offsets = |said: &[Said]| -> Vec<u64> {
        let offsets = said.iter().filter_map(|said| match said {
            Said::Read(partition, first, last) => {
                Some((partition.rsplit_once('/')?.1.parse::<u64>().ok()?, *first..=*last))
            }
            _ => None,
        });
        offsets.flat_map(|(partition, offsets)| offsets.map(move |offset| offset * 4 + partition)).collect()
    };
    while ours.len() + offsets(&said).len() < 400 {
        ours.extend(session.pause().await);
        said.extend(other.said());
    }
    assert!(!offsets(&said).is_empty() && ours.len() > 200, "both read: {said:?} and {}", ours.len());
    let count = |what: &str| session.events.iter().filter(|event| event.starts_with(what)).count();
    if cooperative {
        // The other two are not touched.
        assert_eq!((count("revoked"), count("lost"), count("assigned")), (2, 0, 4), "{:?}", session.events);
    }
    said.extend(other.leave());

    produce(broker, &topic, &[("end", 0), ("end", 1), ("end", 2), ("end", 3)]);
    let mut ends = 0;
    while ends < 4 {
        let values = session.pause().await;
        ends += values.iter().filter(|value| *value == "end").count();
        ours.extend(values.into_iter().filter(|value| value != "end"));
    }
    let theirs: Vec<u64> = offsets(&said).into_iter().filter(|n| *n < 400).collect();
    let all = ours.iter().map(|value| value.parse::<u64>().unwrap()).chain(theirs.iter().copied());
    let everything: BTreeSet<u64> = all.collect();
    assert_eq!(everything, (0..400).collect(), "every record is read");
    if cooperative {
        assert_eq!(ours.len() + theirs.len(), 400, "no record is read twice");
    }
    session.end().await;
    let offsets = broker.judge("offsets", &json!({ "group": group }));
    for partition in 0..4 {
        assert_eq!(offsets[format!("{topic}/{partition}")], 101, "{offsets}");
    }
}

#[tokio::test]
async fn a_cooperative_member_of_librdkafka_shares_the_partitions() {
    share(Kind::Librdkafka("cooperative-sticky"), true).await;
}

#[tokio::test]
async fn an_eager_member_of_librdkafka_shares_the_partitions() {
    share(Kind::Librdkafka("range"), false).await;
}

#[tokio::test]
async fn a_cooperative_member_of_java_shares_the_partitions() {
    share(Kind::Java("cooperative"), true).await;
}

#[tokio::test]
async fn an_eager_member_of_java_shares_the_partitions() {
    share(Kind::Java("eager"), false).await;
}

/// The broker turns the group into one of KIP-848, and serves our member, which speaks the older protocol.
#[tokio::test]
async fn a_member_of_the_newer_protocol_shares_the_partitions() {
    share(Kind::Java("consumer"), true).await;
}

/// A second member of ours takes half of the partitions, and gives them back when it leaves.
#[tokio::test]
async fn our_members_share_the_partitions() {
    let Some(broker) = broker() else { return };
    let (topic, group) = (broker.topic("halves", 4, &json!({})), broker.name("group"));
    let address = broker.address();
    let settings = settings(&address, &topic, &group);
    // Two services have two sources with different ids.
    let mut first = Session::open(&*source(&settings), &BTreeMap::new()).await.unwrap();
    assert!(first.drain().await.unwrap().is_empty());
    let mut second = Session::open(&*source(&settings), &BTreeMap::new()).await.unwrap();
    // The second has its partitions when the first has given them up.
    let (_, _) = tokio::join!(
        async {
            while first.events.iter().filter(|event| event.starts_with("revoked")).count() < 2 {
                first.pause().await;
            }
        },
        async {
            while second.events.iter().filter(|event| event.starts_with("assigned")).count() < 2 {
                second.pause().await;
            }
        },
    );
    produce(broker, &topic, &[("0", 0), ("1", 1), ("2", 2), ("3", 3)]);
    let mut read = Vec::new();
    while read.len() < 4 {
        for session in [&mut first, &mut second] {
            let values = session.pause().await;
            assert!(values.len() <= 2, "{values:?}");
            read.extend(values);
        }
    }
    read.sort();
    assert_eq!(read, ["0", "1", "2", "3"]);
    second.end().await;
    produce(broker, &topic, &[("4", 0), ("5", 1), ("6", 2), ("7", 3)]);
    let mut read = Vec::new();
    while read.len() < 4 {
        read.extend(first.pause().await);
    }
    read.sort();
    assert_eq!(read, ["4", "5", "6", "7"]);
    first.end().await;
}
