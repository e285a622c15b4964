//! A picture with positions for all its parts, for the drawing formats.

use super::layout::{Link, Point, Rect, Route, Size, layout};
use super::typeface::Font;
use super::{DEAD_LETTER, Picture, PictureEdge, PictureNode, one_line};
use anabranch_graph::plan::graph::Port;

/// Maximum numbers of characters of a name and a condition in a box.
const NAME: usize = 36;
const CONDITION: usize = 40;
/// Maximum number of characters of a record shape.
const RECORDS: usize = 110;

const PADDING: f64 = 12.0;
const LEAST_WIDTH: f64 = 132.0;
const STAGE_PADDING: f64 = 12.0;
const STAGE_TITLE: f64 = 26.0;
/// Gap between the steps of a stage.
const STEP_GAP: f64 = 16.0;
/// Width at which a label is wrapped.
const LABEL_WIDTH: f64 = 230.0;
const RECORDS_WIDTH: f64 = 300.0;
const LABEL_PADDING: f64 = 7.0;
/// Sizes of areas that a page fills in: in a box, on a line between two stages, and between the steps of a stage.
const LIVE_WIDTH: f64 = 196.0;
const FLOW: Size = Size { width: 128.0, height: 20.0 };
const FLOW_GAP: f64 = 28.0;

/// Purpose of a drawing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Purpose {
    /// For reading as it is.
    Print,
    /// For a page that fills in the current activity of a run.
    Live,
}

/// Role of a text in the drawing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Role {
    /// The name of a node.
    Name,
    /// Its plugin or kind.
    Kind,
    /// Condition of a node.
    Condition,
    /// Number of workers and settings.
    Detail,
    /// Measurements of a node.
    Measure,
    /// Text that a page fills in.
    Live,
    /// The title of a stage.
    Stage,
    /// Label of a line.
    Label,
    /// Shape of the records of a line.
    Records,
}

impl Role {
    pub(super) fn face(self) -> Font {
        match self {
            Role::Name => Font::Bold,
            Role::Condition | Role::Records => Font::Mono,
            Role::Kind | Role::Detail | Role::Measure | Role::Live | Role::Stage | Role::Label => Font::Regular,
        }
    }

    /// Returns the font size in pixels.
    pub(super) fn size(self) -> f64 {
        match self {
            Role::Name => 13.0,
            Role::Kind => 12.0,
            Role::Condition => 10.5,
            Role::Records => 10.0,
            Role::Detail | Role::Measure | Role::Live | Role::Stage | Role::Label => 11.0,
        }
    }

    /// Returns the line height in pixels.
    pub(super) fn leading(self) -> f64 {
        match self {
            Role::Name => 18.0,
            Role::Kind => 16.0,
            Role::Live => 19.0,
            Role::Condition | Role::Detail | Role::Measure | Role::Stage => 15.0,
            Role::Label | Role::Records => 14.0,
        }
    }

    pub(super) fn class(self) -> &'static str {
        match self {
            Role::Name => "name",
            Role::Kind => "kind",
            Role::Condition => "condition",
            Role::Detail => "detail",
            Role::Measure => "measure",
            Role::Live => "live",
            Role::Stage => "title",
            Role::Label => "label",
            Role::Records => "records",
        }
    }
}

/// A line of text.
#[derive(Clone, Debug)]
pub(super) struct FigureText {
    pub(super) role: Role,
    pub(super) text: String,
}

impl FigureText {
    fn new(role: Role, text: impl Into<String>) -> Self {
        FigureText { role, text: text.into() }
    }

    fn width(&self) -> f64 {
        self.role.face().width(&self.text, self.role.size())
    }
}

/// A node.
pub(super) struct Card {
    /// Index in the picture.
    pub(super) index: usize,
    pub(super) rect: Rect,
    pub(super) texts: Vec<FigureText>,
    /// True if failed records leave here for the dead-letter queue.
    pub(super) fails: bool,
}

