//! A session of psql.

use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// What psql prints after the rows of a call.
const END: &str = "-- the end of a call";

/// A session for statements that follow each other, for example in a transaction that others interleave with. Ended on
/// drop, with its transaction.
pub struct Session {
    psql: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Session {
    /// Connects to a database. The first call fails if that does.
    pub fn connect(url: &str) -> Session {
        Session::start(super::psql(url))
    }

    pub(super) fn start(mut psql: Command) -> Session {
        let mut psql =
            psql.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("psql starts");
        let input = psql.stdin.take().expect("the input is piped");
        let output = BufReader::new(psql.stdout.take().expect("the output is piped")).lines();
        Session { psql, input, output }
    }

    /// Runs SQL and returns the rows, columns separated by `|`; `NULL` is empty. `COPY t FROM STDIN;` takes its rows from
    /// the lines that follow, until `\.`. Fails the test on an error.
    #[track_caller]
    pub fn run(&mut self, sql: &str) -> Vec<String> {
        self.try_run(sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Like [`Session::run`].
    ///
    /// # Errors
    /// What the server says, or that it is gone. The session is over then.
    pub fn try_run(&mut self, sql: &str) -> Result<Vec<String>, String> {
        let ending = if sql.trim_end().ends_with([';', '.']) { "" } else { ";" };
        let sent = writeln!(self.input, "{sql}{ending}\n\\echo {END}").and_then(|()| self.input.flush());
        let mut rows = Vec::new();
        while sent.is_ok()
            && let Some(Ok(line)) = self.output.next()
        {
            if line == END {
                return Ok(rows);
            }
            rows.push(line);
        }
        let _ = self.psql.wait();
        let mut said = String::new();
        if let Some(mut errors) = self.psql.stderr.take() {
            let _ = errors.read_to_string(&mut said);
        }
        Err(said)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.psql.kill();
        let _ = self.psql.wait();
    }
}
