//! WASI preview 1 for a program without arguments, files and sockets: clocks, randomness, environment, and output to
//! the log. All other calls return that the descriptor is not open.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use wasmtime::{Caller, Error, Extern, FuncType, Linker, Result, Val, ValType};

use crate::guest::State;
use crate::output::Stream;

const MODULE: &str = "wasi_snapshot_preview1";
const OK: i32 = 0;
const BADF: i32 = 8;
const FAULT: i32 = 21;
const INVAL: i32 = 28;
const SPIPE: i32 = 70;

/// Maximum number of buffers of one `fd_write`, and of bytes written from them. The guest writes the rest with another
/// call. It can be interrupted between calls, but not during one.
const PARTS: u32 = 1024;
const AT_ONCE: u32 = 1 << 20;

/// Maximum sleep before checking whether the guest was given up.
const NAP: Duration = Duration::from_millis(200);

/// Error for a guest that called `proc_exit`.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("exit code {0}")]
pub(crate) struct Exit(pub(crate) i32);

/// Returns the memory of a guest and its state.
pub(crate) fn memory<'a>(caller: &'a mut Caller<'_, State>) -> Result<(&'a mut [u8], &'a mut State)> {
    let memory = match caller.data().memory {
        Some(memory) => memory,
        None => {
            let memory = caller.get_export("memory").and_then(Extern::into_memory);
            let memory = memory.ok_or_else(|| Error::msg("it exports no memory"))?;
            caller.data_mut().memory = Some(memory);
            memory
        }
    };
    Ok(memory.data_and_store_mut(caller))
}

/// Calls on descriptors that are never open, by name and parameter types (`i` for 32 bits, `I` for 64).
const CLOSED: &[(&str, &str)] = &[
    ("fd_advise", "iIIi"),
    ("fd_allocate", "iII"),
    ("fd_datasync", "i"),
    ("fd_fdstat_set_rights", "iII"),
    ("fd_filestat_set_size", "iI"),
    ("fd_filestat_set_times", "iIIi"),
    ("fd_pread", "iiiIi"),
    ("fd_prestat_dir_name", "iii"),
    ("fd_prestat_get", "ii"),
    ("fd_pwrite", "iiiIi"),
    ("fd_readdir", "iiiIi"),
    ("fd_renumber", "ii"),
    ("fd_sync", "i"),
    ("path_create_directory", "iii"),
    ("path_filestat_get", "iiiii"),
    ("path_filestat_set_times", "iiiiIIi"),
    ("path_link", "iiiiiii"),
    ("path_open", "iiiiiIIii"),
    ("path_readlink", "iiiiii"),
    ("path_remove_directory", "iii"),
    ("path_rename", "iiiiii"),
    ("path_symlink", "iiiii"),
    ("path_unlink_file", "iii"),
    ("proc_raise", "i"),
    ("sock_accept", "iii"),
    ("sock_recv", "iiiiii"),
    ("sock_send", "iiiii"),
    ("sock_shutdown", "ii"),
];

type C<'a> = Caller<'a, State>;

