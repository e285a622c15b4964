//! SIGKILL of the service and of brokers under load: nothing is lost, repetitions are within the limit that `plan` prints,
//! and an exact copy is exact.
//!
//! A check kills a few times. `ANABRANCH_KILLS=100 cargo test --test it -- --nocapture kafka::kills` kills the service and
//! brokers a hundred times each; `ANABRANCH_SEED` repeats the choices of another time.

use super::copier::{Copier, PARTITIONS};
use crate::fault_plan::{choices, say, wait};
use crate::servers::kafka_cluster::{NODES, cluster};

/// Kills of a check.
const FEW: usize = 2;

#[test]
fn a_service_that_is_killed_under_load_loses_nothing() {
    let Some((cluster, _turn)) = cluster() else { return };
    let (kills, mut random) = choices(FEW);
    let mut copier = Copier::start(cluster);
    copier.produce("k", 30, 1_000, (0, PARTITIONS));
    for _ in 0..kills {
        // At any moment: opening, joining, resuming, or copying.
        if random.u32(..4) > 0 {
            copier.service.await_progress();
        }
        wait(&mut random, 0..1_500);
        copier.service.kill();
        copier.service.begin();
    }
    say(&copier.finish(0));
}

#[test]
fn brokers_that_are_killed_under_load_lose_nothing() {
    let Some((cluster, _turn)) = cluster() else { return };
    let (kills, mut random) = choices(FEW);
    let mut copier = Copier::start(cluster);
    copier.produce("k", 30, 500, (0, PARTITIONS));
    copier.service.await_progress();
    for _ in 0..kills {
        let node = random.usize(1..=NODES);
        cluster.kill(node);
        wait(&mut random, 0..4_000);
        cluster.restart(node);
        cluster.await_health();
        wait(&mut random, 0..500);
    }
    say(&copier.finish(kills));
}
