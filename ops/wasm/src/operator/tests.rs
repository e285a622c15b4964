use std::cell::Cell;
use std::time::{Duration, Instant};

use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::settings::Settings;
use anabranch_plugin::testing;
use anabranch_record::fault::FaultClass;
use anabranch_record::{Data, Position};

use super::*;
use crate::compiler::Compiler;

pub(crate) fn wasm(process: &str) -> Vec<u8> {
    wasm_with(process, "")
}

/// The same with more of a module.
fn wasm_with(process: &str, more: &str) -> Vec<u8> {
    let text = include_str!("../../../../tests/guests/guest.wat");
    let text = text.replacen("08NAME", "08the-test", 1).replacen("08VERSION", "08v0.01.00", 1);
    let text = text.replacen("    PROCESS", process, 1);
    wat::parse_str(format!("{} {more})", &text[..text.rfind(')').unwrap()])).unwrap()
}

fn host() -> Host {
    Host { node: "w".into(), ..testing::host() }
}

fn open(process: &str, limits: Limits) -> Wasm {
    try_open(&wasm(process), limits).unwrap()
}

fn try_open(wasm: &[u8], limits: Limits) -> Result<Wasm, Fault> {
    open_code(wasm, COMPILER.get(), limits)
}

const BOTH: [Compiler; 2] = [Compiler::Baseline, Compiler::Optimising];

thread_local! {
    /// The compiler of the guests that a test opens.
    static COMPILER: Cell<Compiler> = const { Cell::new(Compiler::Optimising) };
}

/// Runs a test with guests of each compiler.
fn under_both(test: impl Fn()) {
    for compiler in BOTH {
        COMPILER.set(compiler);
        test();
    }
}

/// A module in a file that has only optimised code, or only baseline code.
fn module(wasm: &[u8], compiler: Compiler) -> Arc<ModuleFile> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, wasm).unwrap();
    let module = ModuleFile::open(file.path(), None).unwrap();
    match compiler {
        Compiler::Baseline => drop(module.code(&|_| ()).unwrap()),
        Compiler::Optimising => module.optimise().unwrap(),
    }
    // The file is gone: what is not compiled cannot be.
    Arc::new(module)
}

fn open_code(wasm: &[u8], compiler: Compiler, limits: Limits) -> Result<Wasm, Fault> {
    let configured = WasmOperator {
        module: module(wasm, compiler),
        configure: Configure::default(),
        granted: NetworkAccess::default(),
        limits,
    };
    let operator = Wasm::open(&configured, &host())?;
    assert_eq!(operator.code.compiler, compiler);
    Ok(operator)
}

fn record(key: &str) -> Record {
    let mut record = Record::create(Position::copy_from(key.as_bytes()), Data::text(key), Data::text("payload"));
    record.metadata.insert("recfmt.readAt", "1");
    record
}

/// The result of each row: `=` for unchanged, a number of parts, `-` for filtered, or a code.
fn run_on(operator: &mut Wasm, keys: &[&str]) -> Vec<String> {
    let mut records: Vec<Record> = keys.iter().map(|key| record(key)).collect();
    let before = records.clone();
    let mut decisions = Vec::new();
    operator.process(&mut Rows::new(&mut records, None, &mut decisions), &OperatorContext::new(0, host()));
    let outcome = |row: usize| match decisions.iter().find(|(r, _)| *r == row) {
        None if records[row] == before[row] => "=".to_owned(),
        None => "changed".to_owned(),
        Some((_, Decision::Keep)) => "=".to_owned(),
        Some((_, Decision::Filter)) => "-".to_owned(),
        Some((_, Decision::Split(parts))) => {
            assert!(parts.iter().all(|part| *part == before[row]));
            parts.len().to_string()
        }
        Some((_, Decision::Pieces(_))) => panic!("a guest gives all its records at once"),
        Some((_, Decision::Fail(fault))) => {
            assert_eq!(records[row], before[row]);
            let fatal = if fault.class() == FaultClass::Fatal { "fatal " } else { "" };
            format!("{fatal}{}", fault.code())
        }
    };
    (0..keys.len()).map(outcome).collect()
}

fn run(process: &str, keys: &[&str]) -> Vec<String> {
    run_on(&mut open(process, Limits::default()), keys)
}

const QUICK: Duration = Duration::from_secs(2);

fn quick() -> Limits {
    // A good record takes far less, also on a machine whose cores are taken.
    Limits { time: Some(QUICK), memory: 128 << 20 }
}

