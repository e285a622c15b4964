//! Variables in values.

use anabranch_plugin::diagnostic::Diagnostic;

use super::*;

/// The value of a setting, and whether it came from outside.
fn setting(name: &str, plugin: &str, text: &str) -> (String, bool) {
    let loaded = load_text(&pipeline(&format!(
        "processors:\n  - id: a\n    plugin: {plugin}\n    settings:\n      {name}: {}",
        serde_json::Value::from(text)
    )));
    assert!(!loaded.diagnostics.has_errors(), "{:?}", loaded.diagnostics);
    let pipeline = &loaded.pipelines[0];
    let value = &pipeline.processors[0].settings.entries[0].value;
    assert_eq!(value.written(), text);
    assert_eq!(format!("{value}"), text);
    (value.value().to_string(), value.is_substituted())
}

#[test]
fn variables_are_replaced_in_values() {
    let cases = [
        ("${SECRET}", "hunter22", true),
        ("a ${SECRET} b ${N}c", "a hunter22 b 4c", true),
        ("${NESTED}", "${SECRET}", true),
        ("${UNSET:-x y}", "x y", false),
        ("${UNSET:-}", "", false),
        ("${EMPTY:-x}", "x", false),
        ("${EMPTY}", "", false),
        ("${N:-x}", "4", true),
        ("${file:/run/secrets/key}", "hunter22", true),
        ("$${SECRET}", "${SECRET}", false),
        ("$$${SECRET}", "$${SECRET}", false),
        ("$${${N}}", "${4}", true),
        ("$SECRET $$ $1 $ {} $", "$SECRET $$ $1 $ {} $", false),
        ("{{ .Payload.After.x }}${N}", "{{ .Payload.After.x }}4", true),
    ];
    for (text, value, substituted) in cases {
        assert_eq!(setting("value", "field.set", text), (value.to_owned(), substituted), "{text}");
    }
}

#[test]
fn scripts_keep_expressions_of_their_own() {
    let script = "`${rec.Key} ${ x } ${N} ${a ? `${N}` : 1} ${";
    let read = ("`${rec.Key} ${ x } 4 ${a ? `4` : 1} ${".to_owned(), true);
    assert_eq!(setting("script", "anything", script), read);
    assert_eq!(setting("other", "builtin:custom.javascript@v0.1.0", script), read);
}

#[test]
fn variables_in_template_literals_of_scripts_are_told() {
    let text = |script: &str| {
        format!(
            "version: \"2.2\"\npipelines:\n  - id: p\n    processors:\n      - id: a\n        plugin: custom.javascript\n        settings:\n          script: {}\n",
            serde_json::Value::from(script)
        )
    };
    let told = |script: &str| {
        let mut files = Files::new();
        files.add("p.yaml", text(script));
        let loaded = load(&files, &Environment);
        let line = |finding: &Diagnostic| {
            let fix = finding.fix.as_ref().map_or(String::new(), |fix| format!("{} -> {}", fix.was, fix.becomes));
            format!("{} {fix}", finding.code)
        };
        // The pipeline has nothing but its processor.
        let of_text = loaded.diagnostics.iter().filter(|finding| !finding.code.name().starts_with("config.no_"));
        of_text.map(line).collect::<Vec<_>>()
    };
    assert_eq!(told("x = `a ${N}`"), ["config.variable_in_script ${N} -> $${N}"]);
    assert_eq!(told("x = `a ${UNSET}`"), ["config.variable_unset ${UNSET} -> $${UNSET}"]);
    assert_eq!(told("x = '${N}' + `$${N} ${rec.Key} ${UNSET:-x}`"), [] as [String; 0]);
    assert_eq!(told("x = '${UNSET}'"), ["config.variable_unset "]);
}

#[test]
fn a_field_that_is_wholly_a_variable_is_typed() {
    let pipeline = one(&pipeline(
        "status: ${STATUS}
name: n${N}
processors:
  - {id: 'a${N}', plugin: b, workers: '${N}', sdk.schema.decode.key.enabled: '${UNSET:-false}'}
dead-letter-queue: {window-size: '${N}', window-nack-threshold: '${UNSET:-2}'}",
    ));
    assert_eq!((&*pipeline.name.value, pipeline.status), ("n4", DesiredStatus::Stopped));
    assert_eq!((&*pipeline.processors[0].id.value, pipeline.processors[0].workers.value), ("a4", 4));
    let queue = &pipeline.dead_letter_queue;
    assert_eq!((queue.window_size.value, queue.window_nack_threshold.value), (4, 2));
}

#[test]
fn keys_and_comments_are_left_alone() {
    let text = pipeline("# ${UNSET}\nprocessors: # ${UNSET}\n  - {id: a, plugin: b, settings: {'${UNSET}': 1}}");
    assert_eq!(pairs(&one(&text).processors[0].settings), [("${UNSET}", "1")]);
}

#[test]
fn mistakes_are_errors() {
    for text in ["${}", "${ N }", "${1A}", "${A-B}", "${N", "${file:}", "${UNSET:-${N}}", "${N:?x}", "${ümlaut}"] {
        let text = pipeline(&format!("description: {}", serde_json::Value::from(text)));
        assert_eq!(codes(&text), ["7: config.variable_invalid"], "{text}");
    }
}

#[test]
fn substituted_texts_are_not_shown_where_they_are_wrong() {
    // `report` asserts that the secret is not in there.
    super::report(&["version: 2.2
pipelines:
  - id: '${SECRET} '
    status: ${SECRET}
    connectors:
      - {id: '${SECRET}', type: '${SECRET}', plugin: x}
      - {id: '${SECRET}', type: destination, plugin: '${EMPTY}', sdk.schema.x.enabled: '${SECRET}'}
    dead-letter-queue: {window-size: '${SECRET}'}
  - {id: '${SECRET} '}
  - {id: q, name: '${SECRET} '}
"]);
}
