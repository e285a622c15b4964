//! A load on a source database, and what it changed: interleaved transactions, copies, subtransactions that are rolled
//! back, keys that change, wide rows and deletions. The same seed makes the same load on a server without faults.

#![allow(dead_code, unreachable_pub, reason = "several test binaries share it, none uses all of it")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::server::Session;

/// Sessions whose transactions interleave. Each has keys of its own, so that none waits for another.
const WORKERS: i64 = 3;
/// Keys of a table and a session.
const KEYS: i64 = 40;
/// Time for which a server may be away.
const PATIENCE: Duration = Duration::from_secs(120);

/// The tables of the load: one with rows of usual sizes, one with rows whose bodies are stored elsewhere and with a key of
/// two columns, and one without a key.
pub const TABLES: [&str; 3] = ["plain", "wide", "lines"];

const COLUMNS: &str = "
    CREATE TABLE plain (id bigint PRIMARY KEY, n int NOT NULL, note text, amount numeric, at timestamptz,
        change bigint NOT NULL);
    CREATE TABLE wide (part text, id bigint, n int NOT NULL, body text, change bigint NOT NULL, PRIMARY KEY (part, id));
    ALTER TABLE wide ALTER body SET STORAGE EXTERNAL;
    CREATE TABLE lines (n bigint, note text, change bigint NOT NULL);";

/// Notes what becomes of each key. Rows of the same key are noted in the order in which they are committed, because each
/// waits for the one before.
const NOTES: &str = "
    CREATE TABLE history (seq bigserial PRIMARY KEY, place text NOT NULL, key text NOT NULL, change bigint);
    CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
        DECLARE was text; becomes text;
        BEGIN
            IF TG_OP <> 'INSERT' THEN
                IF TG_TABLE_NAME = 'plain' THEN was = OLD.id; END IF;
                IF TG_TABLE_NAME = 'wide' THEN was = OLD.part || '/' || OLD.id; END IF;
            END IF;
            IF TG_OP <> 'DELETE' THEN
                IF TG_TABLE_NAME = 'plain' THEN becomes = NEW.id; END IF;
                IF TG_TABLE_NAME = 'wide' THEN becomes = NEW.part || '/' || NEW.id; END IF;
                IF TG_TABLE_NAME = 'lines' THEN becomes = NEW.change; END IF;
            END IF;
            IF was <> becomes OR TG_OP = 'DELETE' THEN
                INSERT INTO history (place, key) VALUES (TG_TABLE_NAME, was);
            END IF;
            IF TG_OP <> 'DELETE' THEN
                INSERT INTO history (place, key, change) VALUES (TG_TABLE_NAME, becomes, NEW.change);
            END IF;
            RETURN NULL;
        END $$;";

/// Returns the SQL that creates the tables of a source. They are in no publication.
pub fn source_tables() -> String {
    let mut sql = format!(
        "{COLUMNS}{NOTES}
         ALTER TABLE lines REPLICA IDENTITY FULL;
         CREATE SEQUENCE changes;
         CREATE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS
             $$BEGIN NEW.change = nextval('changes'); RETURN NEW; END$$;"
    );
    for table in TABLES {
        write!(
            sql,
            "CREATE TRIGGER stamp BEFORE INSERT OR UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION stamp();
             CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION note();"
        )
        .unwrap();
    }
    sql
}

/// Returns the SQL that creates the tables of a copy, which notes the order in which it is written.
pub fn copy_tables() -> String {
    let mut sql = format!("{COLUMNS}{NOTES}");
    for table in TABLES {
        write!(
            sql,
            "CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION note();"
        )
        .unwrap();
    }
    sql
}

/// The rows that a session may change.
#[derive(Clone, Debug, Default)]
struct Rows {
    plain: BTreeSet<i64>,
    wide: BTreeSet<i64>,
}

/// A session with its transaction.
struct Worker {
    number: i64,
    session: Session,
    rows: Rows,
    /// The rows before the transaction that is open.
    before: Option<Rows>,
}

/// A load. Its transactions end with it.
pub struct Load {
    url: String,
    random: fastrand::Rng,
    workers: Vec<Worker>,
}

impl Load {
    /// Connects to a database with the tables of [`source_tables`].
    ///
    /// # Errors
    /// The server does not answer.
    pub fn connect(url: &str, seed: u64) -> Result<Load, String> {
        let mut load = Load { url: url.to_owned(), random: fastrand::Rng::with_seed(seed), workers: Vec::new() };
        load.reconnect()?;
        Ok(load)
    }

