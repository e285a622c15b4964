//! Pipelines that are sound to `validate` and write what nobody means: real records show it.

use serde_json::Value;

use crate::process::{DECODE, Workspace, file_to_file, lines_to};

const RECORDS: &str = r#"{"name":"tea","price":4.5,"password":"x","tags":["hot","green"]}
{"name":"milk","price":2,"tags":["cold"]}
"#;

/// A pipeline that decodes lines, and then has these steps, indented by six.
fn workspace(steps: &str, destination: &str) -> Workspace {
    let workspace = Workspace::new();
    workspace.write("in.txt", RECORDS);
    let destination = format!("plugin: file, settings: {{ path: ./out.txt{destination} }}");
    workspace.write("pipelines/p.yaml", lines_to(&destination, &format!("{DECODE}{steps}")));
    workspace
}

fn dry_run(workspace: &Workspace, code: i32) -> (String, Value) {
    let args = ["pipelines", "dry-run", "p", "--no-color"];
    let text = workspace.run(&args).expect_code(code).both();
    let json = workspace.run(&[&args[..3], &["--json"]].concat()).expect_code(code).stdout;
    (text, serde_json::from_str(&json).unwrap())
}

fn set(value: &str) -> String {
    format!("      - {{ id: t, plugin: field.set, settings: {{ field: .Payload.After.x, value: '{value}' }} }}")
}

#[test]
fn a_template_that_gives_no_value_is_told_with_its_place_and_the_near_name() {
    let workspace = workspace(&set("a {{ .Payload.After.Name }}"), "");
    workspace.run(&["pipelines", "validate"]).expect_code(0);
    let (text, json) = dry_run(&workspace, 1);
    for part in [
        "warning[template.no_value]",
        "pipelines/p.yaml:9:",
        "for 2 of 2 records",
        "did you mean .Payload.After.name?",
        "2 read, 2 delivered, 0 dropped, 0 failed; 1 warning",
    ] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    assert_eq!(json["ok"], Value::Bool(false));
    let doubt = &json["result"]["pipelines"][0]["doubts"][0];
    assert_eq!(
        (&doubt["node"], &doubt["code"], &doubt["line"], &doubt["records"], &doubt["of"]),
        (&"t".into(), &"template.no_value".into(), &9.into(), &2.into(), &2.into()),
        "{doubt}"
    );
    assert_eq!(doubt["path"], "/processors/1/settings/value");
}

#[test]
fn every_kind_of_result_that_is_hardly_meant_is_told() {
    for (value, code, of, exit) in [
        ("{{ printf \"%.2f\" .Payload.After.price }}", "template.bad_format", 1, 0),
        ("{{ date \"2006\" .Payload.After.name }}", "template.not_a_time", 2, 1),
        ("{{ b64dec .Payload.After.password }}x", "template.not_encoded", 1, 1),
        ("{{ add .Payload.After.price 1 }}", "template.fraction_cut", 1, 0),
        ("{{ int .Payload.After.name }}", "template.not_a_number", 2, 1),
        ("{{ add 1 .Payload.After.tags }}", "template.not_a_number", 2, 1),
        ("{{ mod (int .Key) 2 }}", "template.not_a_number", 2, 1),
        ("a/{{ .Payload.After.tags }}", "template.list_printed", 2, 1),
        ("{{ now }}", "template.time_printed", 2, 1),
        ("{{ toJson .Key }}", "template.base64_printed", 2, 1),
        ("{{ index .Payload.After.name 0 }}", "template.byte_printed", 2, 1),
        ("{{ regexMatch (print \"[\" .Payload.After.name) \"x\" }}", "template.bad_pattern", 2, 1),
    ] {
        let (text, json) = dry_run(&workspace(&set(value), ""), exit);
        assert!(text.contains(&format!("warning[{code}]")), "{value}\n{text}");
        assert_eq!(json["result"]["pipelines"][0]["doubts"][0]["records"], of, "{value}: {json}");
    }
}

