//! Mistakes in pipeline files, one by one: each is found at its place, with its cause, and with what mends it.

mod failing;
mod flows;
mod rows;

use anabranch::fixing::fix;
use anabranch_graph::plan::CompileOptions;
use anabranch_plugin::diagnostic::{FileId, Files, Severity};
use anabranch_plugin::registry::Registry;
use anabranch_process::files::PipelineFiles;
use anabranch_registry::registry;
use anabranch_service::pipelines::Pipelines;

use rows::ROWS;

const SOUND: &str = r#"version: "2.2"
pipelines:
  - id: orders
    status: running
    connectors:
      - id: in
        type: source
        plugin: generator
        settings:
          format.type: structured
          format.options.price: float
          format.options.name: string
          format.options.count: int
          format.options.active: bool
      - id: out
        type: destination
        plugin: file
        settings:
          path: out.txt
    processors:
      - id: tag
        plugin: field.set
        condition: '{{ gt .Payload.After.count 10 }}'
        settings:
          field: .Payload.After.tag
          value: '{{ .Payload.After.name }}'
    dead-letter-queue:
      plugin: log
      window-size: 5
      window-nack-threshold: 2
"#;

/// The condition of the sound file, which most mistakes take the place of.
const CONDITION: &str = "'{{ gt .Payload.After.count 10 }}'";

/// The correction of a mistake.
enum Mend {
    /// The correction is made by `validate --fix`.
    Fix,
    /// This text in place of that one. The finding names it, as far as it knows the file.
    Write(&'static str, &'static str),
}

/// A mistake: what takes the place of what, where it is found, what is said, and what mends it.
type Row = (&'static str, &'static str, &'static str, &'static [&'static str], Mend);

struct Checker {
    registry: Registry,
}

impl Checker {
    fn check(&self, text: &str) -> Pipelines {
        let mut files = Files::new();
        files.add("p.yaml", text);
        Pipelines::of(PipelineFiles { files, unreadable: Vec::new() }, &self.registry, &CompileOptions::default())
    }

    fn mended(&self, wrong: &str, mend: &Mend) -> String {
        match mend {
            Mend::Fix => {
                let fixed = fix(self.check(wrong), &self.registry, &CompileOptions::default());
                fixed.pipelines.files.get(FileId(0)).map(|file| file.text.to_string()).unwrap_or_default()
            }
            Mend::Write(from, to) => {
                assert!(wrong.contains(from), "{from:?} is not in\n{wrong}");
                wrong.replacen(from, to, 1)
            }
        }
    }
}

/// Each finding in a line: place, code, message, hint.
fn told(pipelines: &Pipelines) -> Vec<String> {
    let line = |finding: &anabranch_plugin::diagnostic::Diagnostic| {
        let place = finding.label.as_ref().and_then(|label| pipelines.files.locate(label.span));
        let place = place.map_or_else(String::new, |place| format!("{}:{}", place.line, place.column));
        let severity = if finding.severity == Severity::Error { "error" } else { "warning" };
        format!("{place} {severity} {}: {} | {}", finding.code, finding.message, finding.hint.as_deref().unwrap_or(""))
    };
    pipelines.findings.iter().map(line).collect()
}

#[test]
fn every_mistake_is_told_with_its_place_its_cause_and_its_remedy() {
    let checker = Checker { registry: registry() };
    assert_eq!(told(&checker.check(SOUND)), [] as [String; 0]);
    let mut failures = Vec::new();
    for (right, wrong, place, says, mend) in ROWS {
        assert!(SOUND.contains(right), "{right:?} is not in the sound file");
        let text = SOUND.replacen(right, wrong, 1);
        let checked = checker.check(&text);
        let found = told(&checked);
        if checked.findings.has_errors() && !checked.good.is_empty() {
            failures.push(format!("{wrong:?}\n  runs in spite of its errors"));
        }
        let fits =
            |line: &&String| line.starts_with(&format!("{place} ")) && says.iter().all(|word| line.contains(word));
        if !found.iter().any(|line| fits(&line)) {
            failures.push(format!("{wrong:?}\n  wanted {place} {says:?}\n  found  {}", found.join("\n         ")));
        }
        let mended = checker.mended(&text, mend);
        let left = told(&checker.check(&mended));
        if !left.is_empty() {
            failures.push(format!("{wrong:?}\n  left {}\n{mended}", left.join("\n       ")));
        }
    }
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), ROWS.len(), failures.join("\n\n"));
    assert!(ROWS.len() >= 60, "{} rows", ROWS.len());
}

