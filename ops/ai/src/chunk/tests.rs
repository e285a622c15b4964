use proptest::prelude::*;
use unicode_segmentation::UnicodeSegmentation;

use super::*;
use crate::testing::{configured, findings, inline, record, text as json};

fn chunks(cut: Cut, text: &str, size: usize, overlap: usize) -> Vec<&str> {
    pack(text, cut.atoms(text, size), size, overlap).into_iter().map(|range| &text[range]).collect()
}

#[test]
fn words_and_sentences_are_counted() {
    let text = "  One two three. Four five!  Six?\nSeven ";
    assert_eq!(chunks(Cut::Words, text, 3, 0), ["One two three.", "Four five!  Six?", "Seven"]);
    assert_eq!(chunks(Cut::Words, text, 3, 1), ["One two three.", "three. Four five!", "five!  Six?\nSeven"]);
    assert_eq!(chunks(Cut::Sentences, text, 2, 0), ["One two three. Four five!", "Six?\nSeven"]);
    assert_eq!(chunks(Cut::Sentences, text, 2, 1), ["One two three. Four five!", "Four five!  Six?", "Six?\nSeven"]);
}

#[test]
fn characters_are_what_a_reader_sees() {
    assert_eq!(chunks(Cut::Characters, "abcdefgh", 3, 0), ["abc", "def", "gh"]);
    assert_eq!(chunks(Cut::Characters, "abcdefgh", 4, 2), ["abcd", "cdef", "efgh"]);
    // A family of seven scalar values, and an e with an accent of its own.
    assert_eq!(chunks(Cut::Characters, "👨‍👩‍👧‍👦e\u{301}x", 2, 0), ["👨‍👩‍👧‍👦", "e\u{301}", "x"]);
}

#[test]
fn the_largest_part_that_fits_is_kept_whole() {
    let text = "First one.\nStill first.\n\nSecond is longer. It has sentences.\n\nabcdefghijklmnopqrstuvwxyz";
    assert_eq!(
        chunks(Cut::Recursive, text, 24, 0),
        ["First one.\nStill first.", "Second is longer.", "It has sentences.\n\nabc", "defghijklmnopqrstuvwxyz"]
    );
    assert_eq!(chunks(Cut::Recursive, text, 1000, 0), [text]);
}

#[test]
fn space_around_a_chunk_takes_no_room() {
    let two = "The quick brown fox. Jumps over the lazy dog!";
    assert_eq!(chunks(Cut::Recursive, two, 20, 0), ["The quick brown fox.", "Jumps over the lazy", "dog!"]);
    assert_eq!(chunks(Cut::Recursive, two, 24, 0), ["The quick brown fox.", "Jumps over the lazy dog!"]);
    assert_eq!(chunks(Cut::Recursive, "one\n\ntwo\n\n\n\nsix\n\n", 8, 0), ["one\n\ntwo", "six"]);
    assert_eq!(chunks(Cut::Recursive, "a bb ccc", 4, 0), ["a bb", "ccc"]);
    assert_eq!(chunks(Cut::Recursive, "   abcd   ", 4, 0), ["abcd"]);
    // Between pieces of a chunk it takes room.
    assert_eq!(chunks(Cut::Recursive, "a   b", 4, 0), ["a", "b"]);
    assert_eq!(chunks(Cut::Characters, "ab   cd", 2, 0), ["ab", "cd"]);
    assert_eq!(chunks(Cut::Characters, "ab cd", 5, 0), ["ab cd"]);
    assert_eq!(chunks(Cut::Markdown, "# A\n\nabcd\n\n# B\n", 9, 0), ["# A\n\nabcd", "# B"]);
}

#[test]
fn space_around_what_overlaps_takes_no_room() {
    assert_eq!(chunks(Cut::Recursive, "one two six ten", 7, 3), ["one two", "two six", "six ten"]);
    assert_eq!(chunks(Cut::Recursive, "one two six ten", 7, 2), ["one two", "six ten"]);
    assert_eq!(chunks(Cut::Characters, "ab  cdef", 4, 2), ["ab", "b  c", "cdef"]);
}

