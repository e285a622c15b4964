//! Checks all interleavings of the state shared by the tasks of a run, as far as `loom` can distinguish them. No
//! wake-up is lost (a model in which every thread waits aborts the test process as a deadlock), and the effects before
//! a notification are visible to its receiver.
//!
//! ```sh
//! cargo test -p anabranch-graph --features loom --lib exec::loom
//! ```

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use ::loom::future::block_on;
use ::loom::thread;
use anabranch_plugin::testing::{Downstream, Journal};
use anabranch_record::Position;
use anabranch_record::mark::Partition;
use futures::future::{Either, select};

use super::lanes::{Due, Lanes};
use super::live::Live;
use super::progress::Progress;
use super::signal::Signal;
use super::write::gate::{FlushGate, GateWriter};
use crate::ack::LaneIndex;
use crate::batch::{Alarm, Lineage};
use crate::sync::{AtomicBool, AtomicU64};
use crate::testing::Pipeline;

/// Checks all interleavings with at most `preemptions` switches that no wait forces. Each additional one costs about
/// ten times as much; two find nearly all known bugs of this kind (Musuvathi and Qadeer, 2007).
fn model(preemptions: usize, check: impl Fn() + Send + Sync + 'static) {
    let mut builder = ::loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(check);
}

/// Returns a lane with `rows` rows in one strip, which fill its window.
fn lane(rows: u64, transactional: bool) -> (Arc<Lanes>, LaneIndex, Lineage) {
    let letters = Arc::new(Downstream::new("letters", &Journal::default()));
    let progress = Arc::new(Progress::new(&Pipeline::new(&letters, 1, 0).plan(), Arc::new([])));
    let lanes = Arc::new(Lanes::new(rows as usize, 1, transactional, progress));
    let id = Lanes::lane_id(&"in".into(), &Partition::default());
    let index = lanes.add(0, id, None, false).unwrap();
    let alarm = Arc::new(Alarm::default());
    let mut lineage = Lineage::none(&alarm);
    let positions = (0..rows).map(|row| Position::copy_from(&[row as u8])).collect();
    lanes.open(index, std::iter::once((positions, 1)), |run| lineage.append(Lineage::of(run, &alarm)));
    (lanes, index, lineage)
}

/// Stores the settled prefix and returns the number of positions.
fn commit(lanes: &Lanes) -> usize {
    let settled = lanes.advance();
    lanes.persisted(&settled);
    settled.iter().map(|lane| lane.advance.positions.len()).sum()
}

#[test]
fn a_signal_reaches_all_who_wait_and_what_was_done_before_it_is_seen() {
    model(2, || {
        let signal = Arc::new(Signal::default());
        let before = Arc::new(AtomicU64::new(0));
        let waiting: Vec<_> = (0..2)
            .map(|_| {
                let (signal, before) = (signal.clone(), before.clone());
                thread::spawn(move || {
                    block_on(signal.wait());
                    assert_eq!(before.load(Relaxed), 1);
                })
            })
            .collect();
        before.store(1, Relaxed);
        signal.set();
        waiting.into_iter().for_each(|thread| thread.join().unwrap());
    });
    model(3, || {
        let signal = Arc::new(Signal::default());
        let before = Arc::new(AtomicU64::new(0));
        let looking = {
            let (signal, before) = (signal.clone(), before.clone());
            thread::spawn(move || {
                let seen = !signal.is_set() || before.load(Relaxed) == 1;
                assert!(seen);
            })
        };
        before.store(1, Relaxed);
        signal.set();
        looking.join().unwrap();
    });
}

#[test]
fn whoever_waits_for_the_end_of_all_sees_what_they_did() {
    model(3, || {
        let live = Arc::new(Live::default());
        let done = Arc::new(AtomicU64::new(0));
        for _ in 0..2 {
            let (alive, done) = (Live::enter(&live), done.clone());
            thread::spawn(move || {
                done.fetch_add(1, Relaxed);
                drop(alive);
            });
        }
        block_on(live.all_ended());
        assert_eq!(done.load(Relaxed), 2);
    });
}

#[test]
fn a_flush_that_was_asked_for_is_waited_for() {
    model(3, || {
        let gate = Arc::new(FlushGate::default());
        let (told, durable) = (Arc::new(Signal::default()), Arc::new(AtomicU64::new(0)));
        let writer = {
            let (gate, told, durable) = (GateWriter::new(gate.clone()), told.clone(), durable.clone());
            thread::spawn(move || {
                gate.accepted();
                told.set();
                block_on(gate.asked());
                let request = gate.begin();
                durable.store(1, Relaxed);
                gate.flushed();
                gate.done(request);
                // The loop does not ask again, since the writer has no rows.
                assert!(!gate.is_wanted());
            })
        };
        block_on(told.wait());
        assert!(gate.request(), "it has accepted rows");
        block_on(gate.finished());
        assert_eq!(durable.load(Relaxed), 1);
        assert!(!gate.request(), "all is durable");
        writer.join().unwrap();
    });
}

