//! Services that refuse, hang up and go away while the pipeline runs. What each connector makes of each fault is in
//! the tests of its crate; here it is that nothing of it reaches the tables.

use std::time::Duration;

use anabranch_ops_http::testing::{Received, Reply};

use super::{Library, ONCE, RUN, assert_exact, database, embed, partition, pipeline, rows, schema};
use crate::servers::{postgres, s3};

/// Every seventh request fails, each in another way; its repetition is answered.
fn failing<'a>(answer: impl Fn(&Received) -> Reply + 'a) -> impl Fn(&Received) -> Reply + 'a {
    move |request| match request.number % 7 {
        3 => match request.number / 7 % 5 {
            0 => Reply::status(429, "slow down").with("Retry-After", "0"),
            1 => Reply::status(500, "broken"),
            2 => Reply::Close,
            3 => Reply::Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"chu".to_vec()),
            _ => {
                std::thread::sleep(Duration::from_millis(200));
                answer(request)
            }
        },
        _ => answer(request),
    }
}

#[test]
fn services_that_fail_change_nothing() {
    let Some(server) = postgres::Server::start(&[]) else { return };
    let db = std::sync::Arc::new(server).database();
    db.query(&schema());
    let pipeline =
        pipeline().replace("backoffRetry.count: \"5\"", "backoffRetry.count: \"5\"\n          backoffRetry.min: 1ms");
    let mut library = Library::new(&pipeline, &db.url(), failing(partition), failing(embed));
    for n in 0..200 {
        library.add(&format!("papers/{n:03}.pdf"), 3, false);
    }
    let mut process = library.workspace.start(RUN);
    // The database goes down in the middle of its work, as in a crash, and stays away for some tries.
    for round in 1..=3 {
        process.wait_until("documents on their way", || library.asked() > round * 40);
        db.server.kill();
        std::thread::sleep(Duration::from_millis(150));
        db.server.resume();
    }
    process.wait_until("the first documents", || db.query("SELECT count(*) FROM files")[0] == "200");
    // The object store goes away; what comes meanwhile is seen later.
    library.objects.fail(|_| Some(s3::Fault::Close));
    for n in 200..230 {
        library.add(&format!("papers/{n:03}.pdf"), 2, true);
    }
    let tries = library.objects.requests().len();
    process.wait_until("failing requests", || library.objects.requests().len() >= tries + 4);
    library.objects.heal();
    process.wait_until("all documents", || db.query("SELECT count(*) FROM files")[0] == "230");
    process.signal("TERM");
    process.finish().expect_code(0);
    assert_exact(&library, &db);
}

/// With a row that the table refuses the rows of no other document are lost, and none of its own are written.
#[test]
fn a_refused_row_leaves_its_document_out() {
    let Some(db) = database() else { return };
    db.query("CREATE UNIQUE INDEX ON files (file_path)");
    db.query(
        "INSERT INTO files VALUES ('99999999-9999-4999-8999-999999999999', '11111111-1111-4111-8111-111111111111',
        'there before', 'papers/040.pdf', '040.pdf', 0, 0, 'application/pdf')",
    );
    let queue = "    dead-letter-queue: { plugin: file, settings: { path: dlq.ndjson }, window-size: 0 }\n";
    let mut library = Library::new(&(pipeline() + queue), &db.url(), partition, embed);
    for n in 0..80 {
        library.add(&format!("papers/{n:03}.pdf"), 3, false);
    }
    library.workspace.once();
    let letters = library.workspace.read("dlq.ndjson");
    assert!(letters.contains("SQLSTATE 23505") && letters.contains("files_file_path_idx"), "{letters}");
    let found = db.query("SELECT count(*), count(*) FILTER (WHERE description = 'there before') FROM files");
    assert_eq!(found, ["80|1"]);
    let whole = "SELECT count(*) FROM files f WHERE 3 = (SELECT count(*) FROM file_items i WHERE i.file_id = f.id)";
    assert_eq!(db.query(whole), ["79"]);
    println!("{} rows", rows(&db).len());
}

#[test]
fn a_table_that_does_not_fit_is_named() {
    let Some(db) = database() else { return };
    db.query(
        "ALTER TABLE file_items DROP COLUMN tokens; ALTER TABLE file_workspaces ALTER user_id TYPE integer USING 0",
    );
    let queue = "    dead-letter-queue: { plugin: file, settings: { path: dlq.ndjson }, window-size: 0 }\n";
    let mut library = Library::new(&(pipeline() + queue), &db.url(), partition, embed);
    for n in 0..5 {
        library.add(&format!("papers/{n:03}.pdf"), 2, false);
    }
    let output = library.workspace.run(ONCE);
    let said = output.both() + &library.workspace.read("dlq.ndjson");
    assert!(said.contains("tokens") && said.contains("file_items"), "{said}");
    assert!(said.contains("user_id") && said.contains("file_workspaces"), "{said}");
}
