use super::*;
use crate::source::listing::ServerTime;
use crate::source::position::Upload;

fn version(seconds: i64, body: &str) -> Version {
    let etag = Some(body.to_owned());
    Version::new(ServerTime { seconds, nanos: 0 }, body.len() as u64, etag, None, body == "deleted")
}

fn horizon(time: i64) -> Horizon {
    Horizon { time, uploads: Vec::new() }
}

/// A sweep over keys with one version each.
fn sweep(
    since: Option<Horizon>,
    until: Horizon,
    memory: SeenObjects,
    keys: &[(&str, i64, &str)],
) -> (Vec<String>, CompletedSweep) {
    let mut sweep = Sweep::new(Purpose::Changes, (since, until), None, false, memory);
    let mut finds = VecDeque::new();
    for (key, seconds, body) in keys {
        sweep.see((*key).to_owned(), vec![version(*seconds, body)], &mut finds).unwrap();
    }
    let ended = sweep.end(&mut finds);
    (finds.iter().map(|find| format!("{} {}", find.operation, find.key)).collect(), ended)
}

#[test]
fn time_tells_of_keys_that_nobody_remembers_and_memory_of_the_others() {
    let keys = [("a", 10, "1"), ("b", 20, "1"), ("c", 30, "1")];
    let (finds, ended) = sweep(Some(horizon(20)), horizon(30), SeenObjects::default(), &keys);
    assert_eq!(finds, ["create b"]);
    assert_eq!(ended.deferred, Some(30));
    // An object that is older than the last listing is found, because the last listing did not have it.
    let keys = [("a", 10, "1"), ("aa", 5, "late"), ("b", 20, "2"), ("c", 30, "1")];
    let (finds, ended) = sweep(Some(horizon(30)), horizon(40), ended.memory, &keys);
    assert_eq!(finds, ["create aa", "update b", "create c"]);
    let (finds, _) = sweep(Some(horizon(40)), horizon(50), ended.memory, &[("aa", 5, "late"), ("c", 30, "1")]);
    assert_eq!(finds, ["delete a", "delete b"]);
}

#[test]
fn what_could_not_be_fetched_is_as_it_was_before() {
    let (_, ended) =
        sweep(None, horizon(30), SeenObjects::default(), &[("a", 10, "1"), ("b", 10, "1"), ("c", 10, "1")]);
    let mut memory = ended.memory;
    memory.miss("a".to_owned(), false);
    memory.miss("b".to_owned(), true);
    memory.miss("c".to_owned(), false);
    let (finds, ended) = sweep(None, horizon(30), memory, &[("a", 10, "1"), ("b", 10, "1")]);
    assert_eq!(finds, ["create a", "update b"]);
    let mut memory = ended.memory;
    memory.miss("b".to_owned(), true);
    // Changed in a second that is not over, and missed before: it stays an update.
    let (finds, ended) = sweep(None, horizon(30), memory, &[("a", 10, "1"), ("b", 30, "2")]);
    assert!(finds.is_empty());
    let (finds, _) = sweep(None, horizon(31), ended.memory, &[("a", 10, "1"), ("b", 30, "2")]);
    assert_eq!(finds, ["update b"]);
}

#[test]
fn an_upload_that_was_seen_is_not_waited_for_again() {
    let late = |time| Horizon { time, uploads: vec![Upload::new("big", 10), Upload::new("other", 10)] };
    let mut sweep = Sweep::new(Purpose::Changes, (Some(late(20)), late(30)), None, false, SeenObjects::default());
    let mut finds = VecDeque::new();
    sweep.see("big".to_owned(), vec![version(10, "1")], &mut finds).unwrap();
    assert_eq!(finds.len(), 1);
    assert_eq!(sweep.end(&mut finds).until.uploads, [Upload::new("other", 10)]);
}

#[test]
fn an_unordered_listing_is_refused() {
    let mut sweep = Sweep::new(Purpose::Changes, (None, horizon(1)), None, false, SeenObjects::default());
    sweep.see("b".to_owned(), vec![version(0, "")], &mut VecDeque::new()).unwrap();
    for key in ["a", "b"] {
        let fault = sweep.see(key.to_owned(), vec![version(0, "")], &mut VecDeque::new()).unwrap_err();
        assert_eq!(fault.code().name(), "listing_unordered");
    }
}

#[test]
fn versions_come_oldest_first_and_go_on_in_the_middle() {
    let versions = || vec![version(40, "4"), version(30, "deleted"), version(30, "3"), version(10, "1")];
    let run = |since: Option<Horizon>, start: Option<Cursor>| {
        let mut sweep = Sweep::new(Purpose::Changes, (since, horizon(50)), start, true, SeenObjects::default());
        let mut finds = VecDeque::new();
        sweep.see("k".to_owned(), versions(), &mut finds).unwrap();
        finds.iter().map(|find| format!("{} {}", find.operation, find.more)).collect::<Vec<_>>()
    };
    assert_eq!(run(Some(horizon(20)), None), ["update true", "delete true", "create false"]);
    let third = Cursor { key: "k".to_owned(), version: Some(version(30, "3").fingerprint) };
    assert_eq!(run(Some(horizon(20)), Some(third)), ["delete true", "create false"]);
    assert_eq!(run(None, None), ["create false"]);
}

/// A clock that is behind makes each look one too early, and with versions nothing is delivered before its time.
#[test]
fn an_object_may_change_at_any_number_of_looks() {
    let mut memory = SeenObjects::default();
    for look in 0..300 {
        let mut sweep = Sweep::new(Purpose::Changes, (Some(horizon(5)), horizon(10)), None, true, memory);
        let mut finds = VecDeque::new();
        sweep.see("k".to_owned(), vec![version(10, &format!("{look}"))], &mut finds).unwrap();
        let ended = sweep.end(&mut finds);
        assert_eq!((finds.len(), ended.deferred), (0, Some(10)), "look {look}");
        memory = ended.memory;
    }
}
