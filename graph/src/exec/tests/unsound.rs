//! Faults that only a defect of the engine or of a plugin can cause: each ends the run, and nothing more is stored.

use anabranch_plugin::operator::Decision;
use anabranch_plugin::testing::{AtEnd, asynchronous, inline, kept, position};
use anabranch_record::fault::FaultClass;
use anabranch_record::mark::Partition;

use super::*;
use crate::exec::lanes::Lanes;
use crate::exec::progress::Progress;
use crate::plan::stage::StageKind;

fn lanes() -> (Lanes, Arc<crate::batch::Alarm>) {
    let letters = Arc::new(Downstream::new("letters", &Journal::default()));
    let progress = Arc::new(Progress::new(&Pipeline::new(&letters, 1, 0).plan(), Arc::new([])));
    (Lanes::new(1000, 1 << 20, true, progress), Arc::default())
}

fn lane(lanes: &Lanes, partition: &str) -> crate::ack::LaneIndex {
    lanes.add(0, Lanes::lane_id(&"in".into(), &Partition(partition.into())), None, false).unwrap()
}

fn open(lanes: &Lanes, alarm: &Arc<crate::batch::Alarm>, lane: crate::ack::LaneIndex) -> crate::batch::Lineage {
    let mut lineage = crate::batch::Lineage::none(alarm);
    let positions = vec![position(0), position(1)];
    lanes.open(lane, std::iter::once((positions, 2)), |run| lineage.append(crate::batch::Lineage::of(run, alarm)));
    lineage
}

