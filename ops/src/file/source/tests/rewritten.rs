//! Files that hold other content than what was read.

use super::*;

/// More than what tells a file from another by its start.
fn start() -> String {
    "the same in both, as columns of a table are\n".repeat(40)
}

fn numbered(word: &str, numbers: std::ops::Range<usize>) -> String {
    numbers
        .map(|n| format!("{n:06} {word}, and then what is the same in all lines of the file, whichever it is\n"))
        .collect()
}

#[tokio::test]
async fn other_content_after_the_same_start_is_read_from_its_start() {
    let (_directory, path) = directory();
    fs::write(&path, start() + &numbered("old", 0..30)).unwrap();
    let mut reading = open(&path, None).await;
    assert_eq!(reading.lines().await.len(), 70);
    let end = reading.last.clone();
    fs::write(&path, start() + &numbered("new", 0..50)).unwrap();
    let (live, restarted) = (reading.lines().await, open(&path, end).await.lines().await);
    assert_eq!(live, restarted);
    assert_eq!(live.len(), 90);
    assert!(live[89].starts_with("90:000049 new"), "{}", live[89]);
}

#[tokio::test]
async fn every_position_tells_other_content_from_its_own() {
    let (_directory, path) = directory();
    let old = start() + &numbered("old", 0..60) + &"x".repeat(5000) + "\n" + &numbered("old", 60..70);
    fs::write(&path, &old).unwrap();
    let mut reading = open(&path, None).await;
    let mut positions = Vec::new();
    loop {
        let records = reading.some(Room { rows: 7, ..ROOM }).await;
        if records.is_empty() {
            break;
        }
        positions.extend(records.iter().map(|record| record.position().clone()));
    }
    assert_eq!(positions.len(), 111);
    for (n, position) in positions.iter().enumerate() {
        fs::write(&path, &old).unwrap();
        let same = open(&path, Some(position.clone())).await.lines().await;
        assert_eq!(same.len(), 110 - n, "the same content, after line {}", n + 1);
        if (40..100).contains(&n) {
            fs::write(&path, old.replace("old", "new")).unwrap();
            let other = open(&path, Some(position.clone())).await.lines().await;
            assert_eq!(other.len(), 111, "other content, after line {}", n + 1);
        }
    }
}

#[tokio::test]
async fn positions_of_earlier_versions_are_understood() {
    let (_directory, path) = directory();
    fs::write(&path, start() + "last\n").unwrap();
    let identity = crate::file::position::identity(&fs::metadata(&path).unwrap());
    let hash = start()
        .bytes()
        .take(1024)
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let mut position = vec![1];
    position.extend_from_slice(&(start().len() as u64).to_le_bytes());
    position.extend_from_slice(&40_u64.to_le_bytes());
    position.extend_from_slice(&identity.to_le_bytes());
    position.extend_from_slice(&((hash ^ (hash >> 32)) as u32).to_le_bytes());
    assert_eq!(open(&path, Some(Position::copy_from(&position))).await.lines().await, ["41:last"]);
    // Its first four bytes were delivered, as a line without line feed.
    position.extend_from_slice(&4_u64.to_le_bytes());
    append(&path, "more\n");
    assert_eq!(open(&path, Some(Position::copy_from(&position))).await.lines().await, ["42:more"]);
}

#[tokio::test]
async fn a_rewrite_of_the_same_length_is_noticed() {
    let (_directory, path) = directory();
    fs::write(&path, "aaa\n").unwrap();
    let mut reading = open(&path, None).await;
    assert_eq!(reading.lines().await, ["1:aaa"]);
    fs::write(&path, "bbb\n").unwrap();
    assert_eq!(reading.lines().await, ["1:bbb"]);
    // While it is at rest, at a time that somebody sets back.
    let before = fs::metadata(&path).unwrap().modified().unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(300), reading.reader.read(ROOM)).await.is_err());
    fs::write(&path, "ccc\n").unwrap();
    File::options().append(true).open(&path).unwrap().set_modified(before).unwrap();
    assert_eq!(reading.lines().await, ["1:ccc"]);
    // The same content once more is nothing new.
    fs::write(&path, "ccc\n").unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(300), reading.reader.read(ROOM)).await.is_err());
    append(&path, "ddd\n");
    assert_eq!(reading.lines().await, ["2:ddd"]);
}

#[tokio::test]
async fn a_rewrite_in_the_middle_of_reading_is_noticed() {
    let (_directory, path) = directory();
    fs::write(&path, start() + &numbered("old", 0..8000)).unwrap();
    let mut reading = open(&path, None).await;
    reading.some(Room { rows: 1000, ..ROOM }).await;
    fs::write(&path, start() + &numbered("new", 0..9000)).unwrap();
    let lines = reading.lines().await;
    let new = &lines[lines.len() - 9040..];
    assert!(new[0].starts_with("1:the same") && new[40].starts_with("41:000000 new"), "{} {}", new[0], new[40]);
    assert!(lines[..lines.len() - 9000].iter().all(|line| !line.contains("new")));
}
