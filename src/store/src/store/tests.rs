mod copy;
mod forms;
mod letters;
mod units;

use std::path::Path;
use std::sync::Arc;

use anabranch_plugin::schema::{Schema, SchemaId, SchemaKind, SchemaRegistry as _, SchemaVersion};
use anabranch_record::Position;
use anabranch_record::mark::Partition;

use super::*;
use crate::compare::{Action, Entity};
use crate::entity::{Origin, StopReason, StoredConnector, StoredDeadLetter, StoredProcessor, StoredSetting};
use crate::error::OpenError;
use crate::schemas::{Deletion, Reference, SchemaDocument, SchemaEntry};
use crate::tables;

fn embedded(path: &Path) -> anabranch_settings::Database {
    anabranch_settings::Database::Embedded(path.to_path_buf())
}

/// Where stores can be: in a file, in memory, and in PostgreSQL where that is installed.
struct TestDatabases {
    directory: tempfile::TempDir,
    #[cfg(feature = "postgres")]
    server: Option<crate::postgres::server::Database>,
    made: std::cell::Cell<u32>,
}

impl TestDatabases {
    fn new() -> Self {
        TestDatabases {
            directory: tempfile::tempdir().unwrap(),
            #[cfg(feature = "postgres")]
            server: crate::postgres::server::Database::create(),
            made: std::cell::Cell::default(),
        }
    }

    /// One of each whose content outlives the handle, empty.
    fn durable(&self) -> Vec<anabranch_settings::Database> {
        let number = self.made.replace(self.made.get() + 1);
        self.with(embedded(&self.directory.path().join(format!("{number}.db"))), number)
    }

    /// The same, but in memory what would be in a file: for what does not touch the disk in another way.
    fn stores(&self) -> impl Iterator<Item = Store> {
        let number = self.made.replace(self.made.get() + 1);
        let all = self.with(anabranch_settings::Database::InMemory, number);
        all.into_iter().map(|database| Store::open(&database).unwrap())
    }

    #[cfg_attr(not(feature = "postgres"), expect(unused_mut, unused_variables, reason = "only one is left"))]
    fn with(&self, first: anabranch_settings::Database, number: u32) -> Vec<anabranch_settings::Database> {
        let mut all = vec![first];
        #[cfg(feature = "postgres")]
        all.extend(self.server.as_ref().map(|server| {
            let table = format!("Store \"{number}");
            anabranch_settings::Database::Postgres(anabranch_settings::PostgresDatabase {
                connection: server.url().into(),
                table,
            })
        }));
        all
    }
}

fn lane(connector: &str) -> LaneId {
    LaneId { connector: connector.into(), partition: Partition::ONLY }
}

fn mark(seq: u64) -> Mark {
    Mark { generation: 1, seq, position: Position::copy_from(seq.to_string().as_bytes()) }
}

fn setting(name: &str, written: &str) -> StoredSetting {
    StoredSetting { name: name.into(), written: written.into() }
}

fn processor(id: &str) -> StoredProcessor {
    StoredProcessor { id: id.into(), plugin: "field.set".into(), condition: None, settings: vec![], workers: 1 }
}

fn connector(id: &str, role: &'static str) -> StoredConnector {
    StoredConnector {
        id: id.into(),
        role: Str::from_static(role),
        plugin: "file".into(),
        name: id.into(),
        condition: None,
        settings: vec![setting("path", "a")],
        processors: vec![processor("p")],
    }
}

fn pipeline() -> StoredPipeline {
    StoredPipeline {
        id: "p1".into(),
        name: "p1".into(),
        description: "".into(),
        autostart: true,
        dead_letter: StoredDeadLetter {
            plugin: "log".into(),
            settings: vec![],
            window_size: 1,
            window_nack_threshold: 0,
        },
        connectors: vec![connector("in", "source"), connector("out", "destination")],
        processors: vec![processor("a"), processor("b")],
        unmatched: None,
        placement: None,
        detached_connectors: vec![],
        detached: false,
        status: Status::Stopped { reason: StopReason::User },
        origin: Origin::File,
        created: Some(Moment(1)),
        updated: Some(Moment(1)),
    }
}

fn good(pipelines: &[StoredPipeline]) -> Provision {
    Provision { good: pipelines.to_vec(), invalid: vec![], complete: true, at: Moment(1), texts: vec![] }
}

