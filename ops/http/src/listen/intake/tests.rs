use super::super::admission::RequestLoad;
use super::*;

const AMPLE: Room = Room { rows: 100, bytes: 1 << 20 };

struct Source {
    intake: Arc<Intake>,
    held: Arc<HeldRequests>,
}

impl Source {
    fn new() -> Source {
        let held = HeldRequests::new();
        held.admission.limit(RequestLoad { requests: 3, bytes: 100 });
        Source::run(held, 0)
    }

    /// Begins a run after the record with a number.
    fn run(held: Arc<HeldRequests>, stored: u64) -> Source {
        Source { intake: Intake::new(held.clone(), stored), held }
    }

    fn hold(&self, texts: &[&str]) {
        let records = texts.iter().map(|text| Data::text(*text)).collect();
        self.intake.hold(records, Metadata::new(), self.held.admission.admit().unwrap()).unwrap();
    }

    fn accept(&self, texts: &[&str]) -> Option<AcceptedRequest> {
        let records = texts.iter().map(|text| Data::text(*text)).collect();
        self.intake.accept(records, Metadata::new(), self.held.admission.admit().unwrap())
    }

    fn take(&self, room: Room) -> Vec<String> {
        let records = self.intake.take(room);
        records.iter().map(|record| String::from_utf8_lossy(record.payload.after.raw().unwrap()).into_owned()).collect()
    }
}

/// Returns whether the request is confirmed (`true`) or refused; `None` if it still waits.
fn outcome(request: &mut AcceptedRequest) -> Option<bool> {
    match request.delivered.try_recv() {
        Ok(()) => Some(true),
        Err(oneshot::error::TryRecvError::Closed) => Some(false),
        Err(oneshot::error::TryRecvError::Empty) => None,
    }
}

#[test]
fn a_request_is_confirmed_with_its_last_record() {
    let source = Source::new();
    let (mut a, mut b) = (source.accept(&["1", "2"]).unwrap(), source.accept(&["3"]).unwrap());
    assert_eq!(source.take(Room { rows: 1, ..AMPLE }), ["1"]);
    source.intake.acknowledge(1);
    assert_eq!(outcome(&mut a), None);
    assert_eq!(source.take(AMPLE), ["2", "3"]);
    source.intake.acknowledge(1);
    assert_eq!((outcome(&mut a), outcome(&mut b)), (Some(true), None));
    source.intake.acknowledge(1);
    assert_eq!(outcome(&mut b), Some(true));
    // Both have made room for others.
    let _others: Vec<_> = (0..3).map(|_| source.held.admission.admit().unwrap()).collect();
}

#[test]
fn a_read_has_one_large_record_at_most() {
    let source = Source::new();
    let _request = source.accept(&["1", "2", "3"]).unwrap();
    let weight = size_of::<Record>() + 40;
    assert_eq!(source.take(Room { rows: 9, bytes: 1 }), ["1"]);
    assert_eq!(source.take(Room { rows: 9, bytes: weight * 3 / 2 }), ["2"]);
    assert_eq!(source.take(Room { rows: 9, bytes: weight * 3 / 2 }), ["3"]);
    assert!(source.take(AMPLE).is_empty());
}

#[test]
fn a_client_that_leaves_withdraws_what_is_not_read() {
    let source = Source::new();
    let (a, b) = (source.accept(&["1", "2"]), source.accept(&["3"]));
    source.hold(&["4"]);
    assert_eq!(source.take(Room { rows: 1, ..AMPLE }), ["1"]);
    drop((a, b));
    // The rest of a request that was read from follows: its records are delivered in order, or not at all.
    assert_eq!(source.take(AMPLE), ["2", "4"]);
    source.intake.acknowledge(3);
}

#[test]
fn a_source_that_stops_refuses_what_is_not_delivered() {
    let source = Source::new();
    let (mut a, mut b) = (source.accept(&["1"]).unwrap(), source.accept(&["2", "3"]).unwrap());
    assert_eq!(source.take(Room { rows: 2, ..AMPLE }), ["1", "2"]);
    source.intake.close();
    assert!(source.accept(&["4"]).is_none());
    assert_eq!((outcome(&mut a), outcome(&mut b)), (None, Some(false)), "one record of b was not read");
    source.intake.acknowledge(2);
    assert_eq!(outcome(&mut a), Some(true), "it was delivered while the source was stopping");
    source.intake.end();
}

#[test]
fn what_is_kept_counts_until_it_is_delivered() {
    let source = Source::new();
    for _ in 0..3 {
        source.hold(&["1"]);
    }
    assert!(source.held.admission.admit().is_none());
    assert_eq!(source.take(AMPLE).len(), 3);
    assert!(source.held.admission.admit().is_none());
    source.intake.acknowledge(3);
    assert!(source.held.admission.admit().is_some());
}

#[test]
fn the_next_run_reads_confirmed_records_first() {
    let source = Source::new();
    source.hold(&["1", "2"]);
    source.hold(&["3", "4", "5"]);
    let mut waiting = source.accept(&["6"]).unwrap();
    let read = source.intake.take(Room { rows: 4, ..AMPLE });
    source.intake.acknowledge(1);
    source.intake.close();
    source.intake.end();
    assert_eq!((source.held.undelivered(), outcome(&mut waiting)), (4, Some(false)));

    // The position of the third record is stored, although it is not acknowledged.
    let next = Source::run(source.held.clone(), source.held.numbering.number(read[2].position()).unwrap());
    assert_eq!(next.held.undelivered(), 2);
    let again = next.intake.take(Room { rows: 2, ..AMPLE });
    let texts: Vec<_> = again.iter().map(|record| &record.payload.after.raw().unwrap()[..]).collect();
    assert_eq!(texts, [b"4", b"5"]);
    // It is the same record, with the same idempotency key.
    assert_eq!(again[0].position(), read[3].position());
    next.intake.acknowledge(2);
    assert_eq!(next.held.undelivered(), 0);
    next.intake.end();
    assert!(Source::run(next.held.clone(), 0).take(AMPLE).is_empty());
}
