#![forbid(unsafe_code)]

use crate::pinned::Resolver;

/// Stands for a current report that shows pinned reads of one root on this host (I3).
///
/// Only an open gate makes one; it cannot be made, copied or read from anywhere else:
///
/// ```compile_fail,E0451
/// let proof = holdfast::gate::PinningProof { root: "a".into(), resolvers: Vec::new() };
/// ```
///
/// ```compile_fail,E0599
/// fn copy(proof: &holdfast::gate::PinningProof) -> holdfast::gate::PinningProof {
///     holdfast::gate::PinningProof::clone(proof)
/// }
/// ```
#[derive(Debug)]
pub struct PinningProof {
    root: Box<str>,
    resolvers: Vec<Resolver>,
}

impl PinningProof {
    /// For the gate alone: states that a report was judged and holds.
    pub(super) fn made(root: &str, resolvers: Vec<Resolver>) -> Self {
        Self {
            root: root.into(),
            resolvers,
        }
    }

    /// The name of the root it holds for, and for no other.
    #[must_use]
    pub fn root(&self) -> &str {
        &self.root
    }

    /// The resolvers the report speaks of, the stronger first. No other may be used.
    #[must_use]
    pub fn resolvers(&self) -> &[Resolver] {
        &self.resolvers
    }
}
