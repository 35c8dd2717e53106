//! From the graph to kernels: what is fused with what, over which canonical dimensions, in blocks of which size, and where in
//! HBM everything lives.
//!
//! - [`view`]: data movement as strides;
//! - [`fuse`]: which nodes become one kernel;
//! - [`dims`]: canonical dimensions of a vector kernel: dropping, merging, splitting, ordering;
//! - [`product`]: the same for matrix products;
//! - `conv`: and for convolutions;
//! - [`choose`]: block sizes by estimated cost, of convolutions in `windows`, of kernels that write over what they read in `disjoint`;
//! - [`kernel`]: what comes out, with its text form;
//! - [`memory`]: HBM addresses by liveness, [`resident`]: what fills it;
//! - [`donate`]: results in the arrays of parameters, [`reuse`]: and others in those of operands;
//! - [`region`]: loops and branches, each planned by itself;
//! - [`overlap`]: transfers beside the computation of their own iteration, [`pipeline`]: and of others.

pub mod choose;
mod conv;
pub mod dims;
mod disjoint;
pub mod donate;
pub mod fuse;
pub mod kernel;
pub mod memory;
pub mod overlap;
pub mod pipeline;
pub mod product;
pub mod region;
pub mod resident;
pub mod reuse;
pub mod view;
mod windows;