pub(crate) fn define(linker: &mut Linker<State>) -> Result<()> {
    for (name, parameters) in CLOSED {
        let types = parameters.chars().map(|c| if c == 'I' { ValType::I64 } else { ValType::I32 });
        let signature = FuncType::new(linker.engine(), types, [ValType::I32]);
        linker.func_new(MODULE, name, signature, |_, _, results| {
            results[0] = Val::I32(BADF);
            Ok(())
        })?;
    }
    linker.func_wrap(MODULE, "args_get", |_: C<'_>, _: u32, _: u32| OK)?;
    linker.func_wrap(MODULE, "args_sizes_get", |mut c: C<'_>, count: u32, size: u32| {
        let (memory, _) = memory(&mut c)?;
        Ok::<_, Error>(done(put(memory, count, &[0; 4]).and_then(|()| put(memory, size, &[0; 4]))))
    })?;
    linker.func_wrap(MODULE, "environ_get", environ_get)?;
    linker.func_wrap(MODULE, "environ_sizes_get", |mut c: C<'_>, count: u32, size: u32| {
        let (memory, state) = memory(&mut c)?;
        let bytes: usize = state.environment.iter().map(|entry| entry.len() + 1).sum();
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).to_le_bytes();
        let written = put(memory, count, &number(state.environment.len()));
        Ok::<_, Error>(done(written.and_then(|()| put(memory, size, &number(bytes)))))
    })?;
    linker.func_wrap(MODULE, "clock_res_get", |mut c: C<'_>, _: u32, at: u32| {
        Ok::<_, Error>(done(put(memory(&mut c)?.0, at, &1u64.to_le_bytes())))
    })?;
    linker.func_wrap(MODULE, "clock_time_get", |mut c: C<'_>, clock: u32, _: u64, at: u32| {
        let time = now(clock);
        Ok::<_, Error>(done(put(memory(&mut c)?.0, at, &time.to_le_bytes())))
    })?;
    linker.func_wrap(MODULE, "fd_close", |_: C<'_>, fd: u32| standard(fd))?;
    linker.func_wrap(MODULE, "fd_fdstat_set_flags", |_: C<'_>, fd: u32, _: u32| standard(fd))?;
    linker.func_wrap(MODULE, "fd_fdstat_get", |mut c: C<'_>, fd: u32, at: u32| {
        let mut stat = [0; 24];
        stat[0] = 2;
        stat[8..16].fill(0xff);
        describe(&mut c, fd, at, &stat)
    })?;
    linker.func_wrap(MODULE, "fd_filestat_get", |mut c: C<'_>, fd: u32, at: u32| {
        let mut stat = [0; 64];
        stat[16] = 2;
        describe(&mut c, fd, at, &stat)
    })?;
    linker.func_wrap(MODULE, "fd_read", |mut c: C<'_>, fd: u32, _: u32, _: u32, read: u32| match fd {
        0 => Ok::<_, Error>(done(put(memory(&mut c)?.0, read, &[0; 4]))),
        _ => Ok(BADF),
    })?;
    let seek = |fd: u32| if standard(fd) == OK { SPIPE } else { BADF };
    linker.func_wrap(MODULE, "fd_seek", move |_: C<'_>, fd: u32, _: i64, _: u32, _: u32| seek(fd))?;
    linker.func_wrap(MODULE, "fd_tell", move |_: C<'_>, fd: u32, _: u32| seek(fd))?;
    linker.func_wrap(MODULE, "fd_write", fd_write)?;
    linker.func_wrap(MODULE, "poll_oneoff", poll_oneoff)?;
    linker.func_wrap(MODULE, "proc_exit", |_: C<'_>, code: i32| -> Result<()> { Err(Error::new(Exit(code))) })?;
    linker.func_wrap(MODULE, "random_get", |mut c: C<'_>, at: u32, length: u32| {
        let (memory, _) = memory(&mut c)?;
        let Some(place) = slice(memory, at, length) else { return Ok(FAULT) };
        getrandom::fill(place).map_err(|error| Error::msg(error.to_string()))?;
        Ok::<_, Error>(OK)
    })?;
    linker.func_wrap(MODULE, "sched_yield", |_: C<'_>| {
        thread::yield_now();
        OK
    })?;
    Ok(())
}

fn standard(fd: u32) -> i32 {
    if fd <= 2 { OK } else { BADF }
}

fn slice(memory: &mut [u8], at: u32, length: u32) -> Option<&mut [u8]> {
    let at = usize::try_from(at).ok()?;
    memory.get_mut(at..)?.get_mut(..usize::try_from(length).ok()?)
}

fn put(memory: &mut [u8], at: u32, bytes: &[u8]) -> Option<()> {
    slice(memory, at, u32::try_from(bytes.len()).ok()?)?.copy_from_slice(bytes);
    Some(())
}

