//! A program, checked and compiled.
//!
//! The payload of a record has one of three forms, and `.` is an object, a string or null. A program is compiled for each
//! of them, with nothing known about the fields: that is the program which runs. The shapes of records, which the
//! pipeline knows, serve to check it ([`super::findings`]).

use std::ops::Range;

use anabranch_record::Data;
use anabranch_record::near::did_you_mean;
use anabranch_record::reference::Side;
use vrl::compiler::state::{ExternalEnv, LocalEnv, TypeState};
use vrl::compiler::unused_expression_checker::check_for_unused_results;
use vrl::compiler::{CompileConfig, Compiler, Program};
use vrl::diagnostic::DiagnosticList;
use vrl::parser::ast;
use vrl::path::{OwnedTargetPath, PathPrefix};
use vrl::value::Kind;
use vrl::value::kind::{Collection, Index};

use crate::codes;
use crate::fields::FieldTable;
use crate::functions;
use crate::loads::Loads;
use crate::source::{ProgramFlaw, ProgramSource};
use crate::spot::{FIELDS, NoSpot, Spot, TargetPart};
use crate::syntax::{self, Facts};
use crate::writes::WrittenPath;

/// Maximum size in bytes of the text of a program.
const MOST_TEXT: usize = 256 << 10;

/// Maximum nesting of brackets in the text of a program.
const MOST_BRACKETS: usize = 1000;

/// Stack of the thread that compiles a program. The parser nests as deep as the text does, before its depth is known;
/// memory is used only if it is really nested.
const STACK: usize = if cfg!(debug_assertions) { 2 << 30 } else { 512 << 20 };

const DEEP: &str = "assign parts of the expression to variables";

/// The form of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PayloadForm {
    /// `.` is an object.
    Structured,
    /// `.` is a string.
    Raw,
    /// `.` is null.
    Absent,
}

impl PayloadForm {
    pub(crate) const ALL: [PayloadForm; 3] = [PayloadForm::Structured, PayloadForm::Raw, PayloadForm::Absent];

    /// Returns the form of data.
    pub(crate) fn of(data: &Data) -> PayloadForm {
        match data {
            Data::Structured(_) => PayloadForm::Structured,
            Data::Raw(_) => PayloadForm::Raw,
            Data::Absent => PayloadForm::Absent,
        }
    }

    /// Returns the name for messages.
    pub(crate) fn text(self) -> &'static str {
        match self {
            PayloadForm::Structured => "structured data",
            PayloadForm::Raw => "raw data",
            PayloadForm::Absent => "absent",
        }
    }

    /// Returns the type of `.` if nothing else is known.
    fn kind(self) -> Kind {
        match self {
            PayloadForm::Structured => Kind::object(Collection::any()),
            PayloadForm::Raw => Kind::bytes(),
            PayloadForm::Absent => Kind::null(),
        }
    }
}

/// A program that compiles for at least one form of payloads.
#[derive(Debug)]
pub(crate) struct CheckedProgram {
    pub(crate) source: ProgramSource,
    /// The syntax tree, with guarded multiplications.
    tree: ast::Program,
    pub(crate) facts: Facts,
    /// For each of [`PayloadForm::ALL`], the program or the reason why it does not compile.
    forms: [Result<Program, ProgramFlaw>; 3],
    /// Findings of the library that do not prevent the program from running.
    pub(crate) warnings: Vec<ProgramFlaw>,
    /// The parts of a record that it reads.
    pub(crate) reads: Vec<Spot>,
    /// True if it reads `%` as a whole.
    pub(crate) reads_all_fields: bool,
    pub(crate) loads: Loads,
    /// The fields that it names, if it takes no part of a record as a whole.
    pub(crate) fields: Option<FieldTable>,
    pub(crate) writes: Vec<WrittenPath>,
    /// The key and sides of the payload of which it sets a part, except the payload after the change.
    pub(crate) sets: Vec<Side>,
    most_bytes: functions::MostBytes,
}

