//! One small type per header field, each with its section of the RFC.