#[test]
fn what_all_steps_of_a_sound_pipeline_make_is_not_doubted() {
    let (text, json) = dry_run(&workspace(&set("{{ .Payload.After.name }} {{ toJson .Payload.After }}"), ""), 0);
    assert!(!text.contains("warning"), "{text}");
    assert_eq!(json["result"]["pipelines"][0]["doubts"], Value::Array(Vec::new()));
}

#[test]
fn a_name_that_no_record_has_is_told_where_the_template_passes_over_it() {
    let addressed = r#"{"name":"tea","price":4.5,"addr":{"city":"Rome"},"user_id":1}
{"name":"milk","price":2,"addr":{"city":"Oslo"},"user_id":2}
"#;
    let workspace = |value: &str, records: &str| {
        let workspace = workspace(&set(value), "");
        workspace.write("in.txt", records);
        workspace
    };
    for (value, meant) in [
        ("{{ get .Payload.After \"Name\" }}", ".Payload.After.name"),
        ("{{ default \"?\" .Payload.After.Name }}", ".Payload.After.name"),
        ("{{ .Payload.After.Name | default \"?\" }}", ".Payload.After.name"),
        ("{{ or .Payload.After.nmae \"?\" }}", ".Payload.After.name"),
        ("{{ coalesce .Payload.After.userId \"?\" }}", ".Payload.After.user_id"),
        ("{{ dig \"addr\" \"City\" \"?\" .Payload.After }}", ".Payload.After.addr.city"),
        ("{{ default \"?\" .Payload.After.addr.City }}", ".Payload.After.addr.city"),
        ("{{ toJson (omit .Payload.After \"Price\") }}", ".Payload.After.price"),
        ("{{ toJson (pick .Payload.After \"prise\" \"name\") }}", ".Payload.After.price"),
        ("{{ if .Payload.After.Name }}a{{ end }}", ".Payload.After.name"),
        ("{{ if hasKey .Payload.After \"Name\" }}a{{ end }}", ".Payload.After.name"),
    ] {
        let (text, json) = dry_run(&workspace(value, addressed), 1);
        let doubts = json["result"]["pipelines"][0]["doubts"].as_array().unwrap();
        assert_eq!((doubts.len(), &doubts[0]["code"]), (1, &"flow.no_field".into()), "{value}: {json}");
        assert!(text.contains(&format!("did you mean {meant}?")) && text.contains("for 2 of 2 records"), "{text}");
    }
    // A field that is left out is hardly optional, whatever its name is.
    let (text, _) = dry_run(&workspace("{{ toJson (omit .Payload.After \"secret\") }}", addressed), 0);
    assert!(text.contains("warning[flow.no_field]") && text.contains("no value to use"), "{text}");
    for value in [
        // Fields of their own, and fields that have another name in other records.
        "{{ default \"?\" .Payload.After.nickname }}",
        "{{ get .Payload.After \"names\" }}",
        "{{ coalesce .Payload.After.userId .Payload.After.user_id }}",
        "{{ if .Payload.After.Name }}{{ .Payload.After.Name }}{{ else }}{{ .Payload.After.name }}{{ end }}",
        "{{ if eq .Payload.After.name \"x\" }}{{ toJson (omit .Payload.After \"secret\") }}{{ end }}",
        "{{ dig \"address\" \"city\" \"?\" .Payload.After }}",
        "{{ toJson (omit .Payload.After \"price\") }}",
    ] {
        let (text, _) = dry_run(&workspace(value, addressed), 0);
        assert!(!text.contains("warning"), "{value}\n{text}");
    }
    // One record is an example, and a field that one of them has is there.
    for records in ["{\"name\":\"tea\"}\n", "{\"name\":\"tea\"}\n{\"Name\":\"milk\"}\n"] {
        let (text, _) = dry_run(&workspace("{{ default \"?\" .Payload.After.Name }}", records), 0);
        assert!(!text.contains("warning"), "{text}");
    }
}

