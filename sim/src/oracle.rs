//! What must become of a row, worked out one record at a time and without batches, credit or time.

use crate::scenario::{Action, Place, Scenario, Step, When, hits, mix};

/// A record, as far as the simulation looks at it. Its number tells all that was done to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// Changes with every step that is applied to it.
    pub id: u64,
    /// What conditions look at.
    pub mark: u8,
}

/// What a processor makes of a record.
pub enum Outcome {
    /// It stays.
    Keep(Copy),
    /// These take its place.
    Pieces(Vec<Copy>),
    /// It goes.
    Filter,
    /// It fails.
    Fail,
    /// The processor panics.
    Panic,
}

/// What must become of a record.
#[derive(Clone, Debug, PartialEq)]
pub enum Fate {
    /// It arrives at a destination and is durable there.
    Delivered(usize, u64),
    /// There is a letter: from this node, on this record; `Some`: it had arrived at this destination.
    Letter(String, u64, Option<usize>),
    /// Nothing is left of it.
    Filtered,
    /// All of these.
    All(Vec<Fate>),
    /// One of these.
    Either(Box<[Fate; 2]>),
}

impl Step {
    /// Whether it is applied; `None`: the condition fails.
    pub fn holds(&self, copy: Copy) -> Option<bool> {
        match self.when {
            When::Always => Some(true),
            When::Never => Some(false),
            When::Is(mark) => Some(copy.mark == mark),
            When::Text => [Some(false), Some(true), None][usize::from(copy.mark.min(2))],
        }
    }

    /// What it makes of a record that it is applied to.
    pub fn apply(&self, copy: Copy) -> Outcome {
        let tagged = |n: u64| Copy { id: mix(mix(copy.id, self.salt), n), ..copy };
        if !hits(self.salt, copy.id, self.one_in) {
            return Outcome::Keep(tagged(0));
        }
        match self.action {
            Action::Tag => Outcome::Keep(tagged(1)),
            Action::Set(mark) => Outcome::Keep(Copy { mark, ..tagged(1) }),
            Action::Filter => Outcome::Filter,
            Action::Fail => Outcome::Fail,
            Action::Panic => Outcome::Panic,
            Action::Split { most, .. } => {
                let pieces = mix(copy.id, self.salt ^ 7) % u64::from(most + 1);
                Outcome::Pieces((1..=pieces).map(tagged).collect())
            }
            Action::Clone(copies) => Outcome::Pieces((1..=u64::from(copies)).map(tagged).collect()),
        }
    }

    /// What comes out where it does not panic.
    pub fn unharmed(&self, copy: Copy) -> Copy {
        Copy { id: mix(mix(copy.id, self.salt), 0), ..copy }
    }
}

/// What must become of a row of a source.
pub fn fate(scenario: &Scenario, source: usize, row: Copy) -> Fate {
    let own = named(&format!("s{source}:p"), &scenario.sources[source].steps);
    let steps: Vec<_> = own.into_iter().chain(named("p", &scenario.steps)).collect();
    through(&steps, row, &|copy| {
        let deliver = |(i, sink): (usize, &crate::scenario::Sink)| {
            through(&named(&format!("d{i}:p"), &sink.steps), copy, &|copy| match hits(sink.salt, copy.id, sink.refuses)
            {
                true => Fate::Letter(format!("d{i}"), copy.id, Some(i)),
                false => Fate::Delivered(i, copy.id),
            })
        };
        Fate::All(scenario.sinks.iter().enumerate().map(deliver).collect())
    })
}

fn named<'a>(prefix: &str, steps: &'a [Step]) -> Vec<(String, &'a Step)> {
    steps.iter().enumerate().map(|(i, step)| (format!("{prefix}{i}"), step)).collect()
}

fn through(steps: &[(String, &Step)], copy: Copy, then: &dyn Fn(Copy) -> Fate) -> Fate {
    let Some(((node, step), rest)) = steps.split_first() else { return then(copy) };
    let letter = || Fate::Letter(node.clone(), copy.id, None);
    let go_on = |copy| through(rest, copy, then);
    if step.holds(copy) == Some(false) {
        return go_on(copy);
    }
    let (may_panic, after) = match step.holds(copy).map(|_| step.apply(copy)) {
        None | Some(Outcome::Fail) => return letter(),
        Some(Outcome::Filter) => (false, Fate::Filtered),
        Some(Outcome::Keep(copy)) => (false, go_on(copy)),
        Some(Outcome::Pieces(pieces)) => (false, Fate::All(pieces.into_iter().map(go_on).collect())),
        Some(Outcome::Panic) => (true, go_on(step.unharmed(copy))),
    };
    // A call that waits or has a thread of its own takes other rows with it when it panics.
    let takes_others = step.action == Action::Panic && step.place != Place::Inline;
    if may_panic || takes_others { Fate::Either(Box::new([letter(), after])) } else { after }
}
