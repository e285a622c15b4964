//! Traces of records, as a collector gets them.

use std::collections::BTreeMap;

use anabranch_ops_http::testing::{Received, Reply, Server};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use prost::Message as _;

use crate::api::{end, get};
use crate::process::{Workspace, file_to_file, numbered_lines};

/// Takes whatever it is sent.
fn collector() -> Server {
    Server::start(|_| Reply::ok(ExportTraceServiceResponse::default().encode_to_vec()))
}

/// A workspace whose records are all traced.
fn traced(collector: &Server) -> Workspace {
    let mut workspace = Workspace::new();
    workspace.env("ANABRANCH_TRACES_ENDPOINT", &collector.url());
    workspace.env("ANABRANCH_TRACES_SAMPLE", "1");
    workspace
}

fn requests(collector: &Server) -> Vec<ExportTraceServiceRequest> {
    collector.received().iter().map(decoded).collect()
}

fn decoded(request: &Received) -> ExportTraceServiceRequest {
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/v1/traces"));
    assert_eq!(request.header("content-type"), Some("application/x-protobuf"));
    ExportTraceServiceRequest::decode(&request.body[..]).unwrap()
}

fn spans(collector: &Server) -> Vec<Span> {
    spans_of(requests(collector))
}

fn spans_of(requests: impl IntoIterator<Item = ExportTraceServiceRequest>) -> Vec<Span> {
    let scopes = requests.into_iter().flat_map(|request| request.resource_spans).flat_map(|r| r.scope_spans);
    scopes.flat_map(|scope| scope.spans).collect()
}

fn texts(attributes: &[KeyValue]) -> BTreeMap<&str, String> {
    let text = |value: &Value| match value {
        Value::StringValue(text) => text.clone(),
        Value::IntValue(number) => number.to_string(),
        Value::BoolValue(is) => is.to_string(),
        other => panic!("{other:?}"),
    };
    attributes.iter().map(|kv| (kv.key.as_str(), text(kv.value.as_ref().unwrap().value.as_ref().unwrap()))).collect()
}

fn is_root(span: &Span) -> bool {
    span.kind == SpanKind::Consumer as i32
}

/// The spans below a root, as `node outcome piece/copy`, in order of these words.
fn below(root: &Span, spans: &[Span]) -> Vec<String> {
    let mut told = Vec::new();
    for span in spans.iter().filter(|span| span.parent_span_id == root.span_id) {
        assert_eq!(span.trace_id, root.trace_id);
        assert!(root.start_time_unix_nano <= span.start_time_unix_nano, "{span:?}");
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano, "{span:?}");
        assert!(span.end_time_unix_nano <= root.end_time_unix_nano, "{span:?}");
        let texts = texts(&span.attributes);
        let mut words = vec![span.name.clone()];
        words.extend(
            ["anabranch.outcome", "anabranch.split.index", "anabranch.clone.index"]
                .iter()
                .filter_map(|name| texts.get(name).cloned()),
        );
        told.push(words.join(" "));
    }
    told.sort();
    told
}

/// The root of the record with this number, or of its latest replay.
fn root(spans: &[Span], row: &str, replay: bool) -> Span {
    let wanted = |span: &&Span| {
        let texts = texts(&span.attributes);
        is_root(span) && texts["anabranch.row"] == row && texts.contains_key("anabranch.replay") == replay
    };
    spans.iter().rfind(wanted).unwrap_or_else(|| panic!("no root of row {row} in {spans:#?}")).clone()
}

/// Records are decoded, filtered, split, cloned and sent somewhere; a piece that is 13 fails, unless it is mended.
fn pipeline(service: &Server, bad: &str) -> String {
    format!(
        r#"
version: "2.2"
pipelines:
  - id: orders
    connectors:
      - {{ id: in, type: source, plugin: file, settings: {{ path: in.txt }} }}
      - {{ id: out, type: destination, plugin: file, settings: {{ path: out.ndjson }} }}
    processors:
      - {{ id: decode, plugin: json.decode, settings: {{ field: .Payload.After }} }}
      - {{ id: chosen, plugin: filter, condition: '{{{{ eq .Payload.After.id 2 }}}}' }}
      - {{ id: pieces, plugin: split, settings: {{ field: .Payload.After.items }} }}
      - id: check
        plugin: error
        condition: '{{{{ eq .Payload.After.items {bad} }}}}'
        settings: {{ message: "unlucky, and ${{PASSWORD}}" }}
      - {{ id: copies, plugin: clone, settings: {{ count: "1" }} }}
      - {{ id: ask, plugin: webhook.http, settings: {{ request.url: "{}", request.body: "x", response.body: .Metadata.answer }} }}
    dead-letter-queue: {{ plugin: store, window-size: 0 }}
"#,
        service.url()
    )
}

