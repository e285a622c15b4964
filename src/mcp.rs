//! The Model Context Protocol, which assistants use to call tools: JSON-RPC, independent of a transport. [`stdio`] and
//! [`http`] are the transports.
//!
//! The server supports two kinds of clients. Clients of revision 2026-07-28 name the revision in each request and have
//! no sessions. Older clients begin with a handshake; since nothing depends on it, the server keeps no sessions for
//! them either.

mod cancellation;
pub(crate) mod http;
pub mod stdio;

pub use cancellation::Cancellation;

use serde_json::{Map, Value, json};

/// Revisions that are named in each request, newest first.
const MODERN: [&str; 1] = ["2026-07-28"];
/// Revisions that begin with a handshake, newest first.
const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const SERVER: &str = "io.modelcontextprotocol/serverInfo";

/// Maximum size of a message, in bytes.
pub const MESSAGE: usize = 4 << 20;
/// How long a client may cache the list of tools, in milliseconds. It never changes while the server runs.
const REMEMBERED: u64 = 3_600_000;

/// Implementation of a tool. Returns an object with `ok`, which is passed to the model unchanged. It can block for a
/// long time, until it is cancelled.
pub type Call = Box<dyn Fn(Map<String, Value>, &Cancellation) -> Value + Send + Sync>;

/// A tool.
pub struct Tool {
    /// Name for clients.
    pub name: &'static str,
    /// Title for people.
    pub title: &'static str,
    /// Description for the model.
    pub description: &'static str,
    /// JSON Schema of its arguments: an object.
    pub arguments: Value,
    /// Its effect on the outside world.
    pub effect: Effect,
    /// Calls the tool.
    pub call: Call,
}

/// The effect of a tool on the outside world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Only reads.
    Reads,
    /// Runs the given pipeline, which can call other services.
    Runs,
    /// Changes a service in a reversible way.
    Changes,
    /// Changes a service irreversibly.
    Destroys,
}

/// A server of tools. All requests share it.
pub struct Server {
    tools: Vec<Tool>,
    instructions: &'static str,
}

/// An answer, and the HTTP status for transports that have one.
#[derive(Debug)]
pub struct McpAnswer {
    /// 200, 202 for messages without an answer, or an error status.
    pub status: u16,
    /// The message; `None` if the request needs no answer.
    pub body: Option<Value>,
}

/// An error of the protocol. Errors of tools are part of their results.
struct ProtocolError {
    status: u16,
    code: i32,
    message: String,
    data: Option<Value>,
}

impl ProtocolError {
    fn new(status: u16, code: i32, message: impl Into<String>) -> Self {
        ProtocolError { status, code, message: message.into(), data: None }
    }

    fn parameters(message: impl Into<String>) -> Self {
        ProtocolError::new(400, -32602, message)
    }

    fn answer(self, id: &Value) -> McpAnswer {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(data) = self.data {
            error["data"] = data;
        }
        McpAnswer { status: self.status, body: Some(json!({ "jsonrpc": "2.0", "id": id, "error": error })) }
    }
}

/// Values that a transport repeats outside of the message. They must match the message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MirroredHeaders {
    /// Revision of the protocol.
    pub version: Option<String>,
    /// Method of the request.
    pub method: Option<String>,
    /// Name of the tool.
    pub name: Option<String>,
}

impl Server {
    /// Creates a server of these tools. The instructions describe the purpose of the tools to the model.
    pub fn new(tools: Vec<Tool>, instructions: &'static str) -> Self {
        Server { tools, instructions }
    }

    /// Answers a message that is longer than [`MESSAGE`], of which only the id was read.
    pub fn too_long(&self, id: &Value) -> McpAnswer {
        let message = format!("the message is longer than {} MiB: it was not processed", MESSAGE >> 20);
        ProtocolError::new(413, -32700, message).answer(id)
    }

    /// Refuses a message because too many calls are waiting.
    pub fn busy(&self, message: &Value) -> McpAnswer {
        let what = "too many calls are waiting: wait for their responses";
        ProtocolError::new(503, -32000, what).answer(message.get("id").unwrap_or_default())
    }

    /// Answers a message. Blocks as long as a tool takes. `mirrored` is for transports that have such values.
    pub fn answer(&self, message: &[u8], mirrored: Option<&MirroredHeaders>) -> McpAnswer {
        match parsed(message) {
            Ok(message) => self.answer_to(&message, mirrored, &Cancellation::default()),
            Err(answer) => answer,
        }
    }

