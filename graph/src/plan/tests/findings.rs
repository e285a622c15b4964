//! Every finding, at its place.

use anabranch_config::limits::MemoryLimits;
use anabranch_plugin::diagnostic::{Diagnostics, Severity};
use insta::assert_snapshot;

use crate::plan::check::check;
use crate::plan::fuse::fuse;
use crate::plan::graph::{Edge, Port};
use crate::plan::{CompileOptions, PlanGraph, compile};
use crate::testing::notation::pipeline;
use crate::testing::scripted::registry;

/// The findings on a pipeline: code, path, the text that is underlined, message, hint.
fn findings_with(text: &str, options: &CompileOptions) -> String {
    let findings = match compile(&pipeline(text), &registry(), options) {
        Ok(compiled) => {
            assert!(!compiled.warnings.has_errors());
            compiled.warnings
        }
        Err(findings) => {
            assert!(findings.has_errors());
            findings
        }
    };
    print(text, &findings)
}

fn print(text: &str, findings: &Diagnostics) -> String {
    let mut out = String::new();
    for finding in findings.iter() {
        let span = finding.label.as_ref().map(|label| label.span).unwrap_or_default();
        let mark = if finding.severity == Severity::Error { "error" } else { "warning" };
        let path = finding.path.as_deref().unwrap_or("-");
        let place = &text[span.start as usize..span.end as usize];
        out.push_str(&format!("{mark} {} {path} at `{place}`\n  {}\n", finding.code, finding.message));
        for related in &finding.related {
            let place = &text[related.span.start as usize..related.span.end as usize];
            out.push_str(&format!("  `{place}` {}\n", related.text));
        }
        out.extend(finding.hint.iter().map(|hint| format!("  hint: {hint}\n")));
    }
    out
}

fn findings(text: &str) -> String {
    findings_with(text, &CompileOptions { split: true, ..CompileOptions::default() })
}

