use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::parameters::declared;
use anabranch_plugin::settings::Settings;
use anabranch_plugin::specification::Specification;

use super::*;

fn parse(pairs: &[(&str, &str)]) -> Result<Connection, Vec<String>> {
    let specification = Specification::builtin("test", "For tests.").with_all(declared::<Options>());
    Arguments::parse(&specification, &Settings::from_pairs(pairs.iter().copied()))
        .and_then(|arguments| Connection::new(&arguments.read()?))
        .map_err(|findings| findings.into_iter().map(|finding| finding.message).collect())
}

#[test]
fn both_families_of_names_are_taken() {
    for [id, secret, region, bucket] in [
        ["objstore.access_key_id", "objstore.secret_access_key", "objstore.region", "objstore.bucket"],
        ["aws.accessKeyId", "aws.secretAccessKey", "aws.region", "aws.bucket"],
    ] {
        let connection = parse(&[(id, "a"), (secret, "s"), (region, "r"), (bucket, "b")]).ok().unwrap();
        assert_eq!(connection.bucket().as_str(), "b");
        assert_eq!(connection.keys.unwrap().secret_access_key(), "s");
        assert!(!connection.path_style);
    }
}

#[test]
fn half_a_pair_of_keys_is_refused_and_none_is_not() {
    assert!(parse(&[("objstore.bucket", "b")]).is_ok());
    assert_eq!(
        parse(&[("objstore.bucket", "b"), ("objstore.access_key_id", "a")]).err().unwrap(),
        [r#""objstore.access_key_id" needs objstore.secret_access_key"#]
    );
    assert_eq!(
        parse(&[("objstore.bucket", "b"), ("objstore.session_token", "t")]).err().unwrap(),
        [r#""objstore.session_token" needs objstore.access_key_id and objstore.secret_access_key"#]
    );
}

#[test]
fn credentials_are_secret() {
    let secret: Vec<Str> = parameters().into_iter().filter(|p| p.secret).map(|p| p.name).collect();
    assert_eq!(secret, [ACCESS_KEY, SECRET_KEY, TOKEN]);
}

#[tokio::test]
async fn a_server_of_ones_own_needs_no_region() {
    let connection = parse(&[("objstore.bucket", "b"), ("objstore.endpoint", "http://127.0.0.1:9/")]).ok().unwrap();
    assert!(connection.path_style);
    assert!(connection.open().await.is_ok());
}
