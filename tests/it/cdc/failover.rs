//! A standby takes over under load, with the slots of the service: nothing is lost and nothing is skipped.
//!
//! A check fails over once. `ANABRANCH_KILLS=200 cargo test --test it -- --nocapture cdc::failover` does it twenty times.

use super::copier::Copier;
use super::kills::choices;
use super::server::{LOGICAL, Release, Server};
use crate::fault_plan::{say, wait};
use crate::restarted::PIPELINES;
use crate::servers::proxy::Proxy;

#[test]
fn a_standby_that_takes_over_has_every_change() {
    let Some(mut primary) = Server::of(Release::V17, &LOGICAL) else { return };
    let (kills, mut random) = choices();
    let failovers = kills.div_ceil(10);
    // The address that leads to the primary.
    let proxy = Proxy::start(primary.port());
    let url = format!("postgresql://postgres@127.0.0.1:{}/postgres", proxy.port);
    let Some(mut copier) = Copier::start(&primary, &url, random.u64(..)) else { return };
    for _ in 0..failovers {
        let standby = primary.standby();
        copier.await_changes();
        for slot in PIPELINES {
            standby.await_slot(slot, &primary, || {});
        }
        wait(&mut random, 0..2_000);
        primary.kill();
        wait(&mut random, 0..500);
        standby.promote();
        proxy.lead_to(standby.port());
        primary = standby;
    }
    copier.await_changes();
    say(&copier.finish(failovers));
}
