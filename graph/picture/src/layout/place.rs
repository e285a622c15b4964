//! How far to the right: straight lines, everything as near to its neighbours as the order allows.

use super::{Content, Layers};

const SWEEPS: usize = 12;

/// The middle of every item. O(sweeps × (items + segments)).
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
        // The last sweeps look at both sides.
        let both = sweep + 4 >= SWEEPS;
        for step in 0..count {
            let downwards = sweep % 2 == 0;
            let rank = if downwards { step } else { count - 1 - step };
            settle(layers, &layers.ranks[rank], &mut middles, downwards || both, !downwards || both);
        }
    }
    middles
}

/// Items that touch each other and move as one.
struct Block {
    /// Index of its first item in the rank.
    first: usize,
    /// Where its first item wants to be, and how much.
    wish: f64,
    weight: f64,
}

/// Places a rank as near as possible to the neighbours above, below or both: the least sum of squares that keeps
/// order and distances.
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
        // Two blocks that would overlap become one, between their wishes.
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

/// Where an item wants to be, and how much.
fn wish(layers: &Layers, item: usize, middles: &[f64], above: bool, below: bool) -> (f64, f64) {
    let (mut sum, mut weights) = (0.0, 0.0);
    let mut pull = |x: f64, weight: f64| {
        sum += x * weight;
        weights += weight;
    };
    let passes = |item: usize| layers.items[item].content == Content::Pass;
    // Long lines should be straight; apart from that, neighbours pull alike, so that ways which part and meet again
    // do so in the same place.
    let weight = |other: usize| if passes(item) && passes(other) { 8.0 } else { 1.0 };
    if above {
        for segment in layers.up[item].iter().map(|segment| &layers.segments[*segment]) {
            pull(middles[segment.from] + segment.leaves - segment.enters, weight(segment.from));
        }
    }
    if below {
        for segment in layers.down[item].iter().map(|segment| &layers.segments[*segment]) {
            // A label stands above what it leads to.
            let weight = if layers.items[item].content == Content::Label { 8.0 } else { weight(segment.to) };
            pull(middles[segment.to] + segment.enters - segment.leaves, weight);
        }
    }
    // Without a neighbour there it stays, but gives way easily.
    if weights == 0.0 { (middles[item], 0.05) } else { (sum / weights, weights) }
}
