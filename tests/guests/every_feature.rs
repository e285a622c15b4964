//! A processor that uses each thing the SDK has when a record asks for it.

#![allow(dead_code, reason = "settings are shown by `Debug`")]

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant, SystemTime};

use anabranch_processor::{
    Data, Error, HostError, Object, Operation, Output, Parameters, Processor, Record, Reference, Specification, Value, http,
    log, metadata, processor_id, run, schema,
};

#[derive(Debug, Parameters)]
struct Settings {
    /// The prefix of the text.
    prefix: String,
    #[parameter(default = ".Payload.After.text")]
    field: Reference,
    /// The action for records that do not name one.
    #[parameter(default = "text")]
    action: String,
    #[parameter(default = 2, greater_than = 1, less_than = 5)]
    copies: u8,
    #[parameter(default = "1.5s")]
    pause: Duration,
    #[parameter(default = false)]
    loud: bool,
    #[parameter(one_of = ["a", "b"], default = "a")]
    kind: String,
    #[parameter(none_of = ["root"])]
    user: Option<String>,
    #[parameter(regex = "^http://")]
    url: Option<String>,
    ratio: Option<f64>,
    tags: Vec<String>,
    headers: BTreeMap<String, String>,
    #[parameter(nested)]
    retry: Retry,
}

#[derive(Debug, Parameters)]
struct Retry {
    #[parameter(name = "most", default = 3)]
    tries: i64,
}

struct EveryFeature {
    settings: Settings,
    opened: Option<Instant>,
}

impl Processor for EveryFeature {
    type Parameters = Settings;

    fn specification() -> Specification {
        Specification::new("every-feature", "v1.2.3", "Tries everything.").describe("D").by("A")
    }

    fn configure(settings: Settings) -> Result<Self, Error> {
        if settings.loud && settings.kind == "b" {
            return Err(Error::new("loud goes with kind a only"));
        }
        Ok(EveryFeature { settings, opened: None })
    }

    fn open(&mut self) -> Result<(), Error> {
        self.opened = Some(Instant::now());
        log::info!(id = processor_id().as_str(); "opened");
        Ok(())
    }

    fn process_batch(&mut self, records: Vec<Record>) -> Vec<Result<Output, Error>> {
        let together = records.len();
        let mark = |mut record: Record| {
            record.metadata.insert("together", together.to_string());
            self.process(record)
        };
        records.into_iter().map(mark).collect()
    }

    fn process(&mut self, mut record: Record) -> Result<Output, Error> {
        let asked = Reference::parse(".Payload.After.do")?.get(&record)?;
        let asked = asked.and_then(|asked| asked.as_str().map(str::to_owned));
        let asked = asked.unwrap_or_else(|| self.settings.action.clone());
        match asked.as_str() {
            "text" => self.text(&mut record)?,
            "settings" => record.payload.after = format!("{:?}", self.settings).into(),
            "drop" => return Ok(Output::Filtered),
            "none" => return Ok(Output::Many(Vec::new())),
            "copies" => return Ok(vec![record; self.settings.copies.into()].into()),
            "fail" => return Err(Error::new("it was asked for").context("failing")),
            "panic" => panic!("it was asked for"),
            "log" => log::warn!(answer = 42; "said by the log"),
            "print" => println!("said by printing"),
            "values" => values(&mut record)?,
            "fields" => fields(&mut record)?,
            "system" => record.payload.after = self.system()?.into(),
            "http" => record.payload.after = self.http()?,
            "schema" => record.payload.after = schemas()?.into(),
            other => return Err(Error::new(format!("nothing is called {other:?}"))),
        }
        Ok(record.into())
    }

    fn teardown(&mut self) -> Result<(), Error> {
        log::info!("closed");
        Ok(())
    }
}

impl EveryFeature {
    fn text(&self, record: &mut Record) -> Result<(), Error> {
        let Settings { field, prefix, .. } = &self.settings;
        let value = field.get(record)?.ok_or_else(|| Error::new(format!("the record has no {field}")))?;
        let text = value.as_str().ok_or_else(|| Error::new(format!("{field} is {}, not text", value.type_name())))?;
        let text = format!("{prefix}{text}");
        Ok(field.set(record, text)?)
    }

