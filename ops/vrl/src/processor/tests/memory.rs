//! Limits of the memory of a program.

use super::*;

#[test]
fn values_are_limited() {
    let limited = |program: &str| with(&[("program", program), ("maxBytes", "1MiB")]);
    let bomb = {
        use std::io::Write as _;
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(&vec![0; 64 << 20]).unwrap();
        encoder.finish().unwrap()
    };
    let of_bomb = Data::from(Object::from_iter([("b", Value::Bytes(bomb.into()))]));
    for (program, after, said) in [
        (".x = decode_gzip!(.b)", of_bomb, "the decompressed value has more than 1048576 bytes"),
        (
            ".x = string!(.a) * int!(.n)",
            fields(r#"{"a":"aaaa","n":1000000000000}"#),
            "the product would be a string of 4000000000000 bytes",
        ),
        (
            ".x = int!(.n) * string!(.a)",
            fields(r#"{"a":"aaaa","n":1000000}"#),
            "the product would be a string of 4000000 bytes",
        ),
        (
            ". = unnest!(.l)",
            fields(&format!(r#"{{"l":[{}0],"t":{:?}}}"#, "0,".repeat(2000), "t".repeat(1000))),
            "2001 copies of the object have",
        ),
        (
            ".x = .a + .a",
            fields(&format!(r#"{{"a":{:?}}}"#, "t".repeat(600_000))),
            "the program sets a value of 1200000 bytes",
        ),
        (
            ".x = .a\n.y = .a",
            fields(&format!(r#"{{"a":{:?}}}"#, "t".repeat(600_000))),
            "the values that the program sets have 1200000 bytes",
        ),
        (".x = 1", fields(&format!(r#"{{"a":{:?}}}"#, "t".repeat(1 << 20))), "the record has "),
        // Doubled for each element.
        (
            "x = \"tt\"\nfor_each(array!(.l)) -> |_, v| {\n  x = x + x\n}\n.x = length(x)",
            fields(&format!(r#"{{"l":[{}0]}}"#, "0,".repeat(40))),
            "the variable has 2097152 bytes",
        ),
        (
            "x = [1]\nfor_each(array!(.l)) -> |_, v| {\n  if v == 0 { x = append(x, x) }\n}\n.x = length(x)",
            fields(&format!(r#"{{"l":[{}0]}}"#, "0,".repeat(40))),
            "the result would have more than 1048576 bytes",
        ),
        (
            "x = {}\nfor_each(array!(.l)) -> |_, v| {\n  x |= {\"a\": x, \"b\": x}\n}\n.x = length(x)",
            fields(&format!(r#"{{"l":[{}0]}}"#, "0,".repeat(40))),
            "the variable has ",
        ),
    ] {
        let outcome = payload(&limited(&program.replace(".a + .a", "string!(.a) + string!(.a)")), after).unwrap_err();
        assert!(outcome.contains(said), "{program}: {outcome}");
    }
    assert_eq!(
        payload(&of(".x = string!(.a) * int!(.n)"), fields(r#"{"a":"ab","n":3}"#)).as_deref(),
        Ok(r#"{"a":"ab","n":3,"x":"ababab"}"#)
    );
    // An assignment in a closure keeps its value and its type.
    assert_eq!(
        payload(&of(".x = map_values(object!(.m)) -> |v| { y = int!(v) + 1 }"), fields(r#"{"m":{"a":1,"b":2}}"#))
            .as_deref(),
        Ok(r#"{"m":{"a":1,"b":2},"x":{"a":2,"b":3}}"#)
    );
    // The types are those of the operator: numbers need no handling of errors.
    assert_eq!(
        payload(&of(".x = float!(.a) * int!(.n)"), fields(r#"{"a":1.5,"n":3}"#)).as_deref(),
        Ok(r#"{"a":1.5,"n":3,"x":4.5}"#)
    );
    assert!(refused(".x = .a * .b")[0].contains("E103"), "{:?}", refused(".x = .a * .b"));
}

/// Runs a program with a limit of 64 KiB on a record with the fields `t`, `s`, `l` and `n`.
fn limited(program: &str) -> Result<String, String> {
    let limits = [("program", program), ("maxBytes", "64KiB")];
    let configured = processor(&kind(), &limits).map_err(|said| said.join("; "))?;
    let after = format!(
        r#"{{"t":{:?},"s":"ab","l":[{}"a"],"n":1000000000000,"o":{{{:?}:{{{}"z":1}}}}}}"#,
        "a".repeat(2000),
        r#""a","#.repeat(200),
        "k".repeat(2000),
        (0..100).map(|at| format!("\"k{at}\":1,")).collect::<String>(),
    );
    payload(&configured, fields(&after))
}

/// Programs whose last expression would make more than 64 KiB of a few.
const LARGE: [&str; 37] = [
    "replace(t, \"\", t)",
    "replace(t, \"a\", t)",
    "replace(t, r'a', t)",
    "replace(t, r'(?P<x>a+)', repeat_)",
    "replace(replace(replace(replace(replace(s, r'.', \"$0$0$0$0$0$0$0$0\"), r'.', \"$0$0$0$0$0$0$0$0\"), r'.', \"$0$0$0$0$0$0$0$0\"), r'.', \"$0$0$0$0$0$0$0$0\"), r'.', \"$0$0$0$0$0$0$0$0\")",
    "replace_with(t, r'a') -> |m| { t + m.string }",
    "replace_with(t, r'') -> |_m| { t }",
    "sieve(t, r'(aa)?', replace_single: t, replace_repeated: t) + sieve(t + \"bb\" + t, r'x|$', t, t) + sieve(t, r'\\b', t, t) + join!(split(t, \"\"), t)",
    "join!(l, t)",
    "split(t + t + t, \"\")",
    "split(t + t + t, r'')",
    "chunks!(t + t + t, 1 + n - n)",
    "parse_regex_all!(t, r'(?P<a_long_name_of_a_group>.)')",
    "parse_regex_all!(t, r'(a?)', numeric_groups: true)",
    "flatten(o)",
    "flatten({\"a\": {\"b\": 1, \"c\": {\"d\": 2}}}, separator: t + t + t + t + t + t + t + t + t + t + t + t + t + t + t + t + t + t)",
    "encode_logfmt(o)",
    "encode_key_value(o)",
    "encode_key_value({\"a\": l}, field_delimiter: t)",
    "set!({}, [\"a\", n], 1)",
    "set!([], [0 - n], 1)",
    "format_number(1, scale: n)",
    "format_number(1, scale: 0 - n)",
    "redact(t + t, filters: [r'a', r'b'], redactor: {\"type\": \"text\", \"replacement\": \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"})",
    "redact(t, filters: [r'.', r'.', r'.'])",
    "redact(t, filters: [r'.'], redactor: \"sha2\")",
    "map_values(l) -> |_v| { t }",
    "map_values(l) -> |_v| { l }",
    "map_values({\"a\": [[[1]]]}, recursive: true) -> |v| { if is_integer(v) { [t, t, t, t, t, t, t, t, t, t] } else { [t, v, t, t, t, t, t, t, t, t] } }",
    "map_keys(object!(values(o)[0])) -> |k| { t + k }",
    "append(append(append(append(l, l), append(l, l)), append(append(l, l), append(l, l))), append(append(l, l), append(l, l)))",
    "push(push(push(push(l, append(l, l)), append(l, l)), append(l, l)), append(l, l))",
    "encode_base16(encode_base16(encode_base16(encode_base16(encode_base16(encode_base16(t))))))",
    "encode_percent(encode_percent(encode_percent(encode_percent(encode_base16(t + t + t + t) + \"%\" * 9000))))",
    "encode_json(encode_json(encode_json(encode_json(encode_json(encode_json(encode_json(encode_json(encode_json(encode_json(encode_json(l)))))))))))",
    "tag_types_externally(tag_types_externally(tag_types_externally(tag_types_externally(append(append(l, l), l)))))",
    "to_entries({\"a\": append(l, l), \"b\": append(l, l), \"c\": append(l, l), \"d\": append(l, l), \"e\": l})",
];

#[test]
fn a_result_is_limited_before_it_is_stored() {
    const BEGIN: &str = "t = string!(.t)\ns = string!(.s)\nn = int!(.n)\nl = array!(.l)\no = object!(.o)\nrepeat_ = \"$x$x$x$x$x$x$x$x$x$x$x$x$x$x$x$x$x$x$x$x$x$x$x$x$x$x$x$x$x$x$x$x$x$x\"\n";
    let mut wrong = Vec::new();
    for expression in LARGE {
        // Only whether it is null is stored: the limit is that of the function.
        let program = format!("{BEGIN}x = {expression}\n.x = is_null(x)");
        let outcome = limited(&program);
        if !outcome.as_ref().is_err_and(|said| said.contains("the result would have more than 65536 bytes")) {
            wrong.push(format!("{expression}: {}", outcome.unwrap_or_else(|said| said)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_variable_is_limited_without_a_loop() {
    // The compiler takes long for types in types, so lists and objects begin large and are doubled a few times.
    let doubled = |first: &str, step: &str, times: usize| {
        format!("x = {first}\n{}.x = is_null(x)", format!("{step}\n").repeat(times))
    };
    let mut wrong = Vec::new();
    for program in [
        doubled("\"ab\"", "x = x + x", 40),
        doubled("\"ab\"", "x = \"{{ x }}{{ x }}\"", 40),
        doubled("array!(.l)", "x = [x, x]", 3),
        doubled("{\"c\": array!(.l)}", "x |= {\"a\": x, \"b\": x}", 3),
        doubled("{\"c\": array!(.l)}", "x.a = x\nx.b = x", 2),
        doubled("array!(.l)", "if true { x = append(x, x) }", 3),
        "x = .s\nfor_each(array!(.l)) -> |_i, _v| { x, err = x + x }\n.x = is_null(x)".to_owned(),
    ] {
        let outcome = limited(&program);
        if !outcome.as_ref().is_err_and(|said| said.contains("65536")) {
            wrong.push(format!("{program}: {}", outcome.unwrap_or_else(|said| said)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // The value of an assignment that is checked is the same.
    let program = ".x = map_values([.n, .n]) -> |v| { y, err = to_int(v) }\n.y = if true { a = 1\n a = a + a }\ndel(.t)\ndel(.l)\ndel(.o)";
    let expected = r#"{"n":1000000000000,"s":"ab","x":[1000000000000,1000000000000],"y":2}"#;
    assert_eq!(limited(program).as_deref(), Ok(expected));
    assert_eq!(
        refused(".a[999999999] = 1"),
        ["program:1:1: a list up to the index 999999999 has more than 16777216 bytes"]
    );
    assert!(refused("x = []\nx[-999999999] = 1\n.x = x")[0].contains("a list up to the index 999999999"));
}

#[test]
fn results_within_the_limit_are_those_of_the_library() {
    let mut wrong = Vec::new();
    for (expression, result) in [
        ("replace(\"aaa\", \"a\", \"b\", count: 2)", r#""bba""#),
        ("replace(\"aaa\", \"a\", \"b\", count: 0)", r#""aaa""#),
        ("replace(\"a1b2\", r'[a-z](?P<d>\\d)', \"<$d$$>\")", r#""<1$><2$>""#),
        ("replace(\"a1b2\", r'[a-z]', \"\", count: 1)", r#""1b2""#),
        // Near the limit, by the slow way.
        ("length(replace(string!(.t), r'a', \"$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0\"))", "40000"),
        ("length(replace(string!(.t), \"a\", \"0123456789012345678901234567\"))", "56000"),
        ("join!([\"a\", \"b\"], \", \")", r#""a, b""#),
        ("join([.n], \", \") ?? \"none\"", r#""none""#),
        ("split(\"a,b,c\", \",\", limit: 2)", r#"["a","b,c"]"#),
        ("split(\"a,b,c\", r',', limit: 0)", "[]"),
        (
            "flatten({\"a\": {\"b\": 1}, \"c\": {\"d\": {\"e\": {}}}, \"k\": {\"l\": 2}}, except: [\"k\"])",
            r#"{"a.b":1,"k":{"l":2}}"#,
        ),
        ("set!({\"a\": [1]}, [\"a\", 3], 2)", r#"{"a":[1,null,null,2]}"#),
        ("format_number(1, scale: 3)", r#""1.000""#),
        ("redact(\"id 123\", filters: [r'\\d+'])", r#""id [REDACTED]""#),
        (
            "redact([\"id 123\"], filters: [r'\\d+'], redactor: {\"type\": \"text\", \"replacement\": \"a long replacement\"})",
            r#"["id a long replacement"]"#,
        ),
        ("sieve(\"a-b--c\", r'[a-z]', replace_single: \"1\", replace_repeated: \"2\")", r#""a1b2c""#),
        (
            "map_values({\"a\": {\"b\": 1}}, recursive: true) -> |v| { if is_integer(v) { int!(v) + 1 } else { v } }",
            r#"{"a":{"b":2}}"#,
        ),
    ] {
        let program = format!(".x = {expression}\ndel(.l)\ndel(.n)\ndel(.o)\ndel(.s)\ndel(.t)");
        let outcome = limited(&program);
        if outcome != Ok(format!("{{\"x\":{result}}}")) {
            wrong.push(format!("{expression}: {}", outcome.unwrap_or_else(|said| said)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Without a limit, these overflow the stack, which ends the service.
#[test]
fn levels_are_limited() {
    let many = 20_000;
    let list = |element: &str| format!("[{}{element}]", format!("{element},").repeat(many));
    for (program, after, said) in [
        (".x = parse_xml!(string!(.a))", format!(r#"{{"a":{:?}}}"#, "<a>".repeat(many)), "more than 160 levels"),
        (
            ".x = parse_xml!(string!(.a))",
            format!(r#"{{"a":{:?}}}"#, "<a>".repeat(many) + "x" + &"</a>".repeat(many)),
            "more than 160 levels",
        ),
        (".x = unflatten(object!(.a))", format!(r#"{{"a":{{"{}":1}}}}"#, "a.".repeat(many)), "more than 160 levels"),
        (
            "x = {}\nfor_each(array!(.a)) -> |_, v| {\n  x = {\"x\": x}\n}\n.y = length(x)",
            format!("{{\"a\":{}}}", list("1")),
            "the variable has more than 160 levels",
        ),
        (
            "for_each(array!(.a)) -> |_, v| {\n  .x = [.x]\n}",
            format!("{{\"a\":{}}}", list("1")),
            "the program sets a value with more than 160 levels",
        ),
        (
            "for_each(array!(.a)) -> |_, v| {\n  . = {\"x\": .}\n}",
            format!("{{\"a\":{}}}", list("1")),
            "the program sets a value with more than 160 levels",
        ),
        (".x = set!({}, array!(.a), 1)", format!("{{\"a\":{}}}", list("\"a\"")), "levels"),
    ] {
        let outcome = payload(&of(program), fields(&after)).unwrap_err();
        assert!(outcome.contains(said), "{program}: {outcome}");
    }
    let parsed = payload(&of(".x = parse_xml!(string!(.a))"), fields(r#"{"a":"<a><b>1</b></a>"}"#));
    assert_eq!(parsed.as_deref(), Ok(r#"{"a":"<a><b>1</b></a>","x":{"a":{"b":1}}}"#));
    let separator = payload(&of(".x = unflatten(object!(.a), string!(.s))"), fields(r#"{"a":{"b":1},"s":""}"#));
    assert!(separator.unwrap_err().contains("the separator is empty"));
}
