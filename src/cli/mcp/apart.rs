//! Runs each tool call in a process of its own, so that a call that never ends can be killed with all its child
//! processes.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use anabranch_process::files::system;
use anabranch_process::terminal::{self, Stream};
use anabranch_record::code::Code;
use rustix::process::{Pid, Signal, getpgrp, getpid, kill_current_process_group, kill_process_group};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::cli::{Exit, Report};
use crate::codes;
use crate::mcp::{Cancellation, MESSAGE, Server, Tool};

/// The flag of such a process.
pub(super) const FLAG: &str = "one-call";
/// Time limit of a call of any tool. Tools with a limit of their own use a shorter one.
const LONGEST: Duration = Duration::from_secs(120);

/// The call that such a process reads from its input, on one line. The input stays open as long as the caller needs the
/// answer.
#[derive(Deserialize, Serialize)]
struct ToolCall {
    name: String,
    arguments: Map<String, Value>,
}

/// Wraps tools so that each call runs in a process of its own.
pub(super) fn apart(tools: Vec<Tool>) -> Vec<Tool> {
    let apart = |tool: Tool| {
        let name = tool.name;
        Tool { call: Box::new(move |arguments, cancellation| call(name, arguments, cancellation)), ..tool }
    };
    tools.into_iter().map(apart).collect()
}

/// A process group that is killed when it is dropped.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = Pid::from_raw(self.0.id().cast_signed()) {
            // The process is not reaped yet, so its number is still its own.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

/// The end of a call.
enum CallEnd {
    Answered(io::Result<Vec<u8>>),
    Cancelled,
}

fn call(name: &str, arguments: Map<String, Value>, cancellation: &Cancellation) -> Value {
    let failed = |code: Code, why: String| Report::new("mcp").fail(Exit::Environment, code, why).envelope();
    match answered(&ToolCall { name: name.to_owned(), arguments }, cancellation) {
        Ok(answer) => serde_json::from_slice(&answer)
            .unwrap_or_else(|_| failed(codes::CLI_SYSTEM, format!("the process of {name} ended without a result"))),
        Err(NotAnswered::System(error)) => {
            failed(codes::CLI_SYSTEM, format!("cannot run {name} in a process: {}", system(&error)))
        }
        Err(NotAnswered::TooLong) => {
            failed(codes::MCP_TIMED_OUT, format!("{name} took longer than {} s and was stopped", LONGEST.as_secs()))
        }
        Err(NotAnswered::Cancelled) => failed(codes::MCP_CANCELLED, format!("{name} was cancelled")),
    }
}

enum NotAnswered {
    System(io::Error),
    TooLong,
    Cancelled,
}

fn answered(called: &ToolCall, cancellation: &Cancellation) -> Result<Vec<u8>, NotAnswered> {
    let mut request = serde_json::to_vec(called).map_err(|error| NotAnswered::System(error.into()))?;
    request.push(b'\n');
    let child = std::env::current_exe().and_then(|program| {
        Command::new(program)
            .args(std::env::args_os().skip(1))
            .arg(format!("--{FLAG}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
    });
    let mut child = Group(child.map_err(NotAnswered::System)?);
    let (input, output) = (child.0.stdin.take(), child.0.stdout.take());
    let (sender, receiver) = channel();
    let cancel = sender.clone();
    let speak = move || {
        let spoken = match (input, output) {
            (Some(mut input), Some(mut output)) => {
                let mut answer = Vec::new();
                let spoken = input.write_all(&request).and_then(|()| output.read_to_end(&mut answer));
                spoken.map(|_| answer)
            }
            _ => Err(io::ErrorKind::BrokenPipe.into()),
        };
        let _ = sender.send(CallEnd::Answered(spoken));
    };
    std::thread::Builder::new().name("anabranch-call".to_owned()).spawn(speak).map_err(NotAnswered::System)?;
    cancellation.ended_by(move || {
        let _ = cancel.send(CallEnd::Cancelled);
    });
    match receiver.recv_timeout(LONGEST) {
        Ok(CallEnd::Answered(answer)) => answer.map_err(NotAnswered::System),
        Ok(CallEnd::Cancelled) | Err(RecvTimeoutError::Disconnected) => Err(NotAnswered::Cancelled),
        Err(RecvTimeoutError::Timeout) => Err(NotAnswered::TooLong),
    }
}

/// Runs one call in such a process: reads the call from standard input and writes the answer. Ends when the caller
/// ends.
pub(super) fn one_call(server: &Server) -> io::Result<()> {
    let mut input = BufReader::new(io::stdin());
    let mut line = Vec::new();
    io::Read::take(&mut input, 2 * MESSAGE as u64).read_until(b'\n', &mut line)?;
    let ToolCall { name, arguments } = serde_json::from_slice(&line)?;
    std::thread::Builder::new().name("anabranch-caller".to_owned()).spawn(move || {
        // The input contains nothing else. It ends when the caller ends or does not need the answer any more.
        let _ = io::copy(&mut input, &mut io::sink());
        if getpgrp() == getpid() {
            let _ = kill_current_process_group(Signal::KILL);
        }
        std::process::exit(1);
    })?;
    let told = server.call(&name, arguments, &Cancellation::default()).unwrap_or_default();
    let mut output = terminal::data(Stream::Out);
    serde_json::to_writer(&mut output, &told)?;
    output.flush()
}
