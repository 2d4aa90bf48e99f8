//! The accept loop: connections, their limits, and how they end.
