//! The built-in schema registry over HTTP: by the book, with a client that others wrote, and with our own in a second
//! service.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::api::{ask, get};
use crate::process::{Process, Workspace, base64_decode, file_to_file, skip};
use crate::servers::Port;

/// A service that serves its registry.
fn registry(workspace: &Workspace, flags: &[&str]) -> (Process, SocketAddr) {
    workspace.write("in.txt", "");
    workspace.write("pipelines/p.yaml", file_to_file("p", ""));
    let mut process = workspace.start(&[&["run", "--schema-registry.serve"], flags].concat());
    let address = process.address();
    (process, address)
}

fn body(schema: &Value) -> String {
    json!({ "schema": schema.to_string() }).to_string()
}

#[track_caller]
fn post(address: SocketAddr, path: &str, body: &str) -> (u16, Value) {
    let answer = ask(address, "POST", path, "Content-Type: application/vnd.schemaregistry.v1+json\r\n", body);
    (answer.status, answer.json())
}

#[track_caller]
fn found(address: SocketAddr, path: &str) -> Value {
    let answer = get(address, path);
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    answer.json()
}

/// Status and number of an error.
#[track_caller]
fn refused(address: SocketAddr, path: &str) -> (u16, u64) {
    let answer = get(address, path);
    (answer.status, answer.json()["error_code"].as_u64().unwrap_or_else(|| panic!("{}", answer.body)))
}

fn record(fields: &[(&str, &str)]) -> Value {
    let fields: Vec<Value> = fields.iter().map(|(name, kind)| json!({"name": name, "type": kind})).collect();
    json!({"type": "record", "name": "r", "fields": fields})
}

#[test]
fn schemas_are_registered_and_found() {
    let workspace = Workspace::new();
    let (process, address) = registry(&workspace, &[]);
    let (a, ab) = (record(&[("a", "int")]), record(&[("a", "int"), ("b", "int")]));
    assert_eq!(found(address, "/subjects"), json!([]));
    assert_eq!(found(address, "/schemas/types"), json!(["AVRO"]));
    for (subject, schema, id) in [("s", &a, 1), ("s", &ab, 2), ("s", &a, 1), ("x%2Fy%20z", &ab, 2)] {
        let (status, answer) = post(address, &format!("/subjects/{subject}/versions"), &body(schema));
        assert_eq!((status, &answer["id"]), (200, &json!(id)), "{answer}");
    }
    // White space makes no other schema.
    let spaced = json!({ "schema": format!(" {} ", a.to_string().replace(':', " : ")) }).to_string();
    assert_eq!(post(address, "/subjects/s/versions", &spaced).1["id"], 1);

    assert_eq!(found(address, "/subjects"), json!(["s", "x/y z"]));
    assert_eq!(found(address, "/subjects?subjectPrefix=x"), json!(["x/y z"]));
    assert_eq!(found(address, "/subjects?offset=1&limit=1&deleted=False"), json!(["x/y z"]));
    assert_eq!(found(address, "/subjects?offset=&limit=-1"), json!(["s", "x/y z"]));
    for query in ["limit=abc", "offset=-1", "offset=x", "limit=1.5"] {
        assert_eq!(refused(address, &format!("/subjects?{query}")), (400, 400), "{query}");
        assert_eq!(refused(address, &format!("/subjects/s/versions?{query}")), (400, 400), "{query}");
    }
    assert_eq!(found(address, "/subjects/s/versions"), json!([1, 2]));
    let second = json!({"subject": "s", "version": 2, "id": 2, "schema": ab.to_string()});
    for version in ["2", "latest", "-1"] {
        assert_eq!(found(address, &format!("/subjects/s/versions/{version}")), second);
    }
    assert_eq!(found(address, "/subjects/s/versions/1/schema"), a);
    assert_eq!(found(address, "/subjects/s/versions/1/referencedby"), json!([]));
    assert_eq!(found(address, "/schemas/ids/1"), json!({"schema": a.to_string()}));
    assert_eq!(found(address, "/schemas/ids/2/schema"), ab);
    assert_eq!(found(address, "/schemas/ids/2/subjects"), json!(["s", "x/y z"]));
    let uses = json!([{"subject": "s", "version": 2}, {"subject": "x/y z", "version": 1}]);
    assert_eq!(found(address, "/schemas/ids/2/versions"), uses);
    assert_eq!(post(address, "/subjects/s", &body(&ab)), (200, second));

    // They are in the state store.
    process.signal("TERM");
    process.finish().expect_code(0);
    let (_again, address) = registry(&workspace, &[]);
    assert_eq!(found(address, "/subjects/s/versions/1/schema"), a);
}

