//! Attacks a file reader with swaps, growth, links and special files, and shows whether it leaks.
