use proptest::prelude::*;

use super::*;

fn records(framing: &Framing, content: &[u8], piece: usize) -> Vec<Vec<u8>> {
    records_of(framing, content, piece)
}

fn texts(framing: &Framing, content: &str) -> Vec<String> {
    let whole = records(framing, content.as_bytes(), content.len().max(1));
    for piece in 1..8 {
        assert_eq!(records(framing, content.as_bytes(), piece), whole, "in pieces of {piece} bytes: {content:?}");
    }
    whole.into_iter().map(|record| String::from_utf8(record).unwrap()).collect()
}

fn delimiter(bytes: &str) -> Framing {
    Framing::Delimiter(Arc::new(Finder::new(bytes.as_bytes()).into_owned()))
}

fn multiline(pattern: &str) -> Framing {
    Framing::Multiline(Arc::new(Regex::new(pattern).unwrap()))
}

const CSV: Framing = Framing::Csv(CsvDialect { delimiter: b',', quote: b'"' });

#[test]
fn lines_and_delimiters_end_records() {
    assert_eq!(texts(&Framing::Lines, "a\r\n\nb"), ["a\r", "", "b"]);
    assert_eq!(texts(&delimiter("\0"), "a\nb\0\0c"), ["a\nb", "", "c"]);
    assert_eq!(texts(&delimiter("--"), "a-b--c---d--"), ["a-b", "c", "-d"]);
    assert_eq!(texts(&Framing::Whole, "a\nb\n"), ["a\nb\n"]);
    assert_eq!(texts(&Framing::Whole, ""), [""; 0]);
}

#[test]
fn a_line_that_matches_begins_a_record() {
    let stack = "ERROR one\n  at a\n  at b\nINFO two\n\nERROR three";
    let expected = ["ERROR one\n  at a\n  at b", "INFO two\n", "ERROR three"];
    assert_eq!(texts(&multiline("^(ERROR|INFO) "), stack), expected);
    assert_eq!(texts(&multiline("^(ERROR|INFO) "), &format!("{stack}\n")), expected);
    // Lines before the first match are a record, and so is a file without a match.
    assert_eq!(texts(&multiline("^>"), "a\nb\n>c\nd\n"), ["a\nb", ">c\nd"]);
    assert_eq!(texts(&multiline("^>"), "a\nb\n"), ["a\nb"]);
}

/// The rules of RFC 4180, section 2, by their numbers.
#[test]
fn rows_are_those_of_rfc_4180() {
    // 1 and 2: each row on a line; the last may have a line break or not.
    assert_eq!(texts(&CSV, "aaa,bbb,ccc\r\nzzz,yyy,xxx\r\n"), ["aaa,bbb,ccc", "zzz,yyy,xxx"]);
    assert_eq!(texts(&CSV, "aaa,bbb,ccc\r\nzzz,yyy,xxx"), ["aaa,bbb,ccc", "zzz,yyy,xxx"]);
    // 3 and 4: a header is a row; spaces are part of a value, and values may be empty.
    assert_eq!(texts(&CSV, "a, b ,\n,,\n"), ["a, b ,", ",,"]);
    // 5: values with quotes and without; a quote within a value without quotes is a character.
    assert_eq!(texts(&CSV, "\"aaa\",\"bbb\",ccc\nx\"y\nz\n"), ["\"aaa\",\"bbb\",ccc", "x\"y", "z"]);
    // 6: line breaks, quotes and delimiters in quotes.
    assert_eq!(texts(&CSV, "\"a\",\"b\r\nb\n\nb\",\"c,c\"\nz\n"), ["\"a\",\"b\r\nb\n\nb\",\"c,c\"", "z"]);
    // 7: a quote in quotes is doubled.
    assert_eq!(texts(&CSV, "\"a\"\"\nb\",\"\"\"\"\n\"\"\nz"), ["\"a\"\"\nb\",\"\"\"\"", "\"\"", "z"]);
    // Blank lines are left out, and a byte order mark does not hide a quote.
    assert_eq!(texts(&CSV, "\n\r\na\n\n\nb\r\n\r\n"), ["a", "b"]);
    assert_eq!(texts(&CSV, "\u{feff}\"a\nb\",c\nd\n"), ["\u{feff}\"a\nb\",c", "d"]);
    // Quotes that do not end make one row of the rest.
    assert_eq!(texts(&CSV, "a\n\"b\nc\n"), ["a", "\"b\nc\n"]);
    let semicolons = Framing::Csv(CsvDialect { delimiter: b';', quote: b'\'' });
    assert_eq!(texts(&semicolons, "a;'b\n;'\n\"c\nd\n"), ["a;'b\n;'", "\"c", "d"]);
}