#[test]
fn nobody_waits_for_a_writer_that_flushes_by_itself_and_ends() {
    model(3, || {
        let gate = Arc::new(FlushGate::default());
        let durable = Arc::new(AtomicU64::new(0));
        let writer = {
            let (gate, durable) = (GateWriter::new(gate.clone()), durable.clone());
            thread::spawn(move || {
                gate.accepted();
                let request = gate.begin();
                durable.store(1, Relaxed);
                gate.flushed();
                gate.done(request);
                gate.accepted();
                durable.store(2, Relaxed);
            })
        };
        for _ in 0..2 {
            if gate.request() {
                block_on(gate.finished());
                assert!(durable.load(Relaxed) > 0);
            }
        }
        writer.join().unwrap();
        assert!(!gate.request());
    });
}

#[test]
fn rows_that_two_settle_are_committed_once_each_and_make_room() {
    model(1, || {
        let (lanes, index, lineage) = lane(2, false);
        let (one, other) = lineage.cut(1);
        for lineage in [other, one] {
            let lanes = lanes.clone();
            thread::spawn(move || lanes.settle(lineage).unwrap());
        }
        let reader = {
            let lanes = lanes.clone();
            thread::spawn(move || {
                block_on(lanes.lane_room(index, 1));
                assert!(block_on(lanes.room(0)).rows > 0);
            })
        };
        let mut stored = 0;
        while stored < 2 {
            block_on(lanes.due(Due::Never));
            lanes.begin_commit();
            stored += commit(&lanes);
        }
        reader.join().unwrap();
        assert!(lanes.is_stored(index) && lanes.conserved() && commit(&lanes) == 0);
    });
}

#[test]
fn a_transaction_that_waits_for_rows_to_arrive_goes_on_when_they_have() {
    model(3, || {
        let (lanes, _, lineage) = lane(2, true);
        let last = lanes.last_rows(&lineage);
        let (here, elsewhere) = lineage.cut(1);
        lanes.land(&here).unwrap();
        let other = {
            let lanes = lanes.clone();
            thread::spawn(move || {
                lanes.land(&elsewhere).unwrap();
                elsewhere
            })
        };
        block_on(async {
            loop {
                let mut more = pin!(lanes.more_gathered());
                more.as_mut().enable();
                if lanes.are_gathered(&last) {
                    break;
                }
                more.await;
            }
        });
        lanes.deliver(here).unwrap();
        lanes.deliver(other.join().unwrap()).unwrap();
        assert_eq!(commit(&lanes), 2);
    });
}

#[test]
fn rows_that_are_dropped_ring() {
    model(3, || {
        let (_lanes, _, lineage) = lane(2, false);
        let alarm = lineage.alarm();
        let (one, other) = lineage.cut(1);
        thread::spawn(move || drop(one));
        let second = thread::spawn(move || drop(other));
        block_on(alarm.rung());
        second.join().unwrap();
        assert!(alarm.lost() > 0);
    });
}

#[test]
fn a_stop_stores_all_that_was_settled_before_the_last_stage_ended() {
    model(2, || {
        let (lanes, index, lineage) = lane(2, false);
        let (live, stopping, drained) = (Arc::new(Live::default()), Signal::default(), Arc::new(Signal::default()));
        let stopping = Arc::new(stopping);
        let writer = {
            let (alive, lanes, stopping) = (Live::enter(&live), lanes.clone(), stopping.clone());
            thread::spawn(move || {
                let (one, other) = lineage.cut(1);
                lanes.settle(one).unwrap();
                block_on(stopping.wait());
                lanes.settle(other).unwrap();
                drop(alive);
            })
        };
        let drain = {
            let (lanes, drained) = (lanes.clone(), drained.clone());
            thread::spawn(move || {
                let mut stored = 0;
                block_on(async {
                    loop {
                        let (ended, due) = (pin!(drained.wait()), pin!(lanes.due(Due::Never)));
                        if let Either::Left(_) = select(ended, due).await {
                            break;
                        }
                        lanes.begin_commit();
                        stored += commit(&lanes);
                    }
                });
                lanes.begin_commit();
                stored + commit(&lanes)
            })
        };
        stopping.set();
        block_on(live.all_ended());
        drained.set();
        assert_eq!(drain.join().unwrap(), 2);
        assert!(lanes.is_stored(index));
        writer.join().unwrap();
    });
}

/// A signal with an ordering that is too weak: seeing it does not imply seeing the effects before it.
#[test]
#[should_panic(expected = "seen")]
fn an_ordering_that_is_too_weak_would_be_found() {
    model(3, || {
        let shared = Arc::new((AtomicBool::new(false), AtomicU64::new(0)));
        let looking = {
            let shared = shared.clone();
            thread::spawn(move || {
                let seen = !shared.0.load(Acquire) || shared.1.load(Relaxed) == 1;
                assert!(seen);
            })
        };
        shared.1.store(1, Relaxed);
        shared.0.store(true, Relaxed);
        looking.join().unwrap();
    });
}