#[test]
fn a_record_is_followed_through_split_and_clone_into_the_dead_letters_and_back() {
    let (collector, service) = (collector(), Server::start(|_| Reply::ok("well")));
    let mut workspace = traced(&collector);
    workspace.env("PASSWORD", "hunter2222");
    workspace.env("ANABRANCH_TRACES_HEADERS", "authorization=Bearer%20hunter3333");
    let lines = [r#"{"id":0,"items":[7]}"#, r#"{"id":1,"items":[8,13]}"#, r#"{"id":2,"secret":"content"}"#];
    workspace.write("in.txt", lines.join("\n") + "\n");
    workspace.write("pipelines/p.yaml", pipeline(&service, "13"));
    let output = workspace.once();
    let first = spans(&collector);
    assert_eq!(first.iter().filter(|span| is_root(span)).count(), 3);

    let plain = root(&first, "0", false);
    assert_eq!(
        below(&plain, &first),
        [
            "ask kept 0 0",
            "ask kept 0 1",
            "check passed_by 0",
            "chosen passed_by",
            "copies split 0",
            "decode kept",
            "out durable 0 0",
            "out durable 0 1",
            "pieces split",
        ]
    );
    assert_eq!((plain.name.as_str(), plain.parent_span_id.len(), plain.status.as_ref()), ("orders", 0, None));
    let about = texts(&plain.attributes);
    assert_eq!((about["anabranch.pipeline"].as_str(), about["anabranch.connector"].as_str()), ("orders", "in"));
    assert!(!about["anabranch.position"].is_empty());

    let failed = root(&first, "1", false);
    assert_eq!(
        below(&failed, &first),
        [
            "ask kept 0 0",
            "ask kept 0 1",
            "check failed 1",
            "check passed_by 0",
            "chosen passed_by",
            "copies split 0",
            "dead-letter-queue 1",
            "decode kept",
            "out durable 0 0",
            "out durable 0 1",
            "pieces split",
        ]
    );
    let of_failed = |name: &str| {
        let wanted = |span: &&Span| span.trace_id == failed.trace_id && span.name == name && span.status.is_some();
        first.iter().find(wanted).unwrap()
    };
    for span in [&failed, of_failed("check")] {
        let status = span.status.as_ref().unwrap();
        assert_eq!((status.code, status.message.as_str()), (2, "unlucky, and ***"));
        assert!(!texts(&span.attributes)["error.type"].is_empty());
    }
    let check = texts(&of_failed("check").attributes);
    assert_eq!((check["anabranch.plugin"].as_str(), check["anabranch.condition"].as_str()), ("error", "true"));
    let letter = first.iter().find(|span| span.name == "dead-letter-queue").unwrap();

    let shown = workspace.run(&["dlq", "show", "orders", "1"]).expect_code(0).stdout;
    let trace: String = letter.trace_id.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(shown.contains(&format!("trace   {trace}\n")), "{shown}");

    let filtered = root(&first, "2", false);
    assert_eq!(below(&filtered, &first), ["chosen filtered", "decode kept"]);

    // As long as it fails, its letter refers to where it failed last.
    let replay = || workspace.run(&["dlq", "replay", "orders", "1", "--preview.pipeline-arch-v2"]);
    replay().expect_code(1);
    let second = spans(&collector).split_off(first.len());
    let again = root(&second, "0", true);
    assert_eq!(below(&again, &second), ["check failed 1", "dead-letter-queue 1"]);
    assert_ne!(again.trace_id, failed.trace_id);
    let link = |span: &Span| (span.links[0].trace_id.clone(), span.links[0].span_id.clone());
    assert_eq!(link(&again), (letter.trace_id.clone(), letter.span_id.clone()));

    workspace.write("pipelines/p.yaml", pipeline(&service, "1313"));
    // It was traced, so its replay is.
    workspace.env("ANABRANCH_TRACES_SAMPLE", "0");
    let replayed = workspace.run(&["dlq", "replay", "orders", "1", "--preview.pipeline-arch-v2"]).expect_code(0);
    let third = spans(&collector).split_off(first.len() + second.len());
    let mended = root(&third, "0", true);
    let told = below(&mended, &third);
    assert_eq!(
        told,
        ["ask kept 1 0", "ask kept 1 1", "check passed_by 1", "copies split 1", "out durable 1 0", "out durable 1 1"]
    );
    let letter = second.iter().find(|span| span.name == "dead-letter-queue").unwrap();
    assert_eq!((link(&mended), mended.status), ((letter.trace_id.clone(), letter.span_id.clone()), None));

    for request in collector.received() {
        assert_eq!(request.header("authorization"), Some("Bearer hunter3333"));
        let text = request.text();
        assert!(!text.contains("content") && !text.contains("hunter"), "no content, no secret: {text}");
    }
    let config = workspace.run(&["config"]).expect_code(0);
    for output in [&output, &replayed, &config] {
        assert!(!output.both().contains("hunter"), "{}", output.both());
    }
}

#[test]
fn a_running_service_traces_what_it_replays() {
    let (collector, service) = (collector(), Server::start(|_| Reply::ok("well")));
    let mut workspace = traced(&collector);
    workspace.env("PASSWORD", "hunter2222");
    workspace.write("in.txt", "{\"id\":1,\"items\":[13]}\n");
    workspace.write("pipelines/p.yaml", pipeline(&service, "13"));
    let mut running = workspace.start(&["run", "--preview.pipeline-arch-v2"]);
    let address = running.address();
    running.wait_until("the trace", || spans(&collector).iter().any(is_root));
    const JSON: &str = "Content-Type: application/json\r\n";
    let body = r#"{"numbers":[1]}"#;
    let answer = crate::api::ask(address, "POST", "/v1/pipelines/orders/dead-letters/replay", JSON, body);
    assert_eq!(answer.json()["failedAgain"], 1, "{}", answer.json());
    running
        .wait_until("the trace of the replay", || spans(&collector).iter().filter(|span| is_root(span)).count() == 2);
    end(running);
    let all = spans(&collector);
    let (failed, again) = (root(&all, "0", false), root(&all, "0", true));
    assert_eq!(again.links[0].trace_id, failed.trace_id);
}

#[test]
fn every_span_of_many_records_is_sent_or_counted() {
    const LINES: usize = 10_000;
    let collector = collector();
    let workspace = traced(&collector);
    workspace.write("in.txt", numbered_lines(LINES));
    workspace.write("pipelines/p.yaml", file_to_file("copy", ""));
    let mut running = workspace.start(&["run"]);
    let address = running.address();
    let metric = |name: &str| -> usize {
        let text = get(address, "/metrics").body;
        text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap_or_else(|| panic!("{text}"))
    };
    let counts = || (metric("anabranch_trace_spans_sent_total"), metric("anabranch_trace_spans_dropped_total"));
    // A root and a write for each line.
    running.wait_until("all spans", || {
        let (sent, dropped) = counts();
        assert!(sent + dropped <= 2 * LINES, "{sent} + {dropped}");
        sent + dropped == 2 * LINES
    });
    let (sent, dropped) = counts();
    assert_eq!((spans(&collector).len(), sent + dropped), (sent, 2 * LINES));
    assert!(requests(&collector).iter().all(|request| request.resource_spans[0].scope_spans[0].spans.len() <= 512));
    end(running);
    assert_eq!(workspace.lines("out.ndjson").len(), LINES);
}

#[test]
fn records_that_are_not_chosen_cost_no_request() {
    let collector = collector();
    let mut workspace = traced(&collector);
    workspace.env("ANABRANCH_TRACES_SAMPLE", "0");
    workspace.write("in.txt", numbered_lines(1000));
    workspace.write("pipelines/p.yaml", file_to_file("copy", ""));
    workspace.once();
    assert_eq!((workspace.lines("out.ndjson").len(), collector.connections()), (1000, 0));
}

#[test]
fn a_collector_that_goes_away_or_is_silent_holds_up_no_record() {
    for reply in [Reply::Close, Reply::Hang] {
        let collector = Server::start(move |_| reply.clone());
        let workspace = traced(&collector);
        workspace.write("in.txt", numbered_lines(1000));
        workspace.write("pipelines/p.yaml", file_to_file("copy", ""));
        let output = workspace.once();
        assert_eq!(workspace.lines("out.ndjson").len(), 1000);
        let said = output.stdout.lines().find(|line| line.contains("some trace spans were not sent"));
        assert!(said.is_some_and(|line| line.contains("sent=0 dropped=2000")), "{}", output.both());
    }
}

#[test]
fn what_the_collector_refuses_is_said_and_counted() {
    // All but one of each request: on a slow machine the spans may not all come in one.
    let takes_one = |request: &Received| {
        let rejected_spans = spans_of([decoded(request)]).len() as i64 - 1;
        let partial = ExportTracePartialSuccess { rejected_spans, error_message: "too old".to_owned() };
        Reply::ok(ExportTraceServiceResponse { partial_success: Some(partial) }.encode_to_vec())
    };
    for (takes_one_each, collector, said) in [
        (
            false,
            Server::start(|_| Reply::status(401, "hunter3333")),
            "the collector responded with 401 Unauthorized; check the credentials in traces.headers",
        ),
        (true, Server::start(takes_one), "the collector did not accept all spans: too old"),
    ] {
        let workspace = traced(&collector);
        workspace.write("in.txt", numbered_lines(2));
        workspace.write("pipelines/p.yaml", file_to_file("copy", ""));
        let output = workspace.once();
        assert_eq!(spans(&collector).len(), 4, "they would be refused again");
        let sent = if takes_one_each { collector.received().len() } else { 0 };
        let counted = format!("sent={sent} dropped={}", 4 - sent);
        assert!(output.stdout.contains(said) && output.stdout.contains(&counted), "{counted}: {}", output.both());
        assert!(!output.both().contains("hunter"), "{}", output.both());
    }
}

/// A token that is replaced while the service runs is used by the next request.
#[test]
fn headers_are_read_again_out_of_their_file() {
    let collector = Server::start(|request| match request.header("authorization") {
        Some("Bearer second") => Reply::ok(ExportTraceServiceResponse::default().encode_to_vec()),
        _ => Reply::status(401, ""),
    });
    let workspace = traced(&collector);
    let token = workspace.write("token", "authorization=Bearer%20first\n");
    workspace.write("anabranch.yaml", format!("traces.headers: ${{file:{}}}\n", token.display()));
    workspace.write("in.txt", numbered_lines(1));
    workspace.write("pipelines/p.yaml", file_to_file("copy", ""));
    let mut process = workspace.start(&["run"]);
    process.wait_until("the first request", || !collector.received().is_empty());
    workspace.write("token", "authorization=Bearer%20second\n");
    workspace.append("in.txt", "one more\n");
    process.wait_until("a request with the second", || {
        collector.received().iter().any(|request| request.header("authorization") == Some("Bearer second"))
    });
    process.signal("TERM");
    let output = process.finish().expect_code(0);
    assert!(!output.both().contains("Bearer"), "{}", output.both());
}

#[test]
fn variables_of_opentelemetry_are_enough() {
    let collector = collector();
    let mut workspace = Workspace::new();
    workspace.env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url());
    workspace.env("OTEL_TRACES_SAMPLER_ARG", "1");
    workspace.env("OTEL_SERVICE_NAME", "orders");
    workspace.env("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test");
    workspace.write("in.txt", numbered_lines(1));
    workspace.write("pipelines/p.yaml", file_to_file("copy", ""));
    workspace.once();
    let requests = requests(&collector);
    let resource = requests[0].resource_spans[0].resource.as_ref().unwrap();
    let about = texts(&resource.attributes);
    assert_eq!(about["service.name"], "orders");
    assert_eq!(about["service.version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(about["deployment.environment.name"], "test");
}

#[test]
fn a_trace_shows_the_destinations_that_a_route_chose() {
    let collector = collector();
    let workspace = traced(&collector);
    workspace.write("in.txt", "a\nb\nab\n");
    let routed = r#"
version: "2.2"
pipelines:
  - id: p
    unmatched: drop
    connectors:
      - { id: in, type: source, plugin: file, settings: { path: in.txt } }
      - { id: as, type: destination, plugin: file, condition: '{{ contains "a" (printf "%s" .Payload.After) }}', settings: { path: as.ndjson } }
      - { id: abs, type: destination, plugin: file, condition: '{{ hasPrefix "ab" (printf "%s" .Payload.After) }}', settings: { path: abs.ndjson } }
"#;
    workspace.write("pipelines/p.yaml", routed);
    workspace.once();
    let spans = spans(&collector);
    let of = |row: &str| below(&root(&spans, row, false), &spans);
    assert_eq!(of("0"), ["as durable", "route? kept"]);
    assert_eq!(of("1"), ["route? filtered"]);
    assert_eq!(of("2"), ["abs durable", "as durable", "route? kept"]);
}
