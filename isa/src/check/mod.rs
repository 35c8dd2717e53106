//! Static checker.
