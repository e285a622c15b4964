use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::settings::Settings;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Position, Record};

use super::*;
use crate::testing::host;

#[tokio::test]
async fn only_what_is_encoded_can_fail() {
    let fields: Object = [("x", Value::Float(f64::NAN))].into_iter().collect();
    let good = Record::create(Position::copy_from(b"1"), Data::Absent, Data::Absent);
    let bad = Record::create(Position::copy_from(b"2"), Data::Absent, fields.into());
    let rows = [good.clone(), bad, good.clone(), good];
    for encode in ["false", "true"] {
        let kind = super::kind();
        let arguments = Arguments::parse(kind.specification(), &Settings::from_pairs([("encode", encode)])).unwrap();
        let mut writer = kind.configure(&arguments).unwrap().open(&host()).await.unwrap();
        match writer.write(Write::new(&rows)).await.unwrap() {
            Verdicts::All(Delivered::Durable) => assert_eq!(encode, "false"),
            Verdicts::Each(verdicts) => {
                assert_eq!(encode, "true");
                assert!(matches!(verdicts[..], [Ok(_), Err(_), Ok(_), Ok(_)]));
            }
            other @ (Verdicts::All(_) | Verdicts::Refused(_)) => panic!("{other:?}"),
        }
        writer.close().await.unwrap();
    }
}
