//! A program has the same effect whether it finds its fields by their number or in maps of the whole record.

use anabranch_record::text::Str;
use proptest::sample::select;

use super::*;
use crate::functions::MostBytes;
use crate::program::CheckedProgram;
use crate::source::ProgramSource;
use crate::worker::{Limits, OnAbort, Worker};

const PATHS: [&str; 14] = [
    ".a",
    ".b",
    ".c",
    ".a.b",
    ".a.b.c",
    ".a[0]",
    ".a[1].b",
    ".a[-1]",
    ".b.a",
    ".new",
    ".new.a",
    "%metadata.k",
    "%metadata.\"conduit.source.connector.id\"",
    "%operation",
];

fn path() -> impl Strategy<Value = &'static str> {
    select(&PATHS[..])
}

/// A statement that names fields, and takes no part of a record as a whole.
fn statement() -> impl Strategy<Value = String> {
    let value = prop_oneof![
        select(&["1", "\"t\"", "null", "true", "{\"b\": 2}", "[1, {\"b\": 3}]", "{}"][..]).prop_map(str::to_owned),
        path().prop_map(str::to_owned),
        path().prop_map(|path| format!("{{\"b\": {path}}}")),
        path().prop_map(|path| format!("[{path}, {path}]")),
        path().prop_map(|path| format!("exists({path})")),
        path().prop_map(|path| format!("upcase(string({path}) ?? \"none\")")),
        path().prop_map(|path| format!("length(array({path}) ?? [])")),
    ];
    let field = prop_oneof![path(), select(&PATHS[..11])];
    prop_oneof![
        4 => (field.clone(), value.clone()).prop_map(|(path, value)| format!("{path} = {value}")),
        1 => path().prop_map(|path| format!("%metadata.k = string({path}) ?? \"none\"")),
        2 => field.clone().prop_map(|path| format!("del({path})")),
        1 => field.clone().prop_map(|path| format!("del({path}, compact: true)")),
        1 => (field.clone(), value.clone())
            .prop_map(|(path, value)| format!("for_each([1, 2]) -> |_i, _v| {{ {path} = {value} }}")),
        1 => (path(), field, value).prop_map(|(test, path, value)| format!("if exists({test}) {{ {path} = {value} }}")),
        1 => (path(), path()).prop_map(|(path, other)| format!(".c, .err = {path} + {other}")),
    ]
}

fn worker(program: CheckedProgram) -> Worker {
    let limits = Limits { time: Duration::from_secs(5), bytes: 1 << 20 };
    Worker::new(Arc::new(program), TimeZone::default(), OnAbort::Keep, limits)
}

fn compile(text: &str) -> Option<CheckedProgram> {
    let source = ProgramSource { text: Str::from(text), name: Str::from_static("program") };
    CheckedProgram::compile(source, MostBytes(1 << 20)).ok()
}

#[test]
fn a_table_of_fields_has_the_effect_of_maps() {
    let counts = std::cell::RefCell::new([0_usize; 3]);
    let programs = vec(statement(), 1..6).prop_map(|statements| statements.join("\n"));
    TestRunner::new(ProptestConfig::with_cases(150))
        .run(&(programs, vec(records(), 3)), |(text, records)| {
            let (Some(program), Some(mut whole)) = (compile(&text), compile(&text)) else {
                counts.borrow_mut()[0] += 1;
                return Ok(());
            };
            prop_assert!(program.fields.is_some(), "{text}");
            whole.fields = None;
            let (mut table, mut maps) = (worker(program), worker(whole));
            for before in &records {
                let (mut one, mut other) = (before.clone(), before.clone());
                let (by_number, by_maps) = (table.run(&mut one), maps.run(&mut other));
                let is_failed = by_maps.is_err();
                counts.borrow_mut()[if is_failed { 1 } else { 2 }] += 1;
                prop_assert_eq!(format!("{by_number:?}"), format!("{by_maps:?}"), "{} on {:?}", text, before);
                prop_assert_eq!(format!("{one:?}"), format!("{other:?}"), "{} on {:?}", text, before);
            }
            Ok(())
        })
        .unwrap();
    let [refused, failed, changed] = counts.into_inner();
    println!("{refused} programs refused, {failed} records failed, {changed} records changed");
    assert!(changed > 50 && failed > 10, "{refused} programs refused, {failed} failed, {changed} changed");
}

#[test]
fn programs_that_take_a_part_as_a_whole_have_no_table() {
    for (program, has_table) in [
        (".a = .b.c", true),
        ("del(.a)", true),
        ("%metadata.k = %operation", true),
        (". = {\"a\": .b}", false),
        (".a = encode_json(.)", false),
        ("%metadata = {}", false),
        (".a = %metadata", false),
        (".a = %", false),
        ("%key.a = 1", false),
        (".a = %before.b", false),
        (".a = unnest!(.b)", false),
    ] {
        let program = compile(program).unwrap_or_else(|| panic!("{program:?} does not compile"));
        assert_eq!(program.fields.is_some(), has_table, "{:?}", program.source.text.as_str());
    }
}
