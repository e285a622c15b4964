//! Positions of boxes and lines: a layered drawing from top to bottom.
//!
//! ```text
//! rank ──► split long lines at every rank ──► order each rank ──► place along the rank ──► draw the lines
//! ```
//!
//! Ranks are horizontal bands that contain only boxes and the straight segments of lines between them; lines bend only
//! between bands. Therefore a line never crosses an unrelated box, and two lines cross only because of the order in
//! adjacent ranks.

mod order;
mod place;
mod rank;
#[cfg(test)]
mod tests;

/// Space between neighbours in a rank, for boxes and for lines.
const BOX_GAP: f64 = 28.0;
const LINE_GAP: f64 = 14.0;
/// Minimum and maximum space between ranks. It grows with the horizontal distance that lines cover.
const RANK_GAP: f64 = 40.0;
const MOST_RANK_GAP: f64 = 110.0;

/// The size of a box.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Size {
    pub(super) width: f64,
    pub(super) height: f64,
}

/// A line from the lower edge of a box to the upper edge of another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) from: usize,
    pub(super) to: usize,
    /// Size of the label.
    pub(super) label: Option<Size>,
}

/// A rectangle; `x` and `y` are its upper left corner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rect {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// A point of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
}

/// Route of a line: vertical in each piece, curved between pieces.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Route {
    /// Vertical pieces, from top to bottom.
    pub(super) pieces: Vec<(Point, Point)>,
    /// Position of the label.
    pub(super) label: Option<Rect>,
}

/// A finished drawing.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) size: Size,
    /// Positions of the boxes, in input order.
    pub(super) boxes: Vec<Rect>,
    /// Routes of the links, in input order.
    pub(super) routes: Vec<Route>,
}

/// Content of an item in a rank: a box, a label, or a line that passes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Box,
    Label,
    Pass,
}

#[derive(Clone, Copy, Debug)]
struct Item {
    content: Content,
    size: Size,
    rank: usize,
}

/// A line from one rank to the next, with the offsets of its ends from the centres of their items.
#[derive(Clone, Copy, Debug)]
struct Segment {
    from: usize,
    to: usize,
    leaves: f64,
    enters: f64,
}

/// The graph with every line cut into segments between adjacent ranks.
struct Layers {
    items: Vec<Item>,
    segments: Vec<Segment>,
    /// Items of each rank, from left to right.
    ranks: Vec<Vec<usize>>,
    /// Items of each link, from its first box to its last.
    chains: Vec<Vec<usize>>,
    /// Segments of each item, upwards and downwards.
    up: Vec<Vec<usize>>,
    down: Vec<Vec<usize>>,
}

/// Lays out an acyclic graph. O(ranks × lines) in the worst case. Links of unknown boxes, and links that would close a
/// cycle, get no route.
pub(super) fn layout(boxes: &[Size], links: &[Link]) -> Layout {
    let sound = |link: &Link| link.from < boxes.len() && link.to < boxes.len() && link.from != link.to;
    let links: Vec<Option<Link>> = links.iter().map(|link| Some(*link).filter(sound)).collect();
    let ranks = rank::ranks(boxes.len(), &links);
    let mut layers = Layers::new(boxes, &links, &ranks);
    order::order(&mut layers);
    layers.spread_ends();
    let middles = place::place(&layers);
    layers.drawn(boxes.len(), &middles)
}

impl Layers {
    fn new(boxes: &[Size], links: &[Option<Link>], ranks: &[usize]) -> Self {
        let mut items: Vec<Item> = boxes
            .iter()
            .zip(ranks)
            .map(|(size, rank)| Item { content: Content::Box, size: *size, rank: *rank })
            .collect();
        let mut segments = Vec::new();
        let mut chains = Vec::with_capacity(links.len());
        for link in links {
            let Some(link) = link.filter(|link| ranks[link.from] < ranks[link.to]) else {
                chains.push(Vec::new());
                continue;
            };
            let mut chain = vec![link.from];
            // A label is in the first rank below its box, where it is clearest which line it belongs to.
            let mut label = link.label;
            for rank in ranks[link.from] + 1..ranks[link.to] {
                let (content, size) = match label.take() {
                    Some(size) => (Content::Label, size),
                    None => (Content::Pass, Size::default()),
                };
                chain.push(items.len());
                items.push(Item { content, size, rank });
            }
            chain.push(link.to);
            segments.extend(chain.windows(2).map(|ends| Segment {
                from: ends[0],
                to: ends[1],
                leaves: 0.0,
                enters: 0.0,
            }));
            chains.push(chain);
        }
        let (mut up, mut down) = (vec![Vec::new(); items.len()], vec![Vec::new(); items.len()]);
        for (i, segment) in segments.iter().enumerate() {
            down[segment.from].push(i);
            up[segment.to].push(i);
        }
        let mut layers = Layers { items, segments, ranks: Vec::new(), chains, up, down };
        layers.ranks = vec![Vec::new(); layers.items.iter().map(|item| item.rank + 1).max().unwrap_or(0)];
        for (index, item) in layers.items.iter().enumerate() {
            layers.ranks[item.rank].push(index);
        }
        layers
    }

