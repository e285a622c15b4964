use std::sync::Mutex;

use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::host::LogSink;
use anabranch_plugin::settings::Settings;
use anabranch_plugin::testing;
use anabranch_record::fault::FaultClass;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Position};

use super::*;

/// One call of the sink: level, component, connector, plugin, message, and the records.
type Call = (LogLevel, [String; 4], Vec<String>);

#[derive(Default)]
struct Recorder {
    calls: Mutex<Vec<Call>>,
    broken: bool,
}

impl LogSink for Recorder {
    fn enabled(&self, level: LogLevel) -> bool {
        level >= LogLevel::Info
    }
    fn write_records(&self, line: &LogLine<'_>, records: &mut dyn Iterator<Item = &[u8]>) -> io::Result<()> {
        if self.broken {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let texts = [line.component, line.connector, line.plugin, line.message].map(str::to_owned);
        let records = records.map(|record| String::from_utf8(record.to_vec()).unwrap()).collect();
        self.calls.lock().unwrap().push((line.level, texts, records));
        Ok(())
    }
}

async fn open(log: &Arc<Recorder>, settings: &[(&str, &str)]) -> Box<dyn Writer> {
    let kind = super::kind();
    let arguments = Arguments::parse(kind.specification(), &Settings::from_pairs(settings.iter().copied())).unwrap();
    let host = Host { node: "l".into(), log: log.clone(), ..testing::host() };
    kind.configure(&arguments).unwrap().open(&host).await.unwrap()
}

fn row(n: u8) -> Record {
    Record::create(Position::copy_from(&[n]), Data::Absent, Data::Absent)
}

#[tokio::test]
async fn a_batch_is_one_call() {
    let log = Arc::new(Recorder::default());
    let mut writer = open(&log, &[("level", "warn"), ("message", "got")]).await;
    let fields: Object = [("x", Value::Float(f64::NAN))].into_iter().collect();
    let bad = Record::create(Position::copy_from(b"1"), Data::Absent, fields.into());
    let Ok(Verdicts::Each(verdicts)) = writer.write(Write::new(&[row(0), bad, row(1)])).await else {
        panic!("verdicts")
    };
    assert!(matches!(verdicts[..], [Ok(_), Err(_), Ok(_)]));
    let calls = log.calls.lock().unwrap();
    let (level, texts, records) = &calls[0];
    assert_eq!((calls.len(), *level), (1, LogLevel::Warn));
    assert_eq!(texts, &["plugin", "p:l", "log", "got"].map(str::to_owned));
    let read: Vec<Record> = records.iter().map(|text| Record::from_json(text.as_bytes()).unwrap()).collect();
    assert_eq!(read, [row(0), row(1)]);
}

#[tokio::test]
async fn what_is_not_logged_counts_as_delivered() {
    let log = Arc::new(Recorder::default());
    let mut writer = open(&log, &[("level", "debug")]).await;
    assert!(matches!(writer.write(Write::new(&[row(0)])).await, Ok(Verdicts::All(Delivered::Durable))));
    assert!(log.calls.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_broken_log_is_transient() {
    let log = Arc::new(Recorder { broken: true, ..Recorder::default() });
    let fault = open(&log, &[]).await.write(Write::new(&[row(0)])).await.unwrap_err();
    assert_eq!((fault.code().name(), fault.class()), ("log_unwritable", FaultClass::Transient));
}
