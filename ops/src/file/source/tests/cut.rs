//! Files that are truncated before all that they held was read, as by a rotation that copies them.

use super::*;

fn numbered(word: &str, count: usize) -> String {
    (1..=count).map(|n| format!("{word} {n}\n")).collect()
}

/// Reads on until the text ends so.
fn read_to(follower: &mut Follower, text: &mut Vec<u8>, end: &str) {
    let began = Instant::now();
    while !text.ends_with(end.as_bytes()) {
        match follower.step(text, usize::MAX).unwrap() {
            StepResult::Opened(_) | StepResult::Grown | StepResult::Replaced | StepResult::Truncated => {}
            _ => std::thread::sleep(Duration::from_millis(5)),
        }
        assert!(began.elapsed() < Duration::from_secs(120), "{}", String::from_utf8_lossy(text));
    }
}

fn said(follower: &Follower) -> (u64, u64) {
    let UnreadFiles { cut, copied, .. } = follower.missed();
    (cut, copied)
}

/// The file at the path came while the reader still waits at the one that was renamed, and is truncated after `keep`.
#[cfg(target_os = "linux")]
fn truncated_while_it_waits(keep: impl FnOnce(&Path)) -> (String, (u64, u64)) {
    let (_directory, path) = directory();
    append(&path, "a\n");
    let (mut follower, mut text) = (Follower::new(path.clone(), None), Vec::new());
    read_to(&mut follower, &mut text, "a\n");
    fs::rename(&path, path.with_extension("log.1")).unwrap();
    append(&path, &numbered("b", 100));
    super::rotated::until_open(&path);
    follower.survey();
    keep(&path);
    File::create(&path).unwrap();
    append(&path, &numbered("c", 3));
    read_to(&mut follower, &mut text, "c 3\n");
    (String::from_utf8(text).unwrap(), said(&follower))
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_that_waits_and_is_truncated_is_counted() {
    let keep = |path: &Path| fs::write(path.with_extension("log.2.gz"), "compressed").unwrap();
    assert_eq!(truncated_while_it_waits(keep), (format!("a\n{}", numbered("c", 3)), (1, 0)));
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_that_waits_and_is_truncated_is_read_in_its_copy() {
    let all = format!("a\n{}{}", numbered("b", 100), numbered("c", 3));
    for name in ["log.2", "log.0", "log.copy"] {
        let keep = |path: &Path| assert!(fs::copy(path, path.with_extension(name)).unwrap() > 0);
        let (text, (cut, _)) = truncated_while_it_waits(keep);
        assert_eq!((text, cut), (all.clone(), 0), "{name}");
    }
}

/// More than one look reads.
const MANY: usize = 60_000;

/// The reader has read the first lines of the file, which is truncated after `keep`: what it said by then, what it has
/// read in the end, and what it said by then.
fn truncated_while_it_is_read(keep: impl FnOnce(&Path)) -> ((u64, u64), String, (u64, u64)) {
    let (_directory, path) = directory();
    append(&path, &numbered("a", MANY));
    let (mut follower, mut text) = (Follower::new(path.clone(), None), Vec::new());
    while text.is_empty() {
        follower.step(&mut text, usize::MAX).unwrap();
    }
    assert!(!text.ends_with(numbered("a", MANY).lines().last().unwrap().as_bytes()));
    keep(&path);
    File::create(&path).unwrap();
    // There is no room for more.
    follower.survey();
    let at_once = said(&follower);
    append(&path, &numbered("c", 3));
    read_to(&mut follower, &mut text, "c 3\n");
    (at_once, String::from_utf8(text).unwrap(), said(&follower))
}

#[test]
fn a_file_that_is_truncated_with_lines_unread_is_counted_at_once() {
    let (at_once, text, said) = truncated_while_it_is_read(|_| {});
    assert_eq!((at_once, said), ((1, 0), (1, 0)));
    assert!(text.starts_with("a 1\na 2\n") && text.len() < numbered("a", MANY).len());
}

#[test]
fn a_file_that_is_truncated_with_lines_unread_is_read_on_in_its_copy() {
    let keep = |path: &Path| assert!(fs::copy(path, path.with_extension("log.1")).unwrap() > 0);
    let (at_once, text, said) = truncated_while_it_is_read(keep);
    assert_eq!((at_once, said), ((0, 1), (0, 1)));
    assert!(text == numbered("a", MANY) + &numbered("c", 3), "{} bytes", text.len());
}

/// All was read: nothing is missed, whatever becomes of the file.
#[tokio::test]
async fn a_file_that_is_truncated_when_all_was_read_is_not_counted() {
    let (_directory, path) = directory();
    append(&path, "a\n");
    let mut reading = open(&path, None).await;
    let mut lines = reading.lines().await;
    for text in ["b\n", "longer than before\n", "c\n", "longer than that before\n"] {
        fs::write(&path, text).unwrap();
        lines.extend(reading.lines().await);
        assert_eq!(reading.reader.backlog().await.unwrap().missed, 0, "{text}");
    }
    assert_eq!(lines, ["1:a", "1:b", "1:longer than before", "1:c", "1:longer than that before"]);
}