    /// Answers a message, or a batch of messages, which revision 2025-03-26 allows. Blocks as long as a tool takes,
    /// unless it is cancelled.
    pub fn answer_to(
        &self,
        message: &Value,
        mirrored: Option<&MirroredHeaders>,
        cancellation: &Cancellation,
    ) -> McpAnswer {
        match message.as_array() {
            Some(batch) if !batch.is_empty() => {
                let answers = batch.iter().filter(|_| !cancellation.is_cancelled());
                let bodies: Vec<Value> =
                    answers.filter_map(|message| self.answer_one(message, mirrored, cancellation).body).collect();
                match bodies.is_empty() {
                    true => McpAnswer { status: 202, body: None },
                    false => McpAnswer { status: 200, body: Some(Value::Array(bodies)) },
                }
            }
            _ => self.answer_one(message, mirrored, cancellation),
        }
    }

    fn answer_one(
        &self,
        message: &Value,
        mirrored: Option<&MirroredHeaders>,
        cancellation: &Cancellation,
    ) -> McpAnswer {
        let id = message.get("id").cloned();
        let Some(method) = message.get("method").and_then(Value::as_str) else {
            // An answer without a request, or not a valid message.
            return match id {
                Some(_) if message.get("result").is_some() || message.get("error").is_some() => {
                    McpAnswer { status: 202, body: None }
                }
                id => ProtocolError::new(400, -32600, "a message must have a method").answer(&id.unwrap_or_default()),
            };
        };
        let Some(id) = id else { return McpAnswer { status: 202, body: None } };
        if !(id.is_string() || id.is_number()) {
            return ProtocolError::new(400, -32600, "an id must be a string or a number").answer(&Value::Null);
        }
        let none = Map::new();
        let parameters = match message.get("params") {
            None | Some(Value::Null) => &none,
            Some(Value::Object(parameters)) => parameters,
            Some(_) => return ProtocolError::parameters("params must be an object").answer(&id),
        };
        let version = parameters.get("_meta").and_then(|meta| meta.get(VERSION));
        let result = match version {
            Some(version) => self.modern(version, method, parameters, mirrored, cancellation),
            None => self.legacy(method, parameters, mirrored, cancellation),
        };
        match result {
            Ok(result) => {
                McpAnswer { status: 200, body: Some(json!({ "jsonrpc": "2.0", "id": id, "result": result })) }
            }
            Err(refusal) => refusal.answer(&id),
        }
    }

    fn modern(
        &self,
        version: &Value,
        method: &str,
        parameters: &Map<String, Value>,
        mirrored: Option<&MirroredHeaders>,
        cancellation: &Cancellation,
    ) -> Result<Value, ProtocolError> {
        let Some(version) = version.as_str() else {
            return Err(ProtocolError::parameters(format!("{VERSION} must be a string")));
        };
        if let Some(mirrored) = mirrored {
            let name = (method == "tools/call").then(|| parameters.get("name").and_then(Value::as_str)).flatten();
            let pairs = [
                ("MCP-Protocol-Version", mirrored.version.as_deref(), Some(version)),
                ("Mcp-Method", mirrored.method.as_deref(), Some(method)),
                ("Mcp-Name", mirrored.name.as_deref(), name),
            ];
            for (header, given, body) in pairs {
                if body.is_some() && given != body {
                    let what = format!("header mismatch: {header} is {given:?}, the message has {body:?}");
                    return Err(ProtocolError::new(400, -32020, what));
                }
            }
        }
        if !MODERN.contains(&version) {
            let supported: Vec<&str> = MODERN.into_iter().chain(LEGACY).collect();
            let mut refusal = ProtocolError::new(400, -32022, "unsupported protocol version");
            refusal.data = Some(json!({ "supported": supported, "requested": version }));
            return Err(refusal);
        }
        if !parameters["_meta"].get(CAPABILITIES).is_some_and(Value::is_object) {
            return Err(ProtocolError::parameters(format!("_meta must contain {CAPABILITIES}")));
        }
        let mut result = match method {
            "server/discover" => json!({
                "supportedVersions": MODERN.into_iter().chain(LEGACY).collect::<Vec<_>>(),
                "capabilities": { "tools": {} },
                "serverInfo": identity(),
                "instructions": self.instructions,
                "ttlMs": REMEMBERED,
                "cacheScope": "private",
            }),
            "tools/list" => json!({ "tools": self.listed(), "ttlMs": REMEMBERED, "cacheScope": "private" }),
            "tools/call" => self.called(parameters, cancellation)?,
            _ => return Err(ProtocolError::new(404, -32601, format!("there is no method {method:?}"))),
        };
        result["resultType"] = json!("complete");
        result["_meta"] = json!({ SERVER: identity() });
        Ok(result)
    }

