use anabranch_ops_parquet::table_reader::TableReader;
use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::settings::Settings;
use anabranch_plugin::testing::{check_destination, check_refusal, configured};
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Position};

use super::*;
use crate::testing::host;

const PARQUET: [(&str, &str); 2] = [("format", "parquet"), ("sdk.record.format", "recfmt/raw")];

async fn open(path: &Path) -> Box<dyn Writer> {
    let kind = crate::file::destination();
    let settings = [&[("path", path.to_str().unwrap())], &PARQUET[..]].concat();
    let arguments = Arguments::parse(kind.specification(), &Settings::from_pairs(settings)).unwrap();
    kind.configure(&arguments).unwrap().open(&host()).await.unwrap()
}

fn row(position: &str, n: i64) -> Record {
    let fields: Object = [("n", Value::from(n))].into_iter().collect();
    Record::create(Position::copy_from(position.as_bytes()), Data::Absent, Data::from(fields))
}

/// The files of a directory, each with the values of its rows.
fn stored(directory: &Path) -> Vec<(PathBuf, Vec<i64>)> {
    let mut files: Vec<PathBuf> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let rows = |path: PathBuf| {
        let (mut reader, mut all) = (TableReader::open(File::open(&path).unwrap(), 0).unwrap(), Vec::new());
        loop {
            match reader.next_rows().unwrap() {
                rows if rows.is_empty() => return (path, all),
                rows => all.extend(rows.iter().map(|row| row.get("n").unwrap().as_i64().unwrap())),
            }
        }
    };
    files.into_iter().map(rows).collect()
}

#[tokio::test]
async fn the_destination_keeps_its_promises() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("out.parquet");
    let fresh = async || {
        stored(directory.path()).into_iter().for_each(|(path, _)| fs::remove_file(path).unwrap());
        let settings = [&[("path", path.to_str().unwrap())], &PARQUET[..]].concat();
        configured::destination(&crate::file::destination(), &settings).unwrap()
    };
    let stored = async || -> Vec<i64> {
        // The names of files do not say in which order they were written.
        let mut rows: Vec<i64> = stored(directory.path()).into_iter().flat_map(|(_, rows)| rows).collect();
        rows.sort_unstable();
        rows
    };
    let rows = [row("1", 1), row("2", 2), row("3", 3)];
    assert_eq!(check_destination(fresh, stored, &rows).await.unwrap().len(), 3);
    let raw = Record::create(Position::copy_from(b"4"), Data::Absent, Data::text("raw"));
    check_refusal(fresh, stored, &rows, &raw).await.unwrap();
}

#[tokio::test]
async fn a_write_that_is_repeated_replaces_its_file_and_unfinished_ones_are_removed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("out.parquet");
    let rows = [row("1", 1), row("2", 2)];
    let mut writer = open(&path).await;
    writer.write(Write::new(&rows)).await.unwrap();
    let first = stored(directory.path());
    assert_eq!(first.len(), 1);
    assert_eq!(first[0].1, [1, 2]);
    // A later run repeats the write, after a crash in the middle of another one.
    let unfinished = directory.path().join(format!(".{}-00{UNFINISHED}", owner(&host())));
    let of_another = directory.path().join(format!(".0123456789abcdef-00{UNFINISHED}"));
    fs::write(&unfinished, "PAR1").unwrap();
    fs::write(&of_another, "PAR1").unwrap();
    open(&path).await.write(Write::new(&rows)).await.unwrap();
    assert!(!unfinished.exists() && of_another.exists());
    fs::remove_file(of_another).unwrap();
    assert_eq!(stored(directory.path()), first);
    // Another division of the same records is another file.
    open(&path).await.write(Write::new(&rows[1..])).await.unwrap();
    assert_eq!(stored(directory.path()).len(), 2);
}

#[tokio::test]
async fn a_file_that_cannot_be_written_leaves_nothing_and_is_tried_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("into/out.parquet");
    fs::create_dir(directory.path().join("into")).unwrap();
    let mut writer = open(&path).await;
    fs::remove_dir(directory.path().join("into")).unwrap();
    let fault = writer.write(Write::new(&[row("1", 1)])).await.unwrap_err();
    assert_eq!(
        (fault.code().name(), fault.class()),
        ("directory_missing", anabranch_record::fault::FaultClass::Transient)
    );
    fs::create_dir(directory.path().join("into")).unwrap();
    writer.write(Write::new(&[row("1", 1)])).await.unwrap();
    assert_eq!(stored(&directory.path().join("into")).into_iter().map(|(_, rows)| rows).collect::<Vec<_>>(), [[1]]);
}

#[tokio::test]
async fn no_symbolic_link_leads_a_file_out_of_the_directory() {
    let directory = tempfile::tempdir().unwrap();
    for made in ["out", "outside"] {
        fs::create_dir(directory.path().join(made)).unwrap();
    }
    std::os::unix::fs::symlink(directory.path().join("outside"), directory.path().join("out/away")).unwrap();
    let mut writer = open(&directory.path().join("out/{{ .Key.to }}/o.parquet")).await;
    let to = |place: &str| {
        let key: Object = [("to", Value::from(place))].into_iter().collect();
        let mut record = row("1", 1);
        record.key = Data::from(key);
        record
    };
    for refused in ["away", "away/new"] {
        let fault = writer.write(Write::new(&[to(refused)])).await.unwrap_err();
        assert_eq!(fault.code(), codes::PATH_REFUSED, "{refused}: {fault}");
    }
    assert_eq!(fs::read_dir(directory.path().join("outside")).unwrap().count(), 0);
    writer.write(Write::new(&[to("here")])).await.unwrap();
    assert_eq!(stored(&directory.path().join("out/here")).len(), 1);
}
