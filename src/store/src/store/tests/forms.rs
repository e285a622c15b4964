//! Stores of earlier forms, as `fixtures/make.sh` made them with the programs of their time.

use std::io::Read as _;
use std::path::PathBuf;

use anabranch_record::Data;
use flate2::read::GzDecoder;
use redb::ReadableDatabase as _;

use super::*;
use crate::embedded::earlier;

/// An embedded store of the first form.
const EMBEDDED: &[u8] = include_bytes!("../../../fixtures/embedded-1.db.gz");

/// The positions of a fixture: of lines in files, with the file's identity, and of the generator.
struct Known {
    read: &'static str,
    more: &'static str,
    detached: &'static str,
    generated: u64,
}

const IN_FILE: Known = Known {
    read: "042e0000000000050000000000335cddc000b3a259651cc36ceeb8e2edca08a201",
    more: "0416000000000002000000000022dc0d0b3f22bc75f62798ca9f62e5edca08a201",
    detached: "040b0000000000010000000000eb6bcfd9395bd7db13ee447a19e8e5edca08a201",
    generated: 215,
};

/// Writes a copy of the embedded store.
fn copy(directory: &tempfile::TempDir) -> PathBuf {
    let path = directory.path().join("old.db");
    let mut bytes = Vec::new();
    GzDecoder::new(EMBEDDED).read_to_end(&mut bytes).unwrap();
    std::fs::write(&path, bytes).unwrap();
    path
}

fn position(hex: &str) -> Position {
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    Position((0..hex.len()).step_by(2).map(byte).collect::<Vec<_>>().into())
}

fn at(seq: u64, hex: &str) -> Mark {
    Mark { generation: 1, seq, position: position(hex) }
}

impl Known {
    fn orders(&self) -> BTreeMap<LaneId, Mark> {
        [(lane("in"), at(5, self.read)), (lane("more"), at(2, self.more))].into()
    }

    fn detached(&self) -> BTreeMap<LaneId, Mark> {
        [(lane("old"), at(1, self.detached))].into()
    }

    /// The destination has everything up to the positions, and keeps its word for a source that is set aside.
    fn receipts(&self) -> Vec<Receipt> {
        let all = self.orders().into_iter().chain(self.detached());
        all.map(|(lane, mark)| Receipt { destination: "out".into(), lane, mark }).collect()
    }

    fn feed(&self) -> BTreeMap<LaneId, Mark> {
        let position = Position::copy_from(self.generated.to_string().as_bytes());
        [(lane("gen"), Mark { generation: 1, seq: self.generated, position })].into()
    }

    /// Checks everything that a command which only reads can see.
    async fn check(&self, store: &Store) {
        let (orders, feed) = (Str::from("orders"), Str::from("feed"));
        assert_eq!(store.positions(&orders).await.unwrap(), self.orders());
        assert_eq!(store.positions(&feed).await.unwrap(), self.feed());
        assert_eq!(store.detached_marks(&orders).await.unwrap(), self.detached());
        assert_eq!(store.detached_marks(&feed).await.unwrap(), BTreeMap::new());

        let letters = store.letters_below(&orders, u64::MAX, 10).await.unwrap();
        let letters: Vec<(u64, Letter)> =
            letters.into_iter().map(|(number, letter)| (number, form::decode(&letter.content).unwrap())).collect();
        let shown: Vec<_> = letters
            .iter()
            .map(|(number, letter)| (*number, &*letter.name, &letter.lane, letter.seq, &*letter.node, &*letter.code))
            .collect();
        let refused = (2, "orders:in//1/3///out", &lane("in"), 3, "out", "check_violation");
        let undecoded = (1, "orders:in//1/2///decode", &lane("in"), 2, "decode", "json_invalid");
        assert_eq!(shown, [refused, undecoded]);
        assert!(matches!(&letters[0].1.record.payload.after, Data::Structured(row) if row.get("id").is_some()));
        assert_eq!(letters[1].1.record.payload.after, Data::Raw("not json".into()));
        let totals = store.letter_totals(&orders).await.unwrap();
        assert_eq!((totals.count, totals.evicted), (2, 0));

        let pipelines = store.pipelines().await.unwrap();
        let status = |id: &str| pipelines.iter().find(|pipeline| *pipeline.id == *id).unwrap().status.clone();
        assert_eq!(status("feed"), Status::Stopped { reason: StopReason::User });
        assert_eq!(status("orders"), Status::Stopped { reason: StopReason::System });
        let ids = |connectors: &[StoredConnector]| connectors.iter().map(|it| it.id.to_string()).collect::<Vec<_>>();
        assert_eq!(pipelines[1].id, "orders");
        assert_eq!(ids(&pipelines[1].connectors), ["in", "more", "out"]);
        assert_eq!(ids(&pipelines[1].detached_connectors), ["old"]);
        let (subject, first) = ("feed:gen:payload".into(), SchemaVersion::new(1).unwrap());
        assert_eq!(store.versions(&subject).await.unwrap(), [first]);
        assert_eq!(store.get(&subject, first).await.unwrap().id, SchemaId::new(1).unwrap());
    }

