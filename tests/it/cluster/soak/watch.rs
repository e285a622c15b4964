//! The history of two pipelines: triggers note each change of the tables of the store and of the destination, and witnesses
//! note each answer of the broker.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::servers::kafka_witness::{self, Seen};
use crate::servers::postgres::{Database, Session};

/// The pipelines, which are also the names of their tables.
pub const GENERATED: &str = "p";
pub const FROM_KAFKA: &str = "k";

/// Number of partitions of each pipeline.
pub const GENERATED_PARTITIONS: u64 = 16;
pub const KAFKA_PARTITIONS: u64 = 8;

/// Notes what happens in the tables of the store and of the destination, as soon as they exist. The name of an application
/// is that of the node.
///
/// A generated record is identified by its number, and partitions take turns. A record of the topic is identified by its
/// partition and offset, such as `3/17`.
const TRIGGERS: &str = "
CREATE TABLE p (id text, v bigint);
CREATE TABLE k (id text);
CREATE TABLE history (number bigserial, at timestamptz DEFAULT clock_timestamp(), pipeline text, line jsonb);
CREATE FUNCTION node() RETURNS text LANGUAGE sql AS $$ SELECT current_setting('application_name') $$;
CREATE FUNCTION note(pipeline text, line jsonb) RETURNS void LANGUAGE sql AS $$
  INSERT INTO history (pipeline, line) VALUES (pipeline, line)
$$;
CREATE FUNCTION note_row() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  of text := CASE TG_TABLE_NAME WHEN 'p' THEN (NEW.id::bigint % 16)::text ELSE split_part(NEW.id, '/', 1) END;
  number bigint := CASE TG_TABLE_NAME WHEN 'p' THEN NEW.id::bigint ELSE split_part(NEW.id, '/', 2)::bigint END;
BEGIN
  PERFORM note(TG_TABLE_NAME, jsonb_build_object('event', 'write', 'transaction', pg_current_xact_id()::text,
    'partition', of, 'record', number, 'node', node()));
  RETURN NULL;
END $$;
CREATE TRIGGER note_row AFTER INSERT ON p FOR EACH ROW EXECUTE FUNCTION note_row();
CREATE TRIGGER note_row AFTER INSERT ON k FOR EACH ROW EXECUTE FUNCTION note_row();
CREATE FUNCTION note_writer() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF TG_OP = 'INSERT' OR NEW.epoch <> OLD.epoch THEN
    PERFORM note(NEW.pipeline, jsonb_build_object('event', 'open', 'slot', NEW.slot, 'opening', NEW.epoch));
  END IF;
  IF TG_OP = 'UPDATE' AND NEW.writes <> OLD.writes THEN
    PERFORM note(NEW.pipeline, jsonb_build_object('event', 'hold', 'transaction', pg_current_xact_id()::text,
      'slot', NEW.slot, 'opening', NEW.epoch));
  END IF;
  RETURN NULL;
END $$;
CREATE FUNCTION note_unit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  PERFORM note(NEW.pipeline, jsonb_build_object('event', 'split', 'slots', NEW.shares));
  RETURN NULL;
END $$;
CREATE FUNCTION note_state() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  position_of text; generation bigint; of bigint; number bigint;
BEGIN
  IF NEW.kind = 'epoch' THEN
    PERFORM note(NEW.pipeline, jsonb_build_object('event', 'claim', 'slot', NEW.slot, 'claim', NEW.number,
      'node', node()));
  ELSIF NEW.kind = 'mark' AND octet_length(NEW.value) > 16 THEN
    generation := ('x' || encode(substring(NEW.value FROM 1 FOR 8), 'hex'))::bit(64)::bigint;
    position_of := convert_from(substring(NEW.value FROM 17), 'UTF8');
    IF NEW.pipeline = 'p' THEN
      number := position_of::bigint;
      of := number % 16;
    ELSE
      number := position_of::json->>'Offset';
      of := position_of::json->>'Partition';
    END IF;
    -- The position before the first record acknowledges nothing.
    IF number >= 0 THEN
      PERFORM note(NEW.pipeline, jsonb_build_object('event', 'ack', 'slot', NEW.slot, 'generation', generation,
        'partition', of::text, 'record', number, 'node', node()));
    END IF;
  END IF;
  RETURN NULL;
