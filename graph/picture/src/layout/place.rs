//! Horizontal positions: straight lines, and items as close to their neighbours as the order allows.

use super::{Content, Layers};

const SWEEPS: usize = 12;

/// Returns the centre of every item. O(sweeps × (items + segments)).
pub(super) fn place(layers: &Layers) -> Vec<f64> {
    let mut middles = vec![0.0; layers.items.len()];
    for rank in &layers.ranks {
        let mut x = 0.0;
        for (at, &item) in rank.iter().enumerate() {
            if at > 0 {
                x += layers.apart(rank[at - 1], item);
            }
            middles[item] = x;
        }
        rank.iter().for_each(|item| middles[*item] -= x / 2.0);
    }
    let count = layers.ranks.len();
    for sweep in 0..SWEEPS {
        // The last sweeps consider both sides.
        let both = sweep + 4 >= SWEEPS;
        for step in 0..count {
            let downwards = sweep % 2 == 0;
            let rank = if downwards { step } else { count - 1 - step };
            settle(layers, &layers.ranks[rank], &mut middles, downwards || both, !downwards || both);
        }
    }
    middles
}

/// Adjacent items that move together.
struct Block {
    /// Index of the first item in the rank.
    first: usize,
    /// Preferred position of the first item, and its weight.
    wish: f64,
    weight: f64,
}

/// Places the items of a rank as close as possible to their neighbours above, below or both. The result has the least sum
/// of squares among the placements with the given order and minimum distances.
fn settle(layers: &Layers, rank: &[usize], middles: &mut [f64], above: bool, below: bool) {
    let mut offsets = Vec::with_capacity(rank.len());
    let mut blocks: Vec<Block> = Vec::with_capacity(rank.len());
    let mut offset = 0.0;
    for (at, &item) in rank.iter().enumerate() {
        if at > 0 {
            offset += layers.apart(rank[at - 1], item);
        }
        offsets.push(offset);
        let (wish, weight) = wish(layers, item, middles, above, below);
        blocks.push(Block { first: at, wish: wish - offset, weight });
        // Two blocks that would overlap are merged, at the weighted mean of their preferred positions.
        while let [.., left, right] = &blocks[..]
            && left.wish > right.wish
        {
            let weight = left.weight + right.weight;
            let wish = (left.wish * left.weight + right.wish * right.weight) / weight;
            let first = left.first;
            blocks.pop();
            blocks.pop();
            blocks.push(Block { first, wish, weight });
        }
    }
    for (i, block) in blocks.iter().enumerate() {
        let end = blocks.get(i + 1).map_or(rank.len(), |next| next.first);
        for at in block.first..end {
            middles[rank[at]] = block.wish + offsets[at];
        }
    }
}

/// Returns the preferred position of an item, and its weight.
fn wish(layers: &Layers, item: usize, middles: &[f64], above: bool, below: bool) -> (f64, f64) {
    let (mut sum, mut weights) = (0.0, 0.0);
    let mut pull = |x: f64, weight: f64| {
        sum += x * weight;
        weights += weight;
    };
    let passes = |item: usize| layers.items[item].content == Content::Pass;
    // Long lines should be straight. Otherwise neighbours have equal weight, so that paths which split and join again
    // do so at the same position.
    let weight = |other: usize| if passes(item) && passes(other) { 8.0 } else { 1.0 };
    if above {
        for segment in layers.up[item].iter().map(|segment| &layers.segments[*segment]) {
            pull(middles[segment.from] + segment.leaves - segment.enters, weight(segment.from));
        }
    }
    if below {
        for segment in layers.down[item].iter().map(|segment| &layers.segments[*segment]) {
            // A label is placed above its target.
            let weight = if layers.items[item].content == Content::Label { 8.0 } else { weight(segment.to) };
            pull(middles[segment.to] + segment.enters - segment.leaves, weight);
        }
    }
    // Without neighbours the item keeps its position, with a low weight.
    if weights == 0.0 { (middles[item], 0.05) } else { (sum / weights, weights) }
}