    fn legacy(
        &self,
        method: &str,
        parameters: &Map<String, Value>,
        mirrored: Option<&MirroredHeaders>,
        cancellation: &Cancellation,
    ) -> Result<Value, ProtocolError> {
        // A client that claims a modern revision in the transport must name it in the message too.
        let claimed = mirrored.and_then(|mirrored| mirrored.version.as_deref());
        if method == "server/discover" || claimed.is_some_and(|version| MODERN.contains(&version)) {
            return Err(ProtocolError::parameters(format!("_meta must contain {VERSION} and {CAPABILITIES}")));
        }
        match method {
            "initialize" => {
                let asked = parameters.get("protocolVersion").and_then(Value::as_str);
                let Some(asked) = asked else { return Err(ProtocolError::parameters("protocolVersion is missing")) };
                let version = LEGACY.into_iter().find(|version| *version == asked).unwrap_or(LEGACY[0]);
                Ok(json!({
                    "protocolVersion": version,
                    "capabilities": { "tools": {} },
                    "serverInfo": identity(),
                    "instructions": self.instructions,
                }))
            }
            "ping" => Ok(json!({})),
            "tools/list" => Ok(json!({ "tools": self.listed() })),
            "tools/call" => self.called(parameters, cancellation),
            // The HTTP status is 200, because older clients take 404 for the end of a session.
            _ => Err(ProtocolError::new(200, -32601, format!("there is no method {method:?}"))),
        }
    }

    /// Calls a tool and returns its result; `None` if there is no such tool.
    pub fn call(&self, name: &str, arguments: Map<String, Value>, cancellation: &Cancellation) -> Option<Value> {
        let tool = self.tools.iter().find(|tool| tool.name == name)?;
        Some((tool.call)(arguments, cancellation))
    }

    fn listed(&self) -> Vec<Value> {
        let listed = |tool: &Tool| {
            json!({
                "name": tool.name,
                "title": tool.title,
                "description": tool.description,
                "inputSchema": tool.arguments,
                "annotations": {
                    "title": tool.title,
                    "readOnlyHint": tool.effect == Effect::Reads,
                    "destructiveHint": tool.effect == Effect::Destroys,
                    "openWorldHint": tool.effect == Effect::Runs,
                },
            })
        };
        self.tools.iter().map(listed).collect()
    }

    fn called(&self, parameters: &Map<String, Value>, cancellation: &Cancellation) -> Result<Value, ProtocolError> {
        let Some(name) = parameters.get("name").and_then(Value::as_str) else {
            return Err(ProtocolError::parameters("name is missing"));
        };
        if !self.tools.iter().any(|tool| tool.name == name) {
            return Err(ProtocolError::parameters(format!("there is no tool {name:?}")));
        }
        let arguments = match parameters.get("arguments") {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(arguments)) => arguments.clone(),
            Some(_) => return Err(ProtocolError::parameters("arguments must be an object")),
        };
        let told = self.call(name, arguments, cancellation).unwrap_or_default();
        Ok(json!({
            "content": [{ "type": "text", "text": told.to_string() }],
            "isError": told["ok"] != true,
            "structuredContent": told,
        }))
    }
}

/// Parses a message.
///
/// # Errors
/// Returns the answer to an invalid message.
fn parsed(message: &[u8]) -> Result<Value, McpAnswer> {
    serde_json::from_slice(message)
        .map_err(|error| ProtocolError::new(400, -32700, format!("not JSON: {error}")).answer(&Value::Null))
}

