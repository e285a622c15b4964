//! A guest as a processor of a pipeline.

use std::sync::Arc;
use std::time::Duration;

use anabranch_ops_opencdc::wire::{self, Configure, Empty, ProcessedRecord, RecordOutcome, Request, Response};
use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::host::Host;
use anabranch_plugin::operator::{
    BuiltIsolate, Configured, ConfiguredOperator, Decision, Fan, Operator, OperatorContext, OperatorKind, Rows,
    Signature,
};
use anabranch_plugin::specification::Specification;
use anabranch_record::Record;
use anabranch_record::code::Code;
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::protobuf::{DecodeError, decode_answer, encode_record};
use bytes::Bytes;

use crate::codes;
use crate::compiler::MachineCode;
use crate::egress::{self, Ceiling, Network, NetworkAccess};
use crate::guest::{Guest, GuestEnd, GuestEnded, Limits, Setting};
use crate::module::ModuleFile;

/// Maximum size in bytes of the records of one call, unless a single record is larger: the guest needs a multiple of
/// it.
const CALL_BYTES: usize = 4 << 20;
/// Number of deaths within one strip after which the guest is at fault and not its records.
const DEATHS: usize = 8;
/// Maximum number of consecutive calls that leave all their records unprocessed.
const STALLS: usize = 3;
/// Time limit for the teardown of a guest.
const TEARDOWN: Duration = Duration::from_secs(5);

/// A processor kind that is implemented by a module.
pub(crate) struct ModuleKind {
    specification: Specification,
    module: Arc<ModuleFile>,
    limits: Limits,
    ceiling: Arc<Ceiling>,
}

impl ModuleKind {
    pub(crate) fn new(
        specification: Specification,
        module: Arc<ModuleFile>,
        limits: Limits,
        ceiling: Arc<Ceiling>,
    ) -> Self {
        ModuleKind { specification, module, limits, ceiling }
    }
}

impl OperatorKind for ModuleKind {
    fn specification(&self) -> &Specification {
        &self.specification
    }

    fn configure(&self, arguments: &Arguments) -> Result<Configured, Diagnostics> {
        let granted = egress::granted(&arguments.read()?, &self.ceiling)?;
        // The guest applies defaults itself: it receives only the written settings.
        let default = |name: &str| self.specification.parameter(name).and_then(|p| p.default.as_ref());
        let settings = arguments
            .iter_shown()
            .filter(|(name, _)| !name.starts_with(egress::PREFIX))
            .filter_map(|(name, _)| Some((name.to_string(), arguments.text(name)?)))
            .filter(|(name, value)| default(name) != Some(value))
            .map(|(name, value)| (name, value.to_string()))
            .collect();
        let configure = Configure { parameters: settings };
        Ok(WasmOperator { module: self.module.clone(), configure, granted, limits: self.limits }.into())
    }
}

#[derive(Clone)]
struct WasmOperator {
    module: Arc<ModuleFile>,
    configure: Configure,
    granted: NetworkAccess,
    limits: Limits,
}

impl ConfiguredOperator for WasmOperator {
    type Built = BuiltIsolate;

    fn signature(&self) -> Signature {
        Signature::new().fan(Fan::Many)
    }

    fn build(&self, context: &OperatorContext) -> Result<BuiltIsolate, Fault> {
        for refused in self.granted.refused.iter().filter(|_| context.worker == 0) {
            tracing::warn!(processor = %context.host.node, "{refused}");
        }
        Ok(Box::new(Wasm::open(self, &context.host)?))
    }
}

/// Starts and configures a guest.
fn begin(
    configured: &WasmOperator,
    code: &MachineCode,
    host: &Host,
    network: &Option<Arc<Network>>,
) -> Result<Guest, Fault> {
    let fault = |death: GuestEnd| Fault::fatal(death.code(), death);
    let setting = Setting {
        node: &host.node,
        schemas: host.schemas.clone(),
        network: network.clone(),
        limits: configured.limits,
    };
    let mut guest = Guest::start(code, &setting).map_err(fault)?;
    match guest.ask(Request::Configure(configured.configure.clone())).map_err(fault)? {
        Response::Configure(_) => {}
        other => return Err(refused(codes::WASM_CONFIGURE, "its settings", &other)),
    }
    match guest.ask(Request::Open(Empty {})).map_err(fault)? {
        Response::Open(_) => Ok(guest),
        other => Err(refused(codes::WASM_OPEN, "to open", &other)),
    }
}

