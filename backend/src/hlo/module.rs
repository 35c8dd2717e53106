//! Modules, functions, operations.

use super::{Attr, AttrList, IdVec, LocId, LocTable, Opcode, Type, ValueId};

/// One operation.
#[derive(Clone, Debug)]
pub struct Op {
    /// What it does.
    pub opcode: Opcode,
    /// Values it reads.
    pub operands: Vec<ValueId>,
    /// Values it defines.
    pub results: Vec<ValueId>,
    /// Attributes, sorted by name.
    pub attrs: AttrList,
    /// Nested regions, in the order of the specification.
    pub regions: Vec<Region>,
    /// Where it comes from.
    pub loc: LocId,
}

/// A single-block region. Its blocks' arguments and ops live in the value arena of the enclosing function.
#[derive(Clone, Debug, Default)]
pub struct Region {
    /// The block. Absent regions do not exist: an op without regions has an empty list.
    pub block: Block,
}

/// Arguments and operations; the last operation is [`Opcode::Return`].
#[derive(Clone, Debug, Default)]
pub struct Block {
    /// Block arguments.
    pub args: Vec<ValueId>,
    /// Operations in order.
    pub ops: Vec<Op>,
}

/// A value: its type, and the name the source gave it.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// Type of the value.
    pub ty: Type,
}

/// A parameter of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    /// The value it defines.
    pub value: ValueId,
    /// Attributes such as `mhlo.sharding`, `sdy.sharding`, `tf.aliasing_output`, `jax.buffer_donor`.
    pub attrs: AttrList,
    /// Its location, whose name is the argument's name in the source.
    pub loc: LocId,
}

/// A result of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct ResultInfo {
    /// Type of the result.
    pub ty: Type,
    /// Attributes such as `jax.result_info`, `mhlo.sharding`.
    pub attrs: AttrList,
}

/// A function.
#[derive(Clone, Debug)]
pub struct Func {
    /// Symbol name without `@`.
    pub name: String,
    /// Whether it is `public` (the default in MLIR).
    pub public: bool,
    /// Parameters.
    pub params: Vec<Param>,
    /// Results.
    pub results: Vec<ResultInfo>,
    /// All values of the function, nested regions included.
    pub values: IdVec<ValueId, Value>,
    /// Operations of the body.
    pub body: Block,
    /// Discardable attributes.
    pub attrs: AttrList,
    /// Where it comes from.
    pub loc: LocId,
}

impl Func {
    /// Adds a value of type `ty`.
    pub fn new_value(&mut self, ty: Type) -> ValueId {
        self.values.push(Value { ty })
    }

    /// A function of this name and place without values and without a body.
    pub(crate) fn clone_signature(&self) -> Func {
        Func {
            name: self.name.clone(),
            public: self.public,
            params: Vec::new(),
            results: Vec::new(),
            values: IdVec::default(),
            body: Block::default(),
            attrs: AttrList::default(),
            loc: self.loc,
        }
    }

    /// The type of `v`.
    pub fn ty(&self, v: ValueId) -> &Type {
        &self.values[v].ty
    }
}

/// A whole program.
#[derive(Clone, Debug, Default)]
pub struct Module {
    /// Symbol name without `@`, may be empty.
    pub name: String,
    /// Attributes such as `mhlo.num_partitions`.
    pub attrs: AttrList,
    /// `sdy.mesh` symbols, as `(name, mesh attribute)`.
    pub meshes: Vec<(String, Attr)>,
    /// Functions in source order.
    pub funcs: Vec<Func>,
    /// Locations of all functions.
    pub locs: LocTable,
}

impl Module {
    /// The function called `name`.
    pub fn func(&self, name: &str) -> Option<&Func> {
        self.funcs.iter().find(|f| f.name == name)
    }
}