#[test]
fn json_by_hand_that_is_none_is_told() {
    let line = |options: &str| format!(", sdk.record.format: template, sdk.record.format.options: '{options}'");
    let (text, json) = dry_run(&workspace("", &line("{\"n\": {{ .Payload.After.name }}}")), 1);
    assert!(text.contains("warning[template.not_json]: out: the output of the template is not JSON"), "{text}");
    assert!(text.contains("for 2 of 2 records") && text.contains("write {{ toJson … }}"), "{text}");
    assert_eq!(json["result"]["pipelines"][0]["doubts"].as_array().unwrap().len(), 1, "{json}");
    for options in [
        "{\"n\": {{ toJson .Payload.After.name }}}",
        "{\"n\": \"{{ .Payload.After.name }}\", \"p\": {{ .Payload.After.price }}}",
        "{\"index\": {}} {\"n\": {{ .Payload.After.price }}}",
        "{{ .Payload.After.name }}",
        "{ {{ .Payload.After.name }} }",
        "{name={{ .Payload.After.name }}}",
    ] {
        let (text, _) = dry_run(&workspace("", &line(options)), 0);
        assert!(!text.contains("warning"), "{options}\n{text}");
    }
    // A value that breaks it, as quotes do, concerns its record only; what is missing is said once.
    let quotes = workspace("", &line("{\"n\": \"{{ .Payload.After.name }}\"}"));
    quotes.write("in.txt", "{\"name\":\"tea\"}\n{\"name\":\"\\\"green\\\" tea\"}\n");
    let (text, _) = dry_run(&quotes, 0);
    assert!(text.contains("template.not_json") && text.contains("for 1 of 2 records"), "{text}");
    let (text, _) = dry_run(&workspace("", &line("{\"n\": {{ get .Payload.After \"Name\" }}}")), 1);
    assert!(text.contains("template.not_json") && text.contains("did you mean .Payload.After.name?"), "{text}");
    let (_, json) = dry_run(&workspace("", &line("{\"n\": {{ .Payload.After.tags }}}")), 1);
    let doubts = json["result"]["pipelines"][0]["doubts"].as_array().unwrap();
    assert_eq!((doubts.len(), &doubts[0]["code"]), (1, &"template.list_printed".into()), "{json}");
}

#[test]
fn bodies_of_requests_that_are_no_json_are_told() {
    let request = |more: &str| {
        format!(
            "      - {{ id: w, plugin: webhook.http, settings: {{ request.url: 'http://127.0.0.1:1/', request.method: POST, \
             backoffRetry.count: 0, {more} }} }}"
        )
    };
    let told = |more: &str| dry_run(&workspace(&request(more), ""), 1).0.contains("warning[template.not_json]: w: ");
    assert!(told("request.body: '{\"n\": {{ .Payload.After.name }}}'"));
    assert!(told(
        "request.body: '[{{ .Payload.After.name }}]', headers.Content-Type: 'application/json; charset=utf-8'"
    ));
    assert!(!told("request.body: '{\"n\": {{ toJson .Payload.After.name }}}'"));
    assert!(!told("request.body: '{{ .Payload.After.name }}'"));
    assert!(!told("request.body: '{\"n\": {{ .Payload.After.name }}}', headers.Content-Type: text/plain"));
}

#[test]
fn formats_conditions_and_fields_are_looked_at_too() {
    let format = ", sdk.record.format: template, sdk.record.format.options: '{{ .Payload.Before }}'";
    let (text, _) = dry_run(&workspace("", format), 1);
    assert!(text.contains("template.no_value") && text.contains("out: .Payload.Before has no value"), "{text}");

    let condition =
        "      - { id: c, plugin: filter, condition: '{{ eq (date \"2006\" .Payload.After.name) \"1999\" }}' }";
    let (text, json) = dry_run(&workspace(condition, ""), 1);
    assert!(text.contains("c: date of a text returns the current time"), "{text}");
    assert_eq!(json["result"]["pipelines"][0]["doubts"][0]["path"], "/processors/1/condition");

    let exclude = |field: &str| {
        format!("      - {{ id: e, plugin: field.exclude, settings: {{ fields: .Payload.After.{field} }} }}")
    };
    let (text, _) = dry_run(&workspace(&exclude("Password"), ""), 1);
    assert!(text.contains("did you mean .Payload.After.password?") && text.contains("nothing to process"), "{text}");
    // A field that some records have, and one that nobody can guess, may be right.
    assert!(!dry_run(&workspace(&exclude("password"), ""), 0).0.contains("warning"));
    let (text, _) = dry_run(&workspace(&exclude("wholly_different"), ""), 0);
    assert!(text.contains("warning[flow.no_field]"), "{text}");
}

