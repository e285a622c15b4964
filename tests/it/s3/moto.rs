//! Against moto, which others wrote: the protocol as AWS's own clients know it.
//!
//! Whether a bucket keeps versions is set here: moto's answer to that question has another shape than Amazon's.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};

use super::{RUN, bucket_to_file, changes, workspace};
use crate::process::{PATIENCE, skip};

const USER: &str = "Authorization: AWS4-HMAC-SHA256 \
    Credential=AKIAEXAMPLE/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0\r\n";

struct Moto {
    child: Child,
    port: u16,
    /// Who signed its certificate; `None` = it speaks plain HTTP.
    authority: Option<PathBuf>,
}

impl Moto {
    fn start() -> Option<Moto> {
        Moto::start_with(None)
    }

    /// Over TLS, with a certificate that an authority of its own made in `directory` signed.
    fn start_certified(directory: &Path) -> Option<Moto> {
        let openssl = |line: &str| {
            let made = Command::new("openssl").args(line.split(' ')).current_dir(directory).output();
            made.is_ok_and(|made| made.status.success())
        };
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        std::fs::write(directory.join("names"), "subjectAltName=DNS:localhost").unwrap();
        let made = openssl(&format!("req -x509 {key} -keyout ca.key -out ca.crt -days 2 -subj /CN=authority"))
            && openssl(&format!("req {key} -keyout server.key -out server.csr -subj /CN=localhost"))
            && openssl(
                "x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile names \
                 -out server.crt",
            );
        if !made {
            skip("openssl is missing");
            return None;
        }
        Moto::start_with(Some(directory))
    }

    fn start_with(certified: Option<&Path>) -> Option<Moto> {
        let local = concat!(env!("CARGO_MANIFEST_DIR"), "/target/moto/bin/moto_server");
        let program = if std::path::Path::new(local).exists() { local } else { "moto_server" };
        let mut command = Command::new(program);
        // It takes a free port, and says which.
        command.args(["-H", "127.0.0.1", "-p", "0"]);
        if let Some(directory) = certified {
            command.arg("--ssl-cert").arg(directory.join("server.crt"));
            command.arg("--ssl-key").arg(directory.join("server.key"));
        }
        let started = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let Ok(mut child) = started else {
            skip("moto_server is missing: pip install 'moto[server]'");
            return None;
        };
        let said = child.stderr.take().unwrap();
        let mut moto = Moto { child, port: 0, authority: certified.map(|directory| directory.join("ca.crt")) };
        let (tell, told) = channel();
        // To its end: a server that nobody listens to would stop at a full pipe.
        std::thread::spawn(move || {
            for line in BufReader::new(said).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line);
                let address = line.split_once("Running on ").map(|(_, address)| address.trim());
                let port = address.and_then(|address| address.rsplit_once(':')?.1.parse::<u16>().ok());
                if let Some(port) = port {
                    let _ = tell.send(port);
                }
            }
        });
        moto.port = match told.recv_timeout(PATIENCE) {
            Ok(port) => port,
            Err(RecvTimeoutError::Disconnected) => {
                skip("moto_server does not start");
                return None;
            }
            Err(RecvTimeoutError::Timeout) => panic!("moto_server does not listen"),
        };
        Some(moto)
    }

    /// A request of a user whose signature moto does not check.
    fn request(&self, method: &str, path: &str, headers: &str, body: &str) {
        let (length, port) = (body.len(), self.port);
        let request = format!(
            "{method} {path} HTTP/1.0\r\nHost: localhost:{port}\r\n{USER}Content-Length: {length}\r\n{headers}\r\n{body}"
        );
        let answer = match &self.authority {
            None => {
                let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
                stream.write_all(request.as_bytes()).unwrap();
                read_all(stream)
            }
            Some(authority) => {
                let mut client = Command::new("openssl")
                    .args(["s_client", "-quiet", "-verify_return_error", "-connect", &format!("localhost:{port}")])
                    .arg("-CAfile")
                    .arg(authority)
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::null())
                    .spawn()
                    .unwrap();
                let mut stdin = client.stdin.take().unwrap();
                stdin.write_all(request.as_bytes()).unwrap();
                let answer = read_all(client.stdout.take().unwrap());
                client.wait().unwrap();
                answer
            }
        };
        let status = answer.split_whitespace().nth(1).unwrap_or_default();
        assert!(status.starts_with('2'), "{method} {path}: {answer}");
    }

    fn endpoint(&self) -> String {
        match self.authority {
            None => format!("http://127.0.0.1:{}", self.port),
            Some(_) => format!("https://localhost:{}", self.port),
        }
    }
}

