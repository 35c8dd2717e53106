//! The one intermediate representation: StableHLO's operations and semantics in a compact SSA form.
//!
//! A [`Module`] is a list of [`Func`]s. A function owns its values in one arena; an [`Op`] names its operands and results by
//! [`ValueId`] and carries its attributes as a sorted list of `(name, Attr)`, with the names of the StableHLO specification.
//! Regions are single-block (as StableHLO's are) and share the value arena of their function; the last op of a block is always
//! [`Opcode::Return`], whichever dialect spelled it.
//!
//! What every front end normalises, so that text and bytecode give *equal* modules (locations aside):
//!
//! - pretty forms and generic forms give the same op and the same attributes;
//! - an attribute that equals its default of the StableHLO specification is left out (`precision_config` of all DEFAULT,
//!   `rng_algorithm = DEFAULT`, `indices_are_sorted = false`, all-one strides, zero padding, ...);
//! - unit tensors of indices (`dense<[0, 1]> : tensor<2xi64>` from old versions) become [`Attr::Ints`];
//! - `func.return`, `stablehlo.return`, `sdy.return` become [`Opcode::Return`];
//! - `func.call` and `call` become [`Opcode::Call`] with the attribute `callee`.

mod attr;
mod build;
mod compare;
mod id;
mod literal;
mod loc;
mod module;
pub(crate) mod number;
mod opcode;
mod print;
mod print_attr;
mod print_pretty;
mod types;
mod verify;

pub use attr::{Attr, AttrList, ConvDims, DotAlgorithm, DotDims, GatherDims, OutputAlias, ReplicaGroups, ScatterDims};
pub use build::{FuncBuilder, ModuleBuilder, ReduceKind};
pub use id::{IdVec, LocId, ValueId};
pub use literal::Literal;
pub use loc::{Loc, LocTable};
pub use module::{Block, Func, Module, Op, Param, Region, ResultInfo, Value};
pub use opcode::Opcode;
pub use types::{DYNAMIC, FuncType, Quant, TensorType, Type};
pub use verify::{Verified, VerifyError, verify};