#[test]
fn records_go_through_a_guest_that_begins_with_four_bytes() {
    under_both(|| {
        let mut operator = open("call $all_kept", Limits::default());
        assert_eq!(run_on(&mut operator, &["a", "b", "c"]), ["=", "=", "="]);
        assert_eq!(run_on(&mut operator, &[]), Vec::<String>::new());
        let large = "x".repeat(10_000_000);
        assert_eq!(run_on(&mut operator, &["a", &large, "b"]), ["=", "=", "="]);
        operator.close().unwrap();
    });
}

#[test]
fn fewer_results_than_records_leave_the_rest_for_the_next_call() {
    assert_eq!(run("call $keep", &["a", "b", "c"]), ["=", "=", "="]);
    assert_eq!(run("", &["a", "b"]), ["fatal wasm_no_progress"; 2]);
    let undone = "(call $byte (i32.const 0x0a)) (call $byte (i32.const 0))";
    assert_eq!(run(undone, &["a", "b"]), ["fatal wasm_no_progress"; 2]);
    let more = "call $all_kept (call $byte (i32.const 0x0a)) (call $byte (i32.const 0))";
    assert_eq!(run(more, &["a", "b"]), ["fatal wasm_bad_response"; 2]);
}

#[test]
fn records_are_filtered_split_and_failed() {
    under_both(|| {
        let filter = "(call $byte (i32.const 0x0a)) (call $byte (i32.const 2)) (call $byte (i32.const 0x12)) (call $byte (i32.const 0))";
        assert_eq!(run(&format!("call $keep {filter}"), &["a", "b"]), ["=", "-"]);
        assert_eq!(run("call $double call $keep", &["a", "b"]), ["2", "="]);
        let none = "(call $byte (i32.const 0x0a)) (call $byte (i32.const 2)) (call $byte (i32.const 0x22)) (call $byte (i32.const 0))";
        assert_eq!(run(none, &["a"]), ["-"]);
        let error = "(call $byte (i32.const 0x0a)) (call $byte (i32.const 2)) (call $byte (i32.const 0x1a)) (call $byte (i32.const 0))";
        assert_eq!(run(error, &["a", "b"]), ["wasm_error"; 2]);
        let whole = "(call $answer (i32.const 1072) (i32.const 12)) return";
        assert_eq!(run(whole, &["a", "b"]), ["wasm_error"; 2]);
        let other = "(call $answer (i32.const 1064) (i32.const 2)) return";
        assert_eq!(run(other, &["a"]), ["fatal wasm_bad_response"]);
    });
}

#[test]
fn a_record_that_kills_the_guest_fails_alone() {
    under_both(|| {
        let unless = |what: &str| format!("(if (call $has (i32.const 0x21212121)) (then {what})) call $all_kept");
        let keys = ["a", "!!!!", "b", "!!!!", "c"];
        for (what, code) in [
            ("unreachable", "wasm_trap"),
            ("(call $proc_exit (i32.const 0))", "wasm_exited"),
            ("(call $proc_exit (i32.const 7))", "wasm_exited"),
            ("(loop $ever (br $ever))", "wasm_timeout"),
            (
                "(loop $ever (br_if $ever (i32.ne (memory.grow (i32.const 64)) (i32.const -1)))) unreachable",
                "wasm_trap",
            ),
            ("(drop (call $command_request (i32.const 0) (i32.const 9)))", "wasm_trap"),
            ("(drop (call $command_response (i32.const 1120) (i32.const 9)))", "wasm_bad_response"),
        ] {
            let mut operator = open(&unless(what), quick());
            assert_eq!(run_on(&mut operator, &keys), ["=", code, "=", code, "="], "{what}");
            assert_eq!(run_on(&mut operator, &["d"]), ["="], "{what}");
        }
    });
}

#[test]
fn a_guest_that_always_dies_is_given_up() {
    let found = run("unreachable", &["a"; 20]);
    assert_eq!(found.iter().filter(|found| *found == "wasm_trap").count(), 7);
    assert_eq!(found.last().unwrap(), "fatal wasm_trap");
}

#[test]
fn memory_out_of_range_and_the_network_are_refused() {
    under_both(|| {
        let code = |call: &str, code: i32| {
            format!("(if (i32.ne {call} (i32.const {code})) (then unreachable)) call $all_kept")
        };
        assert_eq!(run(&code("(call $command_response (i32.const -1) (i32.const 9))", -5), &["a"]), ["="]);
        assert_eq!(run(&code("(call $get_schema (i32.const -1) (i32.const 9))", -5), &["a"]), ["="]);
        assert_eq!(run(&code("(call $http_request (i32.const 0) (i32.const 0))", -10), &["a"]), ["="]);
    });
}