/// A stage around its nodes.
pub(super) struct Frame {
    pub(super) id: usize,
    pub(super) rect: Rect,
    pub(super) title: FigureText,
}

/// A line between two nodes.
pub(super) struct Arrow {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) port: Port,
    /// True if it connects two stages.
    pub(super) cut: bool,
    pub(super) pieces: Vec<(Point, Point)>,
    pub(super) label: Option<(Rect, Vec<FigureText>)>,
}

/// The drawing of the paths of records. The dead-letter queue is not included; a mark on a card stands for the edge of
/// failed records.
pub(super) struct Figure {
    pub(super) size: Size,
    pub(super) cards: Vec<Card>,
    pub(super) frames: Vec<Frame>,
    pub(super) arrows: Vec<Arrow>,
}

/// A node without a position.
struct UnplacedNode {
    index: usize,
    texts: Vec<FigureText>,
    size: Size,
}

impl Figure {
    pub(super) fn of(picture: &Picture<'_>, purpose: Purpose) -> Self {
        let drafts: Vec<Option<UnplacedNode>> =
            picture.nodes.iter().map(|node| UnplacedNode::of(node, picture, purpose)).collect();
        match picture.stages.is_empty() {
            true => Figure::graph(picture, drafts, purpose),
            false => Figure::stages(picture, drafts, purpose),
        }
    }

    /// Draws every node as a separate box.
    fn graph(picture: &Picture<'_>, drafts: Vec<Option<UnplacedNode>>, purpose: Purpose) -> Self {
        let sizes: Vec<Size> = drafts.iter().flatten().map(|draft| draft.size).collect();
        let mut places = vec![None; drafts.len()];
        for (place, draft) in drafts.iter().flatten().enumerate() {
            places[draft.index] = Some(place);
        }
        let ways: Vec<&PictureEdge> = picture.ways().collect();
        let labels: Vec<_> = ways.iter().map(|line| label(line, purpose)).collect();
        let link = |(line, label): (&&PictureEdge, &Option<(Size, Vec<FigureText>)>)| Link {
            from: places[line.from].unwrap_or(usize::MAX),
            to: places[line.to].unwrap_or(usize::MAX),
            label: label.as_ref().map(|(size, _)| *size),
        };
        let links: Vec<Link> = ways.iter().zip(&labels).map(link).collect();
        let drawn = layout(&sizes, &links);
        let arrows = routed(ways, labels, drawn.routes).collect();
        let cards = drafts.into_iter().flatten().zip(drawn.boxes).map(|(draft, rect)| draft.at(rect, picture));
        Figure { size: drawn.size, cards: cards.collect(), frames: Vec::new(), arrows }
    }

