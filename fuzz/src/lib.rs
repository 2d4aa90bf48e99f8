//! What must hold for every input, one function per target.

pub mod disposition;
pub mod dsh_folder;
pub mod dsh_frame;
pub mod dsh_row;
pub mod range;
pub mod record;
pub mod reference;
pub mod rel_path;