#[test]
fn each_json_value_is_a_record() {
    assert_eq!(
        texts(&Framing::Json, "{\"a\":1}\n{\"b\":[1,{}]} \"x\\\"}\" 12\ntrue"),
        ["{\"a\":1}", "{\"b\":[1,{}]}", "\"x\\\"}\"", "12", "true"]
    );
    assert_eq!(texts(&Framing::Json, "{\n \"a\": \"}\",\n \"b\": 2\n}\n{}"), ["{\n \"a\": \"}\",\n \"b\": 2\n}", "{}"]);
    // The elements of an array that is the file.
    assert_eq!(texts(&Framing::Json, " [ {\"a\":1}, [2, 3],\n4,\"x\" ]\n"), ["{\"a\":1}", "[2, 3]", "4", "\"x\""]);
    assert_eq!(texts(&Framing::Json, "[]"), [""; 0]);
    assert_eq!(texts(&Framing::Json, "{} [1]"), ["{}", "[1]"]);
    // A text that is not JSON is a record, so that it is found.
    assert_eq!(texts(&Framing::Json, "{} oops } {\"a\":1}"), ["{}", "oops", "}", "{\"a\":1}"]);
    assert_eq!(texts(&Framing::Json, "{\"a\":"), ["{\"a\":"]);
}

proptest! {
    /// The rows are those of the library that decodes them.
    #[test]
    fn csv_rows_are_those_of_the_decoder(
        parts in proptest::collection::vec(prop_oneof![
            Just("\""), Just("\"\""), Just(","), Just("\n"), Just("\r\n"), Just("a"), Just(" ")
        ], 0..40),
        piece in 1usize..9,
    ) {
        let content = parts.concat();
        let mut reader = csv_core::Reader::new();
        let (mut input, mut wanted) = (content.as_bytes(), Vec::new());
        loop {
            let (mut output, mut ends) = (vec![0; 1000], vec![0; 100]);
            let (mut written, mut ended) = (0, 0);
            let result = loop {
                let (result, read, wrote, values) = reader.read_record(input, &mut output[written..], &mut ends[ended..]);
                input = &input[read..];
                written += wrote;
                ended += values;
                if !matches!(result, csv_core::ReadRecordResult::InputEmpty) {
                    break result;
                }
            };
            match result {
                csv_core::ReadRecordResult::Record => wanted.push(values(&output, &ends[..ended])),
                csv_core::ReadRecordResult::End => break,
                other => panic!("{other:?}"),
            }
        }
        let found: Vec<Vec<String>> = records(&CSV, content.as_bytes(), piece).iter().map(|row| {
            let mut reader = csv_core::Reader::new();
            let (mut output, mut ends) = (vec![0; 1000], vec![0; 100]);
            let (_, _, written, ended) = reader.read_record(row, &mut output, &mut ends);
            let (_, _, _, more) = reader.read_record(b"", &mut output[written..], &mut ends[ended..]);
            values(&output, &ends[..ended + more])
        }).collect();
        prop_assert_eq!(found, wanted);
    }

    /// However content is cut into reads, the records are the same, and no byte of a line is lost.
    #[test]
    fn records_do_not_depend_on_reads(
        lines in proptest::collection::vec("(> )?[a-z\\[\\]{}\",]{0,6}", 0..20),
        piece in 1usize..20,
    ) {
        let content = lines.join("\n").into_bytes();
        for framing in [Framing::Lines, delimiter(", "), multiline("^> "), CSV, Framing::Json, Framing::Whole] {
            let whole = records(&framing, &content, content.len().max(1));
            prop_assert_eq!(&records(&framing, &content, piece), &whole, "{:?}", framing);
            if let Framing::Multiline(_) | Framing::Lines = framing {
                let mut joined = whole.join(&b'\n');
                if content.ends_with(b"\n") {
                    joined.push(b'\n');
                }
                prop_assert_eq!(&joined, &content);
            }
        }
    }
}

fn values(output: &[u8], ends: &[usize]) -> Vec<String> {
    let starts = std::iter::once(0).chain(ends.iter().copied());
    starts.zip(ends).map(|(start, end)| String::from_utf8(output[start..*end].to_vec()).unwrap()).collect()
}
