#![forbid(unsafe_code)]

use crate::pinned::Resolver;

/// Stands for a current report that shows pinned reads on this host (I3).
///
/// Only an open gate has one; it cannot be made, copied or read from anywhere else:
///
/// ```compile_fail,E0451
/// let proof = holdfast::gate::PinningProof { resolvers: Vec::new() };
/// ```
///
/// ```compile_fail,E0599
/// fn copy(proof: &holdfast::gate::PinningProof) -> holdfast::gate::PinningProof {
///     holdfast::gate::PinningProof::clone(proof)
/// }
/// ```
#[derive(Debug)]
pub struct PinningProof {
    resolvers: Vec<Resolver>,
}

impl PinningProof {
    /// The resolvers the report speaks of, the stronger first. No other may be used.
    #[must_use]
    pub fn resolvers(&self) -> &[Resolver] {
        &self.resolvers
    }
}
