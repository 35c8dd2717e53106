//! Pods.

pub mod classes;
