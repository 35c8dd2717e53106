//! Test programs cut into what a compiler knows and what the test runner does.
//!
//! Checks become results of `main`. `interpreter.run_parallel` becomes three steps: `main` up to it gives its operands, its programs
//! run, and their results are parameters of the rest of `main`.

use tpusim_backend::hlo::{Attr, AttrList, Func, LocTable, Module, Op, Opcode, Param, ResultInfo, Type, ValueId};

use super::check::Check;

/// A program without its test ops.
pub struct Parts {
    /// What is left of `main`: it returns what the checks look at.
    pub main: Module,
    /// The checks, by number of result.
    pub checks: Vec<Check>,
    /// What runs before on several devices.
    pub parallel: Option<Parallel>,
}

/// The programs of an `interpreter.run_parallel`.
pub struct Parallel {
    /// A program that gives the operands, tokens left out.
    pub operands: Module,
    /// Where the programs are.
    pub module: Module,
    /// Their names, by device.
    pub programs: Vec<String>,
    /// Partitions of each replica.
    pub partitions: usize,
}

fn target(op: &Op) -> Option<&str> {
    (op.opcode == Opcode::CustomCall).then(|| op.attrs.text("call_target_name")).flatten()
}

/// Takes out what only prints or records, in regions too.
fn strip(ops: &mut Vec<Op>) {
    ops.retain(|op| !matches!(target(op), Some("interpreter.print" | "check.expect_serialized_eq")));
    for op in ops {
        if target(op) == Some("interpreter.probe") {
            op.opcode = Opcode::OptimizationBarrier;
            op.attrs = AttrList::default();
        }
        op.regions.iter_mut().for_each(|r| strip(&mut r.block.ops));
    }
}

fn returning(f: &mut Func, values: Vec<ValueId>) {
    let info = |v: &ValueId| ResultInfo { ty: f.ty(*v).clone(), attrs: AttrList::default() };
    f.results = values.iter().map(info).collect();
    f.body.ops.retain(|op| op.opcode != Opcode::Return);
    f.body.ops.push(Op {
        opcode: Opcode::Return,
        operands: values,
        results: Vec::new(),
        attrs: AttrList::default(),
        regions: Vec::new(),
        loc: LocTable::UNKNOWN,
    });
}

pub fn split(mut module: Module) -> Result<Parts, String> {
    for f in &mut module.funcs {
        strip(&mut f.body.ops);
    }
    let main = module.funcs.iter().position(|f| f.name == "main");
    let entry = if module.funcs.len() == 1 { Some(0) } else { main };
    let entry = entry.ok_or("several functions, none of them `main`")?;
    let mut main = module.funcs.remove(entry);
    main.name = "main".to_owned();
    let (mut checks, mut looked) = (Vec::new(), Vec::new());
    for op in &main.body.ops {
        if let Some(name) = target(op).filter(|t| t.starts_with("check.")) {
            checks.push(Check::new(name, op, &mut looked)?);
        }
    }
    // `check.eq` returns whether it holds; nobody else asks.
    main.body.ops.retain(|op| !target(op).is_some_and(|t| t.starts_with("check.")));
    if looked.is_empty() {
        // Programs that only have to run return what they return.
        looked = main.body.ops.last().map(|op| op.operands.clone()).unwrap_or_default();
    }
    let parallel = parallel(&module, &mut main)?;
    returning(&mut main, looked);
    let mut rest = module;
    rest.funcs.push(main);
    Ok(Parts { main: rest, checks, parallel })
}

fn parallel(module: &Module, main: &mut Func) -> Result<Option<Parallel>, String> {
    let Some(at) = main.body.ops.iter().position(|op| target(op) == Some("interpreter.run_parallel")) else {
        return Ok(None);
    };
    let op = main.body.ops.remove(at);
    if op.attrs.get("infeed").is_some() {
        return Err("infeed from the test runner".into());
    }
    let Some(Attr::Array(rows)) = op.attrs.get("programs") else { return Err("run_parallel without programs".into()) };
    let (mut programs, mut partitions) = (Vec::new(), 0);
    for row in rows {
        let Attr::Array(row) = row else { return Err("run_parallel takes rows of programs".into()) };
        partitions = row.len();
        programs.extend(row.iter().filter_map(|a| if let Attr::Symbol(s) = a { Some(s.clone()) } else { None }));
    }
    let mut before = main.clone();
    before.body.ops.truncate(at);
    let tensors = op.operands.iter().copied().filter(|v| *main.ty(*v) != Type::Token);
    returning(&mut before, tensors.collect());
    let mut operands = module.clone();
    operands.funcs.push(before);
    let results: Vec<ValueId> = op.results.iter().copied().filter(|v| *main.ty(*v) != Type::Token).collect();
    for value in results {
        main.params.push(Param { value, attrs: AttrList::default(), loc: LocTable::UNKNOWN });
    }
    Ok(Some(Parallel { operands, module: module.clone(), programs, partitions }))
}
