//! Every field of a pipeline, its default and what may stand in it.

use anabranch_record::text::Str;

use super::*;

#[test]
fn every_field_is_read() {
    let pipeline = one("version: 2.2
pipelines:
  - id: copy.users_1:a-b
    name: Copy users
    description: From here to there.
    status: stopped
    connectors:
      - id: in
        type: source
        plugin: builtin:generator@v0.1.0
        name: The source
        settings: {rate: 1, format.type: structured}
        processors:
          - {id: a, plugin: field.set}
      - id: out
        type: destination
        plugin: log
    processors:
      - id: a
        plugin: json.decode
        condition: '{{ eq .Operation \"create\" }}'
        workers: 3
        settings:
          field: .Payload.After
        sdk.schema.decode.key.enabled: false
        sdk.schema.encode.payload.enabled: True
    dead-letter-queue:
      plugin: file
      settings: {path: ./failed}
      window-size: 0x10
      window-nack-threshold: 0o7
");
    assert_eq!(pipeline.id.value, "copy.users_1:a-b");
    assert_eq!(pipeline.name.value, "Copy users");
    assert_eq!(pipeline.description, "From here to there.");
    assert_eq!(pipeline.status, DesiredStatus::Stopped);
    let [source, destination] = pipeline.connectors.as_slice() else { panic!("two connectors") };
    assert_eq!((source.role.value, destination.role.value), (Role::Source, Role::Destination));
    assert_eq!(source.plugin.value, "builtin:generator@v0.1.0");
    assert_eq!((&*source.name.value, &*destination.name.value), ("The source", "out"));
    assert_eq!(pairs(&source.settings), [("rate", "1"), ("format.type", "structured")]);
    assert_eq!(source.processors[0].id.value, "a");
    assert_eq!(destination.settings.span, destination.plugin.span);
    let [processor] = pipeline.processors.as_slice() else { panic!("one processor") };
    assert_eq!(processor.condition.as_ref().unwrap().value(), "{{ eq .Operation \"create\" }}");
    assert_eq!((processor.workers.value, source.processors[0].workers.value), (3, 1));
    assert_eq!(
        pairs(&processor.settings),
        [
            ("field", ".Payload.After"),
            ("sdk.schema.decode.key.enabled", "false"),
            ("sdk.schema.encode.payload.enabled", "True")
        ]
    );
    let queue = &pipeline.dead_letter_queue;
    assert_eq!(queue.plugin.value, "file");
    assert_eq!(pairs(&queue.settings), [("path", "./failed")]);
    assert_eq!((queue.window_size.value, queue.window_nack_threshold.value), (16, 7));
}

#[test]
fn what_is_not_given_has_a_default() {
    for rest in ["", "name:\ndescription: ~\nstatus:\nprocessors:\ndead-letter-queue:", "status: ''\nprocessors: []"] {
        let pipeline = one(&pipeline(rest));
        assert_eq!((&*pipeline.name.value, &*pipeline.description), ("p", ""));
        assert_eq!(pipeline.status, DesiredStatus::Running);
        assert!(pipeline.processors.is_empty());
        let queue = &pipeline.dead_letter_queue;
        assert_eq!(queue.plugin.value, "builtin:log");
        assert_eq!(pairs(&queue.settings), [("level", "warn"), ("message", "record delivery failed")]);
        assert_eq!((queue.window_size.value, queue.window_nack_threshold.value), (1, 0));
    }
}

#[test]
fn the_log_settings_of_a_dead_letter_queue_are_for_the_log_plugin() {
    let settings = |queue: &str| {
        let pipeline = one(&pipeline(&format!("dead-letter-queue: {queue}")));
        pairs(&pipeline.dead_letter_queue.settings).iter().map(|(name, _)| (*name).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(settings("{plugin: file}"), [""; 0]);
    assert_eq!(settings("{plugin: 'builtin:log@v0.1.0'}"), ["level", "message"]);
    assert_eq!(settings("{window-size: 3}"), ["level", "message"]);
    assert_eq!(settings("{plugin: log, settings: {}}"), [""; 0]);
    assert_eq!(settings("{plugin: log, settings: {level: info}}"), ["level"]);
}

#[test]
fn the_window_of_a_dead_letter_queue_is_larger_than_its_threshold() {
    assert_eq!(
        codes(&pipeline("dead-letter-queue: {window-size: 0, window-nack-threshold: 5}")),
        ["7: config.no_effect"]
    );
    assert_eq!(codes(&pipeline("dead-letter-queue: {window-size: 0, window-nack-threshold: 0}")), [""; 0]);
    assert_eq!(codes(&pipeline("dead-letter-queue: {window-size: 6, window-nack-threshold: 5}")), [""; 0]);
    for queue in [
        "{window-size: 5, window-nack-threshold: 5}",
        "{window-nack-threshold: 1}",
        "{window-size: -1}",
        "{window-size: 1.5}",
        "{window-size: 99999999999999999999999999999999999999999999}",
        "{plugin: ''}",
        "text",
    ] {
        let found = codes(&pipeline(&format!("dead-letter-queue: {queue}")));
        assert_eq!(found.len(), 1, "{queue}: {found:?}");
    }
}

#[test]
fn settings_are_the_text_of_the_file() {
    let text = pipeline(
        "processors:
  - id: a
    plugin: field.set
    settings:
      octal: 0123
      float: 1.50
      word: on
      date: 2024-01-01
      none: ~
      nothing:
      null: x
      large: 12345678901234567890123
      quoted: \"a\\u00e9\\n\"
      single: 'it''s'
      tagged: !!str ~
      block: |
        one
          two
      folded: >-
        one
        two",
    );
    let pipeline = one(&text);
    assert_eq!(
        pairs(&pipeline.processors[0].settings),
        [
            ("octal", "0123"),
            ("float", "1.50"),
            ("word", "on"),
            ("date", "2024-01-01"),
            ("none", ""),
            ("nothing", ""),
            ("~", "x"),
            ("large", "12345678901234567890123"),
            ("quoted", "a\u{e9}\n"),
            ("single", "it's"),
            ("tagged", "~"),
            ("block", "one\n  two\n"),
            ("folded", "one two"),
        ]
    );
}

#[test]
fn places_inside_values_are_exact() {
    let text = pipeline(
        "processors:
  - id: a
    plugin: field.set
    settings:
      plain: find NEEDLE here
      single: 'it''s NEEDLE'
      double: \"tab\\t \\u00e9 NEEDLE\"
      literal: |
        first line
          then NEEDLE

        last line
      folded: >-
        first line
        then NEEDLE
      lines: first line
        then NEEDLE
      variable: ${SECRET} and ${N} NEEDLE
      escaped: $${x} NEEDLE
      windows: |\r\n        one\r\n        NEEDLE\r",
    );
    let pipeline = one(&text);
    let settings = &pipeline.processors[0].settings;
    assert_eq!(settings.entries.len(), 9);
    let mut found = Vec::new();
    for setting in &settings.entries {
        let place = setting.value.place(setting.value.value().find("NEEDLE").unwrap(), 6);
        assert_eq!(&text[place.start as usize..place.end as usize], "NEEDLE", "{}", setting.name.value);
        found.push(place.start as usize);
    }
    assert_eq!(found, text.match_indices("NEEDLE").map(|(at, _)| at).collect::<Vec<_>>());
    let variable = &settings.get("variable").unwrap().value;
    let place = variable.place(3, 2);
    assert_eq!(&text[place.start as usize..place.end as usize], "${SECRET}");
    assert_eq!(variable.substituted().map(Str::as_str).collect::<Vec<_>>(), ["hunter22", "4"]);
}

#[test]
fn places_that_cannot_be_aligned_are_the_whole_value() {
    let text = pipeline(
        "description: x\nprocessors:\n  - id: a\n    plugin: b\n    settings:\n      a: \"one\\t\n        two\"",
    );
    let pipeline = one(&text);
    let value = &pipeline.processors[0].settings.entries[0].value;
    assert_eq!(value.value(), "one\t two");
    assert_eq!(value.place(2, 1), value.span());
    let nowhere = Written::new("abc", "abc", Span::default());
    assert_eq!(nowhere.place(1, 1), Span::default());
}

#[test]
fn anchors_aliases_and_merge_keys_work() {
    let pipeline = one("version: 2.2
x-common: &common
  plugin: field.set
  workers: 2
x-more: &more {workers: 5, settings: {field: .Key}}
pipelines:
  - id: p
    connectors:
      - {id: in, type: source, plugin: &generator generator}
      - {id: out, type: destination, plugin: log}
      - {id: in2, type: source, plugin: *generator}
    processors:
      - <<: *common
        id: a
      - {<<: [*common, *more], id: b}
      - id: c
        <<: *more
        plugin: filter
        workers: 7
");
    let processors: Vec<_> = pipeline
        .processors
        .iter()
        .map(|p| (&*p.id.value, &*p.plugin.value, p.workers.value, p.settings.entries.len()))
        .collect();
    assert_eq!(processors, [("a", "field.set", 2, 0), ("b", "field.set", 2, 1), ("c", "filter", 7, 1)]);
    assert_eq!(pipeline.connectors[2].plugin.value, "generator");
}

#[test]
fn a_destination_has_a_condition_and_a_source_has_none() {
    let text = "version: \"2.2\"\npipelines:\n  - id: p\n    unmatched: out\n    connectors:\n      \
                - {id: in, type: source, plugin: x}\n      \
                - {id: out, type: destination, plugin: x, condition: '{{ eq .Operation \"create\" }}'}\n";
    let loaded = load_text(text);
    let pipeline = &loaded.pipelines[0];
    assert_eq!(pipeline.unmatched.as_ref().unwrap().value(), "out");
    assert_eq!(pipeline.connectors[1].condition.as_ref().unwrap().value(), "{{ eq .Operation \"create\" }}");
    assert!(pipeline.connectors[0].condition.is_none());
    let wrong = text.replace("type: source, plugin: x", "type: source, plugin: x, condition: 'true'");
    let said = report(&[&wrong]);
    assert!(said.contains("error[config.field_misplaced]: connector \"in\": a source has no condition"), "{said}");
    assert!(said.contains("add `filter` to its `processors`"), "{said}");
    let blank = text.replace("'{{ eq .Operation \"create\" }}'", "' '");
    let said = report(&[&blank]);
    assert!(said.contains("the condition is empty and has no effect: the destination receives every record"), "{said}");
}

#[test]
fn a_blank_condition_is_none() {
    for condition in ["", "~", "' '", "\"\\n\""] {
        let text = pipeline(&format!("processors:\n  - {{id: a, plugin: b, condition: {condition}}}"));
        let files = files(&[&text]);
        let loaded = load(&files, &Environment);
        assert!(loaded.pipelines[0].processors[0].condition.is_none(), "{condition}");
        // A blank condition is probably a mistake.
        let told = codes(&text).iter().filter(|code| code.ends_with("config.condition_blank")).count();
        assert_eq!(told, usize::from(condition.starts_with(['\'', '"'])), "{condition}");
    }
}

#[test]
fn no_workers_are_one() {
    for workers in ["+1", "", "null"] {
        let pipeline = one(&pipeline(&format!("processors:\n  - {{id: a, plugin: b, workers: {workers}}}")));
        assert_eq!(pipeline.processors[0].workers.value, 1, "{workers}");
    }
    assert_eq!(codes(&pipeline("processors:\n  - {id: a, plugin: b, workers: 0}")), ["8: config.no_effect"]);
}

#[test]
fn findings_name_the_field_by_a_pointer() {
    let files = files(&["version: 2.2
pipelines:
  - id: p
    connectors:
      - {id: in, type: source, plugin: generator, processors: [{id: x}]}
      - {id: out, type: destination, plugin: log, settings: {a/b~c: [1]}}
    dead-letter-queue: {window-size: x}
"]);
    let loaded = load(&files, &Environment);
    let paths: Vec<_> = loaded.diagnostics.iter().filter_map(|d| d.path.as_deref()).collect();
    assert_eq!(
        paths,
        ["/connectors/0/processors/0/plugin", "/connectors/1/settings/a~1b~0c", "/dead-letter-queue/window-size"]
    );
}

#[test]
fn programs_get_lines_and_columns() {
    let files = files(&[&pipeline("status: bad\nname: 漢字\nprocessors: [{id: a, plugin: b}, {id: a, plugin: b}]")]);
    let loaded = load(&files, &Environment);
    let json = serde_json::to_string_pretty(&loaded.diagnostics.findings(&files)).unwrap();
    insta::assert_snapshot!(json, @r###"
    [
      {
        "severity": "error",
        "code": "config.field_invalid",
        "message": "\"status\" is \"bad\", but must be \"running\" or \"stopped\"",
        "path": "/status",
        "file": "p.yaml",
        "line": 7,
        "column": 13,
        "endLine": 7,
        "endColumn": 16
      },
      {
        "severity": "error",
        "code": "config.id_duplicate",
        "message": "processor \"a\": the id is already used",
        "path": "/processors/1/id",
        "file": "p.yaml",
        "line": 9,
        "column": 43,
        "endLine": 9,
        "endColumn": 44,
        "label": "used again",
        "related": [
          {
            "file": "p.yaml",
            "line": 9,
            "column": 23,
            "endLine": 9,
            "endColumn": 24,
            "label": "first used here"
          }
        ]
      }
    ]
    "###);
}

#[test]
fn sound_parts_of_a_pipeline_are_kept_apart() {
    let loaded = load_text(&pipeline("status: bad\nprocessors: [{id: a, plugin: b}, {id: b}]"));
    assert!(loaded.pipelines.is_empty() && loaded.broken.is_empty());
    let [invalid] = loaded.invalid.as_slice() else { panic!("one pipeline") };
    assert_eq!(invalid.id.as_deref(), Some("p"));
    let parts = invalid.sound_parts.as_ref().unwrap();
    assert_eq!((parts.connectors.len(), parts.processors.len()), (2, 1));
}
