//! The `fsprobe` program.
fn main() {}