#[test]
fn what_is_meant_as_it_stands_is_not_reported() {
    let checker = Checker { registry: registry() };
    let value = "'{{ .Payload.After.name }}'";
    for (right, as_well) in [
        (value, "\"\""),
        (value, "' '"),
        (value, "“quoted”"),
        (value, "no #1"),
        (value, "$5 or 10%"),
        ("path: out.txt", "path: out.txt # 1.5 records"),
        ("path: out.txt", "path: out.txt #todo"),
        ("path: out.txt", "path: 100%.txt"),
        ("path: out.txt", "path: a b.txt"),
        (CONDITION, "'{{ regexMatch \"^“\" .Payload.After.name }}'"),
        ("field: .Payload.After.tag", "field: $.Payload.After.tag"),
        ("field: .Payload.After.tag", "field: .Payload.After[\"first-tag\"]"),
        ("status: running", "status: running\n    name: enabled"),
    ] {
        assert!(SOUND.contains(right), "{right:?}");
        let text = SOUND.replacen(right, as_well, 1);
        assert_eq!(told(&checker.check(&text)), [] as [String; 0], "{as_well}");
    }
    let without = SOUND.replacen(&format!("value: {value}"), "value:", 1);
    assert!(told(&checker.check(&without))[0].contains("\"value\" is required"));
}

#[test]
fn a_credential_stands_in_a_file_whether_its_variable_is_set_or_not() {
    let checker = Checker { registry: registry() };
    let with = |setting: &str| {
        let (start, end) = (SOUND.find("plugin: field.set").unwrap(), SOUND.find("    dead-letter-queue").unwrap());
        let step = format!(
            "plugin: webhook.http\n        settings:\n          request.url: http://127.0.0.1:1/\n          {setting}\n"
        );
        told(&checker.check(&[&SOUND[..start], &step, &SOUND[end..]].concat()))
    };
    assert!(
        !with("request.method: POST").iter().any(|line| line.contains("error")),
        "{:?}",
        with("request.method: POST")
    );
    for (setting, warns) in [
        // A variable that is set wherever tests run.
        ("headers.Authorization: 'Bearer ${PATH:-HUNTER3}'", true),
        ("headers.Authorization: 'Bearer ${PATH}'", false),
        ("headers.Authorization: 'Bearer ${PATH:-}'", false),
        ("headers.Authorization: 'Bearer ${NOT_SET_ANYWHERE:-HUNTER3}'", true),
        ("headers.X-Auth-Token: HUNTER3", true),
        ("headers.X-Auth-Token: '${PATH:-HUNTER3}'", true),
        ("headers.X-Auth-Token: '${PATH}'", false),
        ("headers.X-Auth-Token: '{{ .Metadata.token }}'", false),
        ("headers.X-Idempotency-Key: HUNTER3", false),
        ("headers.X-Request-Id: HUNTER3", false),
        ("headers.X-Link: 'http://a/?api_key=HUNTER3'", true),
        ("headers.X-Link: 'http://a/?api_key=${PATH}'", false),
        ("headers.X-Link: 'http://me:${PATH:-HUNTER3}@a/'", true),
    ] {
        let found = with(setting);
        assert_eq!(found.iter().any(|line| line.contains("plan.literal_secret")), warns, "{setting}: {found:?}");
        assert!(!found.iter().any(|line| line.contains("HUNTER3")), "{setting}: {found:?}");
    }
}

#[test]
fn an_address_without_a_password_is_no_credential() {
    let checker = Checker { registry: registry() };
    let with = |url: &str| {
        let settings = format!("plugin: postgres\n        settings:\n          url: {url}\n          table: x");
        told(&checker.check(&SOUND.replacen("plugin: file\n        settings:\n          path: out.txt", &settings, 1)))
    };
    for (url, warns) in [
        ("127.0.0.1:15499/postgres", false),
        ("localhost:5432", false),
        ("db.example.com:5432/orders", false),
        ("postgresql://me:secret-word@localhost/a", true),
        ("s3cr3t-t0k3n", true),
    ] {
        let found = with(url);
        assert_eq!(found.iter().any(|line| line.contains("plan.literal_secret")), warns, "{url}: {found:?}");
    }
}

