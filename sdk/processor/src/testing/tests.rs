use super::*;
use crate::parameters::{Field, Parameter, Setting};

struct Named<const CASE: u8>;

struct Odd;

impl Parameters for Odd {
    fn declare(prefix: &str, declarations: &mut Declarations) {
        declarations.add::<i64>(prefix, Parameter::new("odd", <i64 as Setting>::KIND, "").default_value("x"));
    }

    fn read(prefix: &str, settings: &mut Settings) -> Option<Self> {
        settings.read::<i64>(prefix, &ODD).map(|_| Odd)
    }
}

const ODD: Field = Field { name: "odd", default: Some("x") };

impl<const CASE: u8> Processor for Named<CASE> {
    type Parameters = Odd;

    fn specification() -> Specification {
        let (name, version) = [("", "v1.0.0"), ("a", "1.0"), ("a", "1.0.0-rc.1")][usize::from(CASE)];
        let mut specification = Specification::new(name, "", "");
        specification.version = version.into();
        specification
    }

    fn configure(_: Odd) -> Result<Self, Error> {
        Ok(Named)
    }

    fn process(&mut self, _: Record) -> Result<Output, Error> {
        http::send(&http::Request::new("", "https://example.com"))?;
        Ok(Output::Filtered)
    }
}

#[test]
fn a_specification_that_hosts_refuse_is_found() {
    let message = |result: Result<Specification, Error>| result.unwrap_err().to_string();
    assert_eq!(message(specification::<Named<0>>()), "a processor needs a name");
    assert_eq!(message(specification::<Named<1>>()), "\"1.0\" is not a semantic version (for example v1.2.3)");
    let default = "a default is not valid: odd: \"x\" is not a whole number that fits into i64";
    assert_eq!(message(specification::<Named<2>>()), default);
}

#[test]
fn http_requests_are_refused_until_a_test_answers_them() {
    reset();
    let mut running = start::<Named<2>>(&[("odd", "1")]).unwrap();
    assert_eq!(running.process_one(Record::default()).unwrap_err().host(), Some(HostError::HTTP_DISABLED));
    respond(|request| {
        assert_eq!(request.url, "https://example.com");
        Ok(http::Response { status: 204, ..http::Response::default() })
    });
    assert_eq!(running.process_one(Record::default()), Ok(Output::Filtered));
    running.teardown().unwrap();
}
