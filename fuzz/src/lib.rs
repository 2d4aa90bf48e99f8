//! What must hold for every input, one function per target.

pub mod disposition;
pub mod range;
pub mod record;
pub mod reference;
pub mod rel_path;
