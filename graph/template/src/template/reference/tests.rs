use std::collections::{BTreeMap, BTreeSet};

use super::super::functions::TABLES;
use super::super::functions::methods::{DURATION, TIME, VERSION};
use super::super::methods::{DATA, OPERATION, POSITION, RECORD};
use super::*;

fn entries() -> impl Iterator<Item = &'static FunctionEntry> {
    FUNCTIONS.iter().flat_map(|group| group.entries)
}

fn functions() -> BTreeMap<&'static str, &'static Function> {
    TABLES.iter().flat_map(|table| table.iter()).map(|function| (function.name, function)).collect()
}

/// A declared function, a word for each parameter.
fn assert_parameters(entry: &FunctionEntry, fixed: usize, rest: bool) {
    let words: Vec<&str> = entry.parameters.split_whitespace().collect();
    let is_more = |word: &str| word.ends_with("...") || word.starts_with('[');
    assert_eq!(words.len(), fixed + usize::from(rest), "{}: {words:?}", entry.name());
    assert!(words.iter().take(fixed).all(|word| !is_more(word)), "{}: {words:?}", entry.name());
    assert!(words.iter().skip(fixed).all(|word| is_more(word)), "{}: {words:?}", entry.name());
}

#[test]
fn the_example_record_is_a_record() {
    assert_eq!(&Record::from_json(EXAMPLE_RECORD.as_bytes()).unwrap(), example_record());
}

#[test]
fn every_function_is_described_once() {
    let functions = functions();
    let mut described = BTreeSet::new();
    for name in entries().flat_map(|entry| entry.names) {
        assert!(described.insert(*name), "`{name}` is described twice");
        assert!(functions.contains_key(name), "there is no function `{name}`");
    }
    let missing: Vec<_> = functions.keys().filter(|name| !described.contains(*name)).collect();
    assert!(missing.is_empty(), "not described: {missing:?}");
}

#[test]
fn parameters_are_those_of_the_function_and_its_aliases() {
    let functions = functions();
    for entry in entries() {
        for name in entry.names {
            assert_parameters(entry, functions[name].params.len(), functions[name].rest.is_some());
        }
    }
}

#[test]
fn every_method_is_described() {
    let tables = [OPERATION, POSITION, RECORD, DATA, TIME, DURATION, VERSION];
    assert_eq!(METHODS.len(), tables.len());
    for (group, table) in METHODS.iter().zip(tables) {
        let described: BTreeSet<&str> = group.entries.iter().flat_map(|entry| entry.names).copied().collect();
        let declared: BTreeSet<&str> = table.iter().map(|method| method.name).collect();
        assert_eq!(described, declared, "{}", group.title);
        for (entry, name) in group.entries.iter().flat_map(|entry| entry.names.iter().map(move |name| (entry, *name))) {
            let method = table.iter().find(|method| method.name == name).unwrap();
            // The first parameter is the value that has the method.
            assert_parameters(entry, method.params.len() - 1, method.rest.is_some());
        }
    }
}

#[test]
fn every_example_calls_what_it_describes_and_prints_one_line() {
    let methods = METHODS.iter().flat_map(|group| group.entries);
    for entry in entries().chain(methods) {
        assert!(entry.example.contains(entry.name()), "{}", entry.example);
        let sentence = entry.summary.strip_suffix('.').unwrap_or_default();
        assert!(sentence.starts_with(char::is_uppercase), "{}: {}", entry.name(), entry.summary);
        let output = match render_example(entry.example) {
            Ok(output) => output,
            Err(ExampleError::Eval(_)) if ["fail", "call"].contains(&entry.name()) => continue,
            Err(error) => panic!("{}: {error}", entry.example),
        };
        for shown in [Some(output.as_str()), entry.form].into_iter().flatten() {
            assert!(
                !shown.is_empty() && shown.trim() == shown && !shown.contains('\n'),
                "{}: {shown:?}",
                entry.example
            );
        }
        assert!(!output.contains("<no value>") && !output.contains("%!"), "{}: {output}", entry.example);
    }
}

/// An alias gives the same result as the usual name.
#[test]
fn aliases_do_the_same() {
    for entry in entries().filter(|entry| entry.form.is_none()) {
        for alias in entry.aliases() {
            let renamed = entry.example.replacen(&format!("{} ", entry.name()), &format!("{alias} "), 1);
            assert_ne!(renamed, entry.example);
            assert_eq!(render_example(&renamed).unwrap(), render_example(entry.example).unwrap(), "{renamed}");
        }
    }
}

/// A result that is shown is the same in every rendering, and a form stands where it is not.
#[test]
fn forms_stand_for_results_that_differ() {
    for entry in entries() {
        if entry.form.is_some() {
            assert!(!functions()[entry.name()].pure, "{} is pure", entry.name());
        } else {
            let result = |_| render_example(entry.example).map_err(|error| error.to_string());
            let results: BTreeSet<_> = (0..3).map(result).collect();
            assert_eq!(results.len(), 1, "{}", entry.example);
        }
    }
}
