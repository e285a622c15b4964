//! Messages on lines of standard input and output.

use std::io::{self, BufRead, Read as _, Write};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;

use super::{MESSAGE, Server};

/// Tools that run at a time: some take long, and a client asks others meanwhile.
const AT_A_TIME: usize = 4;

/// Answers the lines of `input` until it ends. Answers come in the order in which they are ready.
///
/// # Errors
/// The input cannot be read, or the output cannot be written.
pub fn serve(server: &Server, input: impl BufRead, output: impl Write + Send) -> io::Result<()> {
    let output = Mutex::new(output);
    let (sender, receiver) = mpsc::sync_channel::<Option<Vec<u8>>>(AT_A_TIME);
    let receiver = Mutex::new(receiver);
    let work = || -> io::Result<()> {
        loop {
            let next = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(line) = next else { return Ok(()) };
            let answer = match line {
                Some(line) => server.answer(&line, None),
                None => server.too_long(),
            };
            if let Some(body) = answer.body {
                let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
                writeln!(output, "{body}")?;
                output.flush()?;
            }
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_A_TIME).map(|_| scope.spawn(work)).collect();
        let read = read(input, |line| sender.send(line).is_ok());
        drop(sender);
        let written = workers.into_iter().map(|worker| worker.join().unwrap_or(Ok(()))).find(Result::is_err);
        read.and(written.unwrap_or(Ok(())))
    })
}

/// Gives each line to `take`, until it says no; `None` for one that is too long.
fn read(mut input: impl BufRead, take: impl Fn(Option<Vec<u8>>) -> bool) -> io::Result<()> {
    loop {
        let mut line = Vec::new();
        if (&mut input).take(MESSAGE as u64).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if line.last() != Some(&b'\n') && line.len() == MESSAGE {
            input.skip_until(b'\n')?;
            if !take(None) {
                return Ok(());
            }
        } else if !line.trim_ascii().is_empty() && !take(Some(line)) {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_answered_and_long_ones_refused() {
        let server = Server::new(Vec::new(), "");
        let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        let long = format!("\"{}\"", "x".repeat(MESSAGE));
        let mut output = Vec::new();
        serve(&server, format!("{ping}\n\n{long}\n{ping}").as_bytes(), &mut output).unwrap();
        let text = String::from_utf8(output).unwrap();
        assert_eq!(text.lines().filter(|line| line.contains("\"result\":{}")).count(), 2, "{text}");
        let refused: Vec<&str> = text.lines().filter(|line| line.contains("-32700")).collect();
        assert!(matches!(*refused, [line] if line.contains("longer than 4 MiB")), "{text}");
    }
}