    fn reconnect(&mut self) -> Result<(), String> {
        self.workers.clear();
        for number in 0..WORKERS {
            let mut session = Session::connect(&self.url);
            let mut keys = |table: &str| -> Result<BTreeSet<i64>, String> {
                let found = session.try_run(&format!("SELECT id FROM {table} WHERE id % {WORKERS} = {number}"))?;
                Ok(found.iter().filter_map(|id| id.parse().ok()).collect())
            };
            let rows = Rows { plain: keys("plain")?, wide: keys("wide")? };
            self.workers.push(Worker { number, session, rows, before: None });
        }
        Ok(())
    }

    /// Runs some steps: statements, or ends of transactions.
    ///
    /// # Errors
    /// What the server says of a step, or that it is gone. The load is to be connected again.
    pub fn run(&mut self, steps: usize) -> Result<(), String> {
        for _ in 0..steps {
            let worker = &mut self.workers[self.random.usize(..WORKERS as usize)];
            worker.step(&mut self.random)?;
        }
        Ok(())
    }

    /// Commits what is open.
    ///
    /// # Errors
    /// Those of [`Load::run`].
    pub fn commit(&mut self) -> Result<(), String> {
        self.workers.iter_mut().try_for_each(|worker| worker.end("COMMIT"))
    }

    /// Runs in the background, some steps each second, until [`Running::finish`]. A server that goes away is awaited.
    pub fn spawn(mut self, steps_per_second: u32) -> Running {
        let stop = Arc::<AtomicBool>::default();
        let is_over = stop.clone();
        let pause = Duration::from_secs(1) / steps_per_second;
        let thread = std::thread::spawn(move || {
            let mut away = None;
            loop {
                let over = is_over.load(Ordering::Relaxed);
                let outcome = match (away, over) {
                    (Some(_), _) => self.reconnect(),
                    (None, true) => self.commit(),
                    (None, false) => self.run(1),
                };
                match outcome {
                    Ok(()) if over && away.is_none() => return,
                    Ok(()) => away = None,
                    Err(error) => {
                        let since = *away.get_or_insert_with(Instant::now);
                        assert!(since.elapsed() < PATIENCE, "the source is away: {error}");
                    }
                }
                std::thread::sleep(pause);
            }
        });
        Running { stop, thread }
    }
}

/// A load in the background.
pub struct Running {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Running {
    /// Commits what is open, and ends the load.
    pub fn finish(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the load runs");
    }
}

impl Worker {
    fn step(&mut self, random: &mut fastrand::Rng) -> Result<(), String> {
        if self.before.is_some() && random.u32(..6) == 0 {
            let end = if random.u32(..8) == 0 { "ROLLBACK" } else { "COMMIT" };
            return self.end(end);
        }
        if self.before.is_none() {
            self.session.try_run("BEGIN")?;
            self.before = Some(self.rows.clone());
        }
        if random.u32(..6) > 0 {
            return self.change(random);
        }
        // A subtransaction, which is more often rolled back than not.
        let before = self.rows.clone();
        self.session.try_run("SAVEPOINT s")?;
        for _ in 0..random.u32(1..4) {
            self.change(random)?;
        }
        match random.u32(..3) {
            0 => self.session.try_run("RELEASE s").map(drop),
            _ => {
                self.rows = before;
                self.session.try_run("ROLLBACK TO s; RELEASE s").map(drop)
            }
        }
    }

    fn end(&mut self, end: &str) -> Result<(), String> {
        let Some(before) = self.before.take() else { return Ok(()) };
        self.session.try_run(end)?;
        if end == "ROLLBACK" {
            self.rows = before;
        }
        Ok(())
    }

    /// A key of this session, whether there is a row or not.
    fn key(&self, random: &mut fastrand::Rng) -> i64 {
        random.i64(0..KEYS) * WORKERS + self.number
    }

    /// The key of a row that is there.
    fn there(rows: &BTreeSet<i64>, random: &mut fastrand::Rng) -> Option<i64> {
        let at = random.usize(..rows.len().max(1));
        rows.iter().nth(at).copied()
    }

    fn change(&mut self, random: &mut fastrand::Rng) -> Result<(), String> {
        let sql = match random.u32(..12) {
            0..2 => self.insert_plain(random),
            2..4 => self.insert_wide(random),
            4 => self.copy(random),
            _ => self.change_row(random),
        };
        match sql {
            Some(sql) => self.session.try_run(&sql).map(drop),
            None => Ok(()),
        }
    }

