mod files;
mod pictures;
mod places;
mod same;
