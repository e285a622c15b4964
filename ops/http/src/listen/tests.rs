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
    assert_eq!(messages(&[("address", ":8080")]), ["address: this is not an address with a port"]);
    assert_eq!(with(&[("paths", "orders")]), ["paths: a path begins with /"]);
    assert_eq!(
        with(&[("headers", "x-event, Authorization")]),
        ["headers: authorization carries credentials, which never become metadata"]
    );
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
fn only_accepted_records_may_be_lost() {
    let source = |respond| configured::source(&kind(), &[("address", "127.0.0.1:0"), ("respond", respond)]).unwrap();
    assert!(source("accepted").confirms_early());
    assert!(!source("delivered").confirms_early());
}
