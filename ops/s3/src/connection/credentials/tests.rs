use std::collections::BTreeMap;
use std::fs;
use std::sync::Mutex;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

fn environment(variables: &[(&str, &str)]) -> Environment {
    let variables: BTreeMap<String, String> =
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Environment(Arc::new(move |name| variables.get(name).cloned()))
}

async fn found(variables: &[(&str, &str)], profile: Option<&str>) -> Result<String, String> {
    let chain = Chain::new(environment(variables), profile.map(Str::from));
    match chain.provide_credentials().await {
        Ok(keys) => {
            let token = keys.session_token().unwrap_or("-");
            Ok(format!("{} {} {token}", keys.access_key_id(), keys.secret_access_key()))
        }
        Err(error) => Err(std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string)),
    }
}

#[tokio::test]
async fn the_environment_comes_first_and_a_profile_that_was_asked_for_before_it() {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join(".aws")).unwrap();
    fs::write(
        home.path().join(".aws/credentials"),
        "[default]\naws_access_key_id = D\naws_secret_access_key=d\n\n[work]\naws_access_key_id = W # key\naws_secret_access_key = w=/+\naws_session_token = t\n",
    )
    .unwrap();
    fs::write(
        home.path().join(".aws/config"),
        "[default]\nregion = eu-west-1\n[profile work]\nregion=ap-south-1\ns3 =\n  max_concurrent_requests = 20\n[profile sso]\nsso_session = x\n",
    )
    .unwrap();
    let home = home.path().to_str().unwrap();
    let keys = [("HOME", home), ("AWS_ACCESS_KEY_ID", "E"), ("AWS_SECRET_ACCESS_KEY", "e")];
    assert_eq!(found(&keys, None).await, Ok("E e -".to_owned()));
    assert_eq!(found(&keys, Some("work")).await, Ok("W w=/+ t".to_owned()));
    assert_eq!(found(&keys[..1], None).await, Ok("D d -".to_owned()));
    let named = [keys[0], ("AWS_PROFILE", "work")];
    assert_eq!(found(&named, None).await, Ok("W w=/+ t".to_owned()));
    let missing = found(&keys, Some("nobody")).await.unwrap_err();
    assert!(missing.contains("contain no profile nobody"), "{missing}");
    let sso = found(&keys, Some("sso")).await.unwrap_err();
    assert!(sso.contains("sso_session"), "{sso}");
    assert_eq!(Chain::new(environment(&named), None).region().await.as_deref(), Some("ap-south-1"));
    let chosen = [keys[0], ("AWS_REGION", "us-west-2")];
    assert_eq!(Chain::new(environment(&chosen), None).region().await.as_deref(), Some("us-west-2"));
}

/// Answers requests with what the paths stand for, and notes them.
async fn service(answers: &'static [(&'static str, &'static str)]) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = seen.clone();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = listener.into_std().unwrap();
            let listener = TcpListener::from_std(listener).unwrap();
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = vec![0; 4096];
                let length = stream.read(&mut request).await.unwrap();
                let request = String::from_utf8(request[..length].to_vec()).unwrap();
                let path = request.split_whitespace().nth(1).unwrap().to_owned();
                let answer = answers.iter().find(|(known, _)| *known == path);
                let (status, body) = answer.map_or(("404 x", ""), |(_, body)| ("200 OK", *body));
                noted.lock().unwrap().push(request);
                stream.write_all(format!("HTTP/1.0 {status}\r\n\r\n{body}").as_bytes()).await.unwrap();
            }
        });
    });
    (address, seen)
}

const KEYS: &str =
    r#"{"AccessKeyId":"T","SecretAccessKey":"s","Token":"t","Expiration":"2038-01-01T00:00:00Z","Code":"Success"}"#;

#[tokio::test]
async fn a_container_is_asked_with_its_token() {
    let (address, seen) = service(&[("/keys", KEYS)]).await;
    let url = format!("{address}/keys");
    let variables =
        [("AWS_CONTAINER_CREDENTIALS_FULL_URI", url.as_str()), ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "Basic abc")];
    assert_eq!(found(&variables, None).await, Ok("T s t".to_owned()));
    assert!(seen.lock().unwrap()[0].contains("Authorization: Basic abc\r\n"));
    let broken = [variables[0], ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "a\r\n\r\nGET /x")];
    assert!(found(&broken, None).await.is_err());
}

#[tokio::test]
async fn a_machine_is_asked_with_a_token_of_a_session() {
    let role = "/latest/meta-data/iam/security-credentials/";
    let (address, seen) = service(&[
        ("/latest/api/token", "session\n"),
        ("/latest/meta-data/iam/security-credentials/", "reader\n"),
        ("/latest/meta-data/iam/security-credentials/reader", KEYS),
    ])
    .await;
    let variables = [("AWS_EC2_METADATA_SERVICE_ENDPOINT", address.as_str())];
    assert_eq!(found(&variables, None).await, Ok("T s t".to_owned()));
    let seen = seen.lock().unwrap();
    assert!(seen[0].starts_with("PUT ") && seen[2].starts_with(&format!("GET {role}reader ")));
    assert!(seen[1].contains("X-aws-ec2-metadata-token: session\r\n"));
}

#[tokio::test]
async fn nothing_anywhere_is_an_error_that_says_where_to_put_keys() {
    let nowhere = [("AWS_EC2_METADATA_DISABLED", "true")];
    let error = found(&nowhere, None).await.unwrap_err();
    assert!(error.contains("objstore.access_key_id") && error.contains("AWS_ACCESS_KEY_ID"), "{error}");
}
