//! The transactional ids of the units of a pipeline.

/// A unit with a transactional id: a slot of several. A pipeline that is not split has one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct KafkaUnit {
    pub(super) slot: u32,
    /// Number of slots of the pipeline.
    pub(super) of: u32,
}

impl KafkaUnit {
    /// Returns the transactional id of the unit. `id` is the one of a pipeline that is not split.
    ///
    /// Units of another number of slots have other ids: slots with the same number then have other lanes.
    pub(super) fn id(self, id: &str) -> String {
        match self.of {
            1 => id.to_owned(),
            of => format!("{id}/{}-of-{of}", self.slot),
        }
    }

    /// Returns the unit of a transactional id, if it is one of those of `id`.
    pub(super) fn of_id(found: &str, id: &str) -> Option<KafkaUnit> {
        let rest = found.strip_prefix(id)?;
        if rest.is_empty() {
            return Some(KafkaUnit { slot: 0, of: 1 });
        }
        let (slot, of) = rest.strip_prefix('/')?.split_once("-of-")?;
        let unit = KafkaUnit { slot: slot.parse().ok()?, of: of.parse().ok()? };
        // Other ways to write the numbers are no ids.
        (unit.of > 1 && unit.slot < unit.of && unit.id(id) == found).then_some(unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipeline_in_one_unit_keeps_its_transactional_id() {
        assert_eq!(KafkaUnit { slot: 0, of: 1 }.id("anabranch/p/p:out"), "anabranch/p/p:out");
    }

    #[test]
    fn each_unit_has_an_id_of_its_own() {
        for of in 1..=64 {
            for slot in 0..of {
                let unit = KafkaUnit { slot, of };
                assert_eq!(KafkaUnit::of_id(&unit.id("a/b"), "a/b"), Some(unit));
                assert_eq!(KafkaUnit::of_id(&unit.id("a/bc"), "a/b"), None);
            }
        }
        for other in
            ["a/b/", "a/b/1", "a/b/8-of-8", "a/b/0-of-1", "a/b/01-of-8", "a/b/+1-of-8", "a/b/1-of-8/1-of-8", "a"]
        {
            assert_eq!(KafkaUnit::of_id(other, "a/b"), None, "{other}");
        }
    }
}
