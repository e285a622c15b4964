use anabranch_plugin::testing::configured;

use super::*;

fn messages(settings: &[(&str, &str)]) -> Vec<String> {
    configured::source(&kind(), settings).err().unwrap_or_default()
}

#[test]
fn wrong_settings_are_found_before_anything_is_opened() {
    let with = |more: &[(&str, &str)]| messages(&[&[("address", "127.0.0.1:0")], more].concat());
    assert!(with(&[]).is_empty());
    assert_eq!(messages(&[("address", "8080")]), ["address: this is not an address with a port"]);
    for wrong in ["https://0.0.0.0:8080", "127.0.0.1:8080/hooks", "http://a:1"] {
        assert_eq!(messages(&[("address", wrong)]), ["address: this is not an address with a port"], "{wrong}");
    }
    assert_eq!(messages(&[("address", ":8080")]), ["address: this is not an address with a port"]);
    assert_eq!(with(&[("paths", "orders")]), ["paths: a path begins with /"]);
    assert_eq!(
        with(&[("headers", "x-event, Authorization")]),
        ["headers: authorization carries credentials, which never become metadata"]
    );
    for name in ["X-Hub-Signature", "X-Hub-Signature-256", "Stripe-Signature", "X-Gitlab-Token", "X-API-Key", "Cookie"]
    {
        assert_eq!(with(&[("headers", name)]).len(), 1, "{name}");
    }
    assert_eq!(
        with(&[("limits.bodyBytes", "40MiB")]),
        ["limits.bytes must be at least twice limits.bodyBytes, for a body and its decompressed form"]
    );
    assert_eq!(with(&[("tls.certificate", "a.crt")]), ["tls.key is required with tls.certificate"]);
    assert_eq!(
        with(&[("auth.bearer", "a"), ("auth.github", "b")]),
        ["auth.bearer and auth.github exclude each other: requests have one kind of credentials"]
    );
    assert_eq!(with(&[("auth.username", "a")]), ["auth.password is required with auth.username"]);
}

#[test]
fn a_blank_secret_opens_the_source_to_no_one() {
    for name in ["auth.bearer", "auth.github", "auth.stripe", "auth.password", "auth.username"] {
        for blank in ["", " ", ","] {
            assert!(!messages(&[("address", "127.0.0.1:0"), (name, blank)]).is_empty(), "{name}: {blank:?}");
        }
    }
}

#[test]
fn plan_warns_about_a_source_for_anyone() {
    let warned = |settings: &[(&str, &str)]| {
        let source = configured::source(&kind(), settings).unwrap();
        let mut flow = Flow::new(source.shape());
        source.flow(&mut flow);
        flow.into_parts().1.len()
    };
    for open in ["0.0.0.0:80", "[::]:80", "192.0.2.1:80"] {
        assert_eq!(warned(&[("address", open)]), 1, "{open}");
        assert_eq!(warned(&[("address", open), ("auth.bearer", "a")]), 0, "{open}");
    }
    for local in ["127.0.0.1:80", "[::1]:80", "localhost:80"] {
        assert_eq!(warned(&[("address", local)]), 0, "{local}");
    }
}

#[tokio::test]
async fn doctor_finds_an_address_that_is_not_free() {
    let examine =
        async |address: String| configured::source(&kind(), &[("address", &*address)]).unwrap().examine().await;
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let warnings = examine(other.local_addr().unwrap().to_string()).await.unwrap();
    assert!(warnings.len() == 1 && warnings[0].contains("is in use"), "{warnings:?}");
    assert!(examine("127.0.0.1:0".to_owned()).await.unwrap().is_empty());
    // An address for documentation, which no machine has.
    assert_eq!(examine("192.0.2.1:80".to_owned()).await.unwrap_err().code(), codes::HTTP_ADDRESS);
}

#[test]
fn only_accepted_records_may_be_lost() {
    let source = |respond| configured::source(&kind(), &[("address", "127.0.0.1:0"), ("respond", respond)]).unwrap();
    assert!(source("accepted").undelivered().is_lost());
    assert!(!source("delivered").undelivered().is_lost());
    assert_eq!(source("accepted").undelivered(), Undelivered::Lost(Some(0)));
    assert_eq!(source("delivered").undelivered(), Undelivered::SentAgain);
}