    /// Draws every stage as a box, with its steps from top to bottom.
    fn stages(picture: &Picture<'_>, mut drafts: Vec<Option<UnplacedNode>>, purpose: Purpose) -> Self {
        let titles: Vec<FigureText> =
            picture.stages.iter().map(|stage| FigureText::new(Role::Stage, stage.title('×'))).collect();
        // Labels below each step, inside its stage.
        let mut stage_of = vec![usize::MAX; drafts.len()];
        for stage in &picture.stages {
            stage.nodes.iter().for_each(|node| stage_of[*node] = stage.id);
        }
        let (inside, between): (Vec<&PictureEdge>, Vec<&PictureEdge>) =
            picture.ways().partition(|line| stage_of[line.from] == stage_of[line.to]);
        let mut below: Vec<Option<(Size, Vec<FigureText>)>> = drafts.iter().map(|_| None).collect();
        for line in &inside {
            below[line.from] = label(line, purpose);
        }
        let gap = |node: usize| match &below[node] {
            _ if purpose == Purpose::Live => FLOW_GAP,
            Some((size, _)) => size.height + 2.0 * STEP_GAP,
            None => STEP_GAP,
        };
        let sizes: Vec<Size> = picture
            .stages
            .iter()
            .zip(&titles)
            .map(|(stage, title)| {
                let steps = || stage.nodes.iter().filter_map(|node| drafts[*node].as_ref());
                let said = stage.nodes.iter().filter_map(|node| below[*node].as_ref()).map(|(size, _)| size.width);
                let width = steps().map(|draft| draft.size.width).chain(said).fold(title.width(), f64::max);
                let heights: f64 = steps().map(|draft| draft.size.height).sum();
                let gaps: f64 = stage.nodes.iter().rev().skip(1).map(|node| gap(*node)).sum();
                Size { width: width + 2.0 * STAGE_PADDING, height: STAGE_TITLE + heights + gaps + STAGE_PADDING }
            })
            .collect();
        let labels: Vec<_> = between.iter().map(|line| label(line, purpose)).collect();
        let link = |(line, label): (&&PictureEdge, &Option<(Size, Vec<FigureText>)>)| Link {
            from: stage_of[line.from],
            to: stage_of[line.to],
            label: label.as_ref().map(|(size, _)| *size),
        };
        let links: Vec<Link> = between.iter().zip(&labels).map(link).collect();
        let drawn = layout(&sizes, &links);

        let mut cards = Vec::with_capacity(drafts.len());
        let mut frames = Vec::with_capacity(titles.len());
        let mut rects = vec![None; drafts.len()];
        for ((stage, title), rect) in picture.stages.iter().zip(titles).zip(&drawn.boxes) {
            let mut y = rect.y + STAGE_TITLE;
            for node in &stage.nodes {
                let Some(draft) = drafts[*node].take() else { continue };
                let (x, width, height) = (rect.x + STAGE_PADDING, rect.width - 2.0 * STAGE_PADDING, draft.size.height);
                let place = Rect { x, y, width, height };
                rects[*node] = Some(place);
                cards.push(draft.at(place, picture));
                y += height + gap(*node);
            }
            frames.push(Frame { id: stage.id, rect: *rect, title });
        }
        let mut arrows: Vec<Arrow> = Vec::with_capacity(inside.len() + between.len());
        for line in inside {
            let (Some(above), Some(under)) = (rects[line.from], rects[line.to]) else { continue };
            let x = above.x + above.width / 2.0;
            let (top, bottom) = (above.y + above.height, under.y);
            let label = below[line.from].take().map(|(Size { width, height }, texts)| {
                (Rect { x: x - width / 2.0, y: f64::midpoint(top, bottom) - height / 2.0, width, height }, texts)
            });
            let piece = (Point { x, y: top }, Point { x, y: bottom });
            arrows.push(Arrow {
                from: line.from,
                to: line.to,
                port: line.port,
                cut: false,
                pieces: vec![piece],
                label,
            });
        }
        arrows.extend(routed(between, labels, drawn.routes));
        Figure { size: drawn.size, cards, frames, arrows }
    }
}

/// Returns the arrows of lines along the routes that the layout chose.
fn routed(
    lines: Vec<&PictureEdge>,
    labels: Vec<Option<(Size, Vec<FigureText>)>>,
    routes: Vec<Route>,
) -> impl Iterator<Item = Arrow> {
    lines.into_iter().zip(labels).zip(routes).map(|((line, label), route)| Arrow {
        from: line.from,
        to: line.to,
        port: line.port,
        cut: line.cut.is_some(),
        pieces: route.pieces,
        label: route.label.zip(label.map(|(_, texts)| texts)),
    })
}

