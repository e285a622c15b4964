//! Logins of the replication client: the same as those of the destination.

use std::fs;

use crate::certificates::Certificates;
use crate::engine::{Run, Store, configure};
use crate::server::{LOGICAL, Release, Server};

/// Opens a source of the table `t` with an address, and returns how many rows it reads, or code and message of the fault.
async fn read(url: &str) -> Result<usize, (&'static str, String)> {
    let source = configure(&[("url", url), ("tables", "t"), ("logrepl.withAvroSchema", "false")]).unwrap();
    let told = |fault: anabranch_record::fault::Fault| (fault.code().name(), fault.message());
    let mut run = Run::open(&*source, &Store::default()).await.map_err(told)?;
    run.catch_up().await.map_err(told)?;
    let rows = run.take().len();
    run.close().await;
    Ok(rows)
}

/// Replaces the rules of who may log in how.
fn rules(server: &Server, rules: &str) {
    fs::write(
        server.data().join("pg_hba.conf"),
        format!("local all all trust\nhost all postgres all trust\n{rules}\n"),
    )
    .unwrap();
    server.query("SELECT pg_reload_conf()");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_login_of_the_server_works() {
    let Some(server) = Server::of(Release::Installed, &LOGICAL) else { return };
    let dir = tempfile::tempdir().unwrap();
    let Some(certificates) = Certificates::create(dir.path()) else { return };
    certificates.sign("server", "localhost", "DNS:localhost,IP:127.0.0.1");
    certificates.sign("ada", "ada", "");
    let authority = certificates.certificate("ca");
    server.certify(&certificates.certificate("server"), &certificates.key("server"), &authority);
    server.query(
        "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1), (2); CREATE PUBLICATION conduitpub FOR TABLE t",
    );
    server.query("CREATE USER ada REPLICATION PASSWORD 'hunter2'; GRANT SELECT ON t TO ada");
    server.query(
        "SET password_encryption = md5; CREATE USER bob REPLICATION PASSWORD 'hunter2'; GRANT SELECT ON t TO bob",
    );
    let port = server.port();
    let url = |user: &str, options: &str| format!("postgresql://{user}@127.0.0.1:{port}/postgres?{options}");
    let forget = || {
        server.query("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active");
    };

    let trusted = format!("sslmode=verify-full&sslrootcert={authority}");
    let identity = format!("sslcert={}&sslkey={}", certificates.certificate("ada"), certificates.key("ada"));
    rules(&server, "hostssl all ada all cert");
    assert_eq!(read(&url("ada", &format!("{trusted}&{identity}"))).await, Ok(2));
    forget();
    for (rule, user, options) in [
        ("hostssl all ada all scram-sha-256", "ada:hunter2", format!("{trusted}&channel_binding=require")),
        ("hostssl all ada all scram-sha-256", "ada:hunter2", "sslmode=require&channel_binding=disable".to_owned()),
        ("host all ada all scram-sha-256", "ada:hunter2", "sslmode=disable".to_owned()),
        ("host all bob all md5", "bob:hunter2", "sslmode=disable".to_owned()),
        ("host all bob all password", "bob:hunter2", "sslmode=disable".to_owned()),
    ] {
        rules(&server, rule);
        assert_eq!(read(&url(user, &options)).await, Ok(2), "{rule} {options}");
        forget();
    }
    rules(&server, "host all ada all scram-sha-256");
    for (user, part) in [("ada:wrong-hunter", "password authentication failed"), ("ada", "asks for a password")] {
        let (code, message) = read(&url(user, "sslmode=disable")).await.unwrap_err();
        assert_eq!(code, "connect_failed");
        assert!(message.contains(part) && !message.contains("hunter"), "{message}");
    }
    rules(&server, "hostnossl all ada all trust");
    let (code, message) = read(&url("ada", "sslmode=require")).await.unwrap_err();
    assert!(code == "connect_failed" && message.contains("no pg_hba.conf entry"), "{message}");
    server.query("ALTER USER ada NOREPLICATION");
    let (code, message) = read(&url("ada", "sslmode=disable")).await.unwrap_err();
    assert!(["postgres_denied", "connect_failed"].contains(&code), "{code} {message}");
    let socket = server.socket().display().to_string().replace('/', "%2F");
    assert_eq!(read(&format!("postgresql://postgres@{socket}:{port}/postgres")).await, Ok(2));
}
