//! A weight-stationary systolic array, processing element by processing element and cycle by cycle.