impl CheckedProgram {
    /// Parses and compiles a program, on a thread with a stack for any text.
    ///
    /// # Errors
    /// All flaws that the compiler finds.
    pub(crate) fn compile(
        source: ProgramSource,
        most_bytes: functions::MostBytes,
    ) -> Result<CheckedProgram, Vec<ProgramFlaw>> {
        if source.text.len() > MOST_TEXT {
            let message = format!("the program has {} bytes, at most {MOST_TEXT} are allowed", source.text.len());
            return Err(vec![ProgramFlaw::of_whole(codes::VRL_TOO_LARGE, message, "split it into several processors")]);
        }
        if source.text.trim().is_empty() {
            return Err(vec![ProgramFlaw::of_whole(
                codes::VRL_MISSING,
                "the program is empty",
                "set `program` to its text",
            )]);
        }
        if let Some(at) = too_many_brackets(&source.text) {
            let message = format!("brackets are nested deeper than {MOST_BRACKETS} levels");
            let flaw = ProgramFlaw::at(at..at + 1, message, Some(DEEP.to_owned()));
            return Err(vec![ProgramFlaw { code: codes::VRL_TOO_DEEP, ..flaw }]);
        }
        deep(|| compile(source, most_bytes)).unwrap_or_else(|why| {
            let message = format!("the program cannot be checked: {why}");
            Err(vec![ProgramFlaw::of_whole(
                codes::VRL_UNCHECKED,
                message,
                "try again; the machine may be short of memory or threads",
            )])
        })
    }

    /// Returns the program for records with payloads of a form.
    ///
    /// # Errors
    /// The reason why it does not compile for them.
    pub(crate) fn of_form(&self, form: PayloadForm) -> Result<&Program, &ProgramFlaw> {
        self.forms[form as usize].as_ref()
    }

    /// Compiles the program for records of known types.
    ///
    /// # Errors
    /// All errors.
    pub(crate) fn typed(&self, event: Kind, rest: Kind) -> Result<Program, Vec<ProgramFlaw>> {
        typed(&self.tree, event, rest, self.most_bytes).map(|(program, _)| program).map_err(|flaws| flaws_of(&flaws))
    }

    /// Returns `true` if a record may be dropped or fail because the program has `abort`.
    pub(crate) fn aborts(&self) -> bool {
        self.forms.iter().flatten().any(|program| program.info().abortable)
    }

    /// Returns `true` if a record may become several: `.` may be an array after the program.
    pub(crate) fn makes_list(&self) -> bool {
        let may_be_list = |program: &Program| program.final_type_info().state.external.target_kind().contains_array();
        !self.is_followed() || self.forms.iter().flatten().any(may_be_list)
    }

    /// Returns `true` if each record that the program changes becomes several: `.` is an array of two or more after it.
    pub(crate) fn makes_several(&self) -> bool {
        let of_list = |list: &Collection<Index>| {
            list.known().values().filter(|kind| kind.contains_any_defined() && !kind.contains_undefined()).count() > 1
        };
        let is_several = |program: &Program| {
            let info = program.final_type_info();
            let kind = info.state.external.target_kind();
            kind.is_array() && kind.as_array().is_some_and(of_list)
        };
        self.is_followed() && self.forms.iter().flatten().all(is_several)
    }

    /// Returns `true` if the types of the library follow all that the program does.
    fn is_followed(&self) -> bool {
        !self.facts.returns && !self.facts.writes.iter().any(|write| write.in_closure)
    }

    /// Returns `true` if the expression at a place may be skipped, or its error handled.
    pub(crate) fn is_guarded(&self, place: &Range<usize>) -> bool {
        self.facts.guarded.iter().any(|guarded| guarded.start <= place.start && place.end <= guarded.end)
    }
}

/// Number of the library's finding that a field is set in a value that is never an object.
const NO_PARENT: usize = 642;

/// Explains findings about fields of `%`, for whose parents the library looks in `.`.
fn explained(mut flaws: Vec<ProgramFlaw>, facts: &Facts) -> Vec<ProgramFlaw> {
    let of_rest = |place: &Range<usize>| {
        let touches = |write: &syntax::PathWrite| write.place.start < place.end && place.start < write.place.end;
        facts.writes.iter().any(|write| write.path.prefix == PathPrefix::Metadata && touches(write))
    };
    for flaw in flaws.iter_mut().filter(|flaw| flaw.number == NO_PARENT && flaw.place.as_ref().is_some_and(of_rest)) {
        flaw.message =
            "the language's compiler refuses to set a field of % here (E642), because . is a value of known fields"
                .to_owned();
        flaw.hint =
            Some("set it before the assignment of ., for example: parsed = …, %metadata.x = …, . = parsed".to_owned());
    }
    flaws
}

/// Returns the place of the first bracket that is nested too deeply, before parsing: the time of the parser is quadratic
/// in the depth. Brackets in strings count.
fn too_many_brackets(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    text.bytes().position(|byte| {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth > MOST_BRACKETS
    })
}