fn read_all(mut stream: impl Read) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_versioned_bucket_of_moto_is_read_version_by_version() {
    let Some(moto) = Moto::start() else { return };
    moto.request("PUT", "/shelf", "", "");
    moto.request(
        "PUT",
        "/shelf?versioning",
        "",
        "<VersioningConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Status>Enabled</Status></VersioningConfiguration>",
    );
    moto.request("PUT", "/shelf/a%20b%2Bc", "x-amz-meta-title: On rivers\r\n", "one");
    moto.request("PUT", "/shelf/empty", "", "");
    let workspace = workspace(&moto.endpoint(), &bucket_to_file("shelf", "          versions: \"on\""));
    let mut process = workspace.start(RUN);
    process.wait_until("the snapshot", || workspace.lines("out.ndjson").len() == 2);
    assert_eq!(changes(&workspace), ["snapshot a b+c=one", "snapshot empty="]);
    let first = workspace.lines("out.ndjson").remove(0);
    assert!(first.contains(r#""title":"On rivers""#) && first.contains("s3.versionId"), "{first}");
    // Within one second or over several: version by version all the same.
    moto.request("PUT", "/shelf/a%20b%2Bc", "", "two");
    moto.request("PUT", "/shelf/a%20b%2Bc", "", "three");
    moto.request("DELETE", "/shelf/empty", "", "");
    process.wait_until("the changes", || workspace.lines("out.ndjson").len() == 5);
    process.signal("TERM");
    process.finish().expect_code(0);
    let mut found = changes(&workspace)[2..].to_vec();
    found.sort();
    assert_eq!(found, ["delete empty=-", "update a b+c=three", "update a b+c=two"]);
    workspace.once();
    assert_eq!(changes(&workspace).len(), 5);
}

#[test]
fn a_server_is_trusted_that_an_authority_of_the_environment_vouches_for() {
    let mut workspace = workspace("", &bucket_to_file("shelf", ""));
    let Some(moto) = Moto::start_certified(workspace.root()) else { return };
    moto.request("PUT", "/shelf", "", "");
    moto.request("PUT", "/shelf/doc", "", "text");
    workspace.env("OBJECT_STORE", &moto.endpoint());
    let once = ["run", "--once", "--preview.pipeline-arch-v2", "--pipelines.error-recovery.max-retries=0"];
    let text = workspace.run(&once).expect_code(1).both();
    assert!(text.contains("not signed by a trusted authority"), "{text}");
    let authority = workspace.path("ca.crt");
    workspace.env("SSL_CERT_FILE", authority.to_str().unwrap());
    workspace.write("pipelines/s3.yaml", bucket_to_file("shelf", "          versions: \"off\""));
    workspace.once();
    assert_eq!(changes(&workspace), ["snapshot doc=text"]);
}

#[test]
fn an_answer_that_means_nothing_is_not_asked_for_again() {
    let Some(moto) = Moto::start() else { return };
    moto.request("PUT", "/shelf", "", "");
    let workspace = workspace(&moto.endpoint(), &bucket_to_file("shelf", ""));
    // Its answer to the question for versions has a shape of its own.
    let output = workspace.run(&["run", "--once", "--preview.pipeline-arch-v2"]).expect_code(1);
    let text = output.both();
    assert!(text.contains("to avoid this request, set versions: on or off"), "{text}");
    assert!(!text.contains("restarts in"), "{text}");
}

#[test]
fn a_plain_bucket_of_moto_is_read_and_written() {
    let Some(moto) = Moto::start() else { return };
    moto.request("PUT", "/shelf", "", "");
    for n in 0..5 {
        moto.request("PUT", &format!("/shelf/in/{n}"), "", &format!("text {n}"));
    }
    let pipeline = bucket_to_file("shelf", "          prefix: in/\n          versions: \"off\"")
        + r#"      - id: back
        type: destination
        plugin: s3
        settings:
          objstore.access_key_id: ${ACCESS_KEY_ID}
          objstore.secret_access_key: ${SECRET_ACCESS_KEY}
          objstore.region: eu-central-1
          objstore.bucket: shelf
          objstore.endpoint: ${OBJECT_STORE}
          prefix: out/
          compression: gzip
          sdk.batch.delay: 10m
"#;
    let workspace = workspace(&moto.endpoint(), &pipeline);
    workspace.once();
    assert_eq!(changes(&workspace), (0..5).map(|n| format!("snapshot in/{n}=text {n}")).collect::<Vec<_>>());
    // Readers find the written object.
    workspace.write(
        "pipelines/s3.yaml",
        bucket_to_file("shelf", "          prefix: out/\n          versions: \"off\"").replace("id: read", "id: again"),
    );
    workspace.write("out.ndjson", "");
    workspace.once();
    let written = changes_keys(&workspace.lines("out.ndjson"));
    assert_eq!(written.len(), 1, "{written:?}");
    assert!(written[0].ends_with(".ndjson.gz"));
}

fn changes_keys(lines: &[String]) -> Vec<String> {
    let key = |line: &String| {
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        let text = record["key"].to_string();
        crate::process::raw_after(&format!("{{\"payload\":{{\"after\":{text}}}}}"))
    };
    lines.iter().map(key).collect()
}