#[test]
fn all_errors_are_found_at_once() {
    let text = r#"
source in gne
  a sett key=a
destination to out sdk.batch.sise=3 sdk.rate.burst=many
b set value=2
c out key=x
d custom.javascript
e set@v9.9.9 key=x
f set key=x value=refused if {{ eq
dead-letters nowhere
"#;
    assert_snapshot!(findings(text), @r#"
error plan.unknown_plugin /connectors/0/plugin at `gne`
  unknown source "gne"
  hint: available sources: endless, gen; `anabranch connectors list` describes them
error plan.unknown_plugin /connectors/0/processors/0/plugin at `sett`
  unknown processor "sett"
  hint: did you mean "set"?
error settings.unknown /connectors/1/settings/sdk.batch.sise at `sdk.batch.sise`
  out has no parameter "sdk.batch.sise"
  hint: did you mean "sdk.batch.size"?
error settings.invalid /connectors/1/settings/sdk.rate.burst at `many`
  sdk.rate.burst: "many" is not an integer
error settings.required /processors/0/settings/key at `set`
  "key" is required by set
  hint: key: A metadata key.
error plan.wrong_role /processors/1/plugin at `out`
  plugin "out" cannot be used as a processor, only as a destination
  hint: available processors: call, clone, count, filter, picky, script, set, split
error plan.plugin_left_out /processors/2/plugin at `custom.javascript`
  plugin "custom.javascript" is not part of this build; rebuild with --features js
error plan.wrong_version /processors/3/plugin at `set@v9.9.9`
  plugin "set" has version v0.1.0, not v9.9.9
  hint: write "set" for any version, or "set@v0.1.0"
error settings.refused /processors/4/settings/value at `refused`
  value: "refused" is refused
error plan.invalid_condition /processors/4/condition at `{{ eq`
  the condition does not compile: the action that `{{` opens is not closed
  hint: end it with `}}`
error plan.unknown_plugin /dead-letter-queue/plugin at `nowhere`
  unknown destination "nowhere"
  hint: available destinations: once, out, tx; `anabranch connectors list` describes them
"#);
}

#[test]
fn a_setting_without_the_one_that_it_belongs_to_is_told() {
    let with = |settings: &str| findings(&format!("source in gen\ndestination to out {settings}\n"));
    assert_snapshot!(with("sdk.rate.burst=5"), @r#"
warning settings.unused /connectors/1/settings/sdk.rate.burst at `sdk.rate.burst`
  sdk.rate.burst has no effect: sdk.rate.perSecond is 0
  hint: set sdk.rate.perSecond, or remove sdk.rate.burst
"#);
    // An enabled setting, and values that equal the default.
    assert_eq!(with("sdk.rate.burst=5 sdk.rate.perSecond=0.5"), "");
    assert_eq!(with("sdk.rate.burst=0"), "");
}

#[test]
fn plugin_references_that_mean_nothing() {
    let text =
        "source in builtin:gen@latest\nsource two standalone:gen\nsource three remote:gen\ndestination to any:out\n";
    assert_snapshot!(findings(text), @r#"
error plan.plugin_not_installed /connectors/1/plugin at `standalone:gen`
  no standalone plugin "gen" is installed
error plan.unknown_plugin_type /connectors/2/plugin at `remote:gen`
  unknown plugin type "remote"
  hint: write builtin, standalone or any
"#);
}

#[test]
fn several_records_of_one_need_the_flag() {
    let text = "source in gen\ndestination to out\na split\n";
    assert_eq!(findings(text), "");
    assert_snapshot!(findings_with(text, &CompileOptions::default()), @r#"
error plan.needs_arch_v2 /processors/0/plugin at `split`
  processor "split" creates several records from one
  hint: enable it with --preview.pipeline-arch-v2
"#);
}

#[test]
fn workers_are_limited_by_the_operator() {
    let text =
        "source in gen\ndestination to out\na count workers=2\nb set key=x workers=4000000000\nc set key=x workers=0\n";
    assert_snapshot!(findings(text), @r#"
error plan.too_many_workers /processors/0/workers at `2`
  processor "count" allows at most 1 worker, not 2
  hint: it keeps state between records: remove `workers`
error plan.too_many_workers /processors/1/workers at `4000000000`
  processor "set" allows at most 1024 workers, not 4000000000
  hint: use workers: 1024 or fewer
"#);
}

#[test]
fn a_run_that_ends_needs_sources_that_can_tell() {
    let text = "source in gen\nsource on endless\ndestination to out\n";
    assert_eq!(findings(text), "");
    assert_snapshot!(findings_with(text, &CompileOptions { once: true, ..CompileOptions::default() }), @r#"
error plan.never_catches_up /connectors/1/plugin at `endless`
  source "endless" cannot detect the end of its data
  hint: a run with --once would never end: run it without --once
"#);
}

#[test]
fn a_pipeline_needs_both_ends() {
    assert_snapshot!(findings("a set key=x\n"), @r#"
error plan.no_source /connectors at ``
  pipeline "demo" has no source
  hint: add a connector of type source
error plan.no_destination /connectors at ``
  pipeline "demo" has no destination
  hint: add a connector of type destination
"#);
}

#[test]
fn batches_larger_than_the_window() {
    let text = r#"
source in gen sdk.batch.size=20000
destination to out
"#;
    assert_snapshot!(findings(text), @r#"
error plan.batch_never_fills /connectors/0/settings/sdk.batch.size at `20000`
  batches of 20000 records never fill: at most 16384 records of "in" are in flight
  hint: set sdk.batch.size to 16384 or less, or raise engine.replay-rows
"#);
    let text = r#"
source in gen sdk.batch.size=20000 sdk.batch.delay=1s
destination to out sdk.batch.size=20000
"#;
    assert_snapshot!(findings(text), @r#"
warning plan.batch_never_fills /connectors/0/settings/sdk.batch.size at `20000`
  batches of 20000 records never fill: at most 16384 records of "in" are in flight
  hint: set sdk.batch.size to 16384 or less, or raise engine.replay-rows
warning plan.batch_never_fills /connectors/1/settings/sdk.batch.size at `20000`
  writes of 20000 records may never fill: at most 16384 records of a source partition are in flight
  hint: set sdk.batch.size to 16384 or less, or raise engine.replay-rows
"#);
    let text = "source in gen sdk.batch.size=16384\ndestination to out sdk.batch.size=20000\na clone\n";
    assert_eq!(findings(text), "");
}

#[test]
fn constant_conditions() {
    let text = "source in gen\ndestination to out\na set key=a if true\nb set key=b if {{ false }}\n";
    assert_snapshot!(findings(text), @r#"
warning plan.condition_always_true /processors/0/condition at `true`
  the condition holds for every record
  hint: remove it: the processor is always applied
warning plan.condition_always_false /processors/1/condition at `{{ false }}`
  the condition holds for no record: the processor is never applied
  hint: correct it, or remove the processor
"#);
}

#[test]
fn conditions_of_destinations() {
    let text = r#"
source in gen
unmatched archiv
no-ones filter if {{ eq (index .Metadata "a") "1" }}
destination ones out if {{ eq (index .Metadata "a") "1" }}
destination always out if {{ true }}
destination never out if {{ and (eq (index .Metadata "a") "2") (eq (index .Metadata "a") "3") }}
destination fails out if yes
destination archive out
"#;
    assert_snapshot!(findings(text), @r#"
error plan.unmatched_unknown /unmatched at `archiv`
  unmatched: there is no destination "archiv"
  hint: did you mean "archive"?
error plan.condition_fails /connectors/4/condition at `yes`
  the condition fails for every record: the condition printed "yes", which is neither true nor false
  hint: write a template that returns true or false, for example {{ eq .Operation.String "create" }}
"#);
    let sound = text.replace("archiv\n", "archive\n").replace("if yes", "if {{ eq .Operation.String \"create\" }}");
    assert_snapshot!(findings(&sound), @r#"
warning plan.condition_always_false /connectors/1/condition at `{{ eq (index .Metadata "a") "1" }}`
  "ones" receives no record: a filter before it drops all records of its condition
  hint: a filter drops the records for which its condition holds: invert one of the two with `not`
warning plan.condition_always_true /connectors/2/condition at `{{ true }}`
  the condition holds for every record: "always" receives all of them
  hint: remove it, or correct it
warning plan.condition_always_false /connectors/3/condition at `{{ and (eq (index .Metadata "a") "2") (eq (index .Metadata "a") "3") }}`
  the condition holds for no record: "never" receives none
  hint: correct it, or remove the destination
"#);
    let unmatched = |line: &str| {
        findings(&format!(
            "source in gen\n{line}\ndestination a out if {{{{ eq (index .Metadata \"a\") \"1\" }}}}\ndestination b out{}\n",
            if line.contains("all") { "" } else { " if {{ eq (index .Metadata \"a\") \"2\" }}" },
        ))
    };
    for quiet in ["unmatched drop", "unmatched dead-letter", "unmatched fail", "unmatched b"] {
        assert_eq!(unmatched(quiet), "", "{quiet}");
    }
    assert_snapshot!(unmatched(""), @r#"
warning plan.unmatched_dropped /unmatched at `{{ eq (index .Metadata "a") "1" }}`
  records that fulfil the condition of no destination are dropped
  hint: write `unmatched: drop` in the pipeline if this is meant, or `dead-letter`, `fail`, or the id of a destination that receives them
"#);
    assert_snapshot!(unmatched("unmatched drop sdk=all"), @r#"
warning plan.unmatched_unused /unmatched at `drop`
  unmatched has no effect: "b" has no condition: it receives every record
  hint: remove it, or add a `condition` to the destination
"#);
    assert_snapshot!(unmatched("unmatched in"), @r#"
error plan.unmatched_unknown /unmatched at `in`
  unmatched: "in" is a source, which receives no records
  hint: write drop, dead-letter, fail, or the id of a destination of the pipeline
"#);
    assert_snapshot!(findings("source in gen\nunmatched drop\ndestination a out\n"), @r#"
warning plan.unmatched_unused /unmatched at `drop`
  unmatched has no effect: no destination has a condition: every destination receives every record
  hint: remove it, or add a `condition` to the destination
"#);
    // Every record fulfils one of the two.
    let both =
        |a: &str, b: &str| findings(&format!("source in gen\ndestination a out if {a}\ndestination b out if {b}\n"));
    let (is, is_not) = (r#"{{ eq (index .Metadata "a") "1" }}"#, r#"{{ ne (index .Metadata "a") "1" }}"#);
    assert_eq!(both(is, is_not), "");
    // The named destination receives what fulfils no condition, and need not have one.
    assert_eq!(findings(&format!("source in gen\nunmatched b\ndestination a out if {is}\ndestination b out\n")), "");
}

#[test]
fn a_condition_that_fails_for_every_record() {
    let text = "source in gen\ndestination to out\na set key=a if yes\nb set key=b if {{ .Metadata.x }}\nc set key=c if {{ index (list 1) 5 }}\n";
    assert_snapshot!(findings(text), @r#"
error plan.condition_fails /processors/0/condition at `yes`
  the condition fails for every record: the condition printed "yes", which is neither true nor false
  hint: write a template that returns true or false, for example {{ eq .Operation.String "create" }}
error plan.condition_fails /processors/2/condition at `{{ index (list 1) 5 }}`
  the condition fails for every record: the condition failed at character 4, in `index (list 1) 5`: error calling index: index out of range: 5 with length 1
  hint: write a template that returns true or false, for example {{ eq .Operation.String "create" }}
"#);
    let text = "source in gen\ndestination to out\na set key=a if $SECRET\nb set key=b if {{ $SECRET\n";
    assert!(!findings(text).contains("value-of"), "{}", findings(text));
}

#[test]
fn nothing_gets_past_an_unconditional_filter() {
    let text = r#"
source in gen
  stop filter
  a set key=a
destination to out
  b set key=b if {{ eq (index .Metadata "a") "1" }}
destination other out
c set key=c
d filter
"#;
    assert_snapshot!(findings(text), @r#"
warning plan.unreachable /connectors/0/processors/0 at `filter`
  no record passes "in:stop": "in:a", "c", "d" and 3 more after it never receive one
  `set` never receives a record
  `set` never receives a record
  `filter` never receives a record
  hint: add a condition to it, or move it
"#);
    for passes in [
        "source in gen\ndestination to out\na filter if {{ eq (index .Metadata \"a\") \"1\" }}\nb set key=b\n",
        "source in gen\n  a filter\nsource two gen\ndestination to out\nb set key=b\n",
    ] {
        assert!(!findings(passes).contains("b\""), "{}", findings(passes));
    }
}

#[test]
fn credentials_stay_out_of_findings_and_are_known() {
    let text = "source in gen\ndestination to out token=hunter22 path=$HOME\na set key=a if {{ eq $TOKEN\n";
    assert!(!findings(text).contains("value-of-"), "{}", findings(text));
    let text = text.replace("{{ eq $TOKEN", "{{ eq \"a\" \"$TOKEN\" }}");
    let compiled = compile(&pipeline(&text), &registry(), &CompileOptions::default()).unwrap();
    for secret in ["hunter22", "value-of-HOME", "{{ eq \"a\" \"value-of-TOKEN\" }}"] {
        assert!(compiled.secrets.contains(&secret.into()), "{:?}", compiled.secrets);
    }
}

#[test]
fn an_unsound_plan_is_a_defect_and_no_panic() {
    let compiled =
        compile(&pipeline("source in gen\na set key=a\ndestination to out\n"), &registry(), &CompileOptions::default());
    let sound = compiled.unwrap().rewritten;
    let code = |plan: &PlanGraph| {
        fuse(&"demo".into(), plan, MemoryLimits::default()).map(|_| ()).unwrap_err().0[0].code.name()
    };
    for edge in sound.edge_indices() {
        if sound[edge].port == Port::Out {
            let mut plan = sound.clone();
            plan.remove_edge(edge);
            assert_eq!(code(&plan), "plan.internal");
        }
    }
    for node in sound.node_indices() {
        let mut plan = sound.clone();
        plan.remove_node(node);
        assert_eq!(code(&plan), "plan.internal");
    }
    let mut cyclic = sound.clone();
    let operator = cyclic.node_indices().find(|n| cyclic[*n].kind.operator().is_some()).unwrap();
    cyclic.add_edge(operator, operator, Edge { port: Port::Out });
    assert_eq!(code(&cyclic), "plan.internal");
    assert!(check(&cyclic, &MemoryLimits::default()).has_errors());
}
