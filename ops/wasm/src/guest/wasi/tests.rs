use std::fmt::Write as _;
use std::sync::Arc;

use anabranch_ops_opencdc::wire::{Empty, Request};
use anabranch_plugin::schema::MemoryRegistry;
use anabranch_record::text::Str;
use proptest::prelude::*;

use super::*;
use crate::compiler::{Compiler, MachineCode};
use crate::guest::{Guest, GuestEnd, Limits, Setting};

/// The calls that do something, as [`CLOSED`] has those that do not.
const OPEN: &[(&str, &str)] = &[
    ("args_get", "ii"),
    ("args_sizes_get", "ii"),
    ("environ_get", "ii"),
    ("environ_sizes_get", "ii"),
    ("clock_res_get", "ii"),
    ("clock_time_get", "iIi"),
    ("fd_close", "i"),
    ("fd_fdstat_set_flags", "ii"),
    ("fd_fdstat_get", "ii"),
    ("fd_filestat_get", "ii"),
    ("fd_read", "iiii"),
    ("fd_seek", "iIii"),
    ("fd_tell", "ii"),
    ("fd_write", "iiii"),
    ("poll_oneoff", "iiii"),
    ("random_get", "ii"),
    ("sched_yield", ""),
];

/// Bytes of the guest's memory.
const MEMORY: i64 = 2 << 16;

/// A guest that makes these calls one after the other, with the code of the last as its exit code.
fn guest(data: &[u8], calls: &[(usize, Vec<i64>)]) -> MachineCode {
    let all: Vec<(&str, &str)> = OPEN.iter().chain(CLOSED).copied().collect();
    let mut text = String::from("(module ");
    for (index, (name, parameters)) in all.iter().enumerate() {
        let types: Vec<&str> = parameters.chars().map(|c| if c == 'I' { "i64" } else { "i32" }).collect();
        let _ =
            write!(text, "(import \"{MODULE}\" \"{name}\" (func $f{index} (param {}) (result i32)))", types.join(" "));
    }
    let data: String = data.iter().map(|byte| format!("\\{byte:02x}")).collect();
    let _ = write!(
        text,
        "(import \"{MODULE}\" \"proc_exit\" (func $exit (param i32))) (memory (export \"memory\") 2) \
         (data (i32.const 0) \"{data}\") (func (export \"_start\") (local $code i32) "
    );
    for (call, arguments) in calls {
        let (_, parameters) = all[call % all.len()];
        text.push_str("(local.set $code (call $f");
        let _ = write!(text, "{}", call % all.len());
        for (kind, value) in parameters.chars().zip(arguments) {
            let _ = match kind {
                'I' => write!(text, " (i64.const {value})"),
                _ => write!(text, " (i32.const {})", *value as i32),
            };
        }
        text.push_str("))");
    }
    text.push_str("(call $exit (local.get $code))))");
    Compiler::Optimising.compile(&wat::parse_str(text).unwrap()).unwrap()
}

/// How a guest ends that answers nothing.
fn ends(code: &MachineCode) -> GuestEnd {
    let node = Str::from_static("p");
    let limits = Limits { time: Some(Duration::from_millis(50)), ..Limits::default() };
    let setting = Setting { node: &node, schemas: Arc::new(MemoryRegistry::new()), network: None, limits };
    let mut guest = Guest::start(code, &setting).unwrap();
    guest.ask(Request::Specify(Empty {})).unwrap_err()
}

fn argument() -> impl Strategy<Value = i64> {
    prop_oneof![
        Just(0),
        0..8i64,
        0..MEMORY,
        (MEMORY - 64)..(MEMORY + 64),
        prop::sample::select(vec![-1, -2, -8, -64, i64::MAX, i64::MIN, 1 << 31]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever a guest hands over, the call has an answer: it ends by its own exit, or with the time it has.
    #[test]
    fn every_call_answers_whatever_it_is_given(
        data in prop::collection::vec(any::<u8>(), 0..256),
        calls in prop::collection::vec((any::<usize>(), prop::collection::vec(argument(), 9)), 1..6),
    ) {
        match ends(&guest(&data, &calls)) {
            GuestEnd::Exited { .. } | GuestEnd::TimedOut(_) => {}
            other => prop_assert!(false, "{other}"),
        }
    }
}

#[test]
fn a_write_without_end_is_taken_in_parts() {
    // 8,000 times the whole of the memory: eight bytes of address 0 and length `MEMORY`, again and again.
    let part = [0u32.to_le_bytes(), (MEMORY as u32).to_le_bytes()].concat();
    let write = OPEN.iter().position(|(name, _)| *name == "fd_write").unwrap();
    let begin = Instant::now();
    let death = ends(&guest(&part.repeat(8_000), &[(write, vec![1, 0, 8_000, 100_000])]));
    assert!(matches!(death, GuestEnd::Exited { code: OK, .. }), "{death}");
    assert!(begin.elapsed() < Duration::from_secs(120));
}
