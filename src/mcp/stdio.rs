//! MCP over standard input and output, one message per line.
//!
//! One thread reads messages and answers those that need no tool. Tool calls run on threads of their own, so that the
//! server keeps reading while they run.

mod calls;
mod id;

use std::io::{self, BufRead, Write};
use std::sync::{Mutex, PoisonError};
use std::thread;

use serde_json::Value;

use self::calls::Calls;
use self::id::IdScanner;
use super::{MESSAGE, McpAnswer, Server, parsed};

/// Answers the lines of `input` until it ends. Calls that still run then have a short time to end before they are
/// cancelled. Answers are written as soon as they are ready.
///
/// # Errors
/// The input cannot be read, or the output cannot be written.
pub fn serve(server: &Server, input: impl BufRead, output: impl Write + Send) -> io::Result<()> {
    let output = Mutex::new((output, Ok(())));
    let write = |answer: McpAnswer| {
        let Some(body) = answer.body else { return };
        let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
        let written = writeln!(output.0, "{body}").and_then(|()| output.0.flush());
        if output.1.is_ok() {
            output.1 = written;
        }
    };
    let calls = Calls::default();
    let read = thread::scope(|scope| {
        let read = read(input, |line| match line {
            InputLine::TooLong(id) => write(server.too_long(&id)),
            InputLine::Whole(line) => match parsed(&line) {
                Err(answer) => write(answer),
                Ok(message) if method(&message) == Some("notifications/cancelled") => {
                    calls.cancel(&message["params"]["requestId"]);
                }
                Ok(message) if has_call(&message) => {
                    if let Err(message) = calls.begin(scope, server, &write, message) {
                        write(server.busy(&message));
                    }
                }
                Ok(message) => write(server.answer_to(&message, None, &Default::default())),
            },
        });
        calls.end();
        read
    });
    let (_, written) = output.into_inner().unwrap_or_else(PoisonError::into_inner);
    read.and(written)
}

fn method(message: &Value) -> Option<&str> {
    message.get("method").and_then(Value::as_str)
}

/// Returns `true` if the message contains a tool call, so that the answer can take long.
fn has_call(message: &Value) -> bool {
    let is_call = |message: &Value| method(message) == Some("tools/call");
    is_call(message) || message.as_array().is_some_and(|batch| batch.iter().any(is_call))
}

/// A line that was read.
enum InputLine {
    Whole(Vec<u8>),
    /// A line that is longer than the maximum message, with its id if there is one.
    TooLong(Value),
}

/// Passes each line to `take`.
fn read(mut input: impl BufRead, take: impl Fn(InputLine)) -> io::Result<()> {
    loop {
        let mut line = Vec::new();
        if io::Read::take(&mut input, MESSAGE as u64).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if line.last() != Some(&b'\n') && line.len() == MESSAGE {
            let mut id = IdScanner::default();
            id.feed(&line);
            drop(line);
            skip_line(&mut input, &mut id)?;
            take(InputLine::TooLong(id.found()));
        } else if !line.trim_ascii().is_empty() {
            take(InputLine::Whole(line));
        }
    }
}

/// Reads to the end of a line and discards it, except for the id.
fn skip_line(input: &mut impl BufRead, id: &mut IdScanner) -> io::Result<()> {
    loop {
        let piece = match input.fill_buf() {
            Ok(piece) => piece,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let end = piece.iter().position(|byte| *byte == b'\n');
        let length = end.map_or(piece.len(), |end| end + 1);
        id.feed(&piece[..length]);
        input.consume(length);
        if end.is_some() || length == 0 {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::mcp::{Effect, Tool};

    fn spoken(server: &Server, input: &str) -> Vec<Value> {
        let mut output = Vec::new();
        serve(server, input.as_bytes(), &mut output).unwrap();
        String::from_utf8(output).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn lines_are_answered_and_long_ones_refused() {
        let server = Server::new(Vec::new(), "");
        let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        let long = "x".repeat(MESSAGE);
        let answers = spoken(
            &server,
            &format!("{ping}\n\n\"{long}\"\n{{\"params\":{{\"id\":3,\"a\":\"{long}\"}},\"id\":\"seven\"}}\n{ping}"),
        );
        assert_eq!(answers.iter().filter(|answer| answer["result"] == json!({})).count(), 2, "{answers:?}");
        let refused: Vec<&Value> = answers.iter().filter(|answer| answer["error"]["code"] == -32700).collect();
        assert!(
            matches!(&*refused, [without, with] if without["id"].is_null() && with["id"] == "seven"
                && with["error"]["message"].as_str().is_some_and(|message| message.contains("longer than 4 MiB"))),
            "{answers:?}"
        );
    }

    /// The number of waiting calls is bounded. When the input ends, calls that still run are abandoned.
    #[test]
    fn calls_are_bounded_in_number_and_end_with_the_input() {
        let endless = Tool {
            name: "endless",
            title: "",
            description: "",
            arguments: json!({ "type": "object" }),
            effect: Effect::Reads,
            call: Box::new(|_, cancellation| {
                let (sender, receiver) = std::sync::mpsc::channel::<()>();
                cancellation.ended_by(move || drop(sender));
                let _ = receiver.recv();
                json!({ "ok": true })
            }),
        };
        let server = Server::new(vec![endless], "");
        let call = |id| {
            json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": "endless" } }).to_string()
        };
        let lines: Vec<String> = (0..100).map(call).collect();
        let answers = spoken(&server, &lines.join("\n"));
        assert_eq!(answers.len(), 100 - calls::AT_A_TIME - calls::WAITING, "{answers:?}");
        assert!(answers.iter().all(|answer| answer["error"]["code"] == -32000), "{answers:?}");
    }
}
