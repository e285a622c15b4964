//! What is said of words from other tools: the words that are meant here.

use crate::process::{DECODE, TO_FILE, Workspace, file_to_file, lines_to};

/// Returns the output of `validate` for a pipeline with this step and this destination.
fn validate(step: &str, destination: &str, code: i32) -> String {
    pipeline(step, destination).run(&["pipelines", "validate"]).expect_code(code).both()
}

fn pipeline(step: &str, destination: &str) -> Workspace {
    let workspace = Workspace::new();
    workspace.write("in.txt", "{\"kind\":\"a\"}\n");
    workspace.write("pipelines/p.yaml", lines_to(destination, &format!("{DECODE}{step}")));
    workspace
}

fn set(value: &str) -> String {
    format!("      - {{ id: t, plugin: field.set, settings: {{ field: .Payload.After.x, value: '{value}' }} }}")
}

#[test]
fn names_of_other_templates_lead_to_ours() {
    for (value, said) in [
        ("{{ uuid }}", "or uuidv4 for a random id"),
        ("{{ randomUUID }}", "or uuidv4 for a random id"),
        ("{{ timestamp }}", "or now for the current time"),
        ("{{ .record.kind }}", "did you mean .Payload.After.kind?"),
        ("{{ .Record.Payload.After.kind }}", "did you mean .Payload.After.kind?"),
        ("{{ .rec.metadata.x }}", "did you mean .Metadata.x?"),
        ("{{ record.kind }}", "write .Payload.After.kind"),
        ("{{ uuid \"x\" }}", "write uuidv4"),
    ] {
        let text = validate(&set(value), TO_FILE, 2);
        assert!(text.contains(said), "{value}: {said}\n{text}");
    }
    let condition = "      - { id: t, plugin: filter, condition: '{{ eq .record.kind \"x\" }}' }";
    let text = validate(condition, TO_FILE, 2);
    assert!(text.contains("did you mean .Payload.After.kind?"), "{text}");
}

#[test]
#[cfg(feature = "s3")]
fn braces_in_a_setting_that_is_no_template_are_told() {
    let s3 = |setting: &str| {
        format!(
            "plugin: s3, settings: {{ aws.bucket: b, aws.region: x, aws.accessKeyId: '${{A:-a}}', aws.secretAccessKey: '${{B:-b}}', {setting} }}"
        )
    };
    for (destination, said) in [
        (s3("prefix: '{{ name }}/x/'"), "prefix is not a template"),
        (s3("objstore.endpoint: 'http://{{ host.name }}:9000'"), "${HOST_NAME}"),
        (s3("aws.bucket: '{{bucket}}'").replace("aws.bucket: b, ", ""), "${BUCKET}"),
        (s3("aws.bucket: '{{ bucket }}'").replace("aws.bucket: b, ", ""), "${BUCKET}"),
    ] {
        // An error in the text itself is reported beside it.
        let text = pipeline("", &destination).run(&["pipelines", "validate"]).both();
        assert!(text.contains("warning[settings.not_a_template]"), "{destination}\n{text}");
        assert!(text.contains(said), "{said}: {destination}\n{text}");
    }
}

#[test]
#[cfg(feature = "postgres")]
fn options_and_tags_of_other_clients_lead_to_ours() {
    let url = |query: &str| format!("plugin: postgres, settings: {{ table: x, url: 'postgresql://me@h/d?{query}' }}");
    for query in ["ssl=true", "useSSL=1", "connect_timeout=3&tls=true"] {
        let text = validate("", &url(query), 2);
        assert!(text.contains("sslmode=require"), "{query}\n{text}");
    }
    for (tag, said) in [
        ("!env DATABASE_URL", "write `${DATABASE_URL}`"),
        ("!ENV 'postgres://h/d'", "write `${NAME}`"),
        ("!secret db_url", "`${file:/path/of/the/secret}`"),
        ("!file /run/url", "write `${file:/path/of/the/file}`"),
    ] {
        let destination = format!("plugin: postgres, settings: {{ table: x, url: {tag} }}");
        let text = pipeline("", &destination).run(&["pipelines", "validate"]).both();
        assert!(text.contains("warning[config.tag_ignored]") && text.contains(said), "{tag}\n{text}");
    }
}

#[test]
#[cfg(feature = "postgres")]
fn an_address_that_is_cut_or_a_name_without_braces_is_told() {
    for (url, code, said) in [
        ("$PG", 2, "settings.not_a_variable"),
        ("$DATABASE_URL", 2, "write `${NAME}` with that name"),
        ("postgresql://u:p@ss/w#rd@host/db", 2, "%2F for /"),
    ] {
        let destination = format!("plugin: postgres, settings: {{ table: x, url: '{url}' }}");
        let text = validate("", &destination, code);
        assert!(text.contains(said), "{url}: {said}\n{text}");
        assert!(!text.contains("DATABASE_URL") && !text.contains("w#rd"), "{text}");
    }
}

#[test]
fn a_variable_without_quotes_in_a_condition_is_told() {
    let step = |condition: &str| format!("      - {{ id: t, plugin: filter, condition: '{condition}' }}");
    for (condition, said) in [
        ("{{ eq .Payload.After.kind ${KIND} }}", "in quotes: \"${KIND}\""),
        ("{{ eq .Payload.After.kind (lower ${KIND}) }}", "in quotes: \"${KIND}\""),
        ("{{ eq .Payload.After.kind \"${KIND}\" ", "end it with `}}`"),
    ] {
        for kind in ["order", "two words"] {
            let mut workspace = pipeline(&step(condition), TO_FILE);
            workspace.env("KIND", kind);
            let text = workspace.run(&["pipelines", "validate"]).expect_code(2).both();
            assert!(text.contains(said), "{condition}\n{text}");
            assert!(!text.contains("two words"), "{text}");
        }
    }
    let mut workspace = pipeline(&step("{{ eq .Payload.After.kind \"${KIND}\" }}"), TO_FILE);
    workspace.env("KIND", "two \"words");
    let text = workspace.run(&["pipelines", "validate"]).expect_code(2).both();
    assert!(text.contains("check whether the value of a variable contains quotes or braces"), "{text}");
}

#[test]
fn a_number_of_records_that_is_expected_is_shown_as_it_is_written() {
    let workspace = Workspace::new();
    workspace.write("in.ndjson", "");
    workspace.write("pipelines/p.yaml", file_to_file("p", ""));
    for (expect, said) in [
        ("records: { count: 1 }", "write count below the id of a connector: `"),
        ("records: { unordered: true, records: [] }", "unordered is in the place of the id of a connector"),
        ("records: { records: [] }", "write records below the id of a connector: `"),
        ("count: 1", "for the number of records, write `expect: { records: 1 }`"),
        ("records: [ { count: 1 } ]", "for the number of records, write `expect: { records: 1 }`"),
    ] {
        workspace.write(
            "pipelines/p.test.yaml",
            format!("tests:\n  - name: a\n    input: ['{{}}']\n    expect:\n      {expect}\n"),
        );
        let text = workspace.run(&["pipelines", "test"]).expect_code(2).both();
        assert!(text.contains(said), "{expect}: {said}\n{text}");
    }
}
