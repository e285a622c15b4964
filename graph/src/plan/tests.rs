mod findings;
mod meaning;
