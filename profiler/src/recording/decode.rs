//! Ring bytes → the types of a recording.