END $$;
CREATE FUNCTION watch() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
  IF to_regclass('anabranch_writers') IS NOT NULL
      AND NOT EXISTS (SELECT FROM pg_trigger WHERE tgname = 'note_writer') THEN
    CREATE TRIGGER note_writer AFTER INSERT OR UPDATE ON anabranch_writers
      FOR EACH ROW EXECUTE FUNCTION note_writer();
  END IF;
  IF to_regclass('anabranch_kv_store') IS NOT NULL
      AND NOT EXISTS (SELECT FROM pg_trigger WHERE tgname = 'note_state') THEN
    CREATE TRIGGER note_state AFTER INSERT OR UPDATE ON anabranch_kv_store
      FOR EACH ROW EXECUTE FUNCTION note_state();
  END IF;
  IF to_regclass('anabranch_kv_store_unit') IS NOT NULL
      AND NOT EXISTS (SELECT FROM pg_trigger WHERE tgname = 'note_unit') THEN
    CREATE TRIGGER note_unit AFTER INSERT ON anabranch_kv_store_unit
      FOR EACH ROW EXECUTE FUNCTION note_unit();
  END IF;
END $$;
CREATE EVENT TRIGGER watch ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION watch()";

/// Notes what happens.
pub struct Watch<'a> {
    database: &'a Database,
    session: Arc<Mutex<Session>>,
}

impl<'a> Watch<'a> {
    pub fn start(database: &'a Database) -> Watch<'a> {
        database.query(TRIGGERS);
        Watch { database, session: Arc::new(Mutex::new(database.session())) }
    }

    /// Starts a network through which a node reads the topic, and returns its port. The broker is reached at the port `way`.
    pub fn witness(&self, node: &'static str, broker: u16, way: u16) -> u16 {
        let session = self.session.clone();
        kafka_witness::start(broker, way, move |seen| {
            let line = |seen: &Seen| match seen {
                Seen::Connected(connection) => {
                    Some(json!({"event": "connect", "connection": connection, "node": node}))
                }
                Seen::Served { connection, partition, from, to } => Some(json!({
                    "event": "read", "connection": connection, "partition": partition.to_string(), "from": from, "to": to,
                })),
                // Nothing is acknowledged yet.
                Seen::Committed { offset: ..=0, .. } => None,
                Seen::Committed { partition, offset } => {
                    Some(json!({"event": "commit", "partition": partition.to_string(), "record": offset - 1}))
                }
                // The checker refuses it.
                Seen::Unclear(what) => Some(json!({"event": format!("unclear: {what}")})),
            };
            let lines: Vec<Value> = seen.iter().filter_map(line).collect();
            let sql = format!(
                "INSERT INTO history (pipeline, line) SELECT '{FROM_KAFKA}', line FROM jsonb_array_elements($${}$$) line",
                Value::Array(lines)
            );
            session.lock().unwrap().run(&sql);
        })
    }

    /// Returns the history of a pipeline.
    pub fn history(&self, pipeline: &str) -> String {
        self.database
            .query(&format!("SELECT line FROM history WHERE pipeline = '{pipeline}' ORDER BY number"))
            .join("\n")
    }

    /// Notes that a fault begins.
    pub fn fault(&self, what: &str) {
        self.session
            .lock()
            .unwrap()
            .run(&format!("INSERT INTO history (line) VALUES ('{}')", json!({ "fault": what })));
    }

    /// Returns the longest time between two writes to the same partition, in seconds, and the faults since shortly before
    /// it began.
    pub fn longest_silence(&self, pipeline: &str) -> String {
        let sql = format!(
            "SELECT round(extract(epoch FROM at - before), 1) || ' s (' || coalesce((SELECT string_agg(f.line->>'fault', \
             ', ' ORDER BY number) FROM history f WHERE f.line ? 'fault' AND f.at BETWEEN before - interval '2 s' \
             AND w.at), '') || ')' FROM (SELECT at, lag(at) OVER (PARTITION BY line->>'partition' ORDER BY number) AS before \
             FROM history WHERE pipeline = '{pipeline}' AND line->>'event' = 'write') w \
             WHERE before IS NOT NULL ORDER BY at - before DESC LIMIT 1"
        );
        self.database.query(&sql).remove(0)
    }
}
