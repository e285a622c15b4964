//! The decision of a node at a tick: it takes or asks for units, so that all nodes have about the same number. A pure
//! function of the view.
//!
//! Nodes see the same rows, but not at the same time. Two nodes that decide from the same view never take more than there
//! is, because the store gives each unit to one of them. They may ask for more units than needed; a unit is asked for
//! once, and then the next view shows it.
//!
//! ```
//! use anabranch_cluster::balance::{Steps, steps};
//! use anabranch_cluster::{History, NodeId, NodeLoad, View};
//!
//! let load = |id, units| NodeLoad { id: NodeId(id), units, is_leaving: false };
//! let view = View {
//!     history: History("1".into()),
//!     nodes: vec![load(1, 10), load(2, 0)],
//!     held: Vec::new(),
//!     units: 10,
//!     free: 0,
//!     labelled: 0,
//!     asked: 0,
//!     revision: 1,
//! };
//! // Node 1 has all units: node 2 asks for half of them.
//! assert_eq!(steps(NodeId(2), &view), Steps { take: 0, ask: Some((NodeId(1), 5)) });
//! ```

use crate::lease::{NodeId, View};

/// Maximum number of units that a node takes at one tick, so that nodes which start together share them.
pub const TAKEN: usize = 64;
/// Maximum number of units that a node has asked for and not received.
pub const ASKED: usize = 8;

/// The steps of a node at a tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// Maximum number of free units that it takes.
    pub take: usize,
    /// The node that it asks for units, and for how many.
    pub ask: Option<(NodeId, usize)>,
}