/// Runs `work` on a thread with a large stack.
fn deep<R: Send>(work: impl FnOnce() -> R + Send) -> Result<R, String> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("vrl-check".to_owned()).stack_size(STACK);
        let running = thread.spawn_scoped(scope, work).map_err(|error| error.to_string())?;
        running.join().map_err(|_| "the compiler panicked".to_owned())
    })
}

/// Returns the type of `%` if nothing is known about the record.
pub(crate) fn kind_of_rest(data: impl Fn(Side) -> Kind) -> Kind {
    let fields = FIELDS.into_iter().map(|(name, part)| {
        let kind = match part {
            TargetPart::Data(side) => data(side),
            TargetPart::Metadata => Kind::object(Collection::from_unknown(Kind::bytes())),
            TargetPart::Operation | TargetPart::Position => Kind::bytes(),
        };
        (name.into(), kind)
    });
    Kind::object(Collection::from_parts(fields.collect(), Kind::undefined()))
}

/// Returns the type of data of which nothing is known.
pub(crate) fn kind_of_any_data() -> Kind {
    Kind::bytes().or_null().or_object(Collection::any())
}

fn typed(
    tree: &ast::Program,
    event: Kind,
    rest: Kind,
    most_bytes: functions::MostBytes,
) -> Result<(Program, DiagnosticList), DiagnosticList> {
    let mut config = CompileConfig::default();
    most_bytes.configure(&mut config);
    let field = |name: &str| OwnedTargetPath::metadata(vrl::path::OwnedValuePath::single_field(name));
    config.set_read_only_path(OwnedTargetPath::metadata_root(), false);
    config.set_read_only_path(field("position"), true);
    let state = TypeState { local: LocalEnv::default(), external: ExternalEnv::new_with_kind(event, rest) };
    let compiled = Compiler::compile(functions::all(), tree.clone(), &state, config)?;
    Ok((compiled.program, compiled.warnings))
}

fn flaws_of(list: &DiagnosticList) -> Vec<ProgramFlaw> {
    list.iter().map(ProgramFlaw::of).collect()
}