#[test]
fn what_needs_no_records_is_told_by_validate() {
    let decode = "      - { id: again, plugin: json.decode, settings: { field: .Payload.After } }";
    for (steps, code, said) in [
        (set("{{ . }}"), 0, "a record prints as a list of its parts"),
        (set("{{ date \"YYYY-MM-DD\" now }}"), 0, "write \"2006-01-02\""),
        (set("{{ toDate \"summer\" .Payload.After.name }}"), 0, "\"summer\" is not a layout"),
        (set("{{ get .Metadata \"x\" }}"), 2, "write index .Metadata \"x\""),
        (set("%{name}"), 0, "write '{{ .Payload.After.name }}'"),
        (set("{{ default .Payload.After.name \"x\" }}"), 0, "write default \"x\" .Payload.After.name"),
        (set("{{ repeat 100000000000 \"x\" }}"), 2, "at most 256 MiB of text"),
        (set("{{ b64dec \"!!\" }}"), 0, "the text is not base64"),
        (decode.to_owned(), 0, "structured already"),
    ] {
        let output = workspace(&steps, "").run(&["pipelines", "validate"]).expect_code(code).both();
        assert!(output.contains(said) && output.contains("p.yaml:9:"), "{steps}\n{output}");
    }
    let output = workspace("", "").run(&["pipelines", "validate"]).expect_code(0).both();
    assert!(output.contains("0 errors, 0 warnings"), "{output}");
    let directory = workspace("", "");
    directory.write("pipelines/p.yaml", file_to_file("p", "").replace("out.ndjson", "sub/"));
    let output = directory.run(&["pipelines", "validate"]).expect_code(2).both();
    assert!(output.contains("is the path of a directory"), "{output}");
}

#[test]
fn variables_of_the_environment_in_scripts_and_templates_are_told() {
    let script = "      - id: t\n        plugin: custom.javascript\n        settings:\n          script: |\n            const HOME = 1; function process(rec) {\n              rec.Metadata.x = `${HOME} ${rec.Operation}`;\n              return rec;\n            }\n";
    let mut workspace = workspace(script, "");
    workspace.env("HOME", "/home");
    let output = workspace.run(&["pipelines", "validate"]).expect_code(0).both();
    assert!(output.contains("warning[config.variable_in_script]") && output.contains("p.yaml:14:33"), "{output}");
    workspace.run(&["pipelines", "validate", "--fix"]).expect_code(0);
    let fixed = workspace.read("pipelines/p.yaml");
    assert!(fixed.contains("`$${HOME} ${rec.Operation}`"), "{fixed}");
    let output = workspace.run(&["pipelines", "validate"]).expect_code(0).both();
    assert!(output.contains("0 warnings"), "{output}");

    workspace.write("pipelines/p.yaml", fixed.replace("$${HOME}", "${NO_SUCH_VARIABLE}"));
    let output = workspace.run(&["pipelines", "validate"]).expect_code(2).both();
    assert!(output.contains("write `$${NO_SUCH_VARIABLE}` for an expression of the script"), "{output}");

    workspace.env("TEXT", "{{ .Position.String }}");
    let step = "      - { id: t, plugin: field.set, settings: { field: .Metadata.x, value: '${TEXT}' } }";
    workspace.write("pipelines/p.yaml", fixed.replace(script.replace("${HOME}", "$${HOME}").as_str(), step));
    let output = workspace.run(&["pipelines", "validate"]).expect_code(0).both();
    assert!(output.contains("settings.template_in_variable") && !output.contains("Position"), "{output}");
}

