//! Versions of the format, and documents that stand in one file.

use super::*;

fn with_version(version: &str) -> String {
    pipeline("").replace("version: 2.2\n", version)
}

#[test]
fn versions_are_recognised_by_their_text() {
    for version in ["version: 2.0\n", "version: \"2.1\"\n", "version: 2.2\n", "version: 2.2 # newest\n"] {
        assert_eq!(codes(&with_version(version)), [""; 0], "{version}");
    }
    for version in ["version: 2.10\n", "version: 2.3\n", "version: 2\n", "version: 2.2.1\n"] {
        assert_eq!(codes(&with_version(version)), ["1: config.version_unknown"], "{version}");
    }
    for version in ["", "version:\n", "version: ''\n"] {
        assert_eq!(codes(&with_version(version)), ["1: config.version_missing"], "{version}");
    }
    for version in ["version: 3.0\n", "version: v2.2\n", "version: x\n"] {
        assert_eq!(codes(&with_version(version)), ["1: config.version_unsupported"], "{version}");
        assert_eq!(load_text(&with_version(version)).broken.len(), 1);
    }
    assert_eq!(codes(&with_version("version: [2]\n")), ["1: config.type"]);
    assert_eq!(codes(&with_version("version: 1.7\n")), ["1: config.version_unknown", "2: config.type"]);
}

const FIRST: &str = "version: 1.1
pipelines:
  p:
    status: stopped
    name: First
    description: Maps by id.
    connectors:
      in:
        type: source
        plugin: builtin:file
        settings: {path: ./in}
        processors:
          z: {type: filter}
      out: {type: destination, plugin: builtin:file}
    processors:
      b: {type: field.set, settings: {field: .Key}, workers: 2}
      a: {type: filter}
    dead-letter-queue: {window-size: 3}
";

#[test]
fn version_1_has_maps_by_id() {
    let loaded = load_text(FIRST);
    assert_eq!(codes(FIRST), ["12: config.order_undefined", "15: config.order_undefined"]);
    let [pipeline] = loaded.pipelines.as_slice() else { panic!("one pipeline") };
    assert_eq!((&*pipeline.id.value, &*pipeline.name.value), ("p", "First"));
    let ids: Vec<_> = pipeline.connectors.iter().map(|c| (&*c.id.value, c.role.value)).collect();
    assert_eq!(ids, [("in", Role::Source), ("out", Role::Destination)]);
    let ids: Vec<_> = pipeline.processors.iter().map(|p| (&*p.id.value, &*p.plugin.value, p.workers.value)).collect();
    assert_eq!(ids, [("b", "field.set", 2), ("a", "filter", 1)]);
    assert_eq!(pipeline.connectors[0].processors[0].plugin.value, "filter");
    assert_eq!(pipeline.dead_letter_queue.window_size.value, 3);
}

#[test]
fn later_fields_warn_and_are_read() {
    let text = FIRST.replace("1.1", "1.0");
    assert_eq!(codes(&text)[2], "18: config.field_introduced");
    assert_eq!(load_text(&text).pipelines[0].dead_letter_queue.window_size.value, 3);

    let with = |version: &str, processor: &str| {
        pipeline(&format!("processors:\n  - {{id: a, {processor}}}")).replace("2.2", version)
    };
    let introduced = ["8: config.field_introduced"];
    assert_eq!(codes(&with("2.0", "type: b, condition: x")), introduced);
    assert_eq!(codes(&with("2.1", "type: b, condition: x")), [""; 0]);
    assert_eq!(codes(&with("2.1", "plugin: b")), introduced);
    assert_eq!(codes(&with("2.2", "type: b")), ["8: config.field_renamed"]);
    assert_eq!(load_text(&with("2.2", "type: b")).pipelines[0].processors[0].plugin.value, "b");
    assert_eq!(load_text(&with("2.2", "type: b, plugin: c")).pipelines[0].processors[0].plugin.value, "c");
    assert_eq!(load_text(&with("2.2", "type: b, plugin: ''")).pipelines[0].processors[0].plugin.value, "b");
    assert_eq!(codes(&with("2.0", "condition: x")), ["8: config.field_required", "8: config.field_introduced"]);
}

#[test]
fn the_shapes_of_versions_do_not_mix() {
    assert_eq!(codes(&FIRST.replace("1.1", "2.2")), ["2: config.type"]);
    assert_eq!(codes(&pipeline("").replace("2.2", "1.1")), ["2: config.type"]);
}

#[test]
fn documents_stand_for_themselves() {
    let text = format!(
        "# comment\n---\n{}---\nversion: 9\n---\n- 1\n---\n{FIRST}...\n---\n# nothing\n---\n{}",
        pipeline(""),
        pipeline("").replace("id: p", "id: q")
    );
    assert_eq!(
        codes(&text).iter().map(|c| c.split(": ").nth(1).unwrap()).collect::<Vec<_>>(),
        [
            "config.version_unsupported",
            "config.type",
            "provisioning.pipeline_id_duplicate",
            "config.order_undefined",
            "config.order_undefined"
        ]
    );
    let loaded = load_text(&text);
    assert_eq!(loaded.pipelines.iter().map(|p| &*p.id.value).collect::<Vec<_>>(), ["q"]);
    assert_eq!(loaded.invalid.iter().map(|p| p.id.as_deref()).collect::<Vec<_>>(), [Some("p"), Some("p")]);
}

#[test]
fn files_without_pipelines_are_fine() {
    for text in [
        "",
        "\n\n",
        "# comment\n",
        "---\n",
        "---\n---\n...\n",
        "version: 2.2\n",
        "version: 2.2\npipelines:\n",
        "\u{feff}",
    ] {
        assert!(clean(text).is_empty(), "{text:?}");
    }
}

#[test]
fn files_that_declare_nobody_knows_what_are_broken() {
    for text in [
        "pipelines: [",
        "text",
        "version: 2.2\npipelines: 5\n",
        "version: 2.2\npipelines: [5]\n",
        "version: 2.2\npipelines: [{name: x}]\n",
        "version: 2.2\npipelines: []\npipelines: []\n",
        "version: 2.2\nversion: 2.2\npipelines: []\n",
        "version: 2.2\nx-a: {a: 1, a: 2}\npipelines: []\n",
        "version: 2.2\nother: *nowhere\npipelines: []\n",
    ] {
        let loaded = load_text(text);
        assert_eq!(loaded.broken.len(), 1, "{text}");
        assert!(loaded.diagnostics.has_errors(), "{text}");
    }
    assert!(load_text(&pipeline("status: x")).broken.is_empty());
}