impl UnplacedNode {
    fn of(node: &PictureNode<'_>, picture: &Picture<'_>, purpose: Purpose) -> Option<Self> {
        if node.kind == DEAD_LETTER {
            return None;
        }
        let mut texts = Vec::new();
        let name = one_line(node.id, NAME, "…");
        match node.plugin {
            Some(plugin) => {
                texts.push(FigureText::new(Role::Name, name));
                let plugin = one_line(plugin, NAME, "…");
                let kind = match node.kind {
                    "processor" | "split" => plugin,
                    kind => format!("{kind} · {plugin}"),
                };
                texts.push(FigureText::new(Role::Kind, kind));
            }
            None if node.kind == "branch" => texts.push(FigureText::new(Role::Name, name)),
            None => {
                texts.push(FigureText::new(Role::Kind, node.kind));
            }
        }
        match &node.condition {
            Some(terms) if terms.as_before => texts.push(FigureText::new(Role::Condition, "for the same records")),
            Some(terms) => {
                texts.push(FigureText::new(
                    Role::Condition,
                    format!("{} {}", node.verb(), one_line(bare(terms.text), CONDITION, "…")),
                ));
            }
            None => {}
        }
        if node.kind == "route" {
            texts
                .extend(node.notes.iter().map(|note| FigureText::new(Role::Condition, one_line(note, CONDITION, "…"))));
        }
        let mut details = Vec::new();
        if let Some(workers) = node.workers.filter(|workers| *workers > 1 && picture.stages.is_empty()) {
            details.push(format!("{workers} workers"));
        }
        match node.settings.len() {
            0 => {}
            1 => details.push("1 setting".to_owned()),
            n => details.push(format!("{n} settings")),
        }
        if purpose == Purpose::Live {
            texts.push(FigureText::new(Role::Live, ""));
        } else if !details.is_empty() {
            texts.push(FigureText::new(Role::Detail, details.join(" · ")));
        }
        texts.extend(node.measured.iter().flat_map(|measured| {
            [measured.rows(), measured.cost()].into_iter().map(|text| FigureText::new(Role::Measure, text))
        }));
        let width = texts.iter().map(FigureText::width).fold(0.0, f64::max) + 2.0 * PADDING;
        let least = match (purpose, node.plugin) {
            (Purpose::Live, _) => LIVE_WIDTH,
            (Purpose::Print, Some(_)) => LEAST_WIDTH,
            (Purpose::Print, None) => 0.0,
        };
        let height = texts.iter().map(|text| text.role.leading()).sum::<f64>() + 16.0;
        Some(UnplacedNode { index: node.index, texts, size: Size { width: width.max(least), height } })
    }

    fn at(self, rect: Rect, picture: &Picture<'_>) -> Card {
        // A stage has one line to the dead-letter queue, for all of its steps.
        let fails = !matches!(picture.nodes[self.index].kind, "source" | "merge" | "fan-out");
        Card { index: self.index, rect, texts: self.texts, fails }
    }
}

/// Returns a condition without the surrounding braces.
fn bare(text: &str) -> &str {
    let inside = text.trim().strip_prefix("{{").and_then(|text| text.strip_suffix("}}"));
    inside.filter(|text| !text.contains("{{")).map_or(text, |text| text.trim_matches(['-', ' ']))
}

/// Returns the texts on a line and their size.
fn label(line: &PictureEdge, purpose: Purpose) -> Option<(Size, Vec<FigureText>)> {
    if purpose == Purpose::Live {
        return Some((FLOW, Vec::new()));
    }
    let port = matches!(line.port, Port::Taken | Port::Skipped).then(|| line.port.as_str().to_owned());
    let said = port.into_iter().chain(line.cut.map(|reason| reason.to_string())).map(|text| (Role::Label, text));
    let shape = line.shown_shape().map(|shape| (Role::Records, one_line(shape, RECORDS, "…")));
    let wrapped = |(role, text): (Role, String)| {
        let most = if role == Role::Records { RECORDS_WIDTH } else { LABEL_WIDTH };
        let lines = role.face().wrap(&text, role.size(), most);
        lines.into_iter().map(move |line| FigureText::new(role, line))
    };
    let texts: Vec<FigureText> = said.chain(shape).flat_map(wrapped).collect();
    if texts.is_empty() {
        return None;
    }
    let width = texts.iter().map(FigureText::width).fold(0.0, f64::max) + 2.0 * LABEL_PADDING;
    let height = texts.iter().map(|text| text.role.leading()).sum::<f64>() + 6.0;
    Some((Size { width, height }, texts))
}