#[test]
fn markdown_is_cut_at_headings_but_not_in_code() {
    let text = "# Title\n## Part\nSome text.\n\nMore text.\n\n```sh\n# no heading\n\nls\n```\n\n# Next\n\nEnd.\n";
    assert_eq!(
        chunks(Cut::Markdown, text, 60, 0),
        ["# Title\n## Part\nSome text.\n\nMore text.", "```sh\n# no heading\n\nls\n```", "# Next\n\nEnd."]
    );
    assert_eq!(chunks(Cut::Markdown, text, 1000, 0).len(), 2);
    assert_eq!(
        chunks(Cut::Markdown, "#hashtag\n#\n####### seven\n~~~\n# in\n", 1000, 0),
        ["#hashtag", "#\n####### seven\n~~~\n# in"]
    );
}

#[test]
fn nothing_has_no_chunks() {
    for cut in [Cut::Recursive, Cut::Markdown, Cut::Sentences, Cut::Words, Cut::Characters] {
        for text in ["", " ", "\n\n\t \u{a0}"] {
            assert_eq!(chunks(cut, text, 1, 0), [""; 0], "{cut:?} {text:?}");
        }
    }
}

proptest! {
    /// Every chunk fits, none begins before the one before it, and what is between or around them is only space.
    #[test]
    fn chunks_cover_the_text_in_order(
        text in "([a-zé.!?#` \n]|👨‍👩‍👧|\r\n|```\n|\n\n# ){0,60}",
        size in 1usize..20,
        overlap in 0usize..6,
        cut in prop::sample::select(vec![Cut::Recursive, Cut::Markdown, Cut::Sentences, Cut::Words, Cut::Characters]),
    ) {
        let overlap = overlap.min(size - 1);
        let atoms: Vec<_> = cut.atoms(&text, size).collect();
        let (mut at, mut largest) = (0, 0);
        for atom in &atoms {
            prop_assert_eq!(atom.range.start, at, "{:?}", atoms);
            at = atom.range.end;
            largest = largest.max(atom.size);
        }
        prop_assert_eq!(at, text.len());
        let (mut covered, mut begun) = (0, 0);
        let mut before: Option<std::ops::Range<usize>> = None;
        for range in pack(&text, cut.atoms(&text, size), size, overlap) {
            prop_assert!(range.start >= begun && range.end > covered);
            if range.start > covered {
                prop_assert_eq!(text[covered..range.start].trim(), "");
            }
            if matches!(cut, Cut::Recursive | Cut::Markdown | Cut::Characters) {
                prop_assert!(text[range.clone()].chars().count() <= size.max(largest));
            }
            // Where no character is repeated, the next one would not have fitted.
            if let Some(before) = before.filter(|_| cut == Cut::Characters && overlap == 0) {
                let next = text[range.clone()].graphemes(true).next().unwrap_or_default().len();
                prop_assert!(text[before.start..range.start + next].trim_end().chars().count() > size);
            }
            before = Some(range.clone());
            (begun, covered) = (range.start, range.end);
        }
        prop_assert_eq!(text[covered..].trim(), "");
    }
}

const DOCUMENT: &str = r#"{"position":"AQ==","operation":"create","metadata":{"m":"1"},"key":"ZG9j","payload":{"after":{"body":"one two three","n":1}}}"#;

