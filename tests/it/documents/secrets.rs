//! What came out of variables and files is in no text that leaves the service.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;

use anabranch_ops_http::testing::{Received, Reply};
use serde_json::Value;

use super::{Library, ONCE, database, embed, partition, pipeline};
use crate::process::Workspace;
use crate::servers::s3;

/// As the user has it in the URL, as the driver decodes it.
const PASSWORD: &str = "canary%40password%2Fof%20the%20db";
const PLAIN_PASSWORD: &str = "canary@password/of the db";
const ACCESS: &str = "CANARYACCESSKEY";
const TOKEN: &str = "canary-token-7f3a?>~";

/// Name and value of what is secret; the rest of the settings says where the servers are.
const CANARIES: &[(&str, &str)] = &[
    ("ACCESS_KEY_ID", ACCESS),
    ("SECRET_ACCESS_KEY", "canary/secret+access=key"),
    ("OBJSTORE_REGION", "canary-region-1"),
    ("EMBEDDING_MODEL", "canary-model"),
    ("DB_USER", "canary_user"),
    ("DB_NAME", "canary_database"),
    ("USER_ID", "c0ffee00-0000-4000-8000-canary000001"),
    ("COLLECTION_ID", "c0ffee00-0000-4000-8000-canary000002"),
    ("WORKSPACE_ID", "c0ffee00-0000-4000-8000-canary000003"),
    ("TOKEN", TOKEN),
    ("TOKEN_IN_URL", "canary%3Ftoken"),
];

/// The pipeline with a password from a file, a token in a header and a queue for what fails.
fn planted() -> String {
    pipeline()
        .replace("${DB_PASSWORD}", "${file:password}")
        .replace(
            "headers.content-type: application/json",
            "headers.content-type: application/json\n          headers.authorization: Bearer ${TOKEN}",
        )
        .replace("http://${OLLAMA_ADDRESS}", "http://someone:${TOKEN_IN_URL}@${OLLAMA_ADDRESS}")
        .replace("backoffRetry.count: \"5\"", "backoffRetry.count: \"1\"\n          backoffRetry.min: 1ms")
        + "    dead-letter-queue: { plugin: file, settings: { path: dlq.ndjson }, window-size: 0 }\n"
}

fn plant(library: &mut Library) {
    for (name, value) in CANARIES {
        library.workspace.env(name, value);
    }
    library.workspace.env("ANABRANCH_PIPELINES_ERROR_RECOVERY_MAX_RETRIES", "2");
    library.workspace.env("ANABRANCH_LOG_LEVEL", "trace");
    library.workspace.write("password", PASSWORD);
}

/// No canary and no part of one, in plain text, percent-encoded, or in base64 at any offset.
#[track_caller]
fn assert_clean(what: &str, text: &str) {
    let lower = text.to_ascii_lowercase();
    for trace in ["canary", "%63%61%6e%61%72%79"] {
        if let Some(at) = lower.find(trace) {
            panic!(
                "{what}: {:?}",
                &text[text.floor_char_boundary(at.saturating_sub(200))
                    ..text.ceil_char_boundary((at + 100).min(text.len()))]
            );
        }
    }
    for (name, value) in
        CANARIES.iter().chain(&[("password", PASSWORD), ("password", PLAIN_PASSWORD), ("in the URL", "canary?token")])
    {
        for offset in 0..3 {
            let encoded = base64(&[&b"\0\0"[..offset], value.as_bytes()].concat());
            // Characters that no other text decides.
            let piece = &encoded[4..((offset + value.len()) * 8 / 6).min(16)];
            assert!(!text.contains(piece), "{what}: {name} in base64: {text}");
        }
    }
}

/// RFC 4648, without padding: the test's own, so that it does not share an error with what it tests.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits: String = bytes.iter().fold(String::new(), |mut bits, byte| {
        let _ = write!(bits, "{byte:08b}");
        bits
    });
    let digits = bits.as_bytes().chunks(6).map(|six| {
        let six = format!("{:0<6}", str::from_utf8(six).unwrap());
        char::from(ALPHABET[usize::from_str_radix(&six, 2).unwrap()])
    });
    digits.collect()
}

/// Everything that the service wrote into its directory.
#[track_caller]
fn assert_clean_files(workspace: &Workspace) {
    let mut directories = vec![workspace.root().to_owned()];
    let mut seen = 0;
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let own = [workspace.path("password"), workspace.path("broken.yaml")];
            match path.is_dir() {
                true => directories.push(path),
                false if own.contains(&path) || path.parent() == Some(Path::new(&workspace.path("pipelines"))) => {}
                false => {
                    seen += 1;
                    let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
                    match path.ends_with("dlq.ndjson") {
                        true => assert_clean_letters(&text),
                        false => assert_clean(&path.display().to_string(), &text),
                    }
                }
            }
        }
    }
    assert!(seen > 0, "nothing was written");
}

/// The metadata of letters; their payload is the user's data.
#[track_caller]
fn assert_clean_letters(text: &str) {
    for line in text.lines() {
        let letter: Value = serde_json::from_str(line).unwrap();
        assert_clean("a letter", &letter["metadata"].to_string());
    }
}

/// Says what it was told, in every way in which servers do.
fn telling(request: &Received) -> Reply {
    let authorization = request.header("authorization").unwrap_or("none");
    let text = format!(
        "{} {} {authorization} {} {:?} {}",
        request.method,
        request.path,
        base64(format!("u:{authorization}").as_bytes()),
        request.headers,
        request.text(),
    );
    Reply::status(500, text)
}

/// A PostgreSQL server that refuses everybody and quotes what it was asked, in every way in which drivers do.
fn refusing_database() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = refuse(stream);
        }
    });
    address
}

