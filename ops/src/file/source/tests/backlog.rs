//! Backlog: what is left to read, and its age.

use super::*;

async fn backlog(reading: &mut Reading) -> (u64, Option<Duration>) {
    let backlog = reading.reader.backlog().await.unwrap();
    (backlog.bytes.unwrap(), backlog.since.map(|since| SystemTime::now().duration_since(since).unwrap()))
}

fn hours_old(path: &Path, hours: u64) {
    let at = SystemTime::now() - Duration::from_secs(hours * 3600);
    File::options().append(true).open(path).unwrap().set_modified(at).unwrap();
}

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn unread_bytes_are_counted_and_as_old_as_they_are_known_to_be() {
    let (directory, path) = directory();
    append(&path, &"0123456\n".repeat(1000));
    hours_old(&path, 3);
    let mut reading = open(&path, None).await;
    let (bytes, age) = backlog(&mut reading).await;
    assert!(bytes == 8000 && age.unwrap() >= HOUR * 3, "{bytes} {age:?}");
    // Whatever comes later, the next record is as old as before.
    append(&path, "later\n");
    let (bytes, age) = backlog(&mut reading).await;
    assert!(bytes == 8006 && age.unwrap() >= HOUR * 3, "{bytes} {age:?}");
    assert_eq!(reading.some(Room { rows: 1000, ..ROOM }).await.len(), 1000);
    let (bytes, age) = backlog(&mut reading).await;
    assert!(bytes == 6 && age.unwrap() < HOUR, "{bytes} {age:?}");
    assert_eq!(reading.lines().await, ["1001:later"]);
    assert_eq!(backlog(&mut reading).await, (0, None));

    // The start of a line waits for its end, and is nothing that could be read.
    append(&path, "half");
    let _ = tokio::time::timeout(Duration::from_millis(500), reading.reader.read(ROOM)).await.unwrap_err();
    assert_eq!(backlog(&mut reading).await, (0, None));
    append(&path, " a line\n");
    assert_eq!(backlog(&mut reading).await.0, 12);

    // Files that are waited for to be read count.
    fs::rename(&path, directory.path().join("in.log.1")).unwrap();
    append(&path, "in the next file\n");
    // The system tells of files in its own time.
    let told = async {
        while backlog(&mut reading).await.0 != 12 + 17 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), told).await.unwrap();
}

#[tokio::test]
async fn an_answer_that_is_given_up_loses_nothing() {
    let (_directory, path) = directory();
    append(&path, &"line\n".repeat(5000));
    let mut reading = open(&path, None).await;
    let mut lines = 0;
    for n in 0.. {
        let _ =
            tokio::time::timeout(Duration::from_micros(n % 50), reading.reader.read(ROOM)).await.map(|read| match read
                .unwrap()
            {
                Read::Rows { records, .. } => lines += records.len(),
                Read::Progress(..) => {}
                _ => assert_eq!(lines, 5000),
            });
        let _ = tokio::time::timeout(Duration::from_micros(n % 70), reading.reader.backlog()).await;
        if lines == 5000 {
            break;
        }
    }
    assert_eq!(reading.lines().await, [""; 0]);
}
