//! Horizontal order with few crossings.

use super::Layers;

/// Maximum number of consecutive sweeps without an improvement.
const PATIENCE: usize = 4;
const SWEEPS: usize = 24;
/// Maximum width of a rank in which neighbours are swapped one by one.
const TRANSPOSED: usize = 200;

/// Orders every rank. O(sweeps × segments × log width), plus swaps in narrow ranks.
pub(super) fn order(layers: &mut Layers) {
    first(layers);
    let mut best = layers.ranks.clone();
    let mut least = crossings(layers);
    let mut idle = 0;
    for sweep in 0..SWEEPS {
        if least == 0 || idle == PATIENCE {
            break;
        }
        let downwards = sweep % 2 == 0;
        barycenters(layers, downwards);
        transpose(layers);
        let now = crossings(layers);
        idle += 1;
        if now < least {
            least = now;
            best.clone_from(&layers.ranks);
            idle = 0;
        }
    }
    layers.ranks = best;
}

/// Orders ranks by a depth-first walk from the topmost boxes, so that connected items are adjacent.
fn first(layers: &mut Layers) {
    let mut seen = vec![false; layers.items.len()];
    let mut ranks = vec![Vec::new(); layers.ranks.len()];
    let roots: Vec<usize> = (0..layers.items.len()).filter(|item| layers.up[*item].is_empty()).collect();
    let mut stack = Vec::new();
    for root in roots {
        stack.push(root);
        while let Some(item) = stack.pop() {
            if std::mem::replace(&mut seen[item], true) {
                continue;
            }
            ranks[layers.items[item].rank].push(item);
            stack.extend(layers.down[item].iter().rev().map(|segment| layers.segments[*segment].to));
        }
    }
    layers.ranks = ranks;
}

/// Sorts every rank by the mean position of each item's neighbours in the previous rank.
fn barycenters(layers: &mut Layers, downwards: bool) {
    let mut positions = layers.positions();
    let count = layers.ranks.len();
    for step in 1..count {
        let rank = if downwards { step } else { count - 1 - step };
        let middle = |item: usize| {
            let segments = if downwards { &layers.up[item] } else { &layers.down[item] };
            let ends = segments.iter().map(|segment| {
                let segment = &layers.segments[*segment];
                positions[if downwards { segment.from } else { segment.to }]
            });
            let sum: usize = ends.sum();
            // An item without neighbours keeps its position.
            if segments.is_empty() { positions[item] as f64 } else { sum as f64 / segments.len() as f64 }
        };
        let mut keyed: Vec<(f64, usize)> = layers.ranks[rank].iter().map(|item| (middle(*item), *item)).collect();
        keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (position, (_, item)) in keyed.iter().enumerate() {
            positions[*item] = position;
        }
        layers.ranks[rank] = keyed.into_iter().map(|(_, item)| item).collect();
    }
}

/// Swaps neighbours as long as that reduces crossings.
fn transpose(layers: &mut Layers) {
    let mut positions = layers.positions();
    for _ in 0..8 {
        let mut better = false;
        for rank in 0..layers.ranks.len() {
            if layers.ranks[rank].len() > TRANSPOSED {
                continue;
            }
            for at in 1..layers.ranks[rank].len() {
                let (left, right) = (layers.ranks[rank][at - 1], layers.ranks[rank][at]);
                if between(layers, &positions, left, right) > between(layers, &positions, right, left) {
                    layers.ranks[rank].swap(at - 1, at);
                    positions.swap(left, right);
                    better = true;
                }
            }
        }
        if !better {
            break;
        }
    }
}

/// Returns the crossings of the lines of two neighbours if `left` is to the left of `right`.
fn between(layers: &Layers, positions: &[usize], left: usize, right: usize) -> usize {
    let mut count = 0;
    for (ends, upwards) in [(&layers.up, true), (&layers.down, false)] {
        let position = |segment: usize| {
            let segment = &layers.segments[segment];
            positions[if upwards { segment.from } else { segment.to }]
        };
        for l in &ends[left] {
            count += ends[right].iter().filter(|r| position(**r) < position(*l)).count();
        }
    }
    count
}

/// Returns the number of crossings of all lines. O(segments × log width).
pub(super) fn crossings(layers: &Layers) -> usize {
    let positions = layers.positions();
    let mut count = 0;
    for (rank, items) in layers.ranks.iter().enumerate() {
        let width = layers.ranks.get(rank + 1).map_or(0, Vec::len);
        // A binary indexed tree over the positions in the rank below.
        let mut tree = vec![0usize; width + 1];
        let mut seen = 0;
        for item in items {
            let mut ends: Vec<usize> =
                layers.down[*item].iter().map(|segment| positions[layers.segments[*segment].to]).collect();
            ends.sort_unstable();
            for &end in &ends {
                let (mut at, mut before) = (end + 1, 0);
                while at > 0 {
                    before += tree[at];
                    at &= at - 1;
                }
                count += seen - before;
            }
            for end in ends {
                let mut at = end + 1;
                while at <= width {
                    tree[at] += 1;
                    at += at & at.wrapping_neg();
                }
                seen += 1;
            }
        }
    }
    count
}