async fn with_position(store: Store) -> Store {
    store.provision(good(&[pipeline()])).await.unwrap();
    let epoch = store.claim(&Unit::whole("p1")).await.unwrap();
    store.commit(&epoch, Commit::of(&[(lane("in"), mark(7))])).await.unwrap();
    store
}

async fn position(store: &Store) -> Option<u64> {
    let epoch = store.claim(&Unit::whole("p1")).await.unwrap();
    store.load(&epoch).await.unwrap().get(&lane("in")).map(|m| m.seq)
}

fn shown(changes: &[ConfigurationChange]) -> Vec<String> {
    changes.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn marks_survive_a_restart_and_old_epochs_are_fenced() {
    for database in TestDatabases::new().durable() {
        {
            let store = Store::open(&database).unwrap();
            let first = store.claim(&Unit::whole("p1")).await.unwrap();
            store.commit(&first, Commit::of(&[(lane("in"), mark(1)), (lane("in2"), mark(9))])).await.unwrap();
            let second = store.claim(&Unit::whole("p1")).await.unwrap();
            let fenced = store.commit(&first, Commit::of(&[(lane("in"), mark(2))])).await.unwrap_err();
            assert!(matches!(fenced, StoreError::Fenced { ours: 1, theirs: 2, .. }), "{fenced}");
            assert!(matches!(store.load(&first).await, Err(StoreError::Fenced { .. })));
            assert_eq!(store.load(&second).await.unwrap()[&lane("in")], mark(1));
        }
        let store = Store::open(&database).unwrap();
        let third = store.claim(&Unit::whole("p1")).await.unwrap();
        assert_eq!(third.number, 3);
        let marks = store.load(&third).await.unwrap();
        assert_eq!((&marks[&lane("in")], &marks[&lane("in2")]), (&mark(1), &mark(9)));
        let other = store.claim(&Unit::whole("p10")).await.unwrap();
        assert!(store.load(&other).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn of_two_marks_of_a_lane_the_later_counts() {
    for store in TestDatabases::new().stores() {
        let epoch = store.claim(&Unit::whole("p1")).await.unwrap();
        let moves = [(lane("in"), mark(1)), (lane("in"), mark(2))];
        let commits = (3..9).map(|seq| {
            let (store, epoch) = (&store, &epoch);
            async move { store.commit(epoch, Commit::of(&[(lane("in"), mark(seq))])).await }
        });
        store.commit(&epoch, Commit::of(&moves)).await.unwrap();
        assert!(futures::future::join_all(commits).await.into_iter().all(|outcome| outcome.is_ok()));
        assert_eq!(store.load(&epoch).await.unwrap()[&lane("in")], mark(8));
        store.commit(&epoch, Commit::of(&[])).await.unwrap();
    }
}

#[tokio::test]
async fn receipts_are_stored_with_the_marks_and_go_with_them() {
    let receipt = |destination: &str, source: &str, seq: u64| {
        let partition = Partition("a \"b\", [c]".into());
        let lane = LaneId { connector: source.into(), partition };
        Receipt { destination: destination.into(), lane, mark: mark(seq) }
    };
    let of = async |store: &Store| {
        let epoch = store.claim(&Unit::whole("p1")).await.unwrap();
        let mut found = store.receipts(&epoch).await.unwrap();
        found.sort_by_key(|receipt| (receipt.destination.clone(), receipt.lane.clone()));
        found
    };
    let databases = TestDatabases::new();
    for database in databases.durable() {
        let store = with_position(Store::open(&database).unwrap()).await;
        assert_eq!(of(&store).await, []);
        let old = store.claim(&Unit::whole("p1")).await.unwrap();
        let epoch = store.claim(&Unit::whole("p1")).await.unwrap();
        let fenced = store.commit(&old, Commit::of(&[]).with_receipts(&[receipt("out", "in", 1)])).await;
        assert!(matches!(fenced, Err(StoreError::Fenced { .. })), "{fenced:?}");
        let all = [receipt("out", "in", 8), receipt("out", "other", 3), receipt("more", "in", 4)];
        store.commit(&epoch, Commit::of(&[(lane("in"), mark(8))]).with_receipts(&all)).await.unwrap();
        store
            .commit(&epoch, Commit::of(&[(lane("in"), mark(9))]).with_receipts(&[receipt("out", "in", 9)]))
            .await
            .unwrap();
        let other = store.claim(&Unit::whole("p2")).await.unwrap();
        store.commit(&other, Commit::of(&[]).with_receipts(&[receipt("out", "in", 1)])).await.unwrap();
        drop(store);
        let store = Store::open(&database).unwrap();
        assert_eq!(position(&store).await, Some(9));
        let expected = [receipt("more", "in", 4), receipt("out", "in", 9), receipt("out", "other", 3)];
        assert_eq!(of(&store).await, expected);
        assert!(matches!(store.receipts(&epoch).await, Err(StoreError::Fenced { .. })));
        store.forget(&"p1".into(), &"other".into()).await.unwrap();
        assert_eq!(of(&store).await, expected[..2]);
        store.forget(&"p1".into(), &"more".into()).await.unwrap();
        assert_eq!(of(&store).await, expected[1..2]);
        store.delete(&"p1".into()).await.unwrap();
        // The destinations may have marks of the generation that ended: what comes again under the id is of another.
        let epoch = store.claim(&Unit::whole("p1")).await.unwrap();
        let anew = ["in", "other"].map(|source| (receipt("out", source, 0).lane, Mark::beginning(2)));
        assert_eq!(store.load(&epoch).await.unwrap(), anew.into_iter().collect());
        store.delete(&"p1".into()).await.unwrap();
        assert_eq!(of(&store).await, []);
        assert_eq!(store.receipts(&other).await.unwrap().len(), 1);
    }
}

/// Whatever stood in the place of an answer could be wrong: no marks start every source from its beginning.
#[test]
fn an_answer_to_another_question_is_no_answer() {
    let error = contradiction(&ReadResult::Recalled(vec![Some(Bytes::from_static(b"secret"))]));
    assert_eq!(error.to_string(), "state store is damaged: the response `Recalled` does not match the request");
}

#[tokio::test]
async fn what_is_remembered_is_found_by_space_and_key() {
    for database in TestDatabases::new().durable() {
        let key = |n: u8| [n; 32];
        let value = |text: &'static str| Bytes::from_static(text.as_bytes());
        {
            let store = Store::open(&database).unwrap();
            assert_eq!(store.recall("a", &[key(1)]).await.unwrap(), [None]);
            store.keep("a", vec![(key(1), value("one")), (key(2), value("two")), (key(1), value("1"))]).await.unwrap();
            store.keep("b", vec![(key(1), Bytes::new())]).await.unwrap();
            store.keep("b", vec![]).await.unwrap();
            let found = store.recall("a", &[key(2), key(3), key(1), key(2)]).await.unwrap();
            assert_eq!(found, [Some(value("two")), None, Some(value("1")), Some(value("two"))]);
            assert_eq!(store.recall("b", &[key(1), key(2)]).await.unwrap(), [Some(Bytes::new()), None]);
            assert_eq!(store.recall("b", &[]).await.unwrap(), Vec::<Option<Bytes>>::new());
            for (connector, text) in [("in", "1"), ("out", "2"), ("in", "3")] {
                store.set_active(&"p".into(), &connector.into(), value(text)).await.unwrap();
            }
            // Makes it durable.
            store.claim(&Unit::whole("p1")).await.unwrap();
        }
        let store = Store::open(&database).unwrap();
        assert_eq!(store.recall("a", &[key(1)]).await.unwrap(), [Some(value("1"))]);
        assert_eq!(store.active(&"p".into(), &"in".into()).await.unwrap(), Some(value("3")));
        assert_eq!(store.active(&"p".into(), &"out".into()).await.unwrap(), Some(value("2")));
        assert_eq!(store.active(&"q".into(), &"in".into()).await.unwrap(), None);
    }
}

#[tokio::test]
async fn schemas_survive_a_restart() {
    for database in TestDatabases::new().durable() {
        let subject = |text: &'static str| Str::from_static(text);
        let (long, int) = (Str::from_static("\"long\""), Str::from_static("\"int\""));
        let numbers = |schema: Arc<Schema>| (schema.version.get(), schema.id.get());
        {
            let store = Store::open(&database).unwrap();
            assert!(store.subjects().await.unwrap().is_empty());
            assert_eq!(store.identify(&SchemaDocument::alone(long.clone())).await.unwrap(), None);
            let missing = store.get(&subject("a"), SchemaVersion::FIRST).await.unwrap_err();
            assert_eq!(missing.code().name(), "schema_subject_not_found");
            assert_eq!(store.by_id(SchemaId::FIRST).await.unwrap_err().code().name(), "schema_not_found");
            for (name, text, expected) in [
                ("a", &long, (1, 1)),
                ("a", &int, (2, 2)),
                ("b", &int, (1, 2)),
                ("a", &long, (1, 1)),
                ("aa", &long, (1, 1)),
            ] {
                let made = store.create(&subject(name), SchemaKind::Avro, text).await.unwrap();
                assert_eq!(numbers(made), expected, "{name} {text}");
            }
            for n in 0..10 {
                let text = format!("{{\"type\":\"fixed\",\"name\":\"f\",\"size\":{n}}}");
                let made = store.create(&subject("many"), SchemaKind::Avro, &text.into()).await.unwrap();
                assert_eq!(numbers(made), (n + 1, n + 3));
            }
        }
        let store = Store::open(&database).unwrap();
        let second = SchemaVersion::new(2).unwrap();
        assert_eq!(store.get(&subject("a"), second).await.unwrap().text, int);
        assert_eq!(store.by_id(SchemaId::FIRST).await.unwrap().text, long);
        assert_eq!(store.versions(&subject("many")).await.unwrap().last(), SchemaVersion::new(10).as_ref());
        assert_eq!(store.get(&subject("b"), second).await.unwrap_err().code().name(), "schema_version_not_found");
        assert_eq!(numbers(store.create(&subject("b"), SchemaKind::Avro, &long).await.unwrap()), (2, 1));
        let name = subject("c");
        let many = (0..8).map(|_| store.create(&name, SchemaKind::Avro, &long));
        let made: Vec<_> =
            futures::future::join_all(many).await.into_iter().map(|made| numbers(made.unwrap())).collect();
        assert_eq!(made, [(1, 1); 8]);
        let names: Vec<(String, bool)> =
            store.subjects().await.unwrap().into_iter().map(|(name, deleted)| (name.to_string(), deleted)).collect();
        assert_eq!(names, ["a", "aa", "b", "c", "many"].map(|name| (name.to_owned(), false)));
        assert_eq!(store.identify(&SchemaDocument::alone(long.clone())).await.unwrap(), Some(SchemaId::FIRST));
        assert_eq!(store.identify(&SchemaDocument::alone("\"none\"".into())).await.unwrap(), None);
        let id = SchemaId::new(2).unwrap();
        let entry = |version| SchemaEntry { version, id, deleted: false };
        let uses = store.uses(id).await.unwrap();
        assert_eq!(uses, [(subject("a"), entry(second)), (subject("b"), entry(SchemaVersion::FIRST))]);
        assert!(store.uses(SchemaId::new(99).unwrap()).await.unwrap().is_empty());
        #[cfg(feature = "avro")]
        for bad in ["{", "\"lon\"", "\0"] {
            let error = store.create(&subject("a"), SchemaKind::Avro, &bad.into()).await.unwrap_err();
            assert_eq!(error.code().name(), "schema_invalid");
        }
    }
}

#[tokio::test]
async fn deleted_schemas_are_found_by_who_names_them_until_they_are_gone() {
    for store in TestDatabases::new().stores() {
        let (s, t) = (Str::from_static("s"), Str::from_static("t"));
        let [first, second, third] = [1, 2, 3].map(|n| SchemaVersion::new(n).unwrap());
        let (long, int) = (Str::from_static("\"long\""), Str::from_static("\"int\""));
        for (subject, text) in [(&s, &long), (&s, &int), (&t, &int)] {
            store.create(subject, SchemaKind::Avro, text).await.unwrap();
        }
        store.delete_schemas(&s, vec![first, second], Deletion::Hidden).await.unwrap();
        assert_eq!(store.get(&s, first).await.unwrap().text, long);
        assert_eq!(store.versions(&s).await.unwrap_err().code().name(), "schema_subject_not_found");
        assert!(store.entries(&s).await.unwrap().iter().all(|entry| entry.deleted));
        assert_eq!(store.subjects().await.unwrap(), [(s.clone(), true), (t.clone(), false)]);
        let again = store.create(&s, SchemaKind::Avro, &long).await.unwrap();
        assert_eq!((again.version, again.id), (third, SchemaId::FIRST));
        store.delete_schemas(&s, vec![first, second, third], Deletion::Gone).await.unwrap();
        assert_eq!(store.get(&s, first).await.unwrap_err().code().name(), "schema_subject_not_found");
        assert_eq!(store.by_id(SchemaId::FIRST).await.unwrap_err().code().name(), "schema_not_found");
        assert_eq!(store.identify(&SchemaDocument::alone(long.clone())).await.unwrap(), None);
        assert_eq!(store.by_id(SchemaId::new(2).unwrap()).await.unwrap().text, int, "the other subject has it");
        let anew = store.create(&s, SchemaKind::Avro, &long).await.unwrap();
        assert_eq!((anew.version.get(), anew.id.get()), (4, 3), "no number is given twice");

        let references = vec![Reference { name: "x".into(), subject: "t".into(), version: 1 }];
        let document = SchemaDocument { text: "\"x\"".into(), references, whole: "\"string\"".into() };
        let made = store.register(&s, &document).await.unwrap();
        assert_eq!(store.document(made.id).await.unwrap(), document);
        assert_eq!(store.get(&s, made.version).await.unwrap().text, document.whole);
        assert_eq!(store.by_id(made.id).await.unwrap().text, document.whole);
        assert_eq!(store.referring(&t, first).await.unwrap(), [made.id]);
        assert_eq!(store.referring(&t, second).await.unwrap(), []);

        for subject in [None, Some(&s)] {
            assert_eq!(store.level(subject).await.unwrap(), None);
            store.set_level(subject, Some("FULL".into())).await.unwrap();
            store.set_level(subject, Some("NONE".into())).await.unwrap();
            assert_eq!(store.level(subject).await.unwrap(), Some("NONE".into()));
        }
        assert_eq!(store.level(Some(&t)).await.unwrap(), None);
        store.set_level(None, None).await.unwrap();
        assert_eq!(
            (store.level(None).await.unwrap(), store.level(Some(&s)).await.unwrap()),
            (None, Some("NONE".into()))
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fenced_commit_does_not_disturb_those_it_is_grouped_with() {
    for store in TestDatabases::new().stores() {
        let mut old = Vec::new();
        for i in 0..20 {
            let id = Str::from(format!("p{i}"));
            let epoch = store.claim(&Unit::whole(id.clone())).await.unwrap();
            if i % 4 == 0 {
                store.claim(&Unit::whole(id.clone())).await.unwrap();
            }
            old.push(epoch);
        }
        let moves = [(lane("in"), mark(5))];
        let outcomes = futures::future::join_all(old.iter().map(|epoch| store.commit(epoch, Commit::of(&moves)))).await;
        for (i, outcome) in outcomes.iter().enumerate() {
            assert_eq!(outcome.is_err(), i % 4 == 0, "{i}");
        }
        for (i, epoch) in old.iter().enumerate().filter(|(i, _)| i % 4 != 0) {
            assert_eq!(store.load(epoch).await.unwrap()[&lane("in")], mark(5), "{i}");
        }
    }
}

#[tokio::test]
async fn a_trial_changes_nothing() {
    for store in TestDatabases::new().stores() {
        let store = with_position(store).await;
        assert!(matches!(store.write(Write::Trial(100_000)).await, Ok(WriteResult::Nothing)));
        store.check().await.unwrap();
        assert!(store.numbers().await.unwrap().works);
        assert_eq!(position(&store).await, Some(7));
    }
}

#[test]
fn nobody_else_may_read_the_store() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("anabranch.db");
    drop(Store::open(&embedded(&path)).unwrap());
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_store_in_use_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    let _held = Store::open(&embedded(&path)).unwrap();
    let error = Store::open(&embedded(&path)).err().unwrap();
    assert!(matches!(error, OpenError::InUse { .. }));
    assert!(error.to_string().contains("a.db is in use by another process"), "{error}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "no draft is left behind");
}

#[test]
fn what_is_no_store_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    let refused = |content: &[u8]| {
        std::fs::write(&path, content).unwrap();
        let error = Store::open(&embedded(&path)).err().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), content, "{error}");
        error
    };
    assert!(matches!(refused(b""), OpenError::Damaged { .. }));
    assert!(matches!(refused(b"hello"), OpenError::Foreign { .. }));
    assert!(matches!(refused(b"SQLite format 3\0 and more"), OpenError::Foreign { .. }));
    assert!(matches!(refused(MAGIC_ONLY), OpenError::Damaged { .. }));
    let missing = Store::open(&embedded(Path::new("/nowhere/a.db"))).err().unwrap();
    assert!(missing.to_string().contains("its directory does not exist"), "{missing}");
    assert!(Store::open(&embedded(directory.path())).err().unwrap().to_string().contains("it is a directory"));
}

const MAGIC_ONLY: &[u8] = b"redb\x1a\x0a\xa9\x0d\x0a";

#[tokio::test]
async fn damage_is_refused_and_never_a_panic() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    {
        let store = Store::open(&embedded(&path)).unwrap();
        store.provision(good(&[pipeline()])).await.unwrap();
    }
    let whole = std::fs::read(&path).unwrap();
    for keep in [9, 64, 320, 4096, whole.len() / 2, whole.len() - 4096] {
        std::fs::write(&path, &whole[..keep]).unwrap();
        let error = Store::open(&embedded(&path)).err();
        assert!(matches!(error, Some(OpenError::Damaged { .. })), "{keep} of {}: {error:?}", whole.len());
    }
}

#[tokio::test]
async fn flipped_bits_are_refused_or_harmless() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    {
        let store = Store::open(&embedded(&path)).unwrap();
        store.provision(good(&[pipeline()])).await.unwrap();
        let epoch = store.claim(&Unit::whole("p1")).await.unwrap();
        store.commit(&epoch, Commit::of(&[(lane("in"), mark(7))])).await.unwrap();
    }
    let whole = std::fs::read(&path).unwrap();
    let used: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] != 0).collect();
    let mut refused = 0;
    for at in used.iter().step_by(151) {
        let mut bytes = whole.clone();
        bytes[*at] ^= 0x10;
        std::fs::write(&path, &bytes).unwrap();
        let Ok(store) = Store::open(&embedded(&path)) else {
            refused += 1;
            continue;
        };
        let Ok(pipelines) = store.pipelines().await else {
            refused += 1;
            continue;
        };
        assert_eq!(pipelines[0].connectors, pipeline().connectors, "byte {at}");
        let Ok(epoch) = store.claim(&Unit::whole("p1")).await else {
            refused += 1;
            continue;
        };
        assert_eq!(store.load(&epoch).await.ok().and_then(|m| m.get(&lane("in")).map(|m| m.seq)), Some(7), "byte {at}");
    }
    assert!(refused > 0);
}

