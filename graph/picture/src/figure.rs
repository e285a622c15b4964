//! A picture with a place for everything: what the drawing formats draw.

use super::layout::{Link, Point, Rect, Size, layout};
use super::typeface::Face;
use super::{DEAD_LETTER, Line, Picture, Shape, one_line};
use anabranch_graph::plan::graph::Port;

/// Characters of a name or of a condition in a box.
const NAME: usize = 36;
const CONDITION: usize = 40;
/// And of what is known of records.
const RECORDS: usize = 110;

const PADDING: f64 = 12.0;
const LEAST_WIDTH: f64 = 132.0;
const STAGE_PADDING: f64 = 12.0;
const STAGE_TITLE: f64 = 26.0;
/// Between the steps of a stage.
const STEP_GAP: f64 = 16.0;
/// A label is broken where it gets wider.
const LABEL_WIDTH: f64 = 230.0;
const RECORDS_WIDTH: f64 = 300.0;
const LABEL_PADDING: f64 = 7.0;
/// Room for what is filled in later: in a box, on a line between two stages, and between the steps of a stage.
const LIVE_WIDTH: f64 = 196.0;
const FLOW: Size = Size { width: 128.0, height: 20.0 };
const FLOW_GAP: f64 = 28.0;

/// What a drawing is made for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Purpose {
    /// To be read as it is.
    Print,
    /// To be filled in, by a page, with what a run does at the moment.
    Live,
}

/// What a text in the drawing is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Role {
    /// The name of a node.
    Name,
    /// Its plugin or kind.
    Kind,
    /// For which records.
    Condition,
    /// How much of it there is.
    Detail,
    /// What was measured.
    Measure,
    /// What a page fills in.
    Live,
    /// The title of a stage.
    Stage,
    /// What is written on a line.
    Label,
    /// What the records of a line are like.
    Records,
}

impl Role {
    pub(super) fn face(self) -> Face {
        match self {
            Role::Name => Face::Bold,
            Role::Condition | Role::Records => Face::Mono,
            Role::Kind | Role::Detail | Role::Measure | Role::Live | Role::Stage | Role::Label => Face::Regular,
        }
    }

    /// Of its characters, in pixels.
    pub(super) fn size(self) -> f64 {
        match self {
            Role::Name => 13.0,
            Role::Kind => 12.0,
            Role::Condition => 10.5,
            Role::Records => 10.0,
            Role::Detail | Role::Measure | Role::Live | Role::Stage | Role::Label => 11.0,
        }
    }

    /// From line to line.
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
pub(super) struct Text {
    pub(super) role: Role,
    pub(super) text: String,
}

impl Text {
    fn new(role: Role, text: impl Into<String>) -> Self {
        Text { role, text: text.into() }
    }

    fn width(&self) -> f64 {
        self.role.face().width(&self.text, self.role.size())
    }
}

/// A node.
pub(super) struct Card {
    /// Its number in the picture.
    pub(super) index: usize,
    pub(super) rect: Rect,
    pub(super) texts: Vec<Text>,
    /// Whether records that fail leave here for the dead-letter queue.
    pub(super) fails: bool,
}

/// A stage around its nodes.
pub(super) struct Frame {
    pub(super) id: usize,
    pub(super) rect: Rect,
    pub(super) title: Text,
}

/// A line between two nodes.
pub(super) struct Arrow {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) port: Port,
    /// Whether it leads from stage to stage.
    pub(super) cut: bool,
    pub(super) pieces: Vec<(Point, Point)>,
    pub(super) label: Option<(Rect, Vec<Text>)>,
}

/// The drawing of the records' ways. The dead-letter queue is not in it: what fails leaves by the mark on a card.
pub(super) struct Figure {
    pub(super) size: Size,
    pub(super) cards: Vec<Card>,
    pub(super) frames: Vec<Frame>,
    pub(super) arrows: Vec<Arrow>,
}

/// A node before it has a place.
struct Draft {
    index: usize,
    texts: Vec<Text>,
    size: Size,
}

impl Figure {
    pub(super) fn of(picture: &Picture<'_>, purpose: Purpose) -> Self {
        let drafts: Vec<Option<Draft>> = picture.nodes.iter().map(|node| Draft::of(node, picture, purpose)).collect();
        match picture.stages.is_empty() {
            true => Figure::graph(picture, drafts, purpose),
            false => Figure::stages(picture, drafts, purpose),
        }
    }

    /// Every node is a box of its own.
    fn graph(picture: &Picture<'_>, drafts: Vec<Option<Draft>>, purpose: Purpose) -> Self {
        let sizes: Vec<Size> = drafts.iter().flatten().map(|draft| draft.size).collect();
        let mut places = vec![None; drafts.len()];
        for (place, draft) in drafts.iter().flatten().enumerate() {
            places[draft.index] = Some(place);
        }
        let ways: Vec<&Line> = picture.ways().collect();
        let labels: Vec<_> = ways.iter().map(|line| label(line, purpose)).collect();
        let link = |(line, label): (&&Line, &Option<(Size, Vec<Text>)>)| Link {
            from: places[line.from].unwrap_or(usize::MAX),
            to: places[line.to].unwrap_or(usize::MAX),
            label: label.as_ref().map(|(size, _)| *size),
        };
        let links: Vec<Link> = ways.iter().zip(&labels).map(link).collect();
        let drawn = layout(&sizes, &links);
        let arrows = ways.into_iter().zip(labels).zip(drawn.routes).map(|((line, label), route)| Arrow {
            from: line.from,
            to: line.to,
            port: line.port,
            cut: line.cut.is_some(),
            pieces: route.pieces,
            label: route.label.zip(label.map(|(_, texts)| texts)),
        });
        let arrows = arrows.collect();
        let cards = drafts.into_iter().flatten().zip(drawn.boxes).map(|(draft, rect)| draft.at(rect, picture));
        Figure { size: drawn.size, cards: cards.collect(), frames: Vec::new(), arrows }
    }

