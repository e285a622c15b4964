use std::time::Duration;

use tokio::sync::mpsc::channel;

use super::*;
use crate::file::framing::Framing;

const ROOM: Room = Room { rows: 3, bytes: 1 << 20 };

/// The records of input that arrives in these chunks.
async fn read(compression: Compression, chunks: &[&[u8]]) -> Result<Vec<String>, Fault> {
    let format =
        FileFormat { framing: Framing::Lines, has_header: false, compression, limit: 1000, settling: Duration::ZERO };
    let (to, from) = channel(100);
    for chunk in chunks {
        to.send(Ok(chunk.to_vec())).await.unwrap();
    }
    drop(to);
    let mut input = StandardInput::reading(Arc::new(format), from);
    let mut texts = Vec::new();
    loop {
        match input.read(ROOM).await? {
            Read::Rows { records, .. } => {
                assert!(!records.is_empty() && records.len() <= ROOM.rows);
                texts.extend(records.iter().map(|record| match (&record.key, &record.payload.after) {
                    (Data::Raw(key), Data::Raw(text)) => format!("{}:{}", key.escape_ascii(), text.escape_ascii()),
                    other => panic!("{other:?}"),
                }));
            }
            Read::End => return Ok(texts),
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
