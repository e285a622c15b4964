mod files;
mod findings;
mod meaning;
mod notation;
mod pictures;
mod places;
mod scripted;
