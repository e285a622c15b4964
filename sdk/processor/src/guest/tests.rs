use std::cell::RefCell;
use std::rc::Rc;

use super::*;
use crate::schema;
use crate::schema::message::host_side as schema_side;
use crate::testing::host::{self as stand_in, Call, Calls};
use crate::wire::host_side;

/// A host that speaks the protocol of the buffers to the letter, and notes what the guest does.
#[derive(Default)]
struct Script {
    commands: Vec<Command>,
    /// The error that ends it, unless the commands end.
    ends: Option<HostError>,
    seen: Rc<RefCell<Seen>>,
    parked: Option<(Vec<u8>, Vec<u8>)>,
}

#[derive(Default)]
struct Seen {
    responses: Vec<Bytes>,
    /// Sizes of the buffers of `command_request`.
    buffers: Vec<usize>,
    executed: usize,
    calls: usize,
}

impl Calls for Script {
    fn command_request(&mut self, buffer: &mut [u8]) -> u32 {
        let mut seen = self.seen.borrow_mut();
        seen.buffers.push(buffer.len());
        let Some(command) = self.commands.first() else {
            return self.ends.unwrap_or(HostError::NO_MORE_COMMANDS).code();
        };
        let bytes = command.write();
        if let Some(place) = buffer.get_mut(..bytes.len()) {
            place.copy_from_slice(&bytes);
            self.commands.remove(0);
        }
        bytes.len() as u32
    }

    fn command_response(&mut self, buffer: &[u8]) -> u32 {
        self.seen.borrow_mut().responses.push(Bytes::copy_from_slice(buffer));
        0
    }

    fn in_out(&mut self, call: Call, buffer: &mut [u8]) -> u32 {
        let mut seen = self.seen.borrow_mut();
        seen.calls += 1;
        assert_eq!(call, Call::GetSchema);
        let response = match self.parked.take() {
            Some((request, response)) if buffer.starts_with(&request) => {
                assert!(buffer[request.len()..].iter().all(|&byte| byte == 0), "the tail is not zero");
                assert_eq!(buffer.len(), response.len(), "the buffer has not the size that was asked for");
                response
            }
            Some(_) => panic!("another request before the parked response was fetched"),
            None => {
                seen.executed += 1;
                let request = Bytes::copy_from_slice(buffer);
                let asked = schema_side::asked(&request, false).unwrap();
                if asked.version < 0 {
                    return HostError::VERSION_NOT_FOUND.code();
                }
                let subject = asked.subject.to_owned();
                schema_side::write_schema(&schema::Schema { subject, version: 1, id: 7, text: "x".repeat(5_000) })
            }
        };
        match buffer.get_mut(..response.len()) {
            Some(place) => place.copy_from_slice(&response),
            None => self.parked = Some((buffer.to_vec(), response.clone())),
        }
        response.len() as u32
    }
}

struct Echo;

impl Processor for Echo {
    type Parameters = ();

    fn specification() -> Specification {
        Specification::new("echo", "v1.0.0", "")
    }

    fn configure((): ()) -> Result<Self, Error> {
        Ok(Echo)
    }

    fn process(&mut self, record: Record) -> Result<Output, Error> {
        match record.payload.after.raw().map(|bytes| &**bytes) {
            Some(b"fail") => Err(Error::new("as told")),
            Some(b"drop") => Ok(Output::Filtered),
            Some(b"twice") => Ok(vec![record.clone(), record].into()),
            _ => Ok(record.into()),
        }
    }
}

/// Returns the records of the batch before.
#[derive(Default)]
struct Late(Vec<Record>);

impl Processor for Late {
    type Parameters = ();

    fn specification() -> Specification {
        Specification::new("late", "v1.0.0", "")
    }

    fn configure((): ()) -> Result<Self, Error> {
        Ok(Late::default())
    }

    fn process(&mut self, _: Record) -> Result<Output, Error> {
        Ok(Output::Filtered)
    }

    fn process_batch(&mut self, records: Vec<Record>) -> Vec<Result<Output, Error>> {
        let before = std::mem::replace(&mut self.0, records.clone());
        let mut before = before.into_iter();
        records.iter().map(|_| Ok(before.next().into())).collect()
    }
}

fn serve(commands: Vec<Command>, ends: Option<HostError>) -> (Result<(), HostError>, Rc<RefCell<Seen>>) {
    serve_with::<Echo>(commands, ends)
}