/// Decides what the node does. O(nodes).
///
/// A node takes free units up to its fair share, which is rounded up: then the shares of the nodes that stay suffice for
/// all units, so no unit stays free. It asks only if that brings the loads nearer to each other, so loads that differ by
/// one stay as they are. Free units with a label are taken in any case: it may be the only node that can.
pub fn steps(me: NodeId, view: &View) -> Steps {
    let staying = || view.nodes.iter().filter(|node| !node.is_leaving);
    if !staying().any(|node| node.id == me) {
        return Steps::default();
    }
    let share = view.units.div_ceil(staying().count());
    // Units that others have asked for are about to leave; those that this node has asked for are about to come.
    let mine = view.held.iter().filter(|held| !held.is_wanted).count() + view.asked;
    if view.free > 0 {
        let due = share.saturating_sub(mine).max(view.labelled);
        return Steps { take: due.min(view.free).min(TAKEN), ask: None };
    }
    let fullest = staying().filter(|node| node.id != me).max_by_key(|node| (node.units, node.id));
    let ask = fullest.and_then(|fullest| {
        let surplus = fullest.units.saturating_sub(mine) / 2;
        let count = surplus.min(ASKED.saturating_sub(view.asked));
        (count > 0).then_some((fullest.id, count))
    });
    Steps { take: 0, ask }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::{HeldUnit, History, NodeLoad};
    use anabranch_plugin::state::Unit;

    /// The rows of nodes and units. A unit has an owner and a node that has asked for it.
    struct Rows {
        nodes: Vec<(NodeId, bool)>,
        units: Vec<(Option<NodeId>, Option<NodeId>)>,
    }

    impl Rows {
        fn view(&self, me: NodeId) -> View {
            let held = |id| self.units.iter().filter(move |(owner, _)| *owner == Some(id));
            View {
                history: History("1".into()),
                nodes: (self.nodes.iter())
                    .map(|(id, is_leaving)| NodeLoad {
                        id: *id,
                        units: held(*id).filter(|(_, wanted)| wanted.is_none()).count(),
                        is_leaving: *is_leaving,
                    })
                    .collect(),
                held: (self.units.iter().enumerate())
                    .filter(|(_, (owner, _))| *owner == Some(me))
                    .map(|(slot, (_, wanted))| HeldUnit {
                        unit: Unit { pipeline: "p".into(), slot: slot as u32 },
                        of: 1,
                        is_ending: false,
                        is_wanted: wanted.is_some(),
                    })
                    .collect(),
                units: self.units.len(),
                free: self.units.iter().filter(|(owner, _)| owner.is_none()).count(),
                labelled: 0,
                asked: self.units.iter().filter(|(owner, by)| *by == Some(me) && *owner != Some(me)).count(),
                revision: 1,
            }
        }

        /// One tick of every node, in a random order; each wanted unit is handed over.
        fn tick(&mut self, random: &mut fastrand::Rng) {
            let mut order: Vec<NodeId> = self.nodes.iter().map(|(id, _)| *id).collect();
            random.shuffle(&mut order);
            for me in order {
                let Steps { take, ask } = steps(me, &self.view(me));
                self.units.iter_mut().filter(|unit| unit.0.is_none()).take(take).for_each(|unit| unit.0 = Some(me));
                if let Some((of, count)) = ask {
                    let asked = self.units.iter_mut().filter(|unit| **unit == (Some(of), None)).take(count);
                    asked.for_each(|unit| unit.1 = Some(me));
                }
            }
            let leaving: Vec<NodeId> = self.nodes.iter().filter(|(_, leaves)| *leaves).map(|(id, _)| *id).collect();
            for unit in &mut self.units {
                match *unit {
                    (Some(_), Some(heir)) => *unit = (Some(heir), None),
                    (Some(owner), None) if leaving.contains(&owner) => *unit = (None, None),
                    _ => {}
                }
            }
        }

        fn loads(&self) -> Vec<usize> {
            let load = |id| self.units.iter().filter(|(owner, _)| *owner == Some(id)).count();
            self.nodes.iter().filter(|(_, is_leaving)| !is_leaving).map(|(id, _)| load(*id)).collect()
        }
    }

    #[test]
    fn nodes_that_come_and_go_have_equal_shares_soon() {
        for seed in 0..200 {
            let random = &mut fastrand::Rng::with_seed(seed);
            let mut rows = Rows { nodes: vec![(NodeId(0), false)], units: vec![(None, None); random.usize(0..300)] };
            for next in 1..20 {
                match random.u32(0..3) {
                    0 if rows.nodes.len() > 1 => {
                        let gone = rows.nodes.swap_remove(random.usize(0..rows.nodes.len())).0;
                        for unit in &mut rows.units {
                            unit.0 = unit.0.filter(|owner| *owner != gone);
                            unit.1 = unit.1.filter(|by| *by != gone);
                        }
                    }
                    1 if rows.nodes.iter().filter(|(_, leaves)| !leaves).count() > 1 => {
                        let leaving = random.usize(0..rows.nodes.len());
                        rows.nodes[leaving].1 = true;
                    }
                    _ => rows.nodes.push((NodeId(next), false)),
                }
                if rows.nodes.iter().all(|(_, leaves)| *leaves) {
                    rows.nodes.push((NodeId(next + 100), false));
                }
                for _ in 0..rows.units.len() / ASKED + rows.nodes.len() + 8 {
                    rows.tick(random);
                }
                let loads = rows.loads();
                let (least, most) = (loads.iter().min().unwrap(), loads.iter().max().unwrap());
                assert!(most - least <= 1, "seed {seed}: {loads:?}");
                assert_eq!(loads.iter().sum::<usize>(), rows.units.len(), "seed {seed}: {loads:?}");
                let before: Vec<_> = rows.units.clone();
                rows.tick(random);
                assert_eq!(rows.units, before, "seed {seed}: units move although the loads are equal");
            }
        }
    }

    #[test]
    fn a_node_that_the_others_do_not_see_does_nothing() {
        let rows = Rows { nodes: vec![(NodeId(1), false)], units: vec![(None, None); 3] };
        assert_eq!(steps(NodeId(2), &rows.view(NodeId(2))), Steps::default());
        let rows = Rows { nodes: vec![(NodeId(1), true)], units: vec![(None, None); 3] };
        assert_eq!(steps(NodeId(1), &rows.view(NodeId(1))), Steps::default());
    }
}
