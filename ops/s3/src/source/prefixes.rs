//! The prefixes that a source reads, each of which is a partition.

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::parameters::Argument;
use anabranch_record::mark::Partition;
use anabranch_record::text::Str;

/// Maximum number of prefixes. A run keeps a listing and a position of each.
const MOST: usize = 256;

/// The keys with a prefix, and the partition of their objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PrefixPartition {
    pub(super) partition: Partition,
    pub(super) prefix: Str,
}

/// The setting that gives the prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PrefixSetting {
    /// `prefix`: one prefix, or the whole bucket. The source is not partitioned.
    One,
    /// `prefixes`: a partition each.
    Several,
}

impl PrefixSetting {
    pub(super) fn name(self) -> &'static str {
        match self {
            PrefixSetting::One => "prefix",
            PrefixSetting::Several => "prefixes",
        }
    }
}

/// Returns the partition of a prefix. Its name is the prefix without a slash at the end, so that prefixes with consecutive
/// numbers, such as `in/1/` and `in/2/`, have consecutive slots in a cluster. Of prefixes that do not overlap, no two have the same
/// name.
fn partition_of(prefix: &str) -> Partition {
    let name = prefix.strip_suffix('/').filter(|name| !name.is_empty()).unwrap_or(prefix);
    Partition(name.into())
}

/// A prefix in the list, with its offset.
struct ListedPrefix<'a> {
    prefix: &'a str,
    offset: usize,
}

/// Returns the prefixes to read, in the order of the settings.
///
/// # Errors
/// Both settings have a value, there are too many prefixes, a prefix is empty, or a prefix begins with another one.
pub(super) fn prefixes(
    one: &Argument<Option<Str>>,
    several: &Argument<Vec<Str>>,
) -> Result<(PrefixSetting, Vec<PrefixPartition>), Diagnostics> {
    let prefix = one.as_ref().filter(|prefix| !prefix.is_empty());
    if several.is_empty() {
        let prefix = prefix.cloned().unwrap_or_default();
        return Ok((PrefixSetting::One, vec![PrefixPartition { partition: Partition::ONLY, prefix }]));
    }
    let mut findings = Diagnostics::new();
    if prefix.is_some() {
        findings.push(several.invalid("prefix and prefixes cannot both be set").with_hint("remove one of them"));
    }
    if several.len() > MOST {
        let what = format!("{} prefixes are more than {MOST}", several.len());
        findings.push(several.invalid(what).with_hint("list longer common prefixes, or several sources"));
    }
    let mut offset = 0;
    let mut listed = Vec::new();
    for item in several.text().split(',') {
        let prefix = item.trim();
        let start = offset + item.len() - item.trim_start().len();
        match prefix {
            "" => findings.push(
                several
                    .invalid("a prefix is empty")
                    .with_hint("remove the comma; to read the whole bucket, remove prefixes"),
            ),
            _ => listed.push(ListedPrefix { prefix, offset: start }),
        }
        offset += item.len() + 1;
    }
    let partitions = listed
        .iter()
        .map(|listed| PrefixPartition { partition: partition_of(listed.prefix), prefix: listed.prefix.into() });
    let partitions = partitions.collect();
    overlaps(several, listed, &mut findings);
    if findings.has_errors() { Err(findings) } else { Ok((PrefixSetting::Several, partitions)) }
}