    /// The calls of the system that the standard library makes.
    fn system(&self) -> Result<String, Error> {
        let begun = Instant::now();
        std::thread::sleep(Duration::from_millis(2));
        let slept = begun.elapsed() >= Duration::from_millis(2) && self.opened.is_some_and(|opened| opened <= begun);
        let today = SystemTime::UNIX_EPOCH.elapsed()? > Duration::from_secs(1_700_000_000);
        // A map of the standard library begins with random numbers.
        let random = HashMap::from([(1, 2)]).get(&1) == Some(&2);
        let files = std::fs::read("/etc/hostname").is_ok();
        let variable = std::env::var("ANABRANCH_SECRET_MY_KEY").is_ok();
        Ok(format!("{slept} {today} {random} {files} {variable} {}", std::env::args().count()))
    }

    fn http(&self) -> Result<Data, Error> {
        let url = self.settings.url.clone().ok_or_else(|| Error::new("a URL is needed"))?;
        let request = http::Request {
            headers: vec![http::Header { name: "x-one".to_owned(), value: "1".to_owned() }],
            body: b"asked".to_vec(),
            ..http::Request::new("POST", url)
        };
        let response = http::send(&request)?;
        let refused = |url: &str| http::send(&http::Request::new("GET", url)).err().and_then(|error| error.host());
        let forbidden = refused("http://127.0.0.1:1/") == Some(HostError::HTTP_FORBIDDEN);
        let invalid = refused("nonsense") == Some(HostError::HTTP_INVALID_REQUEST);
        let header = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case("x-two"));
        let header = header.map_or("", |header| header.value.as_str());
        let body = String::from_utf8_lossy(&response.body);
        Ok(format!("{} {header} {body} {forbidden} {invalid}", response.status).into())
    }
}

fn values(record: &mut Record) -> Result<(), Error> {
    let set = |record: &mut Record, name: &str, value: Value| {
        Ok::<_, Error>(Reference::parse(&format!(".Payload.After.{name}"))?.set(record, value)?)
    };
    set(record, "null", Value::Null)?;
    set(record, "bool", true.into())?;
    set(record, "int", 9_007_199_254_740_991_i64.into())?;
    set(record, "float", 1.5.into())?;
    set(record, "list", vec![1.into(), "two".into(), Value::Null].into())?;
    set(record, "map", serde_json_map())?;
    Ok(())
}

fn serde_json_map() -> Value {
    Object::from_iter([("a", Value::from(1)), ("ü", "\u{1F600}".into())]).into()
}

fn fields(record: &mut Record) -> Result<(), Error> {
    let reference = |text: &str| Reference::parse(text);
    if !reference(".Payload.After.gone")?.delete(record)? || !reference(".Payload.After.old")?.rename(record, &"new".into())? {
        return Err(Error::new("something was not there"));
    }
    record.key = b"a key".to_vec().into();
    record.payload.before = [("was", "before")].into();
    record.operation = Operation::Update;
    record.set_collection("things");
    record.metadata.insert("read", record.metadata.contains_key(&metadata::key::READ_AT).to_string());
    Ok(reference(".Metadata.id")?.set(record, processor_id())?)
}

fn schemas() -> Result<String, Error> {
    let text = r#"{"type":"record","name":"r","fields":[{"name":"a","type":"int"}]}"#;
    let made = schema::create("made-by-a-guest", text)?;
    let found = schema::get("made-by-a-guest", made.version)?;
    let refused = |result: Result<schema::Schema, Error>| result.err().and_then(|error| error.host());
    let invalid = refused(schema::create("made-by-a-guest", "no schema")) == Some(HostError::INVALID_SCHEMA);
    let subject = refused(schema::get("never-made", 1)) == Some(HostError::SUBJECT_NOT_FOUND);
    let version = refused(schema::get("made-by-a-guest", 9)) == Some(HostError::VERSION_NOT_FOUND);
    Ok(format!("{} {} {invalid} {subject} {version}", made.version, made == found))
}

fn main() {
    run::<EveryFeature>();
}