fn word(memory: &mut [u8], at: u32) -> Option<u32> {
    let bytes = slice(memory, at, 4)?;
    Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

fn long(memory: &mut [u8], at: u32) -> Option<u64> {
    let (low, high) = (word(memory, at)?, word(memory, at.checked_add(4)?)?);
    Some(u64::from(high) << 32 | u64::from(low))
}

fn done(written: Option<()>) -> i32 {
    if written.is_some() { OK } else { FAULT }
}

fn describe(caller: &mut C<'_>, fd: u32, at: u32, stat: &[u8]) -> Result<i32> {
    if standard(fd) != OK {
        return Ok(BADF);
    }
    Ok(done(put(memory(caller)?.0, at, stat)))
}

/// Returns the nanoseconds of the wall clock (0) or of a monotonic clock.
fn now(clock: u32) -> u64 {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let time = match clock {
        0 => anabranch_record::clock::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
        _ => START.get_or_init(Instant::now).elapsed() + Duration::from_secs(1),
    };
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn environ_get(mut caller: C<'_>, pointers: u32, texts: u32) -> Result<i32> {
    let (memory, state) = memory(&mut caller)?;
    let (mut pointer, mut text) = (pointers, texts);
    for entry in &state.environment {
        let write = |memory: &mut [u8]| {
            put(memory, pointer, &text.to_le_bytes())?;
            put(memory, text, entry.as_bytes())?;
            put(memory, text.checked_add(u32::try_from(entry.len()).ok()?)?, &[0])
        };
        if write(memory).is_none() {
            return Ok(FAULT);
        }
        pointer = pointer.wrapping_add(4);
        text = text.wrapping_add(u32::try_from(entry.len()).unwrap_or(0).wrapping_add(1));
    }
    Ok(OK)
}

fn fd_write(mut caller: C<'_>, fd: u32, vectors: u32, count: u32, written: u32) -> Result<i32> {
    let stream = match fd {
        1 => Stream::Output,
        2 => Stream::Error,
        _ => return Ok(BADF),
    };
    let (memory, state) = memory(&mut caller)?;
    let mut total = 0u32;
    for i in 0..count.min(PARTS) {
        let vector = || vectors.checked_add(i.checked_mul(8)?);
        let part = vector().and_then(|at| Some((word(memory, at)?, word(memory, at.checked_add(4)?)?)));
        let Some((at, length)) = part else { return Ok(FAULT) };
        let length = length.min(AT_ONCE - total);
        let Some(part) = slice(memory, at, length) else { return Ok(FAULT) };
        state.output.write(stream, part);
        total += length;
    }
    Ok(done(put(memory, written, &total.to_le_bytes())))
}

/// Sleeps until the first clock event, but only as long as the guest is awaited; descriptors are ready immediately.
fn poll_oneoff(mut caller: C<'_>, input: u32, output: u32, count: u32, stored: u32) -> Result<i32> {
    const SUBSCRIPTION: u32 = 48;
    const EVENT: u32 = 32;
    if count == 0 || count > 4096 {
        return Ok(INVAL);
    }
    let (memory, state) = memory(&mut caller)?;
    let mut asked = Vec::new();
    for i in 0..count {
        let mut read = || {
            let at = input.checked_add(i * SUBSCRIPTION)?;
            let (user, kind) = (long(memory, at)?, slice(memory, at.checked_add(8)?, 1)?[0]);
            let wait = match kind {
                0 => {
                    let clock = word(memory, at.checked_add(16)?)?;
                    let time = long(memory, at.checked_add(24)?)?;
                    let absolute = word(memory, at.checked_add(40)?)? & 1 == 1;
                    if absolute { time.saturating_sub(now(clock)) } else { time }
                }
                _ => 0,
            };
            Some((user, kind, wait))
        };
        let Some(subscription) = read() else { return Ok(FAULT) };
        asked.push(subscription);
    }
    let shortest = asked.iter().map(|(_, _, wait)| *wait).min().unwrap_or(0);
    let mut left = state.patience(Duration::from_nanos(shortest));
    while !left.is_zero() && !state.abandoned.load(Ordering::Acquire) {
        let nap = left.min(NAP);
        thread::sleep(nap);
        left -= nap;
    }
    let mut at = output;
    let mut events = 0u32;
    for (user, kind, _) in asked.iter().filter(|(_, _, wait)| *wait <= shortest) {
        let mut event = [0; EVENT as usize];
        event[..8].copy_from_slice(&user.to_le_bytes());
        event[10] = *kind;
        if put(memory, at, &event).is_none() {
            return Ok(FAULT);
        }
        at = at.saturating_add(EVENT);
        events += 1;
    }
    Ok(done(put(memory, stored, &events.to_le_bytes())))
}

#[cfg(test)]
mod tests;