/// Adds a finding for each prefix that begins with another one: its objects would be read twice.
fn overlaps(setting: &Argument<Vec<Str>>, mut listed: Vec<ListedPrefix<'_>>, findings: &mut Diagnostics) {
    // The sort is stable, so the first of two equal prefixes stays the first. All prefixes that begin with another one follow it.
    listed.sort_by_key(|listed| listed.prefix);
    let mut shortest: Option<&str> = None;
    for ListedPrefix { prefix, offset } in listed {
        let Some(other) = shortest.filter(|shortest| prefix.starts_with(shortest)) else {
            shortest = Some(prefix);
            continue;
        };
        let message = match prefix == other {
            true => format!("the prefix {prefix:?} is in the list twice"),
            false => format!("the prefix {prefix:?} begins with {other:?}, which is also in the list"),
        };
        findings.push(
            setting
                .invalid(message)
                .with_span(setting.place(offset, prefix.len()))
                .with_hint("remove one of them: objects with both prefixes would be read twice"),
        );
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use anabranch_plugin::arguments::Arguments;
    use anabranch_plugin::parameters::{Parameters, declared};
    use anabranch_plugin::settings::Settings as Pairs;
    use anabranch_plugin::specification::Specification;
    use proptest::prelude::*;

    use super::*;

    #[derive(Parameters)]
    struct Settings {
        prefix: Argument<Option<Str>>,
        prefixes: Argument<Vec<Str>>,
    }

    fn read(settings: &[(&str, &str)]) -> Result<(PrefixSetting, Vec<PrefixPartition>), Vec<String>> {
        let specification = Specification::builtin("demo", "For tests.").with_all(declared::<Settings>());
        let arguments = Arguments::parse(&specification, &Pairs::from_pairs(settings.iter().copied())).unwrap();
        let Settings { prefix, prefixes: several } = arguments.read().unwrap();
        prefixes(&prefix, &several).map_err(|findings| findings.into_iter().map(|finding| finding.message).collect())
    }

    fn names(settings: &[(&str, &str)]) -> Vec<(String, String)> {
        let (_, partitions) = read(settings).unwrap();
        partitions.iter().map(|it| (it.partition.0.to_string(), it.prefix.to_string())).collect()
    }

    fn pairs<const N: usize>(pairs: [(&str, &str); N]) -> Vec<(String, String)> {
        pairs.map(|(a, b)| (a.to_owned(), b.to_owned())).to_vec()
    }

    #[test]
    fn each_prefix_of_the_list_is_a_partition_and_a_single_prefix_is_none() {
        assert_eq!(names(&[]), pairs([("", "")]));
        assert_eq!(names(&[("prefix", "a,b/")]), pairs([("", "a,b/")]));
        assert_eq!(names(&[("prefix", ""), ("prefixes", "in/1/")]), pairs([("in/1", "in/1/")]));
        assert_eq!(
            names(&[("prefixes", "in/2/, in/1/ ,x\n, /")]),
            pairs([("in/2", "in/2/"), ("in/1", "in/1/"), ("x", "x"), ("/", "/")])
        );
    }

    #[test]
    fn lists_that_would_read_an_object_twice_are_refused() {
        let refused = |list| read(&[("prefixes", list)]).unwrap_err();
        assert_eq!(refused("a/,b/,a/"), ["prefixes: the prefix \"a/\" is in the list twice"]);
        assert_eq!(
            refused("in/b/1, in/b, x, in/b/2/"),
            [
                "prefixes: the prefix \"in/b/1\" begins with \"in/b\", which is also in the list",
                "prefixes: the prefix \"in/b/2/\" begins with \"in/b\", which is also in the list"
            ]
        );
        assert_eq!(refused("a,,b"), ["prefixes: a prefix is empty"]);
        let both = read(&[("prefix", "a"), ("prefixes", "b")]).unwrap_err();
        assert_eq!(both, ["prefixes: prefix and prefixes cannot both be set"]);
        let many = (0..257).map(|n| format!("{n}/")).collect::<Vec<_>>().join(",");
        assert_eq!(refused(&many), ["prefixes: 257 prefixes are more than 256"]);
    }

    proptest! {
        /// The accepted lists are those in which each key has at most one prefix, and each partition has a name of its own.
        #[test]
        fn a_key_has_one_partition(list in prop::collection::vec("[ab/]{1,4}", 1..6), key in "[ab/]{1,6}") {
            let overlaps = |(at, one): (usize, &String)| {
                list.iter().enumerate().any(|(other, it)| other != at && it.starts_with(one.as_str()))
            };
            let expected = !list.iter().enumerate().any(overlaps);
            let accepted = read(&[("prefixes", &list.join(", "))]);
            prop_assert_eq!(accepted.is_ok(), expected);
            if let Ok((_, partitions)) = accepted {
                let names: BTreeSet<_> = partitions.iter().map(|it| it.partition.clone()).collect();
                prop_assert_eq!(names.len(), list.len());
                prop_assert!(!names.contains(&Partition::ONLY));
                prop_assert!(partitions.iter().filter(|it| key.starts_with(it.prefix.as_str())).count() <= 1);
            }
        }
    }
}