    /// Claims a pipeline as the next run does, and checks everything that it loads.
    async fn claim(&self, store: &Store, number: u64) {
        let epoch = store.claim(&Unit::whole("orders")).await.unwrap();
        assert_eq!(epoch.number, number);
        assert_eq!(store.load(&epoch).await.unwrap(), self.orders());
        let mut receipts = store.receipts(&epoch).await.unwrap();
        receipts.sort_by(|one, other| one.lane.cmp(&other.lane));
        assert_eq!(receipts, self.receipts());
        let epoch = store.claim(&Unit::whole("feed")).await.unwrap();
        assert_eq!(epoch.number, number);
        assert_eq!(store.load(&epoch).await.unwrap(), self.feed());
        assert_eq!(store.receipts(&epoch).await.unwrap(), []);
    }
}

#[tokio::test]
async fn an_embedded_store_of_the_first_form_keeps_everything() {
    let directory = tempfile::tempdir().unwrap();
    let path = copy(&directory);
    for number in [3, 4] {
        let store = Store::own(&embedded(&path)).unwrap();
        IN_FILE.check(&store).await;
        IN_FILE.claim(&store, number).await;
        IN_FILE.check(&store).await;
    }
}

/// The version of the file, where every version of the program looks for it.
fn version(path: &Path) -> u64 {
    let database = crate::file::builder().open(path).unwrap();
    let transaction = database.begin_read().unwrap();
    transaction.open_table(tables::META).unwrap().get("schema").unwrap().unwrap().value()
}

/// A command that only reads must not keep the earlier version from going on.
#[tokio::test]
async fn reading_leaves_a_file_of_the_first_form_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = copy(&directory);
    let store = Store::open_existing(&embedded(&path)).unwrap().unwrap();
    IN_FILE.check(&store).await;
    store.check().await.unwrap();
    drop(store);
    assert_eq!(version(&path), 1);
    let store = Store::own(&embedded(&path)).unwrap();
    store.set_status(&"orders".into(), Status::Stopped { reason: StopReason::System }).await.unwrap();
    IN_FILE.check(&store).await;
    drop(store);
    assert_eq!(version(&path), tables::SCHEMA);
}

/// The file while the upgrade is written, as a crash at this moment leaves it.
#[tokio::test]
async fn an_upgrade_that_is_interrupted_changes_nothing_and_is_repeated() {
    let directory = tempfile::tempdir().unwrap();
    let path = copy(&directory);
    let left = directory.path().join("left.db");
    {
        let database = crate::file::builder().open(&path).unwrap();
        let transaction = database.begin_write().unwrap();
        earlier::convert(&transaction).unwrap();
        std::fs::copy(&path, &left).unwrap();
        transaction.abort().unwrap();
    }
    for path in [path, left] {
        let store = Store::open(&embedded(&path)).unwrap();
        IN_FILE.check(&store).await;
        IN_FILE.claim(&store, 3).await;
        IN_FILE.check(&store).await;
    }
}

