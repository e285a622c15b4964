//! `field.hash`: replaces a value with its hash.

use std::sync::Arc;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{Flow, Kinds, Type};
use anabranch_plugin::kind;
use anabranch_plugin::operator::{Decision, InlineOperator, OperatorContext, OperatorKind, Rows, Signature};
use anabranch_plugin::parameters::{Argument, Choice, Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::reference::Reference;
use anabranch_record::text::{Str, push_hexadecimal};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use twox_hash::XxHash3_64;

use super::scalar_text::scalar_text;
use crate::codes;

/// Returns the `field.hash` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    kind::inline::<Hash>()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    Sha256,
    HmacSha256,
    Xxh3,
}

impl Choice for Algorithm {
    const CHOICES: &'static [(&'static str, Self)] =
        &[("sha256", Algorithm::Sha256), ("hmac-sha256", Algorithm::HmacSha256), ("xxh3", Algorithm::Xxh3)];
}

#[derive(Parameters)]
struct Settings {
    /// The field to hash, such as .Payload.After.email.
    #[parameter(within = [".Key", ".Payload"])]
    field: Argument<Reference>,
    /// The hash: sha256, hmac-sha256 (with `key`), or xxh3 (64 bits, fast, and not for secrets).
    #[parameter(default = "sha256")]
    algorithm: Argument<Algorithm>,
    /// Key of hmac-sha256.
    #[parameter(secret)]
    key: Option<Argument<Str>>,
}

/// A configured hash.
#[derive(Clone)]
enum Hasher {
    Sha256,
    HmacSha256(Hmac<Sha256>),
    Xxh3,
}

#[derive(Clone)]
struct Hash {
    field: Reference,
    hasher: Hasher,
    /// The digits of a hash; reused.
    digits: String,
}

impl InlineOperator for Hash {
    type Parameters = Settings;

    fn specification() -> Specification {
        Specification::builtin("field.hash", "Replaces a value with its hash.")
            .describe(
                "Replaces a value with its hash in hexadecimal digits, so that equal values stay equal. Numbers, booleans and \
                 times are hashed as texts. A field that is missing or null stays as it is; a list or a map fails the \
                 record.\n\nAnyone can hash values that can be guessed, such as e-mail addresses or telephone numbers, and \
                 compare: use `hmac-sha256` with a secret key for them.",
            )
            .with_all(shared::processor())
    }

    fn configure(settings: Settings) -> Result<Self, Diagnostics> {
        let algorithm = &settings.algorithm;
        let hasher = match (**algorithm, &settings.key) {
            (Algorithm::HmacSha256, Some(key)) if !key.is_empty() => match Hmac::new_from_slice(key.as_bytes()) {
                Ok(hmac) => Hasher::HmacSha256(hmac),
                Err(_) => return Err(key.invalid("the key cannot be used").into()),
            },
            (Algorithm::HmacSha256, _) => {
                return Err(algorithm.finding(codes::SETTINGS_REQUIRED, "hmac-sha256 needs a key").into());
            }
            (Algorithm::Sha256 | Algorithm::Xxh3, Some(key)) => {
                return Err(key.invalid("a key is used with algorithm: hmac-sha256 only").into());
            }
            (Algorithm::Sha256, None) => Hasher::Sha256,
            (Algorithm::Xxh3, None) => Hasher::Xxh3,
        };
        Ok(Hash { field: settings.field.one_side()?, hasher, digits: String::new() })
    }

    fn signature(&self) -> Signature {
        Signature::new().reads(self.field.access()).writes(self.field.access())
    }

    fn flow(&self, flow: &mut Flow) {
        let wanted = Kinds::ANY.without(Kinds::LIST | Kinds::MAP);
        flow.need(codes::FLOW_NOT_A_TEXT, "field", &self.field, (wanted, "a single value"), true);
        flow.replace("field", &self.field, Type::of(Kinds::TEXT));
    }