fn compile(source: ProgramSource, most_bytes: functions::MostBytes) -> Result<CheckedProgram, Vec<ProgramFlaw>> {
    let parsed = vrl::parser::parse(&*source.text).map_err(|error| {
        let boxed: Vec<Box<dyn vrl::diagnostic::DiagnosticMessage>> = vec![Box::new(error)];
        flaws_of(&DiagnosticList::from(boxed))
    })?;
    let unused = check_for_unused_results(&parsed);
    let (tree, facts) = syntax::examine(parsed);
    if let Some(place) = facts.too_deep {
        let message = "the expression is nested too deeply";
        return Err(vec![ProgramFlaw {
            code: codes::VRL_TOO_DEEP,
            ..ProgramFlaw::at(place, message, Some(DEEP.to_owned()))
        }]);
    }
    if let Some((index, place)) = facts.indexes.iter().find(|(index, _)| {
        // The list is filled up to the index.
        index.saturating_mul(size_of::<vrl::value::Value>()) > most_bytes.0
    }) {
        let message = format!("a list up to the index {index} has more than {} bytes", most_bytes.0);
        return Err(vec![ProgramFlaw::at(place.clone(), message, Some("raise maxBytes, or use an object".to_owned()))]);
    }
    let rest = || kind_of_rest(|_| kind_of_any_data());
    let any = typed(&tree, kind_of_any_data(), rest(), most_bytes);
    let of_form = |form: PayloadForm| typed(&tree, form.kind(), rest(), most_bytes);
    let exact = PayloadForm::ALL.map(of_form);
    if any.is_err() && exact.iter().all(Result::is_err) {
        // The author had one form in mind: probably the one with the fewest flaws. Nobody writes programs for null.
        let [structured, raw, _] = &exact;
        let lists = [&any, structured, raw].into_iter().filter_map(|result| result.as_ref().err());
        let fewest = lists.map(flaws_of).min_by_key(Vec::len).unwrap_or_default();
        return Err(explained(fewest, &facts));
    }
    let mut warnings = Vec::new();
    for (_, list) in exact.iter().flatten().take(1).chain(any.iter().take(1)).take(1) {
        warnings.extend(flaws_of(list));
    }
    warnings.extend(flaws_of(&unused));
    let forms = exact.map(|exact| match (exact, &any) {
        (Ok((program, _)), _) => Ok(program),
        (Err(_), Ok((program, _))) => Ok(program.clone()),
        (Err(flaws), Err(_)) => Err(flaws_of(&flaws).into_iter().next().unwrap_or_else(|| {
            ProgramFlaw::of_whole(codes::VRL_INVALID, "it does not compile", "give the processor a condition")
        })),
    });
    let infos: Vec<_> = forms.iter().flatten().map(|program| program.info().clone()).collect();
    let queries: Vec<&OwnedTargetPath> = infos.iter().flat_map(|info| &info.target_queries).collect();
    let assignments: Vec<&OwnedTargetPath> = infos.iter().flat_map(|info| &info.target_assignments).collect();
    unknown_fields(&facts)?;
    let mut reads = Vec::new();
    let mut reads_all_fields = facts.copies.contains(&PathPrefix::Metadata);
    let mut loads = Loads::default();
    let roots = facts.copies.contains(&PathPrefix::Event).then(OwnedTargetPath::event_root);
    for path in queries.into_iter().chain(&roots) {
        match Spot::of(path) {
            Ok(spot) if reads.contains(&spot) => {}
            Ok(spot) => reads.push(spot),
            Err(NoSpot::All) => reads_all_fields = true,
            Err(NoSpot::Unknown(_)) => {}
        }
    }
    let mut writes: Vec<WrittenPath> = Vec::new();
    let mut write = |path: &OwnedTargetPath, compact: bool| {
        let Ok(spot) = Spot::of(path) else { return };
        let spot = if compact { spot.shortened(1) } else { spot };
        match writes.iter_mut().find(|write| write.path == *path) {
            // Of two calls, the one that removes parents changes more.
            Some(known) if spot.contains(&known.spot) => {
                *known = WrittenPath { place: spot.path(), spot, ..known.clone() }
            }
            Some(_) => {}
            None => {
                writes.push(WrittenPath { path: path.clone(), place: spot.path(), spot, covered_by: Vec::new() });
            }
        }
    };
    assignments.into_iter().for_each(|path| write(path, false));
    facts.writes.iter().for_each(|written| write(&written.path, written.compact));
    if reads_all_fields {
        loads.add_all_fields();
    }
    reads.iter().for_each(|spot| loads.add(spot));
    for WrittenPath { path, spot, .. } in &writes {
        // A part of the place changes, so the rest of it must be there.
        let is_exact = Spot::of(path).is_ok_and(|exact| exact == *spot)
            && path.path.segments.len() == spot.path().path.segments.len();
        if !is_exact {
            loads.add(spot);
            if !reads.contains(spot) {
                reads.push(spot.clone());
            }
        }
    }
    WrittenPath::cover(&mut writes);
    let fields = if reads_all_fields { None } else { FieldTable::new(&reads, &writes) };
    let mut sets: Vec<Side> = Vec::new();
    for write in &writes {
        if let TargetPart::Data(side @ (Side::Key | Side::Before)) = write.spot.part
            && !sets.contains(&side)
        {
            sets.push(side);
        }
    }
    Ok(CheckedProgram {
        source,
        tree,
        facts,
        forms,
        warnings,
        reads,
        reads_all_fields,
        loads,
        fields,
        writes,
        sets,
        most_bytes,
    })
}

/// Refuses fields of `%` that do not exist.
fn unknown_fields(facts: &Facts) -> Result<(), Vec<ProgramFlaw>> {
    let reads = facts.reads.iter().map(|read| (&read.path, &read.place));
    let writes = facts.writes.iter().map(|write| (&write.path, &write.place));
    let mut flaws: Vec<ProgramFlaw> = Vec::new();
    for (path, place) in reads.chain(writes) {
        let flaw = match Spot::of(path) {
            Err(NoSpot::Unknown(name)) => {
                let names = FIELDS.map(|(name, _)| name);
                let hint = match did_you_mean(&name, names) {
                    Some(near) => format!("did you mean %{near}?"),
                    None => format!("it has {}; an entry of the metadata is %metadata.{name}", names.join(", ")),
                };
                ProgramFlaw::at(place.clone(), format!("% has no field {name:?}"), Some(hint))
            }
            Ok(Spot { part: TargetPart::Metadata, names }) if names.len() > 1 => {
                let key = names.join(".");
                let hint = format!("write the whole key in quotes: %metadata.{key:?}");
                ProgramFlaw::at(place.clone(), "an entry of the metadata is a text, without fields", Some(hint))
            }
            _ => continue,
        };
        if !flaws.contains(&flaw) {
            flaws.push(flaw);
        }
    }
    if flaws.is_empty() { Ok(()) } else { Err(flaws) }
}