#[tokio::test]
async fn a_file_of_a_later_form_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    drop(Store::open(&embedded(&path)).unwrap());
    {
        let database = crate::file::builder().open(&path).unwrap();
        let transaction = database.begin_write().unwrap();
        transaction.open_table(tables::META).unwrap().insert("schema", tables::SCHEMA + 1).unwrap();
        transaction.commit().unwrap();
    }
    let Err(error) = Store::open(&embedded(&path)) else { panic!("it was opened") };
    let expected = format!("has version {}, but this program supports versions up to 2", tables::SCHEMA + 1);
    assert!(error.to_string().contains(&expected), "{error}");
    assert_eq!(version(&path), tables::SCHEMA + 1);
}

#[cfg(feature = "postgres")]
mod postgres {
    use anabranch_settings::PostgresDatabase;

    use super::*;
    use crate::postgres::server::Database;

    /// A store in PostgreSQL of the first form.
    const TABLES: &str = include_str!("../../../fixtures/postgres-1.sql");

    const IN_POSTGRES: Known = Known {
        read: "042e0000000000050000000000335c5d53eaeca259651cc36ceeb8bd00cb08a201",
        more: "0416000000000002000000000022dc930e7697bc75f62798ca9f62bd00cb08a201",
        detached: "040b0000000000010000000000eb6bda7d16a2d7db13ee447a19e8bd00cb08a201",
        generated: 214,
    };

    fn state(database: &Database) -> anabranch_settings::Database {
        anabranch_settings::Database::Postgres(PostgresDatabase {
            connection: database.url().into(),
            table: "state".to_owned(),
        })
    }

    #[tokio::test]
    async fn a_store_in_postgres_of_the_first_form_keeps_everything() {
        let Some(database) = Database::create() else { return };
        database.query(TABLES);
        for number in [3, 4] {
            let store = Store::own(&state(&database)).unwrap();
            IN_POSTGRES.check(&store).await;
            IN_POSTGRES.claim(&store, number).await;
            IN_POSTGRES.check(&store).await;
            store.release().await;
        }
    }

    fn version(database: &Database) -> Vec<String> {
        database.query("SELECT number FROM state WHERE kind = 'schema'")
    }

    /// The program that wrote the tables may run with them at this moment.
    #[tokio::test]
    async fn reading_leaves_tables_of_the_first_form_as_they_are() {
        let Some(database) = Database::create() else { return };
        database.query(TABLES);
        let reader = Store::open(&state(&database)).unwrap();
        IN_POSTGRES.check(&reader).await;
        reader.check().await.unwrap();
        let owner = Store::own(&state(&database)).unwrap();
        IN_POSTGRES.check(&owner).await;
        assert_eq!(version(&database), ["1"]);
        owner.set_status(&"orders".into(), Status::Stopped { reason: StopReason::System }).await.unwrap();
        assert_eq!(version(&database), ["2"], "where every version of the program looks for it");
        IN_POSTGRES.check(&owner).await;
        IN_POSTGRES.check(&reader).await;
    }

    /// A backup of an earlier version, restored under a service that runs.
    #[tokio::test]
    async fn tables_that_get_the_first_form_again_are_upgraded_again() {
        let Some(database) = Database::create() else { return };
        database.query(TABLES);
        let store = Store::open(&state(&database)).unwrap();
        IN_POSTGRES.claim(&store, 3).await;
        database.query("DROP TABLE state, state_dlq, state_memo");
        database.query(TABLES);
        database.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE pid <> pg_backend_pid() AND datname = current_database()",
        );
        IN_POSTGRES.claim(&store, 3).await;
        IN_POSTGRES.check(&store).await;
    }
}