    fn process(&mut self, rows: &mut Rows<'_>, _: &OperatorContext) {
        rows.for_each(|record| {
            if let Some(bytes) = scalar_text(&self.field, record, ("hash", codes::HASH_UNEXPECTED_TYPE))? {
                self.digits.clear();
                self.hasher.hash(&bytes, &mut self.digits);
                self.field.set_text(record, &self.digits)?;
            }
            Ok(Decision::Keep)
        });
    }
}

impl Hasher {
    /// Appends the hash of bytes in hexadecimal digits.
    fn hash(&self, bytes: &[u8], digits: &mut String) {
        match self {
            Hasher::Sha256 => push_hexadecimal(&Sha256::digest(bytes), digits),
            Hasher::HmacSha256(hmac) => {
                push_hexadecimal(&hmac.clone().chain_update(bytes).finalize().into_bytes(), digits);
            }
            Hasher::Xxh3 => push_hexadecimal(&XxHash3_64::oneshot(bytes).to_be_bytes(), digits),
        }
    }
}

#[cfg(test)]
mod tests {
    use anabranch_record::Data;

    use super::*;
    use crate::testing::{self, findings, outcome};

    fn hash(settings: &[(&str, &str)], value: &str) -> Result<String, String> {
        let settings: Vec<_> = [("field", ".Key.a")].iter().chain(settings).copied().collect();
        outcome(&kind(), &settings, &format!(r#"{{"operation":"create","key":{{"a":{value}}}}}"#)).map(|record| {
            let record: serde_json::Value = serde_json::from_str(&record).unwrap();
            record["key"]["a"].as_str().unwrap_or_default().to_owned()
        })
    }

    #[test]
    fn hashes_are_those_of_others() {
        // FIPS 180-4; RFC 4231, test case 2; the reference implementation of XXH3.
        let sha = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hash(&[], "\"abc\"").as_deref(), Ok(sha));
        let hmac = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        let keyed = [("algorithm", "hmac-sha256"), ("key", "Jefe")];
        assert_eq!(hash(&keyed, "\"what do ya want for nothing?\"").as_deref(), Ok(hmac));
        assert_eq!(hash(&[("algorithm", "xxh3")], "\"\"").as_deref(), Ok("2d06800538d394c2"));
    }

    #[test]
    fn single_values_are_hashed_as_texts() {
        assert_eq!(hash(&[], "17"), hash(&[], "\"17\""));
        assert_eq!(hash(&[], "true"), hash(&[], "\"true\""));
        assert_eq!(hash(&[], "null").as_deref(), Ok(""), "null stays");
        let said = hash(&[], "{}").unwrap_err();
        assert!(said.starts_with("hash_unexpected_type: cannot hash .Key.a: it is a"), "{said}");
        testing::failed_rows_stay(&kind(), &[("field", ".Payload.After.a")]);
    }

    #[test]
    fn shapes_are_large_enough() {
        for field in [".Payload.After.a", ".Payload.After", ".Key.a.b"] {
            testing::shapes_are_large_enough(&kind(), &[("field", field), ("algorithm", "xxh3")]);
        }
    }

    #[test]
    fn a_whole_payload_becomes_its_hash() {
        let mut record = testing::record(r#"{"operation":"create"}"#);
        record.payload.after = Data::text("");
        let settings = [("field", ".Payload.After"), ("algorithm", "xxh3")];
        let (hashed, _) = testing::process(&kind(), &settings, &record);
        assert_eq!(hashed.payload.after, Data::text("2d06800538d394c2"));
    }

    #[test]
    fn a_key_belongs_to_its_algorithm() {
        let found =
            |settings: &[(&str, &str)]| findings(&kind(), &[&[("field", ".Key")], settings].concat()).join("; ");
        assert!(found(&[("algorithm", "hmac-sha256")]).contains("hmac-sha256 needs a key"));
        assert!(found(&[("algorithm", "hmac-sha256"), ("key", "")]).contains("hmac-sha256 needs a key"));
        assert!(found(&[("key", "hunter2")]).contains("a key is used with algorithm: hmac-sha256 only"));
        assert!(!found(&[("key", "hunter2")]).contains("hunter2"));
    }
}