fn refuse(mut stream: TcpStream) -> std::io::Result<()> {
    let message = |stream: &mut TcpStream| -> std::io::Result<Vec<u8>> {
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let mut body = vec![0; u32::from_be_bytes(length) as usize - 4];
        stream.read_exact(&mut body)?;
        Ok(body)
    };
    let mut start = message(&mut stream)?;
    while start.starts_with(&[4, 210, 22, 47]) {
        // A request for TLS.
        stream.write_all(b"N")?;
        start = message(&mut stream)?;
    }
    let asked = String::from_utf8_lossy(&start).replace('\0', " ");
    let encoded = base64(format!("canary_user:{PLAIN_PASSWORD}").as_bytes());
    let said = format!(
        "no entry for {asked}: postgresql://canary_user:{PASSWORD}@host/canary_database, {PLAIN_PASSWORD:?}, {encoded}"
    );
    let fields = format!("SFATAL\0VFATAL\0C28P01\0M{said}\0D{said}\0H{said}\0\0");
    let length = u32::try_from(fields.len() + 4).unwrap();
    stream.write_all(&[b"E", &length.to_be_bytes()[..], fields.as_bytes()].concat())
}

/// Runs every command on the pipeline that shows something of it.
fn show(workspace: &Workspace) {
    for arguments in [
        &["config"][..],
        &["config", "--json"],
        &["pipelines", "list"],
        &["pipelines", "list", "--json"],
        &["pipelines", "validate", "--preview.pipeline-arch-v2"],
        &["pipelines", "lint", "--preview.pipeline-arch-v2"],
        &["pipelines", "plan", "documents-to-vectors", "--preview.pipeline-arch-v2"],
        &["pipelines", "plan", "documents-to-vectors", "--preview.pipeline-arch-v2", "--format", "json"],
        &["pipelines", "plan", "documents-to-vectors", "--preview.pipeline-arch-v2", "--format", "svg"],
        &["pipelines", "plan", "documents-to-vectors", "--preview.pipeline-arch-v2", "--format", "html"],
        &["pipelines", "plan", "documents-to-vectors", "--preview.pipeline-arch-v2", "--format", "mermaid"],
        &["pipelines", "plan", "documents-to-vectors", "--preview.pipeline-arch-v2", "--format", "dot"],
        &["pipelines", "dry-run", "documents-to-vectors", "--preview.pipeline-arch-v2", "--timeout", "5s"],
    ] {
        let output = workspace.run(arguments);
        assert!(!output.both().is_empty(), "{arguments:?}");
        // A dry run shows records, which are the user's data.
        let records = arguments.contains(&"dry-run");
        let in_records =
            CANARIES.iter().filter(|(name, _)| records && name.ends_with("_ID") && *name != "ACCESS_KEY_ID");
        let text = in_records.fold(output.both(), |text, (_, value)| text.replace(value, ""));
        assert_clean(&arguments.join(" "), &text);
    }
}

#[test]
fn canaries_are_nowhere() {
    let Some(db) = database() else { return };
    db.query("CREATE ROLE canary_user SUPERUSER LOGIN");
    let name = db.query("SELECT current_database()").remove(0);
    db.server.query(&format!("CREATE DATABASE canary_database TEMPLATE {name}"));
    let start = |partition: fn(&Received) -> Reply, embed: fn(&Received) -> Reply| {
        let mut library = Library::new(&planted(), &db.url(), partition, embed);
        plant(&mut library);
        for n in 0..3 {
            library.add(&format!("papers/{n}.pdf"), 2, false);
        }
        library
    };
    let embed_canary: fn(&Received) -> Reply = |request| {
        let mut request = request.clone();
        request.body = request.text().replace("canary-model", "all-minilm").into_bytes();
        embed(&request)
    };
    let said = |library: &Library, code: i32, expected: &str| {
        let output = library.workspace.run(ONCE).expect_code(code);
        assert_clean("the log", &output.both());
        let letters = library.workspace.read("dlq.ndjson");
        let all = output.both() + &letters;
        assert!(all.contains(expected) && all.contains("***"), "{expected} is not in {all}");
        assert_clean_files(&library.workspace);
    };

    // The database refuses.
    let mut library = start(partition, embed_canary);
    library.workspace.env("DB_ADDRESS", &refusing_database().to_string());
    said(&library, 1, "no entry for");
    show(&library.workspace);
    // A service refuses, once for each of the two.
    said(&start(telling, embed_canary), 0, "answered 500");
    said(&start(partition, telling), 0, "answered 500");
    // The object store refuses, and says to whom.
    let library = start(partition, embed_canary);
    library.objects.fail(|_| Some(s3::Fault::Refuse(403, ACCESS)));
    said(&library, 1, "cannot list bucket");
    // A script fails with what a variable put into it, and does not even compile with it.
    let library = start(partition, embed_canary);
    let failing =
        planted().replace("rec.Metadata.file_id = crypto.randomUUID();", "throw new Error(\"for ${USER_ID}\");");
    library.workspace.write("pipelines/documents.yaml", &failing);
    said(&library, 0, "for ***");
    let broken = failing.replace("\"for ${USER_ID}\"", "${TOKEN} for");
    library.workspace.write("pipelines/documents.yaml", &broken);
    let output = library.workspace.run(ONCE).expect_code(2);
    assert_clean("a finding", &output.both());
    show_broken(&library.workspace);
}

/// The commands that look at a pipeline that cannot run.
fn show_broken(workspace: &Workspace) {
    for command in ["validate", "lint", "plan", "dry-run"] {
        let output =
            workspace.command(["pipelines", command, "--preview.pipeline-arch-v2"]).stdout(Stdio::piped()).output();
        let output = output.unwrap();
        assert_clean(command, &String::from_utf8_lossy(&[output.stdout, output.stderr].concat()));
    }
}
