//! Distribution of partitions among the members of a group, by the leader of the group.
//!
//! `range` follows `org.apache.kafka.clients.consumer.RangeAssignor`. `cooperative-sticky` keeps partitions where they
//! are, as far as the loads allow. A partition that moves is given to nobody in the first rebalance, so that its owner gives
//! it up before another member receives it (KIP-429).

use std::collections::{BTreeMap, BTreeSet};

use super::TopicPartition;

/// Name of the cooperative protocol.
pub(super) const STICKY: &str = "cooperative-sticky";
/// Name of the eager protocol.
pub(super) const RANGE: &str = "range";

/// A member, as it describes itself to the leader.
#[derive(Clone, Debug, Default)]
pub(super) struct Member {
    /// The topics that it reads.
    pub(super) topics: BTreeSet<String>,
    /// The partitions that it owns.
    pub(super) owned: BTreeSet<TopicPartition>,
    /// The generation in which it owns them; -1 if unknown.
    pub(super) generation: i32,
    /// Its static id.
    pub(super) instance: Option<String>,
}

/// The partitions of each member.
pub(super) type Assignment = BTreeMap<String, BTreeSet<TopicPartition>>;

fn partitions(topic: &str, counts: &BTreeMap<String, i32>) -> impl Iterator<Item = TopicPartition> {
    let topic = topic.to_owned();
    (0..counts.get(&topic).copied().unwrap_or(0))
        .map(move |partition| TopicPartition { topic: topic.as_str().into(), partition })
}

/// Gives each member a range of the partitions of each topic.
pub(super) fn range(members: &BTreeMap<String, Member>, counts: &BTreeMap<String, i32>) -> Assignment {
    let mut assignment: Assignment = members.keys().map(|id| (id.clone(), BTreeSet::new())).collect();
    let topics: BTreeSet<&String> = members.values().flat_map(|member| &member.topics).collect();
    for topic in topics {
        let mut readers: Vec<(&String, &Member)> =
            members.iter().filter(|(_, member)| member.topics.contains(topic)).collect();
        // Members with a static id come first, in its order, so that they keep their ranges after a restart.
        readers.sort_by_key(|(id, member)| (member.instance.is_none(), member.instance.clone(), (*id).clone()));
        let all: Vec<TopicPartition> = partitions(topic, counts).collect();
        let (each, more) = (all.len() / readers.len(), all.len() % readers.len());
        let mut rest = all.into_iter();
        for (n, (id, _)) in readers.into_iter().enumerate() {
            let count = each + usize::from(n < more);
            assignment.entry(id.clone()).or_default().extend(rest.by_ref().take(count));
        }
    }
    assignment
}

/// Distributes the partitions evenly, and keeps them where they are as far as possible.
pub(super) fn sticky(members: &BTreeMap<String, Member>, counts: &BTreeMap<String, i32>) -> Assignment {
    let topics: BTreeSet<&String> = members.values().flat_map(|member| &member.topics).collect();
    let all: BTreeSet<TopicPartition> = topics.into_iter().flat_map(|topic| partitions(topic, counts)).collect();
    let owners = owners(members, &all);
    let mut assignment: Assignment = members.keys().map(|id| (id.clone(), BTreeSet::new())).collect();
    let reads = |id: &str, partition: &TopicPartition| {
        members.get(id).is_some_and(|member| member.topics.contains(partition.topic.as_str()))
    };
    let mut free = Vec::new();
    for partition in &all {
        match owners.get(partition).filter(|owner| reads(owner, partition)) {
            Some(owner) => {
                assignment.entry((*owner).clone()).or_default().insert(partition.clone());
            }
            None => free.push(partition.clone()),
        }
    }
    for partition in free {
        let least = assignment.iter().filter(|(id, _)| reads(id, &partition)).min_by_key(|(_, owned)| owned.len());
        if let Some(id) = least.map(|(id, _)| id.clone()) {
            assignment.entry(id).or_default().insert(partition);
        }
    }
    while let Some((partition, from, to)) = unbalanced(&assignment, &reads) {
        assignment.entry(from).or_default().remove(&partition);
        assignment.entry(to).or_default().insert(partition);
    }
    // A member that claims a partition may read it, even if its claim is outdated: it gives the partition up before another
    // member receives it.
    for (id, assigned) in &mut assignment {
        let is_claimed =
            |at: &TopicPartition| members.iter().any(|(other, member)| other != id && member.owned.contains(at));
        assigned.retain(|at| owners.get(at).is_some_and(|owner| *owner == id) || !is_claimed(at));
    }
    assignment
}

