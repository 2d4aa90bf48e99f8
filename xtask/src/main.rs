//! The checks of the project as commands.
fn main() {}
