//! Three ways of choosing the moment: at a subject's own steps, at every system call boundary, and
//! at random.

#![forbid(unsafe_code)]

pub mod seams;