#[test]
fn schemas_are_parked_until_the_buffer_is_long_enough() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _entered = runtime.enter();
    // The first call is told the size, the second one has the request with zeros after it.
    let twice =
        "(if (i32.le_u (call $create_schema (i32.const 1200) (i32.const 12)) (i32.const 12)) (then unreachable))
        (if (i32.ne (call $create_schema (i32.const 1200) (i32.const 40)) (i32.const 18)) (then unreachable))
        (if (i32.ne (i32.load8_u (i32.const 1200)) (i32.const 0x0a)) (then unreachable))
        call $all_kept";
    assert_eq!(run(twice, &["a"]), ["="]);
    let missing = "(if (i32.ne (call $get_schema (i32.const 1200) (i32.const 3)) (i32.const -8)) (then unreachable)) call $all_kept";
    assert_eq!(run(missing, &["a"]), ["="]);
}

#[test]
fn settings_are_checked_by_us_and_sent_as_written() {
    let module = module(&wasm("call $all_kept"), Compiler::Baseline);
    let kind = ModuleKind::new(Specification::builtin("x", ""), module, Limits::default(), Arc::default());
    let refused = Arguments::parse(kind.specification(), &Settings::from_pairs([("nonsense", "1")]));
    assert!(refused.is_err());
}

#[test]
fn a_hang_ends_when_its_time_is_over() {
    under_both(|| {
        let begun = Instant::now();
        let mut operator = open("(loop $ever (br $ever))", quick());
        assert_eq!(run_on(&mut operator, &["a"]), ["wasm_timeout"]);
        assert!(begun.elapsed() >= QUICK);
    });
}

/// The memory of the guest itself, of 64 MiB, and this much for what it does.
const ROOM: usize = 1 << 20;

fn tight() -> Limits {
    Limits { time: None, memory: (64 << 20) + ROOM }
}

/// Asks for `what` until it is refused, eight times as much as there is room at most, and traps if it was given more
/// than there is room.
fn greedy(what: &str, bytes: usize) -> String {
    let (steps, most) = (8 * ROOM / bytes, ROOM / bytes);
    format!(
        "(local $given i32)
        (loop $more
          (if (i32.ne (i32.const -1) ({what})) (then
            (local.set $given (i32.add (local.get $given) (i32.const 1)))
            (br_if $more (i32.lt_u (local.get $given) (i32.const {steps}))))))
        (if (i32.gt_u (local.get $given) (i32.const {most})) (then unreachable))
        (if (i32.eqz (local.get $given)) (then unreachable))
        call $all_kept"
    )
}

/// A `PROCESS` that has locals must come first in its function: it gets one of its own.
fn apart(process: &str, more: &str) -> Vec<u8> {
    wasm_with("(call $apart)", &format!("(func $apart {process}) {more}"))
}

#[test]
fn tables_are_memory() {
    under_both(|| {
        let wasm = apart(&greedy("table.grow $t (ref.null func) (i32.const 8192)", 8192 * 8), "(table $t 1 funcref)");
        assert_eq!(run_on(&mut try_open(&wasm, tight()).unwrap(), &["a"]), ["="]);
    });
}

#[test]
fn memories_share_their_limit() {
    under_both(|| {
        let memories: String = (0..20).map(|i| format!("(memory $m{i} 0) ")).collect();
        let grown: String = (0..20).map(|i| format!("(drop (memory.grow $m{i} (i32.const 8)))")).collect();
        let sum: String = (0..20).map(|i| format!("(memory.size $m{i}) i32.add ")).collect();
        let most = ROOM >> 16;
        let process =
            format!("{grown} i32.const 0 {sum} i32.const {most} i32.gt_u (if (then unreachable)) call $all_kept");
        let mut operator = try_open(&apart(&process, &memories), tight()).unwrap();
        assert_eq!(run_on(&mut operator, &["a"]), ["="]);
    });
}

#[test]
fn memory_that_is_not_to_be_had_is_the_reason_that_is_given() {
    under_both(|| {
        let trap = apart(&format!("{} unreachable", greedy("memory.grow (i32.const 2)", 2 << 16)), "");
        let mut operator = try_open(&trap, tight()).unwrap();
        let mut records = [record("a")];
        let mut decisions = Vec::new();
        operator.process(&mut Rows::new(&mut records, None, &mut decisions), &OperatorContext::new(0, host()));
        let [(0, Decision::Fail(fault))] = decisions.as_slice() else { panic!("{decisions:?}") };
        assert!(fault.to_string().contains("`processors.max-memory` allows, 65 MiB"), "{fault}");

        for (declared, starts) in [("(table $t 60000 funcref)", true), ("(table $t 70000 funcref)", false)] {
            let found = try_open(&wasm_with("call $all_kept", declared), tight());
            let text = found.as_ref().map_or_else(ToString::to_string, |_| String::new());
            assert_eq!(found.is_ok(), starts, "{declared}: {text}");
            assert_eq!(!starts, text.contains("`processors.max-memory` allows, 65 MiB"), "{declared}: {text}");
        }
    });
}

