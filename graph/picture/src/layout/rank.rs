//! Assignment of boxes to ranks.

use super::Link;

/// Assigns a rank to each of `n` boxes, such that every link leads down: one rank, or two if it has a label. Links that
/// would close a cycle are ignored. Two passes of O(n + links).
pub(super) fn ranks(n: usize, links: &[Option<Link>]) -> Vec<usize> {
    let mut down: Vec<Vec<(usize, usize)>> = vec![Vec::new(); n];
    let mut waiting = vec![0usize; n];
    for link in links.iter().flatten() {
        down[link.from].push((link.to, 1 + usize::from(link.label.is_some())));
        waiting[link.to] += 1;
    }
    // First pass: as high as possible.
    let mut ranks = vec![0usize; n];
    let mut order: Vec<usize> = (0..n).filter(|node| waiting[*node] == 0).collect();
    let entering = waiting.clone();
    let mut done = 0;
    while let Some(&node) = order.get(done) {
        done += 1;
        for &(to, length) in &down[node] {
            ranks[to] = ranks[to].max(ranks[node] + length);
            waiting[to] -= 1;
            if waiting[to] == 0 {
                order.push(to);
            }
        }
    }
    // Second pass: move boxes down towards their targets if that makes no line longer. Short branches are then next to
    // their targets.
    for &node in order.iter().rev() {
        let lowest = down[node].iter().map(|(to, length)| ranks[*to].saturating_sub(*length)).min();
        if let Some(lowest) = lowest
            && down[node].len() >= entering[node]
        {
            ranks[node] = ranks[node].max(lowest);
        }
    }
    ranks
}