fn identity() -> Value {
    json!({ "name": "anabranch", "title": "Anabranch", "version": env!("CARGO_PKG_VERSION") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> Server {
        let echo = Tool {
            name: "echo",
            title: "Echo",
            description: "Says it again",
            arguments: json!({ "type": "object" }),
            effect: Effect::Reads,
            call: Box::new(|arguments, _| json!({ "ok": !arguments.is_empty(), "result": arguments })),
        };
        Server::new(vec![echo], "for tests")
    }

    fn ask(message: &Value, mirrored: Option<&MirroredHeaders>) -> (u16, Value) {
        let answer = server().answer(message.to_string().as_bytes(), mirrored);
        (answer.status, answer.body.unwrap_or_default())
    }

    fn modern(method: &str, more: &Value) -> Value {
        let mut parameters = json!({ "_meta": { VERSION: "2026-07-28", CAPABILITIES: {} } });
        for (name, value) in more.as_object().unwrap() {
            parameters[name] = value.clone();
        }
        json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": parameters })
    }

    #[test]
    fn an_older_client_shakes_hands() {
        for (asked, told) in [("2025-06-18", "2025-06-18"), ("2030-01-01", "2025-11-25")] {
            let message = json!({
                "jsonrpc": "2.0", "id": "a", "method": "initialize", "params": { "protocolVersion": asked },
            });
            let (status, body) = ask(&message, None);
            assert_eq!((status, &body["result"]["protocolVersion"]), (200, &json!(told)));
            assert_eq!(body["id"], "a");
        }
        assert_eq!(ask(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }), None).0, 202);
        assert_eq!(ask(&json!({ "jsonrpc": "2.0", "id": 2, "method": "ping" }), None).1["result"], json!({}));
    }

    #[test]
    fn a_newer_client_says_what_it_is() {
        let (_, found) = ask(&modern("server/discover", &json!({})), None);
        assert_eq!(found["result"]["resultType"], "complete");
        assert_eq!(found["result"]["supportedVersions"][0], "2026-07-28");
        let mut other = modern("tools/list", &json!({}));
        other["params"]["_meta"][VERSION] = json!("1900-01-01");
        let (status, refused) = ask(&other, None);
        assert_eq!((status, &refused["error"]["code"]), (400, &json!(-32022)));
        let mut bare = modern("tools/list", &json!({}));
        bare["params"]["_meta"].as_object_mut().unwrap().remove(CAPABILITIES);
        assert_eq!(ask(&bare, None).1["error"]["code"], -32602);
        assert_eq!(ask(&modern("ping", &json!({})), None).0, 404);
    }

    #[test]
    fn headers_must_say_what_the_message_says() {
        let call = modern("tools/call", &json!({ "name": "echo", "arguments": { "a": 1 } }));
        let right = MirroredHeaders {
            version: Some("2026-07-28".to_owned()),
            method: Some("tools/call".to_owned()),
            name: Some("echo".to_owned()),
        };
        assert_eq!(ask(&call, Some(&right)).0, 200);
        for wrong in [
            MirroredHeaders { version: None, ..right.clone() },
            MirroredHeaders { method: Some("tools/list".to_owned()), ..right.clone() },
            MirroredHeaders { name: Some("other".to_owned()), ..right.clone() },
        ] {
            let (status, refused) = ask(&call, Some(&wrong));
            assert_eq!((status, &refused["error"]["code"]), (400, &json!(-32020)));
        }
    }

    #[test]
    fn tools_are_called() {
        let call = |name: &str, arguments: Value| {
            json!({
                "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": name, "arguments": arguments },
            })
        };
        let (_, told) = ask(&call("echo", json!({ "a": 1 })), None);
        assert_eq!(told["result"]["isError"], false);
        assert_eq!(told["result"]["structuredContent"]["result"]["a"], 1);
        let text = told["result"]["content"][0]["text"].as_str().unwrap();
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), told["result"]["structuredContent"]);
        assert_eq!(ask(&call("echo", json!({})), None).1["result"]["isError"], true);
        assert_eq!(ask(&call("none", json!({})), None).1["error"]["code"], -32602);
        assert_eq!(ask(&call("echo", json!([])), None).1["error"]["code"], -32602);
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for (text, code) in
            [("{", -32700), ("[]", -32600), ("{\"id\":1}", -32600), ("{\"id\":{},\"method\":\"ping\"}", -32600)]
        {
            let answer = server().answer(text.as_bytes(), None);
            assert_eq!(answer.body.unwrap()["error"]["code"], code, "{text}");
        }
    }
}