#[test]
fn what_fails_or_is_meant_otherwise_is_told_with_what_mends_it() {
    let checker = Checker { registry: registry() };
    let with = |condition: &str| told(&checker.check(&SOUND.replacen(CONDITION, &format!("'{condition}'"), 1)));
    let value = "value: '{{ .Payload.After.name }}'";
    let of = |template: &str| told(&checker.check(&SOUND.replacen(value, &format!("value: '{template}'"), 1)));
    let says = |found: Vec<String>, parts: &[&str]| {
        let text = found.join("\n");
        for part in parts {
            assert!(text.contains(part), "{part:?} is not in:\n{text}");
        }
    };
    says(
        with(r#"{{ ternary "yes" "no" (eq .Payload.After.name "a") }}"#),
        &["flow.not_a_verdict", "fails for every record"],
    );
    says(with(r#"{{ ternary "true" "no" (eq .Payload.After.name "a") }}"#), &["flow.not_a_verdict", "may return"]);
    assert_eq!(with(r#"{{ ternary "true" "false" (eq .Payload.After.name "a") }}"#), [] as [String; 0]);
    says(
        of(r#"{{ index (split "@" .Payload.After.name) 1 }}"#),
        &["flow.wrong_argument", "splitList \"@\" .Payload.After.name"],
    );
    assert_eq!(of(r#"{{ (split "@" .Payload.After.name)._1 }}"#), [] as [String; 0]);
    assert_eq!(of(r#"{{ index (splitList "@" .Payload.After.name) 0 }}"#), [] as [String; 0]);
    says(
        with(r#"{{ eq .Payload.After.name "a" or eq .Payload.After.name "b" }}"#),
        &[r#"or (eq .Payload.After.name "a") (eq .Payload.After.name "b")"#],
    );
    says(
        with(r#"{{ ne .Payload.After.name "a" "b" }}"#),
        &[r#"and (ne .Payload.After.name "a") (ne .Payload.After.name "b")"#],
    );
    says(of("{{ substr .Payload.After.name 0 1 }}"), &["write substr 0 1 .Payload.After.name"]);
    // As texts, 10 comes before 2: the number is not put between quotes.
    says(with(r#"{{ ge (index .Metadata "split.index") 2 }}"#), &["(int (index .Metadata \"split.index\"))"]);
    says(with("{{ gt .Payload.After.name 5 }}"), &["(int .Payload.After.name)", "field.convert"]);
    says(with(r#"{{ gt (printf "%d" .Payload.After.count) 5 }}"#), &["(int (printf"]);
}

#[test]
fn the_order_of_a_text_and_a_number_is_not_corrected() {
    for condition in [
        r#"{{ ge (index .Metadata "split.index") 2 }}"#,
        "{{ gt .Payload.After.name 5 }}",
        r#"{{ gt (printf "%d" .Payload.After.count) 5 }}"#,
        "{{ .Payload.After.name == order }}",
        "{{ .Payload.After.name[0:1] == \"a\" }}",
    ] {
        let text = SOUND.replacen(CONDITION, &format!("'{condition}'"), 1);
        let mut files = Files::new();
        files.add("p.yaml", text.as_str());
        let found = PipelineFiles { files, unreadable: Vec::new() };
        let options = CompileOptions::default();
        let fixed = fix(Pipelines::of(found, &registry(), &options), &registry(), &options);
        assert!(fixed.changed.is_empty(), "{condition} became\n{}", fixed.changed[0].after);
    }
}

#[test]
fn two_fields_that_get_one_name_are_told() {
    let checker = Checker { registry: registry() };
    let with = |mapping: &str| {
        let step = format!("plugin: field.rename\n        settings:\n          mapping: '{mapping}'");
        let text = "plugin: field.set\n        condition: '{{ gt .Payload.After.count 10 }}'\n        settings:\n          field: .Payload.After.tag\n          value: '{{ .Payload.After.name }}'";
        assert!(SOUND.contains(text));
        told(&checker.check(&SOUND.replacen(text, &step, 1)))
    };
    let found = with(".Payload.After.tag:x,.Payload.After.label:x").join("\n");
    assert!(found.contains("flow.name_taken") && found.contains("two fields"), "{found}");
    let found = with(".Payload.After.name:x,.Payload.After.x:y,.Payload.After.count:x").join("\n");
    assert!(!found.contains("flow.name_taken"), "{found}");
}
