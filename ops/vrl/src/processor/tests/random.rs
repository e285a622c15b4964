//! Random programs, of the examples that the functions of the library carry, on random records.

use std::time::{Duration, Instant};

use proptest::sample::select;

use super::*;

/// Limit of the memory of a program.
const MOST: usize = 64 << 10;

/// Time for all programs. Most of it is compilation.
const TIME: Duration = Duration::from_millis(1500);

/// A part of a program that sets `.aN`, for different `N`, to the result of an example.
fn piece(at: usize, source: &str, form: usize) -> String {
    let target = ["a", "b", "c", "x"][at % 4];
    match form {
        0 => format!(".{target} = {{\n{source}\n}}\n"),
        1 => format!(".{target}, .err = {{\n{source}\n}}\n"),
        2 => format!("if exists(.{target}) {{\n.{target} = {{\n{source}\n}}\n}}\n"),
        3 => format!("v{at} = {{\n{source}\n}}\n%metadata.m = encode_json([v{at}, .{target}])\n"),
        _ => format!("for_each([1, 2]) -> |_i, _v| {{\n.{target} = [.{target}, {{\n{source}\n}}]\n}}\n"),
    }
}

/// Examples without effects outside of the program.
fn examples() -> Vec<&'static str> {
    let functions = vrl::stdlib::all();
    let examples = functions
        .iter()
        .filter(|function| function.identifier() != "log")
        .flat_map(|function| function.examples().iter().filter(|example| !example.skip).map(|example| example.source));
    examples.collect()
}

/// Values that differ and have no place in the writes of the program.
fn changed_without_assignment(configured: &Configured, before: &Record, after: &Record) -> Option<String> {
    let writes = configured.signature().writes;
    let is_written =
        |path: &[&str]| writes.overlaps(&Access::These(vec![path.iter().map(|name| Str::from(*name)).collect()]));
    for (name, side, before, after) in [
        ("Key", &["Key"][..], &before.key, &after.key),
        ("Before", &["Payload", "Before"], &before.payload.before, &after.payload.before),
        ("After", &["Payload", "After"], &before.payload.after, &after.payload.after),
    ] {
        match (before.fields(), after.fields()) {
            (Some(before), Some(after)) => {
                let names = before.iter().chain(after.iter()).map(|(name, _)| name);
                for field in names {
                    let path: Vec<&str> = side.iter().copied().chain([field.as_str()]).collect();
                    let same = format!("{:?}", before.get(field)) == format!("{:?}", after.get(field));
                    if !same && !is_written(&path) {
                        return Some(format!("{name}.{field}"));
                    }
                }
            }
            _ if format!("{before:?}") != format!("{after:?}") && !is_written(side) => return Some(name.to_owned()),
            _ => {}
        }
    }
    let entries = before.metadata.iter().chain(after.metadata.iter());
    for (key, _) in entries {
        if before.metadata.get(key) != after.metadata.get(key) && !is_written(&["Metadata", key]) {
            return Some(format!("Metadata.{key}"));
        }
    }
    (before.operation != after.operation && !is_written(&["Operation"])).then(|| "Operation".to_owned())
}

#[test]
fn random_programs_stay_within_their_limits_and_assignments() {
    let piece = (0..4_usize, select(examples()), 0..5_usize).prop_map(|(at, source, form)| piece(at, source, form));
    let programs = vec(piece, 1..3).prop_map(|pieces| pieces.concat());
    let cases = (programs, vec(records(), 4));
    let end = Instant::now() + TIME;
    let mut counts = [0_usize; 3];
    let counted = std::cell::RefCell::new(&mut counts);
    TestRunner::new(ProptestConfig { max_shrink_iters: 0, ..ProptestConfig::with_cases(400) })
        .run(&cases, |(program, records)| {
            if Instant::now() > end {
                return Ok(());
            }
            let limits = [("program", program.as_str()), ("maxBytes", "64KiB"), ("timeout", "2s")];
            let Ok(configured) = processor(&kind(), &limits) else {
                counted.borrow_mut()[0] += 1;
                return Ok(());
            };
            for before in &records {
                let (after, decision) = run(&configured, before);
                prop_assert_eq!(after.position(), before.position());
                let kept = match decision {
                    Decision::Keep => vec![after],
                    Decision::Fail(_) => {
                        counted.borrow_mut()[2] += 1;
                        prop_assert_eq!(format!("{after:?}"), format!("{before:?}"), "{}", program);
                        continue;
                    }
                    Decision::Filter => continue,
                    several => several.into_records(),
                };
                counted.borrow_mut()[1] += 1;
                for after in &kept {
                    let (old, new) = (before.weight(), after.weight());
                    prop_assert!(new <= old + 4 * MOST, "{program}: {old} bytes became {new}");
                    let changed = changed_without_assignment(&configured, before, after);
                    prop_assert_eq!(changed, None, "{}: {:?} became {:?}", program, before, after);
                }
            }
            Ok(())
        })
        .unwrap();
    let [refused, kept, failed] = counts;
    println!("{refused} programs refused, {kept} records changed, {failed} records failed");
    assert!(kept > 0, "{refused} programs refused, {kept} records changed, {failed} records failed");
}
