mod fake;
mod hostile;
mod images;
mod lines;
mod live;
mod merging;
mod texts;
mod threads;
