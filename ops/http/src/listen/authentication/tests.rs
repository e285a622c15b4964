use super::*;

const NOW: u64 = 1_764_329_461;

fn headers(entries: &[(&'static str, &str)]) -> HeaderMap {
    let entry =
        |(name, value): &(&'static str, &str)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
    entries.iter().map(entry).collect()
}

fn key(secret: &str) -> Hmac<Sha256> {
    Hmac::new_from_slice(secret.as_bytes()).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn stripe(secret: &str, time: &str, body: &[u8]) -> String {
    let signature = key(secret).chain_update(time).chain_update(".").chain_update(body).finalize().into_bytes();
    format!("t={time},v0=00,v1={}", hex(&signature))
}

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

#[test]
fn the_signature_in_the_documentation_of_github_is_accepted() {
    let secret = Authentication::GitHub(vec![key("other"), key("It's a Secret to Everybody")]);
    let signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    let signed = headers(&[(GITHUB, signature)]);
    let check = |headers: &HeaderMap, body: &[u8]| {
        secret.check_head(headers).and_then(|()| secret.check_body(headers, body, at(NOW)))
    };
    assert_eq!(check(&signed, b"Hello, World!"), Ok(()));
    assert_eq!(check(&signed, b"Hello, World"), Err(Denied::WrongSignature(GITHUB)));
    for other in ["", "sha256=", "sha256=7571", &signature[7..], &signature.replace('7', "g"), "sha1=00"] {
        assert_eq!(check(&headers(&[(GITHUB, other)]), b"Hello, World!"), Err(Denied::NoSignature(GITHUB)), "{other}");
    }
    assert_eq!(check(&HeaderMap::new(), b"Hello, World!"), Err(Denied::NoSignature(GITHUB)));
}

#[test]
fn a_signature_of_stripe_has_a_time() {
    let stripe_of = Authentication::Stripe(vec![key("a"), key("b")], Duration::from_secs(300));
    let check = |header: &str, body: &[u8], now: u64| {
        let headers = headers(&[(STRIPE, header)]);
        stripe_of.check_head(&headers).and_then(|()| stripe_of.check_body(&headers, body, at(now)))
    };
    let time = NOW.to_string();
    let signed = stripe("b", &time, b"{}");
    for now in [NOW, NOW - 300, NOW + 300] {
        assert_eq!(check(&signed, b"{}", now), Ok(()));
    }
    assert_eq!(check(&signed, b"{}", NOW + 301), Err(Denied::Expired));
    assert_eq!(check(&signed, b"{}", NOW - 301), Err(Denied::Expired));
    assert_eq!(check(&signed, b"{ }", NOW), Err(Denied::WrongSignature(STRIPE)));
    // The time is a part of the signed text.
    let later = signed.replace(&time, &(NOW + 1).to_string());
    assert_eq!(check(&later, b"{}", NOW), Err(Denied::WrongSignature(STRIPE)));
    // While the secret changes, the header has a signature for each.
    assert_eq!(
        check(&format!("{},v1={}", stripe("old", &time, b"{}"), &signed[signed.len() - 64..]), b"{}", NOW),
        Ok(())
    );
    let long = "v1=00,".repeat(1000);
    for other in ["", "t=", "t=1", "v1=00", "t=1,v1=", "t=x,v1=00", &long, &signed.replace("t=", "t=+")] {
        assert_eq!(check(other, b"{}", NOW), Err(Denied::NoSignature(STRIPE)), "{other}");
    }
}

#[test]
fn a_token_is_accepted_as_a_whole() {
    let sum = |text: &str| Sha256::digest(text).into();
    let tokens = Authentication::Header { values: vec![sum("Bearer old"), sum("Bearer new")], scheme: "Bearer" };
    let check = |value: &str| tokens.check_head(&headers(&[("authorization", value)]));
    assert_eq!(check("Bearer new"), Ok(()));
    assert_eq!(check("bearer old"), Ok(()));
    for other in ["", "Bear", "Bearer", "Bearer ", "Bearer ne", "Bearer newx", "Basic new", "new", "Bearer  new"] {
        assert_eq!(check(other), Err(Denied::Credentials("Bearer")), "{other}");
    }
    assert_eq!(tokens.check_head(&HeaderMap::new()), Err(Denied::Credentials("Bearer")));
}
