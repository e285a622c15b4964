use std::time::Duration;

use tokio::sync::mpsc::channel;

use super::*;
use crate::file::framing::Framing;

const ROOM: Room = Room { rows: 3, bytes: 1 << 20 };

/// The records of input that arrives in these chunks.
async fn read(compression: Compression, chunks: &[&[u8]]) -> Result<Vec<String>, Fault> {
    match read_until_failure(compression, Framing::Lines, chunks).await {
        (texts, None) => Ok(texts),
        (_, Some(fault)) => Err(fault),
    }
}

/// The records of such input, and the fault after them.
async fn read_until_failure(
    compression: Compression,
    framing: Framing,
    chunks: &[&[u8]],
) -> (Vec<String>, Option<Fault>) {
    let format = FileFormat { framing, has_header: false, compression, limit: 1000, settling: Duration::ZERO };
    let (to, from) = channel(100);
    for chunk in chunks {
        to.send(Ok(chunk.to_vec())).await.unwrap();
    }
    drop(to);
    let mut input = StandardInput::reading(Arc::new(format), from);
    let mut texts = Vec::new();
    loop {
        let read = match input.read(ROOM).await {
            Ok(read) => read,
            Err(fault) => return (texts, Some(fault)),
        };
        match read {
            Read::Rows { records, .. } => {
                assert!(!records.is_empty() && records.len() <= ROOM.rows);
                texts.extend(records.iter().map(|record| match (&record.key, &record.payload.after) {
                    (Data::Raw(key), Data::Raw(text)) => format!("{}:{}", key.escape_ascii(), text.escape_ascii()),
                    other => panic!("{other:?}"),
                }));
            }
            Read::End => return (texts, None),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn the_records_of_standard_input_are_read_to_its_end() {
    let all = ["1:a", "2:bc", "3:", "4:d", "5:e"];
    assert_eq!(read(Compression::Auto, &[b"a\nb", b"c\n\n", b"d\ne"]).await.unwrap(), all);
    assert_eq!(read(Compression::Auto, &[]).await.unwrap(), [""; 0]);
    for codec in [Codec::Gzip, Codec::Zstd] {
        let bytes = [codec.compress(b"a\nbc\n").unwrap(), codec.compress(b"\nd\ne").unwrap()].concat();
        let pieces: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(read(Compression::Auto, &pieces).await.unwrap(), all, "{codec}");
        let cut = read(Compression::Auto, &pieces[..pieces.len() - 1]).await.unwrap_err();
        assert_eq!(cut.code(), codes::FILE_TRUNCATED);
    }
    let long = read(Compression::None, &[&[b'x'; 2000]]).await.unwrap_err();
    assert_eq!(long.code(), codes::LINE_TOO_LONG);
}

#[tokio::test]
async fn the_records_before_damage_are_read_before_the_fault() {
    let texts = |found: &[&str]| found.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    // In one chunk, and in one read.
    let long = [&b"a\nb\n"[..], &[b'x'; 1001], b"\nc\n"].concat();
    let (found, fault) = read_until_failure(Compression::None, Framing::Lines, &[&long]).await;
    let fault = fault.unwrap();
    assert_eq!((found, fault.code()), (texts(&["1:a", "2:b"]), codes::LINE_TOO_LONG));
    assert!(fault.message().starts_with("record 3 of standard input"), "{fault}");
    // As the first record of a read.
    let (found, fault) = read_until_failure(Compression::None, Framing::Lines, &[&long[4..]]).await;
    let fault = fault.unwrap();
    assert!(found.is_empty() && fault.message().starts_with("record 1 of standard input"), "{found:?} {fault}");
    let json = [&b"{}{}"[..], b"[", &[b' '; 1001], b"]"].concat();
    let (found, fault) = read_until_failure(Compression::None, Framing::Json, &[&json]).await;
    assert_eq!((found, fault.unwrap().code()), (texts(&["1:{}", "2:{}"]), codes::LINE_TOO_LONG));
    for codec in [Codec::Gzip, Codec::Zstd] {
        let good = codec.compress(b"a\nb\n").unwrap();
        let (found, fault) =
            read_until_failure(Compression::Auto, Framing::Lines, &[&[&good[..], b"garbage"].concat()]).await;
        assert_eq!((found, fault.unwrap().code()), (texts(&["1:a", "2:b"]), codes::FILE_CORRUPT), "{codec}");
        let cut = [&good[..], &good[..good.len() - 1]].concat();
        let (found, fault) = read_until_failure(Compression::Auto, Framing::Lines, &[&cut]).await;
        assert!(found.starts_with(&texts(&["1:a", "2:b"])), "{codec}: {found:?}");
        assert_eq!(fault.unwrap().code(), codes::FILE_TRUNCATED, "{codec}");
    }
}