#[test]
fn a_newer_store_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    drop(Store::open(&embedded(&path)).unwrap());
    {
        let database = redb::Database::create(&path).unwrap();
        let transaction = database.begin_write().unwrap();
        transaction.open_table(tables::META).unwrap().insert("schema", tables::SCHEMA + 1).unwrap();
        transaction.commit().unwrap();
    }
    let refused = Store::open(&embedded(&path)).err();
    assert!(matches!(refused, Some(OpenError::Newer { found, .. }) if found == tables::SCHEMA + 1));
}

/// Every field of a pipeline file that is not an id or a type is changed in place and keeps the position.
#[tokio::test]
async fn edited_fields_keep_the_position() {
    type Edit = (&'static str, fn(&mut StoredPipeline));
    let edits: &[Edit] = &[
        ("the pipeline changed: name", |p| p.name = "other".into()),
        ("the pipeline changed: description", |p| p.description = "text".into()),
        ("the pipeline changed: status", |p| p.autostart = false),
        ("the pipeline changed: dead-letter-queue", |p| p.dead_letter.plugin = "file".into()),
        ("the pipeline changed: dead-letter-queue", |p| p.dead_letter.settings = vec![setting("level", "warn")]),
        ("the pipeline changed: dead-letter-queue", |p| p.dead_letter.window_size = 10),
        ("the pipeline changed: dead-letter-queue", |p| p.dead_letter.window_nack_threshold = 3),
        ("the pipeline changed: order of connectors", |p| p.connectors.reverse()),
        ("the pipeline changed: order of processors", |p| p.processors.reverse()),
        ("processor a changed: plugin", |p| p.processors[0].plugin = "filter".into()),
        ("processor a changed: condition", |p| p.processors[0].condition = Some("{{ true }}".into())),
        ("processor a changed: settings", |p| p.processors[0].settings = vec![setting("field", ".Key")]),
        ("processor b changed: workers", |p| p.processors[1].workers = 4),
        ("processor c is new", |p| p.processors.insert(1, processor("c"))),
        ("processor a was removed", |p| drop(p.processors.remove(0))),
        ("connector in changed: plugin", |p| p.connectors[0].plugin = "generator".into()),
        ("connector in changed: name", |p| p.connectors[0].name = "input".into()),
        ("connector in changed: settings", |p| p.connectors[0].settings = vec![setting("path", "${P}")]),
        ("processor in:p changed: workers", |p| p.connectors[0].processors[0].workers = 2),
        ("processor in:q is new", |p| p.connectors[0].processors.push(processor("q"))),
        ("connector third is new", |p| p.connectors.push(connector("third", "destination"))),
        ("connector out is not in the files; its state is kept", |p| drop(p.connectors.remove(1))),
    ];
    let databases = TestDatabases::new();
    for (expected, edit) in edits {
        for store in databases.stores() {
            let store = with_position(store).await;
            let mut edited = pipeline();
            edit(&mut edited);
            let changes = store.provision(good(&[edited.clone()])).await.unwrap();
            assert_eq!(shown(&changes), [*expected]);
            assert_eq!(position(&store).await, Some(7), "{expected}");
            assert_eq!(store.provision(good(&[edited])).await.unwrap(), [], "{expected}: not reported again");
        }
    }
}

#[tokio::test]
async fn a_pipeline_is_replaced_as_a_whole_and_put_back_with_its_positions() {
    for store in TestDatabases::new().stores() {
        let store = with_position(store).await;
        let old = store.pipeline("p1").await.unwrap().unwrap();
        let new = StoredPipeline { connectors: vec![connector("other", "source")], ..old.clone() };
        assert_eq!(
            shown(&store.replace(new).await.unwrap()),
            [
                "connector in is not in the files; its state is kept",
                "connector out is not in the files; its state is kept",
                "connector other is new",
            ]
        );
        assert_eq!(position(&store).await, None);
        store.set_status(&old.id, Status::Running).await.unwrap();
        assert_eq!(store.replace(old.clone()).await.unwrap().len(), 3);
        assert_eq!(position(&store).await, Some(7), "the position is back");
        let back = store.pipeline("p1").await.unwrap().unwrap();
        assert_eq!((back.status, back.created), (Status::Running, old.created), "how it is doing stays");
        assert_eq!(back.connectors, old.connectors);
    }
}

#[tokio::test]
async fn a_deleted_pipeline_leaves_nothing_but_the_number_of_its_claim() {
    for store in TestDatabases::new().stores() {
        let store = with_position(store).await;
        let other = StoredPipeline { id: "p2".into(), ..pipeline() };
        store.replace(other).await.unwrap();
        let before = store.claim(&Unit::whole("p1")).await.unwrap();
        store.set_active(&"p1".into(), &"in".into(), Bytes::from_static(b"x")).await.unwrap();
        store.delete(&"p1".into()).await.unwrap();
        let left: Vec<Str> = store.pipelines().await.unwrap().into_iter().map(|pipeline| pipeline.id).collect();
        assert_eq!(left, ["p2"]);
        assert_eq!(position(&store).await, None);
        assert_eq!(store.active(&"p1".into(), &"in".into()).await.unwrap(), None);
        assert!(store.claim(&Unit::whole("p1")).await.unwrap().number > before.number);
    }
}

#[tokio::test]
async fn a_connector_that_is_forgotten_comes_back_as_a_new_one() {
    for store in TestDatabases::new().stores() {
        let store = with_position(store).await;
        let old = store.pipeline("p1").await.unwrap().unwrap();
        let (pipeline, connector) = (old.id.clone(), old.connectors[0].id.clone());
        store.set_active(&pipeline, &connector, Bytes::from_static(b"x")).await.unwrap();
        let without = StoredPipeline { connectors: old.connectors[1..].to_vec(), ..old.clone() };
        store.replace(without).await.unwrap();
        assert_eq!(store.detached_marks(&pipeline).await.unwrap().len(), 1);
        store.forget(&pipeline, &connector).await.unwrap();
        store.forget(&"none".into(), &connector).await.unwrap();
        assert_eq!(store.detached_marks(&pipeline).await.unwrap().len(), 0);
        assert_eq!(store.active(&pipeline, &connector).await.unwrap(), None);
        let changes = store.replace(old.clone()).await.unwrap();
        let of_it = changes.iter().find(|change| change.entity == Entity::Connector(connector.clone())).unwrap();
        assert_eq!(of_it.action, Action::Created);
        assert_eq!(position(&store).await, None);
    }
}

#[tokio::test]
async fn files_leave_what_was_made_through_the_api() {
    for store in TestDatabases::new().stores() {
        let made = StoredPipeline { origin: Origin::Api, ..pipeline() };
        store.replace(made.clone()).await.unwrap();
        store.set_status(&made.id, Status::Running).await.unwrap();
        assert_eq!(store.provision(good(&[])).await.unwrap(), []);
        let file = StoredPipeline { name: "of a file".into(), ..pipeline() };
        assert_eq!(store.provision(good(&[file])).await.unwrap(), []);
        let kept = store.pipeline("p1").await.unwrap().unwrap();
        assert_eq!((&kept.name, kept.origin, kept.detached), (&made.name, Origin::Api, false));
        assert_eq!(kept.status, Status::Stopped { reason: StopReason::System }, "it is started with the service");
    }
}

#[tokio::test]
async fn a_changed_id_or_type_starts_anew_and_the_old_state_is_kept() {
    for store in TestDatabases::new().stores() {
        let store = with_position(store).await;
        let mut renamed = pipeline();
        renamed.connectors[0].id = "input".into();
        let changes = store.provision(good(&[renamed])).await.unwrap();
        assert_eq!(shown(&changes), ["connector in is not in the files; its state is kept", "connector input is new"]);
        assert_eq!(position(&store).await, None);
        assert_eq!(store.detached_marks(&"p1".into()).await.unwrap()[&lane("in")], mark(7));
        assert_eq!(store.pipelines().await.unwrap()[0].detached_connectors[0].id, "in");

        let changes = store.provision(good(&[pipeline()])).await.unwrap();
        assert_eq!(
            shown(&changes),
            [
                "connector input is not in the files; its state is kept",
                "connector in is back and resumes where it stopped"
            ]
        );
        assert_eq!(position(&store).await, Some(7));

        let mut turned = pipeline();
        turned.connectors[0].role = "destination".into();
        store.provision(good(&[turned])).await.unwrap();
        assert_eq!(position(&store).await, None);
        assert_eq!(store.detached_marks(&"p1".into()).await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_vanished_pipeline_is_detached_unless_a_file_was_not_understood() {
    for store in TestDatabases::new().stores() {
        let store = with_position(store).await;
        let unread = Provision { complete: false, good: vec![], invalid: vec![], at: Moment(1), texts: vec![] };
        assert_eq!(store.provision(unread).await.unwrap(), []);
        assert!(!store.pipelines().await.unwrap()[0].detached);

        let invalid =
            Provision { invalid: vec!["p1".into()], good: vec![], complete: true, at: Moment(1), texts: vec![] };
        assert_eq!(store.provision(invalid).await.unwrap(), []);
        assert_eq!(store.pipelines().await.unwrap()[0].status, Status::Invalid);
        assert_eq!(store.pipelines().await.unwrap()[0].connectors, pipeline().connectors);

        let changes = store.provision(good(&[])).await.unwrap();
        assert_eq!(shown(&changes), ["the pipeline is not in the files; its state is kept"]);
        assert!(store.pipelines().await.unwrap()[0].detached);
        assert_eq!(store.provision(good(&[])).await.unwrap(), []);

        let changes = store.provision(good(&[pipeline()])).await.unwrap();
        assert_eq!(shown(&changes), ["the pipeline is back and resumes where it stopped"]);
        assert_eq!(position(&store).await, Some(7));
    }
}

#[tokio::test]
async fn what_was_running_was_stopped_by_the_system() {
    for store in TestDatabases::new().stores() {
        let store = with_position(store).await;
        for crashed in [Status::Running, Status::Recovering { error: "x".into() }] {
            store.set_status(&"p1".into(), crashed).await.unwrap();
            store.provision(good(&[pipeline()])).await.unwrap();
            let status = store.pipelines().await.unwrap().remove(0).status;
            assert_eq!(status, Status::Stopped { reason: StopReason::System });
        }
        let stopped = StoredPipeline { autostart: false, ..pipeline() };
        store.provision(good(&[stopped])).await.unwrap();
        assert_eq!(store.pipelines().await.unwrap()[0].status, Status::Stopped { reason: StopReason::User });
    }
}

#[tokio::test]
async fn the_store_holds_what_was_written() {
    for store in TestDatabases::new().stores() {
        use anabranch_plugin::diagnostic::Span;
        use anabranch_plugin::written::Written;
        let secret = Written::new("hunter2hunter2", "${TOKEN}", Span::default());
        let stored = setting("token", secret.written());
        let mut with_secret = pipeline();
        with_secret.connectors[0].settings = vec![stored];
        store.provision(good(&[with_secret])).await.unwrap();
        let text = format!("{:?}", store.pipelines().await.unwrap());
        assert!(text.contains("${TOKEN}") && !text.contains("hunter2"));
    }
}
