//! Replacement for `watch` on systems without change reports: files are polled.

use std::convert::Infallible;
use std::path::Path;

use super::generations::Generations;

#[derive(Debug)]
pub(super) struct Watch(Infallible);

#[derive(Debug)]
pub(super) struct Arrivals(Infallible);

impl Arrivals {
    pub(super) fn at(_: &Path) -> Option<Arrivals> {
        None
    }

    pub(super) fn generations(&self) -> &Generations {
        match self.0 {}
    }
}

impl Watch {
    pub(super) fn on(_: &Path) -> Option<Watch> {
        None
    }

    pub(super) fn changed(&self) -> impl Future<Output = ()> + Send + use<> {
        std::future::pending()
    }
}