/// Returns the text of a guest's error; some have only a number.
fn message(error: &wire::Error) -> String {
    if error.message.is_empty() { format!("error code {}", error.code) } else { error.message.clone() }
}

fn refused(code: Code, what: &str, response: &Response) -> Fault {
    match response {
        Response::Error(error) => Fault::fatal(code, format!("the processor refused {what}: {}", message(error))),
        _ => Fault::fatal(codes::WASM_BAD_RESPONSE, "the answer of the processor does not match the request"),
    }
}

struct Wasm {
    configured: WasmOperator,
    /// The code of this guest and of those that replace it until the pipeline is opened again.
    code: MachineCode,
    network: Option<Arc<Network>>,
    guest: Guest,
}

impl Operator for Wasm {
    fn process(&mut self, rows: &mut Rows<'_>, context: &OperatorContext) {
        let mut decisions = Vec::with_capacity(0);
        let mut selected: Vec<(usize, &mut Record)> = rows.iter_mut().collect();
        let end = self.strip(&mut selected, &mut decisions, &context.host);
        if let Err((at, fault)) = end {
            decisions.extend(selected[at..].iter().map(|(row, _)| (*row, Decision::Fail(fault.clone()))));
        }
        drop(selected);
        for (row, decision) in decisions {
            rows.decide(row, decision);
        }
    }

    fn close(&mut self) -> Result<(), Fault> {
        match self.guest.ask_within(Request::Teardown(Empty {}), Some(TEARDOWN)) {
            Ok(Response::Teardown(_)) => Ok(()),
            Ok(other) => Err(refused(codes::WASM_TEARDOWN, "to close", &other)),
            Err(death) => Err(Fault::fatal(death.code(), death)),
        }
    }
}

impl Wasm {
    fn open(configured: &WasmOperator, host: &Host) -> Result<Wasm, Fault> {
        let network = configured.granted.egress.clone().map(|egress| Network::new(egress, host.network)).transpose();
        let network = network.map_err(|error| Fault::fatal(codes::WASM_NETWORK, error))?.map(Arc::new);
        let code = configured.module.code_to_run().map_err(|error| Fault::fatal(codes::WASM_START, error))?;
        tracing::debug!(processor = %host.node, "the processor starts with {} code", code.compiler.code());
        let guest = begin(configured, &code, host, &network)?;
        Ok(Wasm { configured: configured.clone(), code, network, guest })
    }