    fn insert_plain(&mut self, random: &mut fastrand::Rng) -> Option<String> {
        let new: BTreeSet<i64> = (0..random.u32(1..5)).map(|_| self.key(random)).collect();
        let new: Vec<i64> = new.difference(&self.rows.plain).copied().collect();
        self.rows.plain.extend(&new);
        let row = |id: &i64| format!("({id}, {}, {}, {}.50, now())", random.i32(..), note(random), random.u32(..1000));
        let rows: Vec<String> = new.iter().map(row).collect();
        (!rows.is_empty()).then(|| format!("INSERT INTO plain (id, n, note, amount, at) VALUES {}", rows.join(", ")))
    }

    fn insert_wide(&mut self, random: &mut fastrand::Rng) -> Option<String> {
        let id = self.key(random);
        let row = format!("('{}', {id}, 0, {})", part(id), body(random));
        self.rows.wide.insert(id).then(|| format!("INSERT INTO wide (part, id, n, body) VALUES {row}"))
    }

    fn copy(&mut self, random: &mut fastrand::Rng) -> Option<String> {
        let mut sql = String::new();
        if random.bool() {
            sql += "COPY lines (n, note) FROM STDIN;\n";
            for _ in 0..random.u32(1..60) {
                writeln!(sql, "{}\tcopied", random.i64(..)).unwrap();
            }
            return Some(sql + "\\.");
        }
        let new: Vec<i64> = (0..KEYS)
            .map(|key| key * WORKERS + self.number)
            .filter(|id| !self.rows.plain.contains(id) && random.bool())
            .collect();
        self.rows.plain.extend(&new);
        sql += "COPY plain (id, n, note) FROM STDIN;\n";
        for id in &new {
            writeln!(sql, "{id}\t{}\t\\N", random.i32(..)).unwrap();
        }
        (!new.is_empty()).then(|| sql + "\\.")
    }

    /// Updates or deletes a row that is there.
    fn change_row(&mut self, random: &mut fastrand::Rng) -> Option<String> {
        if random.u32(..5) < 3 {
            let id = Self::there(&self.rows.plain, random)?;
            return Some(match random.u32(..8) {
                0 => {
                    self.rows.plain.remove(&id);
                    format!("DELETE FROM plain WHERE id = {id}")
                }
                1 => {
                    let to = self.key(random);
                    self.rows.plain.insert(to).then(|| self.rows.plain.remove(&id))?;
                    format!("UPDATE plain SET id = {to}, note = {} WHERE id = {id}", note(random))
                }
                2 => format!("UPDATE plain SET n = n # 1 WHERE id % {WORKERS} = {}", self.number),
                _ => format!("UPDATE plain SET n = {}, note = {} WHERE id = {id}", random.i32(..), note(random)),
            });
        }
        let id = Self::there(&self.rows.wide, random)?;
        let this = format!("part = '{}' AND id = {id}", part(id));
        Some(match random.u32(..8) {
            0 => {
                self.rows.wide.remove(&id);
                format!("DELETE FROM wide WHERE {this}")
            }
            1 => {
                // With the body that is stored elsewhere, which the log does not repeat.
                let to = self.key(random);
                self.rows.wide.insert(to).then(|| self.rows.wide.remove(&id))?;
                format!("UPDATE wide SET part = '{}', id = {to} WHERE {this}", part(to))
            }
            2 | 3 => format!("UPDATE wide SET body = {} WHERE {this}", body(random)),
            _ => format!("UPDATE wide SET n = n + 1 WHERE {this}"),
        })
    }
}

/// The other column of the key of a wide row.
fn part(id: i64) -> String {
    format!("p{}", id % 7)
}

/// Text with what needs escaping, in SQL.
fn note(random: &mut fastrand::Rng) -> String {
    const NOTES: [&str; 6] =
        ["NULL", "''", "'plain'", "E'tab\\t\"quote\" \\\\ ''one'' {a,b}'", "'☃ é 中'", "E'two\\nlines'"];
    NOTES[random.usize(..NOTES.len())].to_owned()
}

/// Text of several kilobytes, in SQL.
fn body(random: &mut fastrand::Rng) -> String {
    let (seed, parts) = (random.u32(..), random.u32(80..300));
    format!("(SELECT string_agg(md5('{seed}' || g), '') FROM generate_series(1, {parts}) g)")
}