/// As Rust and C say why they abort: on standard error, and then they trap.
#[test]
fn a_trap_comes_with_what_the_guest_said_before_it() {
    under_both(|| {
        let text = "panicked at a.rs:1:2:\nit had to be\n";
        let data = format!(
            "(data (i32.const 20008) \"panicked at a.rs:1:2:\\nit had to be\\n\") (data (i32.const 20000) \"\\28\\4e\\00\\00\\{:02x}\\00\\00\\00\")",
            text.len()
        );
        let process =
            "(drop (call $fd_write (i32.const 2) (i32.const 20000) (i32.const 1) (i32.const 1104))) unreachable";
        let mut operator = try_open(&wasm_with(process, &data), quick()).unwrap();
        let mut records = [record("a")];
        let mut decisions = Vec::new();
        operator.process(&mut Rows::new(&mut records, None, &mut decisions), &OperatorContext::new(0, host()));
        let [(0, Decision::Fail(fault))] = decisions.as_slice() else { panic!("{decisions:?}") };
        assert!(fault.to_string().ends_with("; panicked at a.rs:1:2: it had to be"), "{fault}");
    });
}

/// Modules cannot use shared memories or a garbage-collected heap: no limit of an instance counts them.
#[test]
fn there_are_no_shared_memories_and_no_collected_heap() {
    for module in [
        "(module (memory 1 2 shared))",
        "(module (table 1 externref))",
        "(module (type $s (struct (field i32))) (func (drop (struct.new $s (i32.const 1)))))",
    ] {
        for compiler in BOTH {
            assert!(compiler.compile(&wat::parse_str(module).unwrap()).is_err(), "{module} {compiler:?}");
        }
    }
}

/// Two bytes there, a record of some hundred bytes here.
#[test]
fn an_answer_unpacks_to_no_more_than_the_limit() {
    under_both(|| {
        let many = |count: usize, head: &str| {
            format!(
                "(local $left i32) {head} (local.set $left (i32.const {count}))
                (loop $more
                  (i32.store16 (global.get $to) (i32.const 0x000a))
                  (global.set $to (i32.add (global.get $to) (i32.const 2)))
                  (br_if $more (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))"
            )
        };
        let run = |process: &str| run_on(&mut try_open(&apart(process, ""), tight()).unwrap(), &["a"]);
        // As results, and as the parts of one result.
        let count = 2 << 20;
        assert_eq!(run(&many(count, "")), ["wasm_trap"]);
        let parts = 2 * count;
        let head = format!(
            "(call $byte (i32.const 0x0a)) (call $write (i32.const {})) (call $byte (i32.const 0x22)) (call $write (i32.const {parts}))",
            parts + 5
        );
        assert_eq!(run(&many(count, &head)), ["wasm_trap"]);
    });
}

/// Calls itself `depth` times, with values that are live across each call, and traps when the stack is full.
fn recursion(depth: u32) -> Vec<u8> {
    let sum = "(i64.add (local.get $a) (i64.add (local.get $b) (i64.add (local.get $c) (local.get $d))))";
    let deep = format!(
        "(func $deep (param $left i32) (param $a i64) (param $b i64) (param $c i64) (param $d i64) (result i64)
          (if (i32.eqz (local.get $left)) (then (return {sum})))
          (i64.add {sum} (call $deep (i32.sub (local.get $left) (i32.const 1))
            (i64.add (local.get $a) (i64.const 1)) (local.get $c) (local.get $d) (local.get $b))))"
    );
    let ones = "(i64.const 1) (i64.const 2) (i64.const 3) (i64.const 4)";
    wasm_with(&format!("(drop (call $deep (i32.const {depth}) {ones})) call $all_kept"), &deep)
}

/// Stack frames of baseline code are larger: what a guest of 512 KiB of optimised code does fits.
#[test]
fn recursion_ends_at_the_stack_limit() {
    under_both(|| {
        let run = |depth| run_on(&mut try_open(&recursion(depth), quick()).unwrap(), &["a"]);
        assert_eq!(run(4_000), ["="]);
        assert_eq!(run(1_000_000), ["wasm_trap"]);
    });
}
