//! The inspections of the other nodes of a cluster that run units of the pipeline.

use std::collections::BTreeSet;
use std::future::pending;
use std::time::Duration;

use anabranch_cluster::NodeId;
use axum::extract::ws::Message;
use futures::future::{BoxFuture, Fuse, FusedFuture as _, join_all};
use futures::stream::{BoxStream, SelectAll};
use futures::{FutureExt as _, StreamExt as _, stream};
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::frame;
use crate::peers::{PeerSocket, Peers};

/// Time between two looks at which nodes run units of the pipeline.
const LOOK: Duration = Duration::from_secs(2);

/// The inspections of other nodes, also of those that run units of the pipeline later.
pub(super) struct Elsewhere<'a> {
    peers: &'a Peers,
    pipeline: &'a str,
    /// Path and query of the request.
    target: &'a str,
    joined: BTreeSet<NodeId>,
    frames: SelectAll<BoxStream<'static, PeerFrame>>,
    joining: Fuse<BoxFuture<'a, Vec<(NodeId, PeerSocket)>>>,
    look: Interval,
}

enum PeerFrame {
    Received(Message),
    /// The websocket ended.
    Ended(NodeId),
}

impl<'a> Elsewhere<'a> {
    pub(super) fn new(peers: &'a Peers, pipeline: &'a str, target: &'a str) -> Elsewhere<'a> {
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (joined, frames, joining) = (BTreeSet::new(), SelectAll::new(), Fuse::terminated());
        Elsewhere { peers, pipeline, target, joined, frames, joining, look }
    }

    /// Returns the next frame of another node. Dropping the future loses no frame.
    pub(super) async fn next(&mut self) -> Message {
        loop {
            tokio::select! {
                biased;
                opened = &mut self.joining, if !self.joining.is_terminated() => self.join(opened),
                _ = self.look.tick(), if self.joining.is_terminated() => self.joining = self.open().fuse(),
                Some(frame) = self.frames.next(), if !self.frames.is_empty() => match frame {
                    PeerFrame::Received(frame) => return frame,
                    PeerFrame::Ended(node) => {
                        self.joined.remove(&node);
                    }
                },
            }
        }
    }

    /// Opens the inspections of nodes that have none yet.
    fn open(&self) -> BoxFuture<'a, Vec<(NodeId, PeerSocket)>> {
        let Elsewhere { peers, pipeline, target, .. } = *self;
        let joined = self.joined.clone();
        let opened = async move {
            let owners = peers.owners(pipeline).await;
            let new = owners.iter().filter(|peer| !joined.contains(&peer.id));
            let opened = new.map(async |peer| Some((peer.id, peers.websocket(peer, target).await?)));
            join_all(opened).await.into_iter().flatten().collect()
        };
        opened.boxed()
    }

    fn join(&mut self, opened: Vec<(NodeId, PeerSocket)>) {
        for (node, socket) in opened {
            self.joined.insert(node);
            let relayed = |frame: Result<_, _>| async { frame.ok().and_then(frame::relayed).map(PeerFrame::Received) };
            let ended = stream::once(async move { PeerFrame::Ended(node) });
            self.frames.push(socket.filter_map(relayed).chain(ended).boxed());
        }
    }
}

/// Returns the next frame of another node; waits for ever if there are no other nodes.
pub(super) async fn next(elsewhere: &mut Option<Elsewhere<'_>>) -> Message {
    match elsewhere {
        Some(elsewhere) => elsewhere.next().await,
        None => pending().await,
    }
}
