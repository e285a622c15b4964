//! Compatibility between the schemas of a subject.

use anabranch_ops_avro::can_read;
use anabranch_plugin::schema::SchemaVersion;
use anabranch_record::text::Str;

use anabranch_settings::Compatibility;

/// Returns the versions that a new one is compared with.
pub(super) fn concerned<V>(level: Compatibility, mut versions: Vec<V>) -> Vec<V> {
    if !level.is_transitive() {
        versions.drain(..versions.len().saturating_sub(1));
    }
    versions
}

/// Returns the violations of a level: versions that the schema cannot read, or that cannot read its data. Empty if
/// there are none.
pub(super) fn misfits(level: Compatibility, text: &str, earlier: &[(SchemaVersion, Str)]) -> Vec<String> {
    let mut found = Vec::new();
    for (version, written) in earlier {
        if level.reads_earlier()
            && let Err(error) = can_read(written, text)
        {
            found.push(format!("the schema cannot read data of version {version}: {error}"));
        }
        if level.is_read_by_earlier()
            && let Err(error) = can_read(text, written)
        {
            found.push(format!("version {version} cannot read data of the schema: {error}"));
        }
    }
    found
}

/// Removes white space between tokens: schemas that differ only in it are equal.
pub(super) fn compact(text: &str) -> String {
    let mut quoted = false;
    let mut escaped = false;
    let kept = |c: &char| {
        if quoted {
            let ends = *c == '"' && !escaped;
            escaped = *c == '\\' && !escaped;
            quoted = !ends;
            return true;
        }
        quoted = *c == '"';
        !c.is_ascii_whitespace()
    };
    text.chars().filter(kept).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_outside_of_strings_does_not_count() {
        let text = "{ \"name\" : \"a b\",\n\t\"doc\": \"say \\\"x y\\\" \\\\\" , \"n\" : 1 }\r\n";
        assert_eq!(compact(text), "{\"name\":\"a b\",\"doc\":\"say \\\"x y\\\" \\\\\",\"n\":1}");
        assert_eq!(compact(" \"string\" "), "\"string\"");
    }

    fn record(fields: &str) -> String {
        format!(r#"{{"type":"record","name":"r","fields":[{fields}]}}"#)
    }

    const A: &str = r#"{"name":"a","type":"int"}"#;
    const B: &str = r#"{"name":"b","type":"int"}"#;
    const B_OR_NOT: &str = r#"{"name":"b","type":["null","int"],"default":null}"#;
    const A_LONG: &str = r#"{"name":"a","type":"long"}"#;

    /// Returns `true` if the second may follow the first.
    fn follows(level: Compatibility, first: &str, second: &str) -> bool {
        misfits(level, second, &[(SchemaVersion::FIRST, first.into())]).is_empty()
    }

    #[test]
    fn each_level_allows_what_its_readers_can_read() {
        use Compatibility::{Backward, Forward, Full, None};
        let (a, ab, ab_or_not, long) =
            (record(A), record(&format!("{A},{B}")), record(&format!("{A},{B_OR_NOT}")), record(A_LONG));
        // First, second, and whether it may follow: backward, forward, full.
        let cases = [
            (&a, &ab, [false, true, false]),
            (&ab, &a, [true, false, false]),
            (&a, &ab_or_not, [true, true, true]),
            (&ab_or_not, &a, [true, true, true]),
            (&a, &long, [true, false, false]),
            (&long, &a, [false, true, false]),
            (&"\"string\"".to_owned(), &a, [false, false, false]),
            (&r#"["int","string"]"#.to_owned(), &"\"int\"".to_owned(), [false, true, false]),
        ];
        for (first, second, expected) in cases {
            let found = [Backward, Forward, Full].map(|level| follows(level, first, second));
            assert_eq!(found, expected, "{first} then {second}");
            assert!(follows(None, first, second));
        }
    }

    #[test]
    fn only_a_transitive_level_looks_further_back() {
        let versions: Vec<_> = (1..=3).filter_map(SchemaVersion::new).collect();
        assert_eq!(concerned(Compatibility::Backward, versions.clone()), versions[2..]);
        assert_eq!(concerned(Compatibility::FullTransitive, versions.clone()), versions);
        assert_eq!(concerned::<SchemaVersion>(Compatibility::Full, Vec::new()), []);
    }
}
