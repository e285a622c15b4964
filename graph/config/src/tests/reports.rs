//! What broken files look like to the user.

use insta::assert_snapshot;

use super::{load_text, pipeline, report};

#[test]
fn fields_that_must_be_there() {
    assert_snapshot!(report(&["version: 2.2
pipelines:
  - name: nameless
  - id: p
    connectors:
      - type: source
        plugin: ' '
      - id: out
        plugin:
    processors:
      - id: x
"]), @r###"
    error[config.field_required]: pipeline 1: "id" is required
     --> p.yaml:3:5
      |
    3 |   - name: nameless
      |     ^^^^
      |
      = help: write `id: pipeline-1`, or another name that does not change: the state is stored under it

    error[config.no_destination]: pipeline 1 has no destination
     --> p.yaml:3:5
      |
    3 |   - name: nameless
      |     ^^^^
      |
      = help: add a connector with `type: destination`

    error[config.no_source]: pipeline 1 has no source
     --> p.yaml:3:5
      |
    3 |   - name: nameless
      |     ^^^^
      |
      = help: add a connector with `type: source`

    error[config.field_required]: connector 1: "id" is required
     --> p.yaml:6:9
      |
    6 |       - type: source
      |         ^^^^
      |
      = help: write `id: connector-1`, or another name that does not change: the state is stored under it

    error[config.field_required]: connector 1: "plugin" is required
     --> p.yaml:7:17
      |
    7 |         plugin: ' '
      |                 ^^^
      |
      = help: write, for example, `plugin: file`; `anabranch connectors list` shows all plugins

    error[config.field_required]: connector "out": "type" is required
     --> p.yaml:8:9
      |
    8 |       - id: out
      |         ^^
      |
      = help: write `type: source` or `type: destination`

    error[config.field_required]: connector "out": "plugin" is required
     --> p.yaml:9:9
      |
    9 |         plugin:
      |         ^^^^^^
      |
      = help: write, for example, `plugin: file`; `anabranch connectors list` shows all plugins

    error[config.field_required]: processor "x": "plugin" is required
      --> p.yaml:11:9
       |
    11 |       - id: x
       |         ^^
       |
       = help: write, for example, `plugin: field.set`; `anabranch processors list` shows all plugins
    "###);
}

#[test]
fn values_that_cannot_be() {
    assert_snapshot!(report(&["version: 2.2
pipelines:
  - id: bad id!
    status: Runing
    connectors:
      - {id: in, type: Source, plugin: generator}
      - {id: out, type: destination, plugin: log}
    processors:
      - {id: a, plugin: filter, workers: -1}
      - {id: b, plugin: filter, workers: '4'}
      - {id: c, plugin: filter, workers: many}
      - {id: d, plugin: filter, workers: 5000}
      - {id: e, plugin: filter, sdk.schema.decode.key.enabled: no}
    dead-letter-queue:
      window-size: 2
      window-nack-threshold: 3
"]), @r###"
    error[config.field_invalid]: pipeline "bad id!": a character that ids cannot contain (' ')
     --> p.yaml:3:12
      |
    3 |   - id: bad id!
      |            ^
      |
      = help: ids consist of letters A-Z and a-z, digits, `-`, `_`, `:` and `.`, for example `bad-id`

    error[config.field_invalid]: "status" is "Runing", but must be "running" or "stopped"
     --> p.yaml:4:13
      |
    4 |     status: Runing
      |             ^^^^^^
      |
      = help: did you mean "running"?

    error[config.field_invalid]: connector "in": "type" is "Source", but must be "source" or "destination"
     --> p.yaml:6:24
      |
    6 |       - {id: in, type: Source, plugin: generator}
      |                        ^^^^^^
      |
      = help: did you mean "source"?

    error[config.field_invalid]: "workers" is "-1", but must not be negative
     --> p.yaml:9:42
      |
    9 |       - {id: a, plugin: filter, workers: -1}
      |                                          ^^

    error[config.field_invalid]: "workers" is the text "4", but must be a whole number
      --> p.yaml:10:42
       |
    10 |       - {id: b, plugin: filter, workers: '4'}
       |                                          ^^^
       |
       = help: remove the quotes

    error[config.field_invalid]: "workers" is "many", but must be a whole number
      --> p.yaml:11:42
       |
    11 |       - {id: c, plugin: filter, workers: many}
       |                                          ^^^^

    error[config.field_invalid]: "workers" is "5000", but must be at most 1024
      --> p.yaml:12:42
       |
    12 |       - {id: d, plugin: filter, workers: 5000}
       |                                          ^^^^

    error[config.field_invalid]: "sdk.schema.decode.key.enabled" is "no", but must be true or false
      --> p.yaml:13:64
       |
    13 |       - {id: e, plugin: filter, sdk.schema.decode.key.enabled: no}
       |                                                                ^^
       |
       = help: in YAML 1.2 this is a text: write false

    error[config.field_invalid]: dead-letter-queue: "window-nack-threshold" is 3, but must be lower than "window-size", which is 2
      --> p.yaml:16:30
       |
    16 |       window-nack-threshold: 3
       |                              ^
       |
       = help: write `window-size: 4` or more, or 0 for no limit
    "###);
}

#[test]
fn texts_that_are_too_long() {
    let id = "a".repeat(129);
    let connector = "c".repeat(255);
    let name = "n".repeat(257);
    assert_snapshot!(report(&[&format!("version: 2.2
pipelines:
  - id: {id}
    name: {id}
    description: '{}'
    connectors:
      - {{id: in, type: source, plugin: generator, name: {name}}}
      - {{id: out, type: destination, plugin: log}}
  - id: p
    connectors:
      - {{id: in, type: source, plugin: generator}}
      - id: {connector}
        type: destination
        plugin: log
", "d".repeat(8193))]), @r###"
    error[config.field_too_long]: pipeline "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…": "id" has 129 bytes, at most 128 are allowed
     --> p.yaml:3:9
      |
    3 |   - id: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...
      |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

    error[config.field_too_long]: pipeline "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…": "name" has 129 bytes, at most 128 are allowed
     --> p.yaml:4:11
      |
    4 |     name: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...
      |           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

    error[config.field_too_long]: pipeline "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…": "description" has 8193 bytes, at most 8192 are allowed
     --> p.yaml:5:18
      |
    5 |     description: 'ddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd...
      |                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

    error[config.field_too_long]: connector "in": "name" has 257 bytes, at most 256 are allowed
     --> p.yaml:7:57
      |
    7 | ...nerator, name: nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn...
      |                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

    error[config.field_too_long]: connector "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc…": with the pipeline's id before it, the id has 257 bytes, at most 256 are allowed
      --> p.yaml:12:13
       |
    12 |       - id: cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc...
       |             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    "###);
}

#[test]
fn ids_that_are_taken() {
    assert_snapshot!(report(&["version: 2.2
pipelines:
  - id: p
    connectors:
      - {id: a, type: source, plugin: generator}
      - {id: a, type: destination, plugin: log}
    processors:
      - {id: a, plugin: filter}
      - {id: b, plugin: filter}
      - {id: a, plugin: filter}
"]), @r###"
    error[config.id_duplicate]: connector "a": the id is already used
     --> p.yaml:6:14
      |
    5 |       - {id: a, type: source, plugin: generator}
      |              - first used here
    6 |       - {id: a, type: destination, plugin: log}
      |              ^ used again

    error[config.id_duplicate]: processor "a": the id is already used
      --> p.yaml:10:14
       |
     8 |       - {id: a, plugin: filter}
       |              - first used here
     9 |       - {id: b, plugin: filter}
    10 |       - {id: a, plugin: filter}
       |              ^ used again
    "###);
}

#[test]
fn pipelines_that_are_taken_for_each_other() {
    let other = "version: 2.2
pipelines:
  - id: q
    name: p
    connectors:
      - {id: in, type: source, plugin: generator}
      - {id: out, type: destination, plugin: log}
";
    assert_snapshot!(report(&[&pipeline(""), other, &pipeline("")]), @r###"
    error[config.name_duplicate]: the name "p" is already used
     --> 2.yaml:4:11
      |
    4 |     name: p
      |           ^ used again
      |
     ::: 1.yaml:3:9
      |
    3 |   - id: p
      |         - first used here
      |
      = help: give each pipeline a different `name`; the default name is the id

    error[provisioning.pipeline_id_duplicate]: 2 pipelines have the id "p"; none of them is used
     --> 3.yaml:3:9
      |
    3 |   - id: p
      |         ^ used again
      |
     ::: 1.yaml:3:9
      |
    3 |   - id: p
      |         - first used here
      |
      = help: give each pipeline a different id
    "###);
}

#[test]
fn a_pipeline_needs_two_ends() {
    assert_snapshot!(report(&["version: 2.2
pipelines:
  - id: p
  - id: q
    connectors:
      - {id: in, type: source, plugin: generator}
"]), @r###"
    error[config.no_destination]: pipeline "p" has no destination
     --> p.yaml:3:9
      |
    3 |   - id: p
      |         ^
      |
      = help: add a connector with `type: destination`

    error[config.no_source]: pipeline "p" has no source
     --> p.yaml:3:9
      |
    3 |   - id: p
      |         ^
      |
      = help: add a connector with `type: source`

    error[config.no_destination]: pipeline "q" has no destination
     --> p.yaml:5:5
      |
    5 |     connectors:
      |     ^^^^^^^^^^
      |
      = help: add a connector with `type: destination`
    "###);
}

#[test]
fn unknown_fields_are_reported() {
    assert_snapshot!(report(&["version: 2.2
pipeline: []
pipelines:
  - id: p
    stauts: running
    connectors:
      - id: in
        type: source
        plugin: generator
        setings: {rate: 1}
        recordCount: 3
      - {id: out, type: destination, plugin: log}
    dead-letter-queue:
      window_size: 3
"]), @r###"
    error[config.field_misspelt]: a document has no field "pipeline"
     --> p.yaml:2:1
      |
    2 | pipeline: []
      | ^^^^^^^^
      |
      = help: did you mean "pipelines", which is already set?

    error[config.field_misspelt]: a pipeline has no field "stauts"
     --> p.yaml:5:5
      |
    5 |     stauts: running
      |     ^^^^^^
      |
      = help: did you mean "status"?

    error[config.field_misspelt]: a connector has no field "setings"
      --> p.yaml:10:9
       |
    10 |         setings: {rate: 1}
       |         ^^^^^^^
       |
       = help: did you mean "settings"?

    warning[config.field_unknown]: a connector has no field "recordCount"; it is ignored
      --> p.yaml:11:9
       |
    11 |         recordCount: 3
       |         ^^^^^^^^^^^
       |
       = help: write settings of the plugin below `settings`; the fields are: id, type, plugin, name, condition, settings, processors

    error[config.field_misspelt]: a dead-letter queue has no field "window_size"
      --> p.yaml:14:7
       |
    14 |       window_size: 3
       |       ^^^^^^^^^^^
       |
       = help: did you mean "window-size"?
    "###);
}

#[test]
fn values_of_the_wrong_shape() {
    assert_snapshot!(report(&["version: 2.2
pipelines:
  - just a text
  - id: p
    name: [a]
    connectors:
      in: {type: source, plugin: generator}
  - id: q
    connectors:
      - id: in
        type: source
        plugin: generator
        settings:
          format: {type: structured}
          collections: [a, b]
      - {id: out, type: destination, plugin: log, settings: level}
    processors:
      - id: a
        plugin: filter
        condition: {{ eq .Metadata.a \"x\" }}
"]), @r###"
    error[config.type]: pipeline 1 must be a map of fields, not a single value
     --> p.yaml:3:5
      |
    3 |   - just a text
      |     ^^^^^^^^^^^

    error[config.type]: "name" must be a text, not a list
     --> p.yaml:5:11
      |
    5 |     name: [a]
      |           ^^^

    error[config.type]: in version 2.2 "connectors" must be a list
     --> p.yaml:6:5
      |
    6 |     connectors:
      |     ^^^^^^^^^^
      |
      = help: each item starts with `- id: `; only versions 1.0 and 1.1 have maps by id

    error[config.setting_nested]: the setting "format" must be a single value, not a map
      --> p.yaml:14:11
       |
    14 |           format: {type: structured}
       |           ^^^^^^
       |
       = help: write names of settings with dots: `format.type: ...`

    error[config.setting_nested]: the setting "collections" must be a single value, not a list
      --> p.yaml:15:11
       |
    15 |           collections: [a, b]
       |           ^^^^^^^^^^^
       |
       = help: write `collections: 'a,b'`

    error[config.type]: "condition" must be a text, not a map
      --> p.yaml:20:20
       |
    20 |         condition: {{ eq .Metadata.a "x" }}
       |                    ^^^^^^^^^^^^^^^^^^^^^^^^
       |
       = help: a text that starts with `{{` must be quoted: '{{ ... }}'
    "###);
}

#[test]
fn keys_that_are_given_twice() {
    assert_snapshot!(report(&["version: 2.2
pipelines:
  - id: p
    status: running
    connectors:
      - {id: in, type: source, plugin: generator}
      - {id: out, type: destination, plugin: log}
    status: stopped
    processors:
      - id: a
        plugin: filter
        sdk.schema.decode.key.enabled: false
        settings:
          sdk.schema.decode.key.enabled: true
"]), @r###"
    error[config.key_duplicate]: "status" is set twice
     --> p.yaml:8:5
      |
    4 |     status: running
      |     ------ first set here
    ...
    8 |     status: stopped
      |     ^^^^^^ set again

    error[config.field_duplicate]: "sdk.schema.decode.key.enabled" is set next to "plugin" and in "settings"
      --> p.yaml:12:9
       |
    12 |         sdk.schema.decode.key.enabled: false
       |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ set here
    13 |         settings:
    14 |           sdk.schema.decode.key.enabled: true
       |           ----------------------------- and set here
       |
       = help: keep one of them
    "###);
}

#[test]
fn syntax_errors_take_their_document_and_no_other() {
    let text = format!(
        "{}---\npipelines: [\n---\na:\n\tb: 1\n---\nkey: @x\n---\nx: {{{{ if .a }}}}1{{{{ end }}}}\n---\n{}",
        pipeline(""),
        pipeline("").replace("id: p", "id: q")
    );
    assert_snapshot!(report(&[&text]), @r###"
    error[config.parse_error]: unclosed bracket '['
     --> p.yaml:8:12
      |
    8 | pipelines: [
      |            ^

    error[config.parse_error]: a tab in the indentation
      --> p.yaml:11:1
       |
    11 |     b: 1
       | ^^^^
       |
       = help: indent with spaces

    error[config.parse_error]: a value cannot start with '@'
      --> p.yaml:13:6
       |
    13 | key: @x
       |      ^
       |
       = help: quote the text

    error[config.parse_error]: a text that starts with `{{` is not quoted
      --> p.yaml:15:4
       |
    15 | x: {{ if .a }}1{{ end }}
       |    ^^^^^^^^^^^^^^^^^^^^^
       |
       = help: a text that starts with `{{` must be quoted: '{{ ... }}'
    "###);
    let loaded = super::load_text(&text);
    let ids: Vec<&str> = loaded.pipelines.iter().map(|p| &*p.id.value).collect();
    assert_eq!((ids, loaded.broken.len()), (vec!["p", "q"], 1));
}

#[test]
fn a_variable_between_braces_must_be_quoted() {
    for text in ["settings: { path: ${SRC} }\n", "settings: { a: 1, path: ${SRC} }\n", "list: [${A}, ${B}]\n"] {
        let report = report(&[text]);
        assert!(report.contains("must be quoted: \"${NAME}\""), "{report}");
    }
    let quoted = report(&["settings: { path: \"${SRC}\" }\n"]);
    assert!(!quoted.contains("must be quoted"), "{quoted}");
}

#[test]
fn anchors_that_lead_nowhere() {
    assert_snapshot!(report(&["version: 2.2
pipelines: &p
  - id: *nope
---
a: &a [*a]
---
<<: 1
!custom x: 1
"]), @r###"
    error[config.no_destination]: pipeline 1 has no destination
     --> p.yaml:3:5
      |
    3 |   - id: *nope
      |     ^^
      |
      = help: add a connector with `type: destination`

    error[config.no_source]: pipeline 1 has no source
     --> p.yaml:3:5
      |
    3 |   - id: *nope
      |     ^^
      |
      = help: add a connector with `type: source`

    error[config.unknown_anchor]: the alias refers to the anchor "nope", which is not defined above it
     --> p.yaml:3:9
      |
    3 |   - id: *nope
      |         ^^^^^
      |
      = help: an anchor `&name` is valid only in its own document; quote a text that starts with `*`

    error[config.parse_error]: the alias is inside the value that it refers to
     --> p.yaml:5:8
      |
    5 | a: &a [*a]
      |        ^^ this would repeat endlessly

    error[config.type]: `<<` merges a map or a list of maps
     --> p.yaml:7:5
      |
    7 | <<: 1
      |     ^
      |
      = help: write `<<: *name`, where `&name` is before a map

    warning[config.tag_ignored]: the tag "!custom" has no effect here
     --> p.yaml:8:1
      |
    8 | !custom x: 1
      | ^^^^^^^
      |
      = help: quote a text that starts with `!`

    warning[config.field_unknown]: a document has no field "x"; it is ignored
     --> p.yaml:8:9
      |
    8 | !custom x: 1
      |         ^
      |
      = help: the fields are: version, pipelines

    warning[config.version_missing]: no version is set; the document is read as version 2.2
     --> p.yaml:8:9
      |
    8 | !custom x: 1
      |         ^
      |
      = help: write `version: 2.2` at the top of the document
    "###);
}

#[test]
fn variables_that_cannot_be_replaced() {
    assert_snapshot!(report(&[&pipeline("description: price $5 ${UNSET}
processors:
  - id: a
    plugin: field.set
    workers: ${SECRET}
    settings:
      one: \"a\\tb ${rec.Key}\"
      two: ${file:/nope}
      three: |
        line
          ${UNSET} and ${SECRET}
      four: ${OPEN
      script: ok ${rec.Key} ${UNSET}
  - id: b
    plugin: filter
    workers: 1${N}
")]), @r###"
    error[config.variable_unset]: the environment variable UNSET is not set
     --> p.yaml:7:27
      |
    7 |     description: price $5 ${UNSET}
      |                           ^^^^^^^^
      |
      = help: set it, or write `${UNSET:-default}` to have a default, or `$${UNSET}` for the text itself

    error[config.field_invalid]: "workers" is "${SECRET}", but must be a whole number
      --> p.yaml:11:18
       |
    11 |         workers: ${SECRET}
       |                  ^^^^^^^^^

    error[config.variable_invalid]: "${rec.Key}" is not a variable
      --> p.yaml:13:22
       |
    13 |           one: "a\tb ${rec.Key}"
       |                      ^^^^^^^^^^
       |
       = help: write `${NAME}`, `${NAME:-default}` or `${file:PATH}`, where NAME is letters, digits and `_`; or `$${` for the two characters themselves

    error[config.variable_file]: "/nope" cannot be read: no such file
      --> p.yaml:14:16
       |
    14 |           two: ${file:/nope}
       |                ^^^^^^^^^^^^^
       |
       = help: name a file that exists (a relative path starts at the working directory), or write `$${file:/nope}` for the text itself

    error[config.variable_unset]: the environment variable UNSET is not set
      --> p.yaml:17:15
       |
    17 |               ${UNSET} and ${SECRET}
       |               ^^^^^^^^
       |
       = help: set it, or write `${UNSET:-default}` to have a default, or `$${UNSET}` for the text itself

    error[config.variable_invalid]: `${` has no closing `}`
      --> p.yaml:18:17
       |
    18 |           four: ${OPEN
       |                 ^^ opened here
       |
       = help: write `$${` for the two characters themselves

    error[config.variable_unset]: the environment variable UNSET is not set
      --> p.yaml:19:33
       |
    19 |           script: ok ${rec.Key} ${UNSET}
       |                                 ^^^^^^^^
       |
       = help: set it, or write `${UNSET:-default}` to have a default, or `$${UNSET}` for the text itself

    error[config.field_invalid]: "workers" is "1${N}", but must be a whole number
      --> p.yaml:22:18
       |
    22 |         workers: 1${N}
       |                  ^^^^^
       |
       = help: write a number, or a single `${NAME}` for the whole number
    "###);
}

#[test]
fn metadata_by_foreign_names() {
    assert_snapshot!(report(&[&pipeline("processors:
  - id: a
    plugin: field.set
    condition: '{{ eq (index .Metadata \"opencdc.collection\") \"x\" }}'
    settings:
      field: .Metadata[\"conduit.source.connector.id\"]
      value: see opencdc.org
")]), @r###"
    warning[config.metadata_renamed]: "opencdc.collection" is read as "recfmt.collection", the name of this metadata key here
      --> p.yaml:10:45
       |
    10 |         condition: '{{ eq (index .Metadata "opencdc.collection") "x" }}'
       |                                             ^^^^^^^^^^^^^^^^^^
       |
       = help: write "recfmt.collection"

    warning[config.metadata_renamed]: "conduit.source.connector.id" is read as "svc.source.connector.id", the name of this metadata key here
      --> p.yaml:12:29
       |
    12 |           field: .Metadata["conduit.source.connector.id"]
       |                             ^^^^^^^^^^^^^^^^^^^^^^^^^^^
       |
       = help: write "svc.source.connector.id"
    "###);
}

/// A text that is no key is what it is, and is not rewritten.
#[test]
fn texts_that_look_like_foreign_names_of_metadata() {
    let text = pipeline(
        "processors:
  - id: a
    plugin: field.set
    condition: '{{ eq (index .Metadata \"x\") \"conduit.x\" }}'
    settings: { field: .Key, value: '{{ index .Metadata \"opencdc.my-own_key/é\" }} {{ \"opencdc. and more\" }}' }
  - id: b
    plugin: custom.javascript
    settings:
      script: |
        const key = 'opencdc.version';
        function process(rec) {
          logger.info(\"opencdc.org is a site\", `conduit.`, 'opencdc.it\\'s');
          return rec.Metadata ?. [ `opencdc.createdAt` ] === \"conduit.x\" ? rec : null;
        }
",
    );
    let findings = load_text(&text).diagnostics.0;
    let fixes: Vec<bool> = findings.iter().map(|finding| finding.fix.is_some()).collect();
    assert_eq!(fixes, [false, true, false, true, false]);
    assert_snapshot!(report(&[&text]), @r###"
    warning[config.metadata_renamed]: "conduit.x" is read as "svc.x" if it is used as a key of metadata; otherwise it does not change
      --> p.yaml:10:50
       |
    10 |         condition: '{{ eq (index .Metadata "x") "conduit.x" }}'
       |                                                  ^^^^^^^^^
       |
       = help: write "svc.x" if it is a key of metadata

    warning[config.metadata_renamed]: "opencdc.my-own_key/é" is read as "recfmt.my-own_key/é", the name of this metadata key here
      --> p.yaml:11:62
       |
    11 |         settings: { field: .Key, value: '{{ index .Metadata "opencdc.my-own_key/é" }} {{ "opencdc. and more" }}' }
       |                                                              ^^^^^^^^^^^^^^^^^^^^
       |
       = help: write "recfmt.my-own_key/é"

    warning[config.metadata_renamed]: "opencdc.version" is read as "recfmt.version" if it is used as a key of metadata; otherwise it does not change
      --> p.yaml:16:26
       |
    16 |             const key = 'opencdc.version';
       |                          ^^^^^^^^^^^^^^^
       |
       = help: write "recfmt.version" if it is a key of metadata

    warning[config.metadata_renamed]: "opencdc.createdAt" is read as "recfmt.createdAt", the name of this metadata key here
      --> p.yaml:19:41
       |
    19 |               return rec.Metadata ?. [ `opencdc.createdAt` ] === "conduit.x" ? rec : null;
       |                                         ^^^^^^^^^^^^^^^^^
       |
       = help: write "recfmt.createdAt"

    warning[config.metadata_renamed]: "conduit.x" is read as "svc.x" if it is used as a key of metadata; otherwise it does not change
      --> p.yaml:19:67
       |
    19 |               return rec.Metadata ?. [ `opencdc.createdAt` ] === "conduit.x" ? rec : null;
       |                                                                   ^^^^^^^^^
       |
       = help: write "svc.x" if it is a key of metadata
    "###);
}

#[test]
fn places_in_long_lines_wide_characters_and_other_line_breaks() {
    let text = format!(
        "\u{feff}verzion: 2.2\r\npipelines:\r\n  - {{id: p, name: žlutý 漢字, status: bad}}\r\n---\n{{version: 2.2, x-a: {}, bad: 2}}",
        "ý".repeat(100_000)
    );
    assert_snapshot!(report(&[&text]), @r###"
    error[config.field_misspelt]: a document has no field "verzion"
     --> p.yaml:1:1
      |
    1 | verzion: 2.2
      | ^^^^^^^
      |
      = help: did you mean "version"?

    warning[config.version_missing]: no version is set; the document is read as version 2.2
     --> p.yaml:1:1
      |
    1 | verzion: 2.2
      | ^^^^^^^
      |
      = help: write `version: 2.2` at the top of the document

    error[config.no_destination]: pipeline "p" has no destination
     --> p.yaml:3:10
      |
    3 |   - {id: p, name: žlutý 漢字, status: bad}
      |          ^
      |
      = help: add a connector with `type: destination`

    error[config.no_source]: pipeline "p" has no source
     --> p.yaml:3:10
      |
    3 |   - {id: p, name: žlutý 漢字, status: bad}
      |          ^
      |
      = help: add a connector with `type: source`

    error[config.field_invalid]: "status" is "bad", but must be "running" or "stopped"
     --> p.yaml:3:37
      |
    3 |   - {id: p, name: žlutý 漢字, status: bad}
      |                                       ^^^

    warning[config.field_unknown]: a document has no field "bad"; it is ignored
     --> p.yaml:5:100023
      |
    5 | ýýýýýýýýýýýýýýýýýýýýýýýýýýýýýýýýýýýýýýý, bad: 2}
      |                                          ^^^
      |
      = help: the fields are: version, pipelines
    "###);
}