#[test]
fn tests_of_pipelines_tell_it_and_pass() {
    let workspace = workspace(&set("{{ .Payload.After.Name }}"), "");
    workspace.write(
        "pipelines/p.test.yaml",
        "tests:\n  - name: nothing\n    input: ['{\"name\":\"tea\"}']\n    expect:\n      records:\n        - after: { name: tea, x: <no value> }\n",
    );
    let text = workspace.run(&["pipelines", "test", "--no-color"]).expect_code(0).both();
    for part in ["warning[template.no_value]", "did you mean .Payload.After.name?", "p.yaml:9:", "1 passed"] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
}

#[test]
fn a_template_or_condition_that_fails_names_its_place_in_the_file() {
    for (steps, place) in [
        (set("{{ .Payload.After.name.first }}"), "pipelines/p.yaml:9:85"),
        (
            "      - { id: c, plugin: filter, condition: '{{ gt .Payload.After.name 1 }}' }".to_owned(),
            "pipelines/p.yaml:9:49",
        ),
    ] {
        let workspace = workspace(&steps, "");
        let (text, _) = dry_run(&workspace, 1);
        assert!(text.contains(&format!("(at {place})")), "{place} is not in:\n{text}");
        let output = workspace.run(&["run", "--once"]).expect_code(1).both();
        assert!(output.contains(&format!("(at {place})")), "{place} is not in:\n{output}");
    }
}

#[test]
fn a_condition_that_fails_names_what_it_compares() {
    let steps = "      - { id: c, plugin: filter, condition: '{{ and true (eq .Payload.After.name 1) }}' }";
    let workspace = workspace(steps, "");
    let output = workspace.run(&["run", "--once"]).expect_code(1).both();
    assert!(output.contains("in `eq .Payload.After.name 1`: error calling eq: incompatible types"), "{output}");
}

/// A condition of a filter.
fn filter(id: &str, condition: &str) -> String {
    format!("      - {{ id: {id}, plugin: filter, condition: '{{{{ {condition} }}}}' }}\n")
}

#[test]
fn a_script_that_returns_one_record_several_times_is_told() {
    let script = |body: &str| {
        format!(
            "      - id: t\n        plugin: custom.javascript\n        settings:\n          script: |\n            \
             function process(rec) {{\n              const out = [];\n              for (const tag of ['a', 'b']) {{ {body} }}\n              \
             return out;\n            }}"
        )
    };
    let told = |body: &str, code: i32| {
        let workspace = workspace(&script(body), "");
        let args = ["pipelines", "dry-run", "p", "--no-color", "--preview.pipeline-arch-v2"];
        workspace.run(&args).expect_code(code).both()
    };
    for same in [
        "rec.Payload.After.tag = tag; out.push(rec);",
        "const copy = {...rec}; copy.Payload.After.tag = tag; out.push(copy);",
    ] {
        let text = told(same, 1);
        assert!(text.contains("warning[flow.same_pieces]") && text.contains("for 2 of 2 records"), "{text}");
    }
    let text = told("const each = Record(); each.Payload.After = {tag}; out.push(each);", 0);
    assert!(!text.contains("warning"), "{text}");
}