    /// Processes the rows. On an error, returns the first row without a decision, and the reason.
    fn strip(
        &mut self,
        rows: &mut [(usize, &mut Record)],
        decisions: &mut Vec<(usize, Decision)>,
        host: &Host,
    ) -> Result<(), (usize, Fault)> {
        let (mut at, mut alone_until, mut deaths, mut stalls) = (0, 0, 0, 0);
        while at < rows.len() {
            let (command, sent) = encode(&rows[at..], if at < alone_until { 1 } else { usize::MAX });
            let count = sent.len();
            let response = match self.guest.ask_encoded(command) {
                Ok(response) => response,
                Err(GuestEnded { death, took_command }) => {
                    deaths += 1;
                    let fault = Fault::record(death.code(), death);
                    if deaths > DEATHS {
                        return Err((at, fault.with_class(FaultClass::Fatal)));
                    }
                    tracing::warn!(processor = %host.node, "{fault}; the processor is restarted");
                    self.guest =
                        begin(&self.configured, &self.code, host, &self.network).map_err(|fault| (at, fault))?;
                    if took_command && count == 1 {
                        decisions.push((rows[at].0, Decision::Fail(fault)));
                        at += 1;
                    } else if took_command {
                        // One of these rows is the cause: send them one by one to the next guest.
                        alone_until = at + count;
                    }
                    continue;
                }
            };
            let results = match response {
                Response::Process(processed) => processed.records,
                Response::Error(error) => {
                    let fault = Fault::record(codes::WASM_ERROR, message(&error));
                    decisions.extend(rows[at..at + count].iter().map(|(row, _)| (*row, Decision::Fail(fault.clone()))));
                    at += count;
                    continue;
                }
                other => return Err((at, refused(codes::WASM_BAD_RESPONSE, "the records", &other))),
            };
            if results.len() > count {
                let text = format!("the processor returned {} results for {count} records", results.len());
                return Err((at, Fault::fatal(codes::WASM_BAD_RESPONSE, text)));
            }
            if results.is_empty() {
                return Err((at, Fault::fatal(codes::WASM_NO_PROGRESS, "the processor returned no records")));
            }
            let before = at;
            for (result, sent) in results.into_iter().zip(&sent) {
                let Some(decided) = decide(result, sent, rows[at].1) else { break };
                match decided {
                    Ok(Decision::Keep) => {}
                    Ok(decision) => decisions.push((rows[at].0, decision)),
                    Err(error) => {
                        let fault = Fault::record(
                            codes::WASM_BAD_RECORD,
                            format!("the processor returned an invalid record: {error}"),
                        );
                        decisions.push((rows[at].0, Decision::Fail(fault)));
                    }
                }
                at += 1;
            }
            stalls = if at == before { stalls + 1 } else { 0 };
            if stalls == STALLS {
                return Err((
                    at,
                    Fault::fatal(
                        codes::WASM_NO_PROGRESS,
                        "the processor processed none of its records three times in a row",
                    ),
                ));
            }
        }
        Ok(())
    }
}

/// Encodes the command with as many of these rows as one call takes; also returns the message of each row.
fn encode(rows: &[(usize, &mut Record)], most: usize) -> (Bytes, Vec<Bytes>) {
    // The length before the records is known only after them.
    const HEAD: usize = 11;
    let mut out = vec![0; HEAD];
    let mut one = Vec::new();
    let mut ends = Vec::with_capacity(rows.len().min(most));
    for (_, record) in rows.iter().take(most) {
        one.clear();
        encode_record(record, &mut one);
        if !ends.is_empty() && out.len() + one.len() > CALL_BYTES {
            break;
        }
        out.push(0x0a);
        prost::encoding::encode_varint(one.len() as u64, &mut out);
        out.extend_from_slice(&one);
        ends.push((out.len() - one.len(), out.len()));
    }
    let mut head = vec![0x22];
    prost::encoding::encode_varint((out.len() - HEAD) as u64, &mut head);
    let from = HEAD - head.len();
    out[from..HEAD].copy_from_slice(&head);
    let out = Bytes::from(out);
    let sent = ends.into_iter().map(|(start, end)| out.slice(start..end)).collect();
    (out.slice(from..), sent)
}

/// Applies a guest's result to a row; `sent` is the encoded row. Returns `None` if the guest left it unprocessed.
fn decide(result: ProcessedRecord, sent: &Bytes, row: &mut Record) -> Option<Result<Decision, DecodeError>> {
    let enter = |bytes: &Bytes, row: &Record| decode_answer(bytes, sent, row);
    let decided = match result.outcome? {
        RecordOutcome::Single(bytes) => enter(&bytes, row).map(|record| {
            *row = record;
            Decision::Keep
        }),
        RecordOutcome::Filter(_) => Ok(Decision::Filter),
        RecordOutcome::Error(error) => {
            let text = error.error.as_ref().map_or_else(|| "an error without a message".to_owned(), message);
            Ok(Decision::Fail(Fault::record(codes::WASM_ERROR, text)))
        }
        RecordOutcome::Multi(parts) => {
            let parts: Result<Vec<Record>, DecodeError> = parts.records.iter().map(|part| enter(part, row)).collect();
            parts.map(|mut parts| match parts.len() {
                1 => {
                    *row = parts.remove(0);
                    Decision::Keep
                }
                0 => Decision::Filter,
                _ => Decision::Split(parts),
            })
        }
    };
    Some(decided)
}

#[cfg(test)]
pub(crate) mod tests;