#[tokio::test(start_paused = true)]
async fn an_operator_in_a_stage_for_another_class_is_refused() {
    let waiting = asynchronous(|rows| Box::pin(async move { kept(rows) }));
    let sync = inline(|_| Ok(Decision::Keep));
    for (in_async_stage, operator) in [(false, waiting), (true, sync)] {
        let bench = Bench::new();
        let upstream = upstream(&bench, 3);
        let a = shelf(&bench, "a");
        let mut pipeline = bench.pipeline();
        let read = pipeline.read("in", &upstream);
        let step = match in_async_stage {
            true => pipeline.stage(
                "step",
                &[read],
                StageKind::Async { step: Pipeline::step("step0", &operator), in_flight: 1 },
            ),
            false => pipeline.chain(&[read], &[operator]),
        };
        pipeline.write(&[step], "a", &a);
        let Ending::Faulted(fault) = bench.run(&pipeline.plan()).await else { panic!("it ran") };
        assert_eq!((fault.class(), fault.code().name()), (FaultClass::Fatal, "plan_broken"), "{fault}");
        assert_eq!(fault.node().map(anabranch_record::text::Str::as_str), Some("step0"));
        assert_eq!((upstream.kept(), a.rows().len()), (3, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn rows_that_do_not_add_up_fault_the_run() {
    let bench = Bench::new();
    let upstream = Arc::new(Upstream::new(&bench.journal, 10, AtEnd::CaughtUp));
    let a = shelf(&bench, "a");
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    pipeline.write(&[read], "a", &a);
    let running = bench.start_once(&pipeline.plan());
    // A row that nobody delivered counts as filtered.
    running.context.progress.add_filtered(1);
    let Ending::Faulted(fault) = in_time(running.join()).await else { panic!("it adds up") };
    assert_eq!((fault.class(), fault.code().name()), (FaultClass::Fatal, "not_conserved"), "{fault}");
}

#[test]
fn credit_that_was_not_given_out_is_not_taken_back() {
    // A row of another run: no lane of this one ever gave it out.
    let ((here, alarm), (other, other_alarm)) = (lanes(), lanes());
    lane(&here, "a");
    let foreign = open(&other, &other_alarm, lane(&other, "a"));
    let fault = here.settle(foreign).unwrap_err();
    assert_eq!((fault.class(), fault.code().name()), (FaultClass::Fatal, "credit_overdrawn"), "{fault}");
    let foreign = open(&other, &other_alarm, lane(&other, "b"));
    lane(&here, "b");
    assert_eq!(here.land(&foreign).unwrap_err().code().name(), "credit_overdrawn");
    assert_eq!(here.take_off(&foreign).unwrap_err().code().name(), "credit_overdrawn");
    alarm.disarm();
    other_alarm.disarm();
}

#[test]
fn a_mark_of_a_row_that_has_left_is_missing() {
    let (lanes, alarm) = lanes();
    let lineage = open(&lanes, &alarm, lane(&lanes, "a"));
    let last = lanes.last_rows(&lineage);
    assert_eq!(lanes.marks(&last).unwrap()[0].1.seq, 2);
    lanes.settle(lineage).unwrap();
    assert_eq!(lanes.marks(&last).unwrap()[0].1.seq, 2, "settled rows have not left yet");
    lanes.persisted(&lanes.advance());
    let fault = lanes.marks(&last).unwrap_err();
    assert_eq!((fault.class(), fault.code().name()), (FaultClass::Fatal, "mark_missing"), "{fault}");
}

#[test]
fn a_run_has_at_most_65536_lanes_at_a_time() {
    let (lanes, _) = lanes();
    for partition in 0..=u16::MAX {
        lane(&lanes, &partition.to_string());
    }
    let one_more = lanes.add(0, Lanes::lane_id(&"in".into(), &Partition("more".into())), None, false);
    let fault = one_more.unwrap_err();
    assert_eq!((fault.class(), fault.code().name()), (FaultClass::Fatal, "too_many_lanes"), "{fault}");
}

/// Reports the partitions that were given up, as the commit loop does.
fn report(lanes: &Lanes) {
    lanes.take_released();
    lanes.end_report();
}

/// A partition that comes back while rows of it are on their way goes on in another lane; the old one ends with them.
#[tokio::test(start_paused = true)]
async fn lanes_that_were_replaced_give_their_places_away() {
    let (lanes, alarm) = lanes();
    let mut index = lane(&lanes, "a");
    let mut late = Vec::new();
    for round in 0..70_000u32 {
        let lineage = open(&lanes, &alarm, index);
        lanes.give_up(&lineage);
        lanes.leaves(index);
        lanes.give_up_lane(index);
        report(&lanes);
        (index, _) = lanes.renew(index).await.unwrap();
        late.push(lineage);
        // A few at a time are on their way.
        if late.len() > 7 {
            lanes.settle(late.swap_remove(round as usize % 8)).unwrap();
        }
    }
    late.into_iter().for_each(|lineage| lanes.settle(lineage).unwrap());
    assert!(lanes.places_taken() <= 10, "{}", lanes.places_taken());
    assert!(lanes.conserved() && !lanes.any_abandoned());
    // Later rows are stored as usual.
    lanes.settle(open(&lanes, &alarm, index)).unwrap();
    let settled = lanes.advance();
    assert_eq!(settled.len(), 1);
    assert_eq!(settled[0].advance.positions.len(), 2);
}

/// A writer that waits for letters of a lane whose rows have all left does not wait for those of the next one there.
#[tokio::test(start_paused = true)]
async fn a_lane_that_is_asked_for_keeps_its_place() {
    let (lanes, alarm) = lanes();
    let old = lane(&lanes, "a");
    let lineage = open(&lanes, &alarm, old);
    let last = lanes.last_rows(&lineage);
    lanes.pin(&last);
    lanes.give_up(&lineage);
    lanes.leaves(old);
    lanes.give_up_lane(old);
    report(&lanes);
    lanes.renew(old).await.unwrap();
    lanes.settle(lineage).unwrap();
    assert_ne!(lane(&lanes, "b"), old, "its place was given away");
    assert!(lanes.are_gathered(&last), "it is not ours");
    lanes.unpin(&last);
    assert_eq!(lane(&lanes, "c"), old);
}

#[tokio::test(start_paused = true)]
async fn positions_are_held_until_they_are_stored() {
    use futures::FutureExt as _;
    let (lanes, alarm) = lanes();
    let index = lane(&lanes, "a");
    let long = anabranch_record::Position::copy_from(&[7; 600 << 10]);
    let room = || lanes.room(0).now_or_never().map(|room| room.bytes);
    assert_eq!(room(), Some(1 << 20));
    let mut lineage = crate::batch::Lineage::none(&alarm);
    let strip = (vec![long.clone(), long.clone()], (1200 << 10) + 100);
    lanes.open(index, std::iter::once(strip), |run| lineage.append(crate::batch::Lineage::of(run, &alarm)));
    assert_eq!(room(), None, "more is held than may be");
    lanes.settle(lineage).unwrap();
    assert_eq!(room(), None, "its positions wait to be stored");
    lanes.persisted(&lanes.advance());
    assert_eq!(room(), Some(1 << 20));
    // Positions without rows count as well, and those of a partition that is somebody else's do not.
    lanes.progress(index, long.clone());
    lanes.progress(index, long);
    assert_eq!(room(), None);
    lanes.leaves(index);
    lanes.give_up_lane(index);
    let other = lane(&lanes, "b");
    assert_eq!(room(), Some(1 << 20));
    let (index, _) = {
        report(&lanes);
        let renewed = lanes.renew(index);
        tokio::pin!(renewed);
        assert!(renewed.as_mut().now_or_never().is_none(), "what was settled is stored first");
        lanes.persisted(&lanes.advance());
        lanes.told(&[index]);
        renewed.await.unwrap()
    };
    assert_ne!(index, other);
    assert_eq!(room(), Some(1 << 20));
}