#[test]
fn errors_have_the_numbers_that_clients_know() {
    let workspace = Workspace::new();
    let (_process, address) = registry(&workspace, &[]);
    let (a, b) = (record(&[("a", "int")]), record(&[("b", "int")]));
    assert_eq!(post(address, "/subjects/s/versions", &body(&a)).0, 200);
    assert_eq!(refused(address, "/subjects/none/versions"), (404, 40401));
    assert_eq!(refused(address, "/subjects/none/versions/1"), (404, 40401));
    assert_eq!(refused(address, "/subjects/none/versions/latest"), (404, 40401));
    assert_eq!(refused(address, "/subjects/s/versions/2"), (404, 40402));
    for bad in ["0", "x", "2147483648"] {
        assert_eq!(refused(address, &format!("/subjects/s/versions/{bad}")), (422, 42202), "{bad}");
    }
    for id in ["9", "0", "x", "99999999999"] {
        assert_eq!(refused(address, &format!("/schemas/ids/{id}")), (404, 40403), "{id}");
        assert_eq!(refused(address, &format!("/schemas/ids/{id}/versions")), (404, 40403), "{id}");
    }
    assert_eq!(refused(address, "/config/s"), (404, 40408));
    assert_eq!(refused(address, "/mode/s"), (404, 40409));
    let code = |(status, body): (u16, Value)| (status, body["error_code"].as_u64().unwrap_or_default());
    assert_eq!(code(post(address, "/subjects/none", &body(&a))), (404, 40401));
    assert_eq!(code(post(address, "/subjects/s", &body(&b))), (404, 40403));
    let invalid = [
        body(&json!({"type": "recor"})),
        json!({"schema": "{"}).to_string(),
        json!({"schema": ""}).to_string(),
        json!({}).to_string(),
        json!({"schema": "{}", "schemaType": "JSON"}).to_string(),
        json!({"schema": "\"int\"", "references": [{"name": "x", "subject": "s", "version": 7}]}).to_string(),
        json!({"schema": "\"int\u{0}\""}).to_string(),
    ];
    for invalid in invalid {
        assert_eq!(code(post(address, "/subjects/s/versions", &invalid)), (422, 42201), "{invalid}");
    }
    for malformed in ["", "{", "[]", "\"x\""] {
        assert_eq!(code(post(address, "/subjects/s/versions", malformed)), (400, 400), "{malformed}");
    }
    let answer = ask(address, "DELETE", "/subjects", "", "");
    assert_eq!((answer.status, answer.json()["error_code"].as_u64()), (405, Some(405)), "{}", answer.body);
    assert_eq!(found(address, "/subjects/s/versions"), json!([1]), "nothing came of it");
}

#[track_caller]
fn send(address: SocketAddr, method: &str, path: &str, body: &str) -> (u16, Value) {
    let answer = ask(address, method, path, "", body);
    (answer.status, answer.json())
}

/// Status and number of an error.
#[track_caller]
fn failed(address: SocketAddr, method: &str, path: &str) -> (u16, u64) {
    let (status, body) = send(address, method, path, "");
    (status, body["error_code"].as_u64().unwrap_or_else(|| panic!("{body}")))
}

