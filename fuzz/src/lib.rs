//! What must hold for every input, one function per target.

pub mod rel_path;
