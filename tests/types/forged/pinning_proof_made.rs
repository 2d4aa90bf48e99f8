//! `PinningProof` comes from an open gate and from nowhere else.

use holdfast::gate::PinningProof;

fn made() -> PinningProof {
    PinningProof {
        root: "a".into(),
        resolvers: Vec::new(),
    }
}

fn main() {}