#[test]
fn levels_are_set_for_all_and_for_single_subjects_and_kept() {
    let workspace = Workspace::new();
    let flag = "--schema-registry.compatibility=full_transitive";
    let (process, address) = registry(&workspace, &[flag]);
    let level = |address, path: &str| found(address, path)["compatibilityLevel"].clone();
    assert_eq!(level(address, "/config"), "FULL_TRANSITIVE");
    assert_eq!(refused(address, "/config/s"), (404, 40408));
    assert_eq!(level(address, "/config/s?defaultToGlobal=true"), "FULL_TRANSITIVE");
    let put = |path: &str, level: &str| send(address, "PUT", path, &json!({ "compatibility": level }).to_string());
    assert_eq!(put("/config/s", "none"), (200, json!({"compatibility": "NONE"})));
    assert_eq!(put("/config", "FORWARD"), (200, json!({"compatibility": "FORWARD"})));
    let (status, wrong) = put("/config/s", "SIDEWAYS");
    assert_eq!((status, &wrong["error_code"]), (422, &json!(42203)), "{wrong}");
    assert!(wrong["message"].as_str().unwrap().contains("BACKWARD_TRANSITIVE"), "{wrong}");
    assert_eq!(send(address, "PUT", "/mode", r#"{"mode":"READWRITE"}"#).0, 200);
    assert_eq!(send(address, "PUT", "/mode", r#"{"mode":"READONLY"}"#).1["error_code"], 42204);
    process.signal("TERM");
    process.finish().expect_code(0);

    let (_again, address) = registry(&workspace, &[flag]);
    assert_eq!((level(address, "/config"), level(address, "/config/s")), ("FORWARD".into(), "NONE".into()));
    // The subject's own comes first, then that of all.
    let (a, b) = (body(&record(&[("a", "int")])), body(&record(&[("b", "int")])));
    for subject in ["s", "t"] {
        assert_eq!(post(address, &format!("/subjects/{subject}/versions"), &a).0, 200);
    }
    assert_eq!(post(address, "/subjects/s/versions", &b).0, 200);
    let (status, refused) = post(address, "/subjects/t/versions", &b);
    assert_eq!(status, 409);
    assert!(refused["message"].as_str().unwrap().contains("FORWARD"), "{refused}");
    assert_eq!(post(address, "/compatibility/subjects/t/versions", &b).1["is_compatible"], false);

    assert_eq!(send(address, "DELETE", "/config/s", "").1["compatibility"], "NONE");
    assert_eq!(failed(address, "DELETE", "/config/s"), (404, 40408));
    assert_eq!(send(address, "DELETE", "/config", "").1["compatibilityLevel"], "FORWARD");
    assert_eq!(level(address, "/config"), "FULL_TRANSITIVE");
}

#[test]
fn what_is_deleted_is_not_shown_and_what_is_deleted_for_good_is_gone() {
    let workspace = Workspace::new();
    let (process, address) = registry(&workspace, &[]);
    let schemas = [&["a"][..], &["a", "b"], &["a", "b", "c"]].map(|names| {
        let fields: Vec<(&str, &str)> = names.iter().map(|name| (*name, "int")).collect();
        body(&record(&fields))
    });
    for schema in &schemas {
        post(address, "/subjects/s/versions", schema);
    }
    post(address, "/subjects/t/versions", &schemas[1]);
    assert_eq!(failed(address, "DELETE", "/subjects/none"), (404, 40401));
    assert_eq!(failed(address, "DELETE", "/subjects/none/versions/1"), (404, 40401));
    assert_eq!(failed(address, "DELETE", "/subjects/s/versions/9"), (404, 40402));
    assert_eq!(failed(address, "DELETE", "/subjects/s/versions/x"), (422, 42202));
    assert_eq!(failed(address, "DELETE", "/subjects/s/versions/1?permanent=true"), (404, 40407));
    assert_eq!(failed(address, "DELETE", "/subjects/s?permanent=true"), (404, 40405));

    assert_eq!(send(address, "DELETE", "/subjects/s/versions/2", ""), (200, json!(2)));
    assert_eq!(failed(address, "DELETE", "/subjects/s/versions/2"), (404, 40406));
    assert_eq!(refused(address, "/subjects/s/versions/2"), (404, 40402));
    assert_eq!(found(address, "/subjects/s/versions/2?deleted=true")["id"], 2);
    assert_eq!(found(address, "/subjects/s/versions"), json!([1, 3]));
    assert_eq!(found(address, "/subjects/s/versions?deleted=true"), json!([1, 2, 3]));
    assert_eq!(found(address, "/subjects/s/versions?deletedOnly=true"), json!([2]));
    assert_eq!(post(address, "/subjects/s", &schemas[1]).1["error_code"], 40403);
    assert_eq!(post(address, "/subjects/s?deleted=true", &schemas[1]).1["version"], 2);
    assert_eq!(found(address, "/schemas/ids/2/subjects"), json!(["t"]));
    // Registered again, it is a new version of the same id.
    assert_eq!(post(address, "/subjects/s/versions", &schemas[1]).1, json!({"id": 2, "version": 4}));
    assert_eq!(send(address, "DELETE", "/subjects/s/versions/latest", ""), (200, json!(4)));

    send(address, "PUT", "/config/s", r#"{"compatibility":"FULL"}"#);
    assert_eq!(send(address, "DELETE", "/subjects/s", ""), (200, json!([1, 3])));
    assert_eq!(failed(address, "DELETE", "/subjects/s"), (404, 40404));
    assert_eq!(refused(address, "/config/s"), (404, 40408), "its level went with it");
    assert_eq!((found(address, "/subjects"), refused(address, "/subjects/s/versions").1), (json!(["t"]), 40401));
    assert_eq!(found(address, "/subjects?deleted=true"), json!(["s", "t"]));
    assert_eq!(found(address, "/schemas/ids/1/schema")["name"], "r", "records still name it");

    assert_eq!(send(address, "DELETE", "/subjects/s/versions/1?permanent=true", ""), (200, json!(1)));
    assert_eq!(refused(address, "/schemas/ids/1"), (404, 40403));
    assert_eq!(send(address, "DELETE", "/subjects/s?permanent=true", ""), (200, json!([2, 3, 4])));
    assert_eq!(failed(address, "DELETE", "/subjects/s?permanent=true"), (404, 40401));
    assert_eq!(found(address, "/subjects?deleted=true"), json!(["t"]));
    assert_eq!(found(address, "/schemas/ids/2/versions"), json!([{"subject": "t", "version": 1}]), "it is used");
    process.signal("TERM");
    process.finish().expect_code(0);

    // No number is given a second time.
    let (_again, address) = registry(&workspace, &[]);
    assert_eq!(post(address, "/subjects/s/versions", &schemas[0]).1, json!({"id": 4, "version": 5}));
}

#[test]
fn schemas_may_refer_to_others() {
    let workspace = Workspace::new();
    let (_process, address) = registry(&workspace, &["--schema-registry.compatibility=backward"]);
    let money = json!({"type": "record", "name": "shop.Money", "fields": [{"name": "cents", "type": "long"}]});
    post(address, "/subjects/money/versions", &body(&money));
    let order = |fields: Value| json!({"type": "record", "name": "shop.Order", "fields": fields}).to_string();
    let reference = |version: u32| json!([{"name": "shop.Money", "subject": "money", "version": version}]);
    let with = |schema: &str, references: &Value| json!({"schema": schema, "references": references}).to_string();
    let text = order(json!([{"name": "price", "type": "Money"}]));
    for wrong in [
        json!({ "schema": text }).to_string(),
        with(&text, &reference(2)),
        with(&text, &reference(0)),
        with(&text, &json!([{"name": "shop.Money", "subject": "none", "version": 1}])),
    ] {
        let (status, refused) = post(address, "/subjects/orders/versions", &wrong);
        assert_eq!((status, &refused["error_code"]), (422, &json!(42201)), "{refused}");
    }
    let given = with(&text, &reference(1));
    assert_eq!(post(address, "/subjects/orders/versions", &given), (200, json!({"id": 2, "version": 1})));
    let shown = json!({"subject": "orders", "version": 1, "id": 2, "schema": text, "references": reference(1)});
    assert_eq!(post(address, "/subjects/orders", &given), (200, shown.clone()));
    assert_eq!(found(address, "/subjects/orders/versions/1"), shown);
    assert_eq!(found(address, "/schemas/ids/2"), json!({"schema": text, "references": reference(1)}));
    assert_eq!(found(address, "/subjects/money/versions/1/referencedby"), json!([2]));
    let resolved = found(address, "/schemas/ids/2?format=resolved")["schema"].as_str().unwrap().to_owned();
    assert_eq!(serde_json::from_str::<Value>(&resolved).unwrap()["fields"][0]["type"], money);

    // They are compared with what they refer to in them.
    let more = order(json!([{"name": "price", "type": "Money"}, {"name": "fee", "type": "Money"}]));
    assert_eq!(post(address, "/subjects/orders/versions", &with(&more, &reference(1))).0, 409);
    let optional = json!({"name": "fee", "type": ["null", "Money"], "default": null});
    let more = order(json!([{"name": "price", "type": "Money"}, optional]));
    let path = "/compatibility/subjects/orders/versions/latest";
    assert_eq!(post(address, path, &with(&more, &reference(1))).1["is_compatible"], true);

    for path in ["/subjects/money", "/subjects/money/versions/1"] {
        assert_eq!(failed(address, "DELETE", path), (422, 42206), "{path}");
    }
    assert_eq!(send(address, "DELETE", "/subjects/orders", ""), (200, json!([1])));
    assert_eq!(found(address, "/subjects/money/versions/1/referencedby"), json!([]));
    assert_eq!(send(address, "DELETE", "/subjects/money", ""), (200, json!([1])));
}

#[test]
fn a_level_refuses_what_its_readers_cannot_read() {
    let workspace = Workspace::new();
    let (_process, address) = registry(&workspace, &["--schema-registry.compatibility=backward"]);
    let (a, ab) = (record(&[("a", "int")]), record(&[("a", "int"), ("b", "int")]));
    assert_eq!(post(address, "/subjects/s/versions", &body(&a)).0, 200);
    let (status, answer) = post(address, "/subjects/s/versions", &body(&ab));
    assert_eq!((status, &answer["error_code"]), (409, &json!(409)));
    let message = answer["message"].as_str().unwrap();
    assert!(message.contains("BACKWARD") && message.contains("version 1") && message.contains('b'), "{message}");
    assert_eq!(found(address, "/subjects/s/versions"), json!([1]));
    // A subject of its own takes it, and then the other one is less.
    assert_eq!(post(address, "/subjects/t/versions", &body(&ab)).0, 200);
    assert_eq!(post(address, "/subjects/t/versions", &body(&a)).0, 200);

    let check = |path: &str, schema: &Value| post(address, &format!("/compatibility/subjects/{path}"), &body(schema));
    assert_eq!(check("s/versions/latest", &a), (200, json!({"is_compatible": true})));
    assert_eq!(check("s/versions", &ab), (200, json!({"is_compatible": false})));
    let (_, verbose) = check("s/versions/1?verbose=True", &ab);
    assert!(verbose["messages"][0].as_str().unwrap().contains("version 1"), "{verbose}");
    assert_eq!(check("none/versions", &ab), (200, json!({"is_compatible": true})));
    assert_eq!(check("none/versions/1", &ab).1["error_code"], 40401);
    assert_eq!(check("s/versions/1", &json!("nothing")).1["error_code"], 42201);
}

#[test]
fn refusals_of_the_guard_have_its_form_too() {
    let mut workspace = Workspace::new();
    workspace.env("ANABRANCH_API_HTTP_TOKEN", "of-the-test");
    let (_process, address) = registry(&workspace, &[]);
    assert_eq!(refused(address, "/subjects"), (401, 401));
    let basic = "Authorization: Basic YW55OndvbmctcGFzc3dvcmQ=\r\n";
    assert_eq!(ask(address, "GET", "/subjects", basic, "").status, 401);
    let answer = ask(address, "GET", "/subjects", "Authorization: Basic YW55Om9mLXRoZS10ZXN0\r\n", "");
    assert_eq!((answer.status, answer.json()), (200, json!([])));
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    let workspace = Workspace::new();
    let remote = "--schema-registry.confluent.connection-string=http://127.0.0.1:1";
    let text = workspace.run(&["config", "--schema-registry.serve", "--schema-registry.type=confluent", remote]);
    let text = text.expect_code(2).both();
    assert!(text.contains("schema-registry.serve needs the built-in schema registry"), "{text}");
    let text = workspace.run(&["config", "--schema-registry.serve", "--api.enabled=false"]).expect_code(2).both();
    assert!(text.contains("schema-registry.serve needs the HTTP API"), "{text}");
}

/// The requests of a program that uses Confluent's client.
const CLIENT: &str = r#"
import sys
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient, SchemaRegistryError
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

url, token = sys.argv[1:]
client = SchemaRegistryClient({"url": url, "basic.auth.user.info": "anybody:" + token})
text = '{"type": "record", "name": "order", "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}]}'
schema = Schema(text, "AVRO")
first = client.register_schema("orders-value", schema)
assert client.register_schema("orders-value", schema) == first
assert client.get_subjects() == ["orders-value"], client.get_subjects()
assert client.get_versions("orders-value") == [1]
assert client.get_latest_version("orders-value").version == 1
assert client.get_version("orders-value", 1).schema_id == first
assert client.lookup_schema("orders-value", schema).version == 1
assert client.test_compatibility("orders-value", schema)
assert client.get_compatibility() == "NONE"
client.set_compatibility("orders-value", "FULL")
assert client.get_compatibility("orders-value") == "FULL"
narrow = Schema('{"type": "record", "name": "order", "fields": [{"name": "id", "type": "int"}]}', "AVRO")
assert not client.test_compatibility("orders-value", narrow)

def code(call, *arguments):
    try:
        call(*arguments)
    except SchemaRegistryError as error:
        return error.http_status_code, error.error_code
    raise AssertionError("no error")

assert code(client.get_latest_version, "none") == (404, 40401)
assert code(client.get_version, "orders-value", 7) == (404, 40402)
assert code(SchemaRegistryClient({"url": url, "basic.auth.user.info": "anybody:" + token}).get_schema, 99) == (404, 40403)
assert code(client.register_schema, "orders-value", Schema('{"type": "nothing"}', "AVRO")) == (422, 42201)
assert code(SchemaRegistryClient({"url": url}).get_subjects) == (401, 401)

assert code(client.register_schema, "orders-value", narrow) == (409, 409)
assert client.delete_config("orders-value").compatibility.value == "FULL"
assert client.register_schema("orders-value", narrow) != first
assert code(client.delete_version, "orders-value", 2, True) == (404, 40407)
assert client.delete_version("orders-value", 2) == 2
assert client.get_versions("orders-value") == [1]
assert client.get_versions("orders-value", deleted=True) == [1, 2]
assert client.delete_version("orders-value", 2, permanent=True) == 2
assert client.get_versions("orders-value", deleted=True) == [1]

money = '{"type": "record", "name": "shop.Money", "fields": [{"name": "cents", "type": "long"}]}'
price = '{"type": "record", "name": "shop.Price", "fields": [{"name": "net", "type": "shop.Money"}]}'
client.register_schema("money", Schema(money, "AVRO"))
named = Schema(price, "AVRO", [SchemaReference("shop.Money", "money", 1)])
client.register_schema("price-value", named)
assert client.get_version("price-value", 1).schema.references[0].subject == "money"
assert len(client.get_referenced_by("money", 1)) == 1
about_price = SerializationContext("price", MessageField.VALUE)
data = AvroSerializer(client, named, conf={"auto.register.schemas": False})({"net": {"cents": 5}}, about_price)
assert AvroDeserializer(client)(data, about_price) == {"net": {"cents": 5}}
assert code(client.delete_subject, "money") == (422, 42206)
assert client.delete_subject("price-value") == [1]
assert client.delete_subject("price-value", permanent=True) == [1]
assert client.delete_subject("money") == [1]
assert client.get_subjects() == ["orders-value"], client.get_subjects()

context = SerializationContext("orders", MessageField.VALUE)
data = AvroSerializer(client, text)({"id": 7, "name": "tea"}, context)
other = SchemaRegistryClient({"url": url, "basic.auth.user.info": "anybody:" + token})
assert AvroDeserializer(other)(data, context) == {"id": 7, "name": "tea"}
import base64
print(base64.b64encode(data).decode())
"#;

/// The Python that has the client: the one that the set-up of the check made, or the system's.
fn python() -> Option<String> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/schema-client/bin/python");
    [own.display().to_string(), "python3".to_owned()].into_iter().find(|python| {
        let imported = Command::new(python).args(["-c", "import confluent_kafka.schema_registry.avro"]).output();
        imported.is_ok_and(|output| output.status.success())
    })
}

#[test]
fn the_client_of_others_is_served() {
    let Some(python) = python() else { return skip("Confluent's schema registry client for Python is not installed") };
    let mut workspace = Workspace::new();
    workspace.env("ANABRANCH_API_HTTP_TOKEN", "of-the-test");
    let (process, address) = registry(&workspace, &[]);
    let script = workspace.write("client.py", CLIENT);
    let mut command = Command::new(python);
    command.arg(script).args([&format!("http://{address}"), "of-the-test"]);
    let output = Process::spawn(&mut command).finish().expect_code(0);
    process.signal("TERM");
    process.finish().expect_code(0);

    // A pipeline of the same store reads what it wrote.
    let decode = "      - { id: bytes, plugin: base64.decode, settings: { field: .Payload.After } }\n      \
                  - { id: decode, plugin: avro.decode }\n";
    workspace.write("in.txt", &output.stdout);
    workspace.write("pipelines/p.yaml", file_to_file("p", decode));
    workspace.once();
    let line: Value = serde_json::from_str(&workspace.lines("out.ndjson")[0]).unwrap();
    assert_eq!(line["payload"]["after"], json!({"id": 7, "name": "tea"}));
}

/// Encodes lines of `in.txt` by the registry at `url`.
fn encoding(url: &str) -> Workspace {
    let workspace = Workspace::new();
    let encode = "      - { id: parse, plugin: json.decode, settings: { field: .Payload.After } }
      - id: encode
        plugin: avro.encode
        settings: { schema.strategy: autoRegister, schema.autoRegister.subject: orders }\n";
    workspace.write("in.txt", "{\"id\":1}\n{\"id\":2,\"name\":\"x\"}\n{\"id\":3}\n");
    workspace.write("pipelines/p.yaml", file_to_file("encode", encode));
    workspace.write(
        "anabranch.yaml",
        format!("schema-registry:\n  type: confluent\n  confluent:\n    connection-string: {url}\n"),
    );
    workspace
}

fn ids(workspace: &Workspace) -> Vec<u8> {
    let id = |line: &String| {
        let record: Value = serde_json::from_str(line).unwrap();
        base64_decode(record["payload"]["after"].as_str().unwrap())[4]
    };
    workspace.lines("out.ndjson").iter().map(id).collect()
}

#[test]
fn one_service_uses_the_registry_of_another() {
    let mut serving = Workspace::new();
    serving.env("ANABRANCH_API_HTTP_TOKEN", "of-the-test");
    let (_process, address) = registry(&serving, &[]);
    let url = format!("http://{address}");
    let auth = "--schema-registry.confluent.auth.type";
    let logins: [&[&str]; 2] = [
        &[
            auth,
            "basic",
            "--schema-registry.confluent.auth.basic.username=me",
            "--schema-registry.confluent.auth.basic.password=of-the-test",
        ],
        &[auth, "bearer", "--schema-registry.confluent.auth.bearer.token=of-the-test"],
    ];
    for login in logins {
        let workspace = encoding(&url);
        workspace.run(&[&["run", "--once"], login].concat()).expect_code(0);
        assert_eq!(ids(&workspace), [1, 2, 1]);
    }
    let answer = ask(address, "GET", "/subjects/orders/versions", "Authorization: Bearer of-the-test\r\n", "");
    assert_eq!(answer.json(), json!([1, 2]));

    let workspace = encoding(&url);
    let output = workspace.run(&["run", "--once"]).expect_code(1).both();
    assert!(output.contains("schema registry refused the request") && output.contains("401"), "{output}");
    assert!(ids(&workspace).is_empty());
}

#[test]
fn a_trial_knows_what_is_registered_and_registers_nothing() {
    let workspace = Workspace::new();
    let (process, address) = registry(&workspace, &[]);
    let schema = json!({ "type": "record", "name": "o", "fields": [{ "name": "id", "type": "long" }] });
    assert_eq!(post(address, "/subjects/ord/versions", &body(&schema)).0, 200);
    let steps = "      - { id: parse, plugin: json.decode, settings: { field: .Payload.After } }
      - id: known
        plugin: avro.encode
        settings:
          schema.strategy: preRegistered
          schema.preRegistered.subject: ord
          schema.preRegistered.version: 1
      - { id: decode, plugin: avro.decode }
      - id: new
        plugin: avro.encode
        settings: { schema.strategy: autoRegister, schema.autoRegister.subject: of-a-trial }\n";
    workspace.write("orders.txt", "{\"id\":1}\n{\"id\":2}\n");
    let trial = workspace.write("orders.yaml", file_to_file("orders", steps).replace("in.txt", "orders.txt"));
    let trial = trial.to_str().unwrap();

    // The service has its store to itself.
    let refused = workspace.run(&["pipelines", "dry-run", trial]).expect_code(1).both();
    assert!(refused.contains("\"ord\" not found") && refused.contains("is in use by"), "{refused}");
    let url = format!("--schema-registry.confluent.connection-string=http://{address}");
    let elsewhere = ["--schema-registry.type=confluent", &url];
    workspace.run(&[&["pipelines", "dry-run", trial], &elsewhere[..]].concat()).expect_code(0);
    assert_eq!(found(address, "/subjects"), json!(["ord"]));
    process.signal("TERM");
    process.finish().expect_code(0);

    for command in [&["pipelines", "dry-run", trial][..], &["pipelines", "plan", trial, "--analyze"]] {
        let output = workspace.run(command).expect_code(0).both();
        assert!(!output.contains("not found"), "{output}");
    }
    let (_process, address) = registry(&workspace, &[]);
    assert_eq!(found(address, "/subjects"), json!(["ord"]));
}

#[test]
fn a_registry_that_is_away_is_waited_for() {
    let serving = Workspace::new();
    let held = Port::hold();
    let port = held.number();
    let workspace = encoding(&format!("http://127.0.0.1:{port}"));
    let min = "--pipelines.error-recovery.min-delay=50ms";
    let mut waiting = workspace.start(&["run", min, "--pipelines.error-recovery.max-delay=100ms"]);
    let address = waiting.address();
    waiting.wait_until("a recovery", || {
        let pipeline = get(address, "/v1/pipelines/encode");
        pipeline.status == 200 && pipeline.json()["status"]["attempt"].as_u64().is_some_and(|attempt| attempt > 0)
    });
    assert!(ids(&workspace).is_empty());
    let (_process, _) = registry(&serving, &[&format!("--api.http.address=127.0.0.1:{port}")]);
    waiting.wait_until("all records", || workspace.lines("out.ndjson").len() == 3);
    assert_eq!(ids(&workspace), [1, 2, 1]);
    waiting.signal("TERM");
    waiting.finish().expect_code(0);
}
