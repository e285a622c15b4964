use std::sync::Arc;

use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Operation, Position};
use proptest::prelude::*;

use super::*;

fn compile(text: &str) -> CompiledCondition {
    CompiledCondition::compile(text).unwrap()
}

fn fields(entries: &[(&'static str, Value)]) -> Data {
    Data::from(entries.iter().map(|(k, v)| (*k, v.clone())).collect::<Object>())
}

fn order() -> Record {
    let inner: Object = [("y", "deep")].into_iter().collect();
    let mut record = Record::create(
        Position::copy_from(b"p"),
        fields(&[("id", Value::Int(7))]),
        fields(&[
            ("active", Value::Bool(true)),
            ("n", Value::Int(7)),
            ("price", Value::Float(12.5)),
            ("name", Value::from("Ada")),
            ("none", Value::Null),
            ("x", Value::Map(Arc::new(inner))),
        ]),
    );
    record.metadata = [("k", "v"), ("a.b", "1")].into_iter().collect();
    record
}

#[test]
fn usual_shapes_are_native_and_decided() {
    for (text, verdict) in [
        (r#"{{ eq (printf "%v" (index .Payload.After "active")) "true" }}"#, true),
        (r#"{{ eq .Metadata.k "v" }}"#, true),
        (r#"{{ index .Metadata "a.b" | eq "2" }}"#, false),
        (r#"{{ eq (index .Metadata "absent") "" }}"#, true),
        (r#"{{ and (eq .Operation.String "create") (gt .Payload.After.n 5) }}"#, true),
        (r#"{{ or (eq .Key.id 1 2 3) (lt .Payload.After.price 12.0) }}"#, false),
        (r#"{{ not .Payload.Before }}"#, true),
        (r#"{{ gt .Payload.After.n 6.5 }}"#, true),
        (r#"{{ if .Payload.After.x.y }}true{{ else if .Metadata.k }}0{{ else }}false{{ end }}"#, true),
        (r#"{{ eq (printf "%v" .Payload.After.price) "12.5" }}"#, true),
        (r#"{{ eq (printf "%v" .Payload.After.n) "07" }}"#, false),
        (r#"{{ eq (len .Payload.After.name) 3 }}"#, true),
        ("{{ .Payload.After.active }}\n", true),
        (r#"{{ ne .Payload.After.none nil }}"#, false),
        (r#"{{ eq (printf "%s" .Operation) "create" }}"#, true),
        (r#"{{ eq $.Payload.After.absent.deeper "x" }}"#, false),
    ] {
        let condition = compile(text);
        assert!(condition.is_native(), "{text}");
        assert_eq!(condition.constant(), None, "{text}");
        let predicate = condition.predicate.as_ref().unwrap();
        assert_eq!(predicate.holds(&order()), Some(verdict), "{text}");
        assert_eq!(condition.render(&order(), &mut String::new()).unwrap(), verdict, "{text}");
    }
}

#[test]
fn metadata_by_names_of_another_service_are_ours() {
    let mut record = order();
    record.metadata.insert("recfmt.collection", "orders");
    for text in [
        r#"{{ eq (index .Metadata "opencdc.collection") "orders" }}"#,
        r#"{{ eq "orders" (index $.Metadata "opencdc.collection") }}"#,
        r#"{{ $m := .Metadata }}{{ eq (index $m "opencdc.collection") "orders" }}"#,
        r#"{{ with .Metadata }}{{ eq (index . "opencdc.collection") "orders" }}{{ end }}"#,
        r#"{{ eq (index .Metadata "conduit.nothing") "" }}"#,
    ] {
        let condition = compile(text);
        assert!(condition.evaluate(&record).unwrap(), "{text}");
        assert!(condition.render(&record, &mut String::new()).unwrap(), "{text}");
    }
    let reads = compile(r#"{{ eq (index .Metadata "opencdc.collection") "x" }}"#).reads();
    assert_eq!(reads, compile(r#"{{ eq (index .Metadata "recfmt.collection") "x" }}"#).reads());
}

#[test]
fn contradictions_decide_on_every_record() {
    for (text, settled) in [
        ("and (gt .Key.id 10) (lt .Key.id 5)", Some(false)),
        ("and (gt .Key.id 5) (lt .Key.id 5)", Some(false)),
        ("and (ge .Key.id 5) (le .Key.id 5)", None),
        ("and (eq .Key.id 1 2 3) (gt .Key.id 2)", None),
        ("and (eq .Key.id 1 2 3) (gt .Key.id 3)", Some(false)),
        ("and (eq .Metadata.k \"a\") (eq .Metadata.k \"b\")", Some(false)),
        ("and (eq .Metadata.k \"a\") (ne .Metadata.k \"a\")", Some(false)),
        ("and (eq .Metadata.k \"a\") (eq .Metadata.l \"b\")", None),
        ("or (ne .Metadata.k \"a\") (ne .Metadata.k \"b\")", Some(true)),
        ("or (eq .Metadata.k \"a\") (ne .Metadata.k \"a\")", Some(true)),
        ("or (eq .Metadata.k \"a\") (eq .Metadata.k \"b\")", None),
        ("not (and (gt .Key.id 10) (lt .Key.id 5))", Some(true)),
        ("or (and (gt .Key.id 10) (lt .Key.id 5)) (eq .Key.id 7)", None),
        ("and (gt .Key.id 10) (eq .Key.id \"x\")", Some(false)),
    ] {
        assert_eq!(compile(&format!("{{{{ {text} }}}}")).settled(), settled, "{text}");
    }
}

#[test]
fn conditions_of_nothing_are_constant() {
    assert_eq!(compile("true").constant(), Some(true));
    assert_eq!(compile(" {{ eq 1 2 }}\n").constant(), Some(false));
    assert_eq!(compile("{{ if false }}1{{ else }}F{{ end }}").constant(), Some(false));
    assert_eq!(compile("perhaps").constant(), None);
    assert_eq!(compile("{{ .Metadata.k }}").constant(), None);
}

#[test]
fn what_is_no_verdict_is_a_fault_of_the_record() {
    let fault = compile("{{ .Metadata.k }}").evaluate(&order()).unwrap_err();
    assert_eq!(fault.code().name(), "condition_not_boolean");
    assert_eq!(fault.message(), r#"the condition printed "v", which is neither true nor false"#);
    let fault = compile("{{ eq .Payload.After.n \"7\" }}").evaluate(&order()).unwrap_err();
    assert_eq!(fault.code().name(), "condition_failed");
    assert!(fault.message().contains("a whole number and a text"), "{fault}");
}

#[test]
fn failures_come_in_order_and_select_nothing() {
    let mut raw = order();
    raw.payload.after = Data::text("{}");
    let mut other = order();
    other.payload.after.fields_mut().unwrap().insert("n", Value::Int(8));
    let records = [raw.clone(), order(), other, raw];
    let (mut mask, mut failed) = (Mask::none(4), Vec::new());
    compile("{{ eq .Payload.After.n 7 }}").instantiate().select(&records, &mut mask, &mut failed);
    assert_eq!(mask.rows().collect::<Vec<_>>(), [1]);
    assert_eq!(failed.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [0, 3]);
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        (-2i64..3).prop_map(Value::Int),
        Just(Value::UInt(u64::MAX)),
        prop_oneof![Just(0.0), Just(1.0), Just(12.5), Just(f64::NAN), Just(1e21), Just(-0.0)].prop_map(Value::Float),
        prop_oneof![Just(""), Just("a"), Just("true"), Just("1"), Just("<nil>"), Just("12.5"), Just(" 0\n")]
            .prop_map(Value::from),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            object(inner).prop_map(|object| Value::Map(Arc::new(object))),
            proptest::collection::vec(any::<u8>(), 0..3).prop_map(|bytes| Value::Bytes(bytes.into())),
            Just(Value::Time(chrono::DateTime::UNIX_EPOCH)),
        ]
    })
}

fn object(inner: impl Strategy<Value = Value> + Clone) -> impl Strategy<Value = Object> {
    let name = prop_oneof![Just("a"), Just("b"), Just("Bytes")];
    proptest::collection::vec((name, inner), 0..3).prop_map(|entries| entries.into_iter().collect())
}

fn data() -> impl Strategy<Value = Data> {
    prop_oneof![
        1 => Just(Data::Absent),
        1 => prop_oneof![Just(""), Just("true"), Just("x")].prop_map(Data::text),
        4 => object(value().boxed()).prop_map(Data::from),
    ]
}

fn record() -> impl Strategy<Value = Record> {
    let entry = (prop_oneof![Just("a"), Just("b"), Just("GetCollection")], prop_oneof![Just(""), Just("a"), Just("1")]);
    (data(), data(), data(), proptest::collection::vec(entry, 0..3), 0usize..4).prop_map(
        |(key, before, after, metadata, operation)| {
            let mut record = Record::create(Position::default(), key, after);
            record.payload.before = before;
            record.metadata = metadata.into_iter().collect();
            record.operation = Operation::ALL[operation];
            record
        },
    )
}

fn operand() -> impl Strategy<Value = String> {
    let field = prop_oneof![
        Just(".Operation"),
        Just(".Operation.String"),
        Just(".Metadata.a"),
        Just(".Metadata.GetCollection"),
        Just(".Metadata.a.b"),
        Just("(index .Metadata \"a\")"),
        Just("(index .Metadata \"absent\")"),
        Just(".Key.a"),
        Just(".Key"),
        Just(".Payload.Before"),
        Just(".Payload.After"),
        Just(".Payload.After.a"),
        Just(".Payload.After.Bytes"),
        Just(".Payload.After.a.b"),
        Just("$.Payload.After.b"),
        Just("(index .Payload.After \"a\")"),
        Just("(index .Payload.After \"a\" \"b\")"),
        Just("(index .Payload.After.a \"b\")"),
        Just("(index .Payload.After \"Bytes\")"),
    ]
    .prop_map(str::to_owned);
    let literal = prop_oneof![
        Just("\"\""),
        Just("\"a\""),
        Just("\"true\""),
        Just("\"12.5\""),
        Just("\"1\""),
        Just("\"<nil>\""),
        Just("0"),
        Just("1"),
        Just("12.5"),
        Just("1.0"),
        Just("true"),
        Just("nil"),
        Just("\"create\""),
    ]
    .prop_map(str::to_owned);
    prop_oneof![3 => field.clone(), 2 => literal, 2 => (prop_oneof![
        Just("printf \"%v\""),
        Just("printf \"%s\""),
        Just("len"),
        Just("print"),
        Just("int"),
        Just("toString")
    ], field).prop_map(|(f, x)| format!("({f} {x})"))]
}

fn expression() -> impl Strategy<Value = String> {
    let comparison = prop_oneof![
        Just("eq"),
        Just("ne"),
        Just("lt"),
        Just("le"),
        Just("gt"),
        Just("ge"),
        Just("hasPrefix"),
        Just("hasSuffix"),
        Just("contains")
    ];
    let leaf = prop_oneof![
        4 => (comparison.clone(), operand(), operand()).prop_map(|(f, a, b)| format!("({f} {a} {b})")),
        1 => (operand(), operand(), operand()).prop_map(|(a, b, c)| format!("(eq {a} {b} {c})")),
        1 => (comparison, operand(), operand()).prop_map(|(f, a, b)| format!("({a} | {f} {b})")),
        1 => operand(),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            inner.clone().prop_map(|x| format!("(not {x})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("(and {a} {b})")),
            (inner.clone(), inner).prop_map(|(a, b)| format!("(or {a} {b})")),
        ]
    })
}

fn condition() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => expression().prop_map(|x| format!("{{{{ {x} }}}}\n")),
        1 => (expression(), expression())
            .prop_map(|(a, b)| format!("{{{{ if {a} }}}}true{{{{ else if {b} }}}} 0 {{{{ else }}}}{{{{ {a} }}}}{{{{ end }}}}")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, max_global_rejects: 100_000, ..ProptestConfig::default() })]

    /// Verdicts and failures of conditions are the template's, whether there is a predicate or not.
    #[test]
    fn predicates_say_what_templates_say(text in condition(), records in proptest::collection::vec(record(), 1..6)) {
        let Ok(condition) = CompiledCondition::compile(&text) else { return Err(TestCaseError::reject("no condition")) };
        for record in &records {
            let ours = condition.evaluate(record).map_err(|fault| (fault.code(), fault.message()));
            let template = condition.render(record, &mut String::new()).map_err(|fault| (fault.code(), fault.message()));
            prop_assert_eq!(ours, template, "{}", text);
        }
    }
}

#[test]
fn little_is_spent_on_finding_a_constant() {
    let long = CompiledCondition::compile("{{ range 100000 }}{{ end }}true").unwrap();
    assert_eq!((long.constant(), long.failure().is_some()), (None, false), "it is found out when there are records");
    assert!(long.evaluate(&Record::default()).unwrap());
    let endless = CompiledCondition::compile("{{ range 1000000000 }}{{ end }}true").unwrap();
    assert_eq!((endless.constant(), endless.failure().is_some()), (None, false));
    let short = CompiledCondition::compile("{{ range 10 }}{{ end }}true").unwrap();
    assert_eq!(short.constant(), Some(true));
    let wrong = CompiledCondition::compile("neither").unwrap();
    assert_eq!((wrong.constant(), wrong.failure().is_some()), (None, true));
}

/// Templates that call themselves: each level twice.
fn costly(levels: usize) -> CompiledCondition {
    let next = r#"{{template "f" (print . "x")}}"#;
    compile(&format!(
        r#"{{{{define "f"}}}}{{{{if lt (len .) {levels}}}}}{next}{next}{{{{end}}}}{{{{end}}}}{{{{template "f" ""}}}}{{{{with .Key}}}}{{{{end}}}}true"#
    ))
}

#[test]
fn verdicts_share_a_budget_of_steps() {
    let full = Budget { bytes: 1 << 20, steps: 1000, time: Duration::from_secs(3600) };
    let condition = costly(7);
    let mut budget = full;
    let verdicts: Vec<_> = (0..5).map(|_| condition.evaluate_within(&order(), &mut budget)).collect();
    assert!(matches!(
        verdicts[..],
        [
            Judgement::Verdict(true),
            Judgement::Verdict(true),
            Judgement::Verdict(true),
            Judgement::TooCostly(_),
            Judgement::TooCostly(_)
        ]
    ));
    let Judgement::TooCostly(fault) = &verdicts[3] else { unreachable!() };
    assert_eq!(fault.code().name(), "condition_too_costly");
    // A verdict that takes none costs nothing.
    let native = compile(r#"{{ eq .Metadata.k "v" }}"#);
    let mut budget = Budget { steps: 0, time: Duration::ZERO, bytes: 0 };
    assert!(matches!(native.evaluate_within(&order(), &mut budget), Judgement::Verdict(true)));
    let failing = compile("{{ .Metadata.k }}{{ printf .Metadata.k }}");
    assert!(matches!(failing.evaluate_within(&order(), &mut { full }), Judgement::Failed(_)));
}

/// The cost of a verdict is the CPU time of its thread: time in which other threads run does not count. The clock
/// stands still here.
#[tokio::test(start_paused = true)]
async fn a_verdict_is_charged_with_processor_time() {
    let full = Budget { bytes: usize::MAX, steps: usize::MAX, time: Duration::from_secs(3600) };
    let mut budget = full;
    assert!(matches!(costly(12).evaluate_within(&order(), &mut budget), Judgement::Verdict(true)));
    assert!(budget.time < full.time);
    // It slept: that costs nothing.
    let deadline = Deadline::within(full.time);
    std::thread::sleep(Duration::from_millis(200));
    assert!(deadline.left() > full.time - Duration::from_millis(200));
}

#[test]
fn a_verdict_ends_when_its_time_is_over() {
    let mut budget = Budget { bytes: usize::MAX, steps: usize::MAX, time: Duration::from_millis(50) };
    // It would take hours.
    assert!(matches!(costly(60).evaluate_within(&order(), &mut budget), Judgement::TooCostly(_)));
    assert_eq!(budget.time, Duration::ZERO);
    // So does one without a step that counts: each call looks at the clock.
    let calls = format!("{}true", r#"{{ $x := sha256sum (printf "%v" .) }}"#.repeat(3));
    assert!(matches!(compile(&calls).evaluate_within(&order(), &mut budget), Judgement::TooCostly(_)));
}