fn serve_with<P: Processor>(
    commands: Vec<Command>,
    ends: Option<HostError>,
) -> (Result<(), HostError>, Rc<RefCell<Seen>>) {
    let seen = Rc::new(RefCell::default());
    stand_in::script(Script { commands, ends, seen: Rc::clone(&seen), parked: None });
    let ended = Guest::new(&mut Configured::<P>::default()).serve();
    (ended, seen)
}

#[test]
fn records_that_a_processor_keeps_do_not_change_with_the_next_command() {
    let batches: Vec<Vec<Record>> =
        ["a", "b", "c", "d"].map(|text| vec![Record::new(text.repeat(9)), Record::new([("text", text)])]).into();
    let mut commands = vec![Command::Configure(BTreeMap::new())];
    commands.extend(batches.iter().cloned().map(Command::Process));
    let (ended, seen) = serve_with::<Late>(commands, None);
    assert_eq!(ended, Ok(()));
    for (response, before) in seen.borrow().responses[2..].iter().zip(&batches) {
        let outputs = host_side::outputs(host_side::response(response).unwrap().1).unwrap();
        let records: Vec<Record> = outputs.into_iter().flat_map(|output| output.unwrap().into_records()).collect();
        assert_eq!(records, *before);
    }
    assert_eq!(seen.borrow().responses.len(), 5);
}

#[test]
fn the_whole_life_of_a_processor() {
    let records: Vec<Record> = ["a", "fail", "drop", "twice"].map(Record::new).into();
    let commands = vec![
        Command::Specify,
        Command::Configure(BTreeMap::new()),
        Command::Open,
        Command::Process(records.clone()),
        Command::Process(Vec::new()),
        Command::Teardown,
    ];
    let (ended, seen) = serve(commands, None);
    assert_eq!(ended, Ok(()));
    let seen = seen.borrow();
    let kinds: Vec<u32> = seen.responses.iter().map(|bytes| host_side::response(bytes).unwrap().0).collect();
    assert_eq!(kinds, [2, 3, 4, 5, 5, 6]);
    let outputs = host_side::outputs(host_side::response(&seen.responses[3]).unwrap().1).unwrap();
    let twice = vec![records[3].clone(); 2];
    let expected =
        [Ok(Output::Single(records[0].clone())), Err(Error::new("as told")), Ok(Output::Filtered), Ok(twice.into())];
    assert_eq!(outputs, expected);
}

#[test]
fn a_command_that_does_not_fit_is_asked_for_again_with_its_size() {
    let large = Command::Process(vec![Record::new(vec![1; 100_000])]);
    let size = large.write().len();
    let (ended, seen) = serve(vec![Command::Configure(BTreeMap::new()), large, Command::Teardown], None);
    assert_eq!(ended, Ok(()));
    assert_eq!(seen.borrow().buffers, [4096, 4096, size, size, size]);
    assert_eq!(seen.borrow().responses.len(), 3);
}

#[test]
fn an_error_of_the_host_ends_the_guest_and_keeps_its_code() {
    let (ended, _) = serve(Vec::new(), Some(HostError::MEMORY_OUT_OF_RANGE));
    assert_eq!(ended, Err(HostError::MEMORY_OUT_OF_RANGE));
    assert_eq!(serve(Vec::new(), Some(HostError(0xFFFF_FF9B))).0.unwrap_err().code(), 0xFFFF_FF9B);
}

#[test]
fn commands_out_of_order_are_answered_with_errors() {
    let commands = vec![
        Command::Open,
        Command::Process(vec![Record::default()]),
        Command::Unknown,
        Command::Configure([("no".to_owned(), "such".to_owned())].into()),
        Command::Teardown,
    ];
    let (ended, seen) = serve(commands, None);
    assert_eq!(ended, Ok(()));
    let kinds: Vec<u32> = seen.borrow().responses.iter().map(|bytes| host_side::response(bytes).unwrap().0).collect();
    assert_eq!(kinds, [1, 5, 1, 1, 6]);
}

#[test]
fn a_response_that_does_not_fit_is_fetched_and_not_executed_again() {
    let (_, seen) = serve(Vec::new(), None);
    let schema = schema::get("subject", 3).unwrap();
    assert_eq!((schema.subject.as_str(), schema.id, schema.text.len()), ("subject", 7, 5_000));
    assert_eq!((seen.borrow().executed, seen.borrow().calls), (1, 2));
    assert_eq!(schema::get("subject", -1).unwrap_err().host(), Some(HostError::VERSION_NOT_FOUND));
}