    /// Every stage is a box with its steps from above to below.
    fn stages(picture: &Picture<'_>, mut drafts: Vec<Option<Draft>>, purpose: Purpose) -> Self {
        let titles: Vec<Text> = picture.stages.iter().map(|stage| Text::new(Role::Stage, stage.title('×'))).collect();
        // What is written below each step, inside of its stage.
        let mut stage_of = vec![usize::MAX; drafts.len()];
        for stage in &picture.stages {
            stage.nodes.iter().for_each(|node| stage_of[*node] = stage.id);
        }
        let (inside, between): (Vec<&Line>, Vec<&Line>) =
            picture.ways().partition(|line| stage_of[line.from] == stage_of[line.to]);
        let mut below: Vec<Option<(Size, Vec<Text>)>> = drafts.iter().map(|_| None).collect();
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
        let link = |(line, label): (&&Line, &Option<(Size, Vec<Text>)>)| Link {
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
        arrows.extend(between.into_iter().zip(labels).zip(drawn.routes).map(|((line, label), route)| Arrow {
            from: line.from,
            to: line.to,
            port: line.port,
            cut: line.cut.is_some(),
            pieces: route.pieces,
            label: route.label.zip(label.map(|(_, texts)| texts)),
        }));
        Figure { size: drawn.size, cards, frames, arrows }
    }
}

impl Draft {
    fn of(node: &Shape<'_>, picture: &Picture<'_>, purpose: Purpose) -> Option<Self> {
        if node.kind == DEAD_LETTER {
            return None;
        }
        let mut texts = Vec::new();
        let name = one_line(node.id, NAME, "…");
        match node.plugin {
            Some(plugin) => {
                texts.push(Text::new(Role::Name, name));
                let plugin = one_line(plugin, NAME, "…");
                let kind = match node.kind {
                    "processor" | "split" => plugin,
                    kind => format!("{kind} · {plugin}"),
                };
                texts.push(Text::new(Role::Kind, kind));
            }
            None if node.kind == "branch" => texts.push(Text::new(Role::Name, name)),
            None => {
                texts.push(Text::new(Role::Kind, node.kind));
            }
        }
        match &node.condition {
            Some(terms) if terms.as_before => texts.push(Text::new(Role::Condition, "for the same records")),
            Some(terms) => {
                texts.push(Text::new(Role::Condition, format!("if {}", one_line(bare(terms.text), CONDITION, "…"))));
            }
            None => {}
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
            texts.push(Text::new(Role::Live, ""));
        } else if !details.is_empty() {
            texts.push(Text::new(Role::Detail, details.join(" · ")));
        }
        texts.extend(node.measured.iter().flat_map(|measured| {
            [measured.rows(), measured.cost()].into_iter().map(|text| Text::new(Role::Measure, text))
        }));
        let width = texts.iter().map(Text::width).fold(0.0, f64::max) + 2.0 * PADDING;
        let least = match (purpose, node.plugin) {
            (Purpose::Live, _) => LIVE_WIDTH,
            (Purpose::Print, Some(_)) => LEAST_WIDTH,
            (Purpose::Print, None) => 0.0,
        };
        let height = texts.iter().map(|text| text.role.leading()).sum::<f64>() + 16.0;
        Some(Draft { index: node.index, texts, size: Size { width: width.max(least), height } })
    }

    fn at(self, rect: Rect, picture: &Picture<'_>) -> Card {
        // A stage has one line to the dead-letter queue, for all of its steps.
        let fails = !matches!(picture.nodes[self.index].kind, "source" | "merge" | "fan-out");
        Card { index: self.index, rect, texts: self.texts, fails }
    }
}

/// A condition without the braces around it.
fn bare(text: &str) -> &str {
    let inside = text.trim().strip_prefix("{{").and_then(|text| text.strip_suffix("}}"));
    inside.filter(|text| !text.contains("{{")).map_or(text, |text| text.trim_matches(['-', ' ']))
}

/// What is written on a line, and how much room that takes.
fn label(line: &Line, purpose: Purpose) -> Option<(Size, Vec<Text>)> {
    if purpose == Purpose::Live {
        return Some((FLOW, Vec::new()));
    }
    let port = matches!(line.port, Port::Taken | Port::Skipped).then(|| line.port.as_str().to_owned());
    let said = port.into_iter().chain(line.cut.map(|reason| reason.to_string())).map(|text| (Role::Label, text));
    let shape = line.shown_shape().map(|shape| (Role::Records, one_line(shape, RECORDS, "…")));
    let wrapped = |(role, text): (Role, String)| {
        let most = if role == Role::Records { RECORDS_WIDTH } else { LABEL_WIDTH };
        let lines = role.face().wrap(&text, role.size(), most);
        lines.into_iter().map(move |line| Text::new(role, line))
    };
    let texts: Vec<Text> = said.chain(shape).flat_map(wrapped).collect();
    if texts.is_empty() {
        return None;
    }
    let width = texts.iter().map(Text::width).fold(0.0, f64::max) + 2.0 * LABEL_PADDING;
    let height = texts.iter().map(|text| text.role.leading()).sum::<f64>() + 6.0;
    Some((Size { width, height }, texts))
}