    fn positions(&self) -> Vec<usize> {
        let mut positions = vec![0; self.items.len()];
        for rank in &self.ranks {
            for (position, item) in rank.iter().enumerate() {
                positions[*item] = position;
            }
        }
        positions
    }

    /// Distributes the ends of lines along the edges of their boxes, in the order of their other ends.
    fn spread_ends(&mut self) {
        let positions = self.positions();
        for item in 0..self.items.len() {
            if self.items[item].content != Content::Box {
                continue;
            }
            let room = self.items[item].size.width;
            let mut ends = self.down[item].clone();
            ends.sort_by_key(|segment| positions[self.segments[*segment].to]);
            for (at, segment) in spread(room, ends.len()).zip(ends) {
                self.segments[segment].leaves = at;
            }
            let mut ends = self.up[item].clone();
            ends.sort_by_key(|segment| positions[self.segments[*segment].from]);
            for (at, segment) in spread(room, ends.len()).zip(ends) {
                self.segments[segment].enters = at;
            }
        }
    }

    /// Returns the minimum distance of the centres of two neighbours in a rank.
    fn apart(&self, left: usize, right: usize) -> f64 {
        let (left, right) = (&self.items[left], &self.items[right]);
        let gap = match (left.content, right.content) {
            (Content::Box, Content::Box) => BOX_GAP,
            (Content::Pass, Content::Pass) => LINE_GAP,
            _ => (BOX_GAP + LINE_GAP) / 2.0,
        };
        (left.size.width + right.size.width) / 2.0 + gap
    }

    fn drawn(&self, boxes: usize, middles: &[f64]) -> Layout {
        let edge = |sign: f64| middles.iter().zip(&self.items).map(move |(x, item)| x + sign * item.size.width / 2.0);
        let left = edge(-1.0).fold(f64::INFINITY, f64::min);
        let left = if left.is_finite() { left } else { 0.0 };
        let width = edge(1.0).fold(0.0, |most: f64, right| most.max(right - left));
        let x = |item: usize| middles[item] - left;

        let mut sideways = vec![0.0_f64; self.ranks.len()];
        for segment in &self.segments {
            let way = (x(segment.from) + segment.leaves - x(segment.to) - segment.enters).abs();
            let most = &mut sideways[self.items[segment.from].rank];
            *most = most.max(way);
        }
        let mut tops = Vec::with_capacity(self.ranks.len());
        let mut bottoms = Vec::with_capacity(self.ranks.len());
        let mut y = 0.0;
        for (rank, items) in self.ranks.iter().enumerate() {
            let height = items.iter().map(|item| self.items[*item].size.height).fold(0.0, f64::max);
            tops.push(y);
            bottoms.push(y + height);
            // Around a rank that contains only labels, lines need less space to bend.
            let labels = |rank: usize| {
                self.ranks
                    .get(rank)
                    .is_some_and(|items| items.iter().all(|item| self.items[*item].content != Content::Box))
            };
            let least = if labels(rank) || labels(rank + 1) { RANK_GAP * 0.55 } else { RANK_GAP };
            y += height + (sideways[rank] * 0.22).clamp(least, MOST_RANK_GAP);
        }
        let height = bottoms.last().copied().unwrap_or(0.0);

        let rect = |item: usize| {
            let Item { content, size, rank } = self.items[item];
            // Boxes are aligned to the top of their rank, labels to its middle.
            let lower = match content {
                Content::Box => 0.0,
                Content::Label | Content::Pass => (bottoms[rank] - tops[rank] - size.height) / 2.0,
            };
            Rect { x: x(item) - size.width / 2.0, y: tops[rank] + lower, width: size.width, height: size.height }
        };
        let mut next = 0;
        let routes = self.chains.iter().map(|chain| {
            let mut route = Route::default();
            let mut enters = 0.0;
            for (place, &item) in chain.iter().enumerate() {
                let Item { content, rank, .. } = self.items[item];
                let rect = rect(item);
                let (first, last) = (place == 0, place + 1 == chain.len());
                let segment = (!last).then(|| self.segments[next + place]);
                let at = if first { segment.map_or(0.0, |s| s.leaves) } else { enters };
                let line_x = x(item) + at;
                let from = if first { rect.y + rect.height } else { tops[rank] };
                let to = if last { rect.y } else { bottoms[rank] };
                route.pieces.push((Point { x: line_x, y: from }, Point { x: line_x, y: to }));
                if content == Content::Label {
                    route.label = Some(rect);
                }
                enters = segment.map_or(0.0, |s| s.enters);
            }
            next += chain.len().saturating_sub(1);
            route
        });
        let routes = routes.collect();
        Layout { size: Size { width, height }, boxes: (0..boxes).map(rect).collect(), routes }
    }
}

/// Returns offsets from the middle of an edge for `n` ends.
fn spread(room: f64, n: usize) -> impl Iterator<Item = f64> {
    let step = if n < 2 { 0.0 } else { (room * 0.7 / (n - 1) as f64).min(LINE_GAP * 2.5) };
    (0..n).map(move |i| (i as f64 - (n.saturating_sub(1)) as f64 / 2.0) * step)
}