/// Returns the members that own partitions. If several claim one, the claim of the newest generation counts; of equal ones,
/// none does.
fn owners<'a>(
    members: &'a BTreeMap<String, Member>,
    all: &BTreeSet<TopicPartition>,
) -> BTreeMap<TopicPartition, &'a String> {
    let mut claims: BTreeMap<TopicPartition, (i32, Option<&String>)> = BTreeMap::new();
    for (id, member) in members {
        for partition in member.owned.iter().filter(|partition| all.contains(*partition)) {
            let claim = claims.entry(partition.clone()).or_insert((i32::MIN, None));
            match member.generation.cmp(&claim.0) {
                std::cmp::Ordering::Greater => *claim = (member.generation, Some(id)),
                std::cmp::Ordering::Equal => claim.1 = None,
                std::cmp::Ordering::Less => {}
            }
        }
    }
    claims.into_iter().filter_map(|(partition, (_, owner))| Some((partition, owner?))).collect()
}

/// Returns a partition whose move makes the loads of two members more even, with both members.
fn unbalanced(
    assignment: &Assignment,
    reads: &impl Fn(&str, &TopicPartition) -> bool,
) -> Option<(TopicPartition, String, String)> {
    let mut by_load: Vec<(&String, &BTreeSet<TopicPartition>)> = assignment.iter().collect();
    by_load.sort_by_key(|(_, owned)| owned.len());
    for (from, owned) in by_load.iter().rev() {
        for (to, has) in &by_load {
            if has.len() + 2 > owned.len() {
                break;
            }
            // The last ones, so that members keep the first of each topic.
            if let Some(partition) = owned.iter().rev().find(|partition| reads(to, partition)) {
                return Some((partition.clone(), (*from).clone(), (*to).clone()));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn members(topics: &[BTreeSet<String>]) -> BTreeMap<String, Member> {
        let member = |topics: &BTreeSet<String>| Member { topics: topics.clone(), generation: -1, ..Member::default() };
        topics.iter().enumerate().map(|(n, topics)| (format!("m{n}"), member(topics))).collect()
    }

    fn given() -> impl Strategy<Value = (Vec<BTreeSet<String>>, BTreeMap<String, i32>)> {
        let topics = prop::collection::btree_set("[a-c]", 0..3);
        (prop::collection::vec(topics, 1..6), prop::collection::btree_map("[a-c]", 0..9, 0..4))
    }

    /// Repeats rebalances until nobody has to give up a partition.
    fn settled(members: &mut BTreeMap<String, Member>, counts: &BTreeMap<String, i32>) -> Assignment {
        for generation in 0..3 {
            let assignment = sticky(members, counts);
            let gives_up = |id: &String, member: &Member| !member.owned.is_subset(&assignment[id]);
            let is_settled = !members.iter().any(|(id, member)| gives_up(id, member));
            for (id, member) in members.iter_mut() {
                member.owned = assignment[id].clone();
                member.generation = generation;
            }
            if is_settled {
                return assignment;
            }
        }
        panic!("the group does not settle");
    }

    fn check(assignment: &Assignment, members: &BTreeMap<String, Member>, counts: &BTreeMap<String, i32>) {
        let wanted: BTreeSet<_> =
            members.values().flat_map(|m| &m.topics).flat_map(|topic| partitions(topic, counts)).collect();
        let mut given: Vec<_> = assignment.values().flatten().cloned().collect();
        given.sort();
        assert_eq!(given, wanted.into_iter().collect::<Vec<_>>(), "each partition once");
        for (id, owned) in assignment {
            assert!(owned.iter().all(|partition| members[id].topics.contains(partition.topic.as_str())));
        }
    }

    proptest! {
        #[test]
        fn each_partition_has_one_owner_that_reads_it((topics, counts) in given()) {
            let mut members = members(&topics);
            check(&range(&members, &counts), &members, &counts);
            check(&settled(&mut members, &counts), &members, &counts);
        }

        #[test]
        fn members_come_and_go_and_partitions_stay((topics, counts) in given(), gone in 0usize..6) {
            let mut members = members(&topics);
            let before = settled(&mut members, &counts);
            prop_assert_eq!(&settled(&mut members, &counts), &before, "a rebalance without a change moves nothing");
            members.remove(&format!("m{gone}"));
            if members.is_empty() {
                return Ok(());
            }
            // Nobody but the new owners of what is free is touched, and nobody loses anything.
            let after = sticky(&members, &counts);
            for (id, owned) in &after {
                prop_assert!(owned.is_superset(&before[id]) || topics.iter().any(|t| *t != topics[0]));
            }
            check(&settled(&mut members, &counts), &members, &counts);
        }

        #[test]
        fn equal_members_have_equal_loads(count in 1usize..7, partitions in 0i32..30, joined in 0usize..3) {
            let topics = vec![BTreeSet::from(["a".to_owned()]); count];
            let counts = BTreeMap::from([("a".to_owned(), partitions)]);
            let mut group = members(&topics);
            settled(&mut group, &counts);
            for n in 0..joined {
                group.insert(format!("new{n}"), Member { topics: topics[0].clone(), generation: -1, ..Member::default() });
            }
            let loads: Vec<usize> = settled(&mut group, &counts).values().map(BTreeSet::len).collect();
            prop_assert!(loads.iter().max().unwrap() - loads.iter().min().unwrap() <= 1, "{:?}", loads);
        }
    }

    /// A member that was away claims what another one has since received.
    #[test]
    fn an_old_claim_does_not_count() {
        let topics = vec![BTreeSet::from(["a".to_owned()]); 2];
        let counts = BTreeMap::from([("a".to_owned(), 2)]);
        let mut group = members(&topics);
        let both: BTreeSet<_> = partitions("a", &counts).collect();
        group.get_mut("m0").unwrap().owned = both.clone();
        group.get_mut("m0").unwrap().generation = 3;
        group.get_mut("m1").unwrap().owned = both.clone();
        group.get_mut("m1").unwrap().generation = 4;
        let assignment = sticky(&group, &counts);
        assert_eq!((assignment["m0"].len(), assignment["m1"].len()), (0, 1), "one moves, after it is given up");
        group.get_mut("m1").unwrap().generation = 3;
        let loads: Vec<usize> = sticky(&group, &counts).values().map(BTreeSet::len).collect();
        assert_eq!(loads, [0, 0], "claims that contradict each other are void, and both may be read");
        check(&settled(&mut group, &counts), &group, &counts);
    }

    /// A member that came back does not receive what another one reads, whatever a third claims.
    #[test]
    fn a_claimed_partition_is_given_up_before_it_moves() {
        let topics = vec![BTreeSet::from(["a".to_owned()]); 3];
        let counts = BTreeMap::from([("a".to_owned(), 3)]);
        for (old, new) in [(3, 4), (4, 4), (-1, -1)] {
            let mut group = members(&topics);
            let all: BTreeSet<_> = partitions("a", &counts).collect();
            for (id, generation) in [("m0", old), ("m1", new)] {
                let member = group.get_mut(id).unwrap();
                (member.owned, member.generation) = (all.clone(), generation);
            }
            let assignment = sticky(&group, &counts);
            assert!(assignment["m2"].is_empty() && assignment["m0"].is_empty(), "{old} {new}: {assignment:?}");
            check(&settled(&mut group, &counts), &group, &counts);
        }
    }
}
