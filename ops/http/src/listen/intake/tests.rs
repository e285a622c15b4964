use super::super::admission::{Admission, RequestLoad};
use super::*;

const AMPLE: Room = Room { rows: 100, bytes: 1 << 20 };

struct Source {
    intake: Arc<Intake>,
    admission: Arc<Admission>,
}

impl Source {
    fn new() -> Source {
        let admission = Admission::new(RequestLoad { requests: 3, bytes: 100 });
        Source { intake: Intake::new(Numbering::begin()), admission }
    }

    fn accept(&self, texts: &[&str]) -> Option<AcceptedRequest> {
        let records = texts.iter().map(|text| Data::text(*text)).collect();
        self.intake.accept(records, Metadata::new(), self.admission.admit().unwrap())
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
    let _others: Vec<_> = (0..3).map(|_| source.admission.admit().unwrap()).collect();
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
    let (a, b, c) = (source.accept(&["1", "2"]), source.accept(&["3"]), source.accept(&["4"]).unwrap());
    assert_eq!(source.take(Room { rows: 1, ..AMPLE }), ["1"]);
    drop((a, b));
    // The rest of a request that was read from follows: its records are delivered in order, or not at all.
    assert_eq!(source.take(AMPLE), ["2", "4"]);
    c.keep();
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
        source.accept(&["1"]).unwrap().keep();
    }
    assert!(source.admission.admit().is_none());
    assert_eq!(source.take(AMPLE).len(), 3);
    assert!(source.admission.admit().is_none());
    source.intake.acknowledge(3);
    assert!(source.admission.admit().is_some());
}