#[test]
fn each_chunk_is_a_record() {
    let settings = [("strategy", "tokens"), ("chunkSize", "2"), ("inputField", ".Payload.After.body")];
    let before = record(DOCUMENT);
    let (_, Decision::Split(pieces)) = inline(&kind(), &settings, &before) else { panic!("no split") };
    let shown: Vec<serde_json::Value> =
        pieces.iter().map(|piece| serde_json::from_str(&json(piece)).unwrap()).collect();
    let after: Vec<_> = shown.iter().map(|piece| piece["payload"]["after"].to_string()).collect();
    assert_eq!(after, [r#"{"n":1,"text":"one two"}"#, r#"{"n":1,"text":"three"}"#]);
    assert!(pieces.iter().all(|piece| piece.position() == before.position()));
    let metadata = &shown[1]["metadata"];
    assert_eq!(
        (&metadata["ai.chunk.index"], &metadata["ai.chunk.count"], &metadata["ai.chunk.source_key"], &metadata["m"]),
        (&"1".into(), &"2".into(), &"doc".into(), &"1".into())
    );
    // For ever: ids are in people's databases.
    assert_eq!(metadata["ai.chunk.id"], id("doc", 1, "three"));
    assert_eq!(id("doc", 1, "three"), "f56e0a81-bc2f-8c5c-bbb8-a162084392cc");
    assert_ne!(id("doc", 1, "three"), id("doc", 0, "three"));
    assert_ne!(id("do", 1, "cthree"), id("doc", 1, "three"));
}

#[test]
fn a_list_is_an_alternative_and_raw_data_become_fields() {
    let settings =
        [("strategy", "tokens"), ("chunkSize", "2"), ("emit", "list"), ("outputField", ".Payload.After.chunks")];
    let raw = r#"{"position":"AQ==","operation":"create","metadata":{},"key":{"id":7},"payload":{"after":"b25lIHR3byB0aHJlZQ=="}}"#;
    let (after, Decision::Keep) = inline(&kind(), &settings, &record(raw)) else { panic!("not kept") };
    let shown: serde_json::Value = serde_json::from_str(&json(&after)).unwrap();
    let chunks = &shown["payload"]["after"]["chunks"];
    assert_eq!(chunks[1]["text"], "three");
    assert_eq!(chunks[1]["index"], 1);
    assert_eq!(chunks[1]["id"], id(r#"{"id":7}"#, 1, "three"));
    assert!(!configured(&kind(), &settings).unwrap().signature().needs_arch_v2);
}

#[test]
fn documents_without_key_or_text_fail_and_empty_ones_vanish() {
    let fault = |json: &str| match inline(&kind(), &[], &record(json)) {
        (after, Decision::Fail(fault)) => {
            assert_eq!(after, record(json), "a failed row changed");
            format!("{}: {}", fault.code(), fault.message())
        }
        (_, Decision::Split(pieces)) => format!("{} pieces", pieces.len()),
        (_, other) => panic!("{other:?}"),
    };
    let row = |key: &str, after: &str| {
        format!(r#"{{"position":"","operation":"create","metadata":{{}},"key":{key},"payload":{{"after":{after}}}}}"#)
    };
    assert_eq!(
        fault(&row("null", "\"YQ==\"")),
        "field_missing: the id of a chunk is derived from the key of its document: there is no text at .Key; set \
         sourceKey to the field that identifies the document"
    );
    assert_eq!(fault(&row("\"YQ==\"", "null")), "field_missing: there is no text at .Payload.After");
    assert_eq!(fault(&row("\"YQ==\"", "\"/w==\"")), "text_not_utf8: .Payload.After is not text: byte 0 is not UTF-8");
    assert_eq!(fault(&row("\"YQ==\"", "\"ICA=\"")), "0 pieces");
    assert_eq!(fault(&row("\"YQ==\"", "\"YQ==\"")), "1 pieces");
}

#[test]
fn wrong_settings_are_found() {
    assert_eq!(findings(&kind(), &[("overlap", "1000")]), ["overlap: 1000 must be less than chunkSize (1000)"]);
    assert_eq!(
        findings(&kind(), &[("emit", "list"), ("outputField", ".Payload.After")]),
        ["outputField: .Payload.After cannot be a list"]
    );
    assert_eq!(findings(&kind(), &[("chunkSize", "0")]).len(), 1);
    assert!(configured(&kind(), &[]).unwrap().signature().needs_arch_v2);
}