#[test]
fn a_condition_that_decides_the_same_on_all_records_is_told_with_what_it_compares() {
    let (text, json) = dry_run(&workspace(&filter("f", "eq .Payload.After.name \"Tea\""), ""), 0);
    for part in [
        "warning[condition.never_held]: f: the condition held for none of 2 records: in the first one \
         .Payload.After.name is \"tea\", compared with \"Tea\", so no record was dropped",
        "pipelines/p.yaml:9:",
        "2 read, 2 delivered, 0 dropped, 0 failed; 1 warning",
    ] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    let doubt = &json["result"]["pipelines"][0]["doubts"][0];
    assert_eq!((&doubt["code"], &doubt["records"]), (&"condition.never_held".into(), &2.into()), "{doubt}");
    assert_eq!(doubt["path"], "/processors/1/condition");

    let (text, _) = dry_run(&workspace(&filter("f", "ne .Payload.After.name \"Tea\""), ""), 0);
    assert!(text.contains("warning[condition.always_held]: f: every record was dropped"), "{text}");

    // It decides on some.
    let (text, _) = dry_run(&workspace(&filter("f", "eq .Payload.After.name \"tea\""), ""), 0);
    assert!(!text.contains("warning"), "{text}");
}

#[test]
fn filters_that_drop_all_records_together_are_told() {
    let steps = filter("a", "eq .Payload.After.name \"tea\"") + &filter("b", "hasPrefix \"mi\" .Payload.After.name");
    let (text, json) = dry_run(&workspace(&steps, ""), 0);
    assert!(text.contains("b: none of 2 records remained: a dropped 1, b dropped 1"), "{text}");
    assert_eq!(json["result"]["pipelines"][0]["doubts"][0]["code"], "condition.all_dropped");
}

#[cfg(feature = "js")]
#[test]
fn a_step_that_drops_all_records_is_told() {
    let script = |line: &str| {
        format!(
            "      - {{ id: js, plugin: custom.javascript, settings: {{ script: 'function process(r) {{ {line} return r; }}' }} }}\n"
        )
    };
    let never = script("if (r.Payload.After.name !== \"coffee\") return null;");
    let (text, json) = dry_run(&workspace(&never, ""), 0);
    assert!(text.contains("js: it dropped all 2 records"), "{text}");
    assert!(text.contains("`process` returns null"), "{text}");
    assert_eq!(json["result"]["pipelines"][0]["doubts"][0]["code"], "condition.all_dropped");

    let one = script("if (r.Payload.After.name !== \"tea\") return null;");
    let (text, _) = dry_run(&workspace(&one, ""), 0);
    assert!(!text.contains("condition."), "{text}");
}

#[test]
fn one_record_says_nothing_of_a_condition() {
    let workspace = workspace(&filter("f", "eq .Payload.After.name \"Tea\""), "");
    let text = workspace.run(&["pipelines", "dry-run", "p", "--no-color", "--records", "1"]).expect_code(0).both();
    assert!(!text.contains("condition."), "{text}");
}

#[test]
fn settings_that_other_tools_would_fill_in_are_told_by_validate() {
    let request = |url: &str| {
        format!("      - {{ id: h, plugin: webhook.http, settings: {{ request.url: 'http://127.0.0.1:9{url}' }} }}")
    };
    for (steps, destination, said) in [
        (request("/price/{name}"), "", "request.url: {name} is literal text"),
        (request("/price/:name"), "", "request.url: :name is literal text"),
        (String::new(), "-%Y-%m-%d", "path: %Y is literal text"),
        (
            "      - id: t\n        plugin: field.set\n        settings:\n          field: .Payload.After.x\n          value: |\n            \
             {{ .Payload.After.name }}"
                .to_owned(),
            "",
            "value: the line feed at the end is part of the value",
        ),
    ] {
        let output = workspace(&steps, destination).run(&["pipelines", "validate"]).expect_code(0).both();
        assert!(output.contains(said), "{steps}\n{output}");
        assert!(output.contains("1 warning"), "{steps}\n{output}");
    }
    let sound = "      - id: t\n        plugin: field.set\n        settings:\n          field: .Payload.After.x\n          value: |-\n            \
                 {{ .Payload.After.name }}";
    for steps in [sound.to_owned(), request("/price/{{ .Payload.After.name }}?at=10:30")] {
        let output = workspace(&steps, "").run(&["pipelines", "validate"]).expect_code(0).both();
        assert!(output.contains("0 errors, 0 warnings"), "{steps}\n{output}");
    }
}
