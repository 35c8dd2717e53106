//! Operations whose regions are elementwise functions.

use super::super::NodeId;
use super::*;
use crate::hlo::{Op, Opcode};

impl Builder<'_> {
    /// Nodes of an operation with a region, or `None` if it is lowered elsewhere.
    pub(super) fn region_op(
        &mut self,
        f: &Func,
        op: &Op,
        args: &[NodeId],
        env: &Env,
        outer: Option<&(String, String)>,
    ) -> Option<Result<Vec<NodeId>, LowerError>> {
        let site = self.site(op, outer);
        if let (Some((k, largest)), &[x]) = (self.selection(op), args) {
            let fits = self.node(x).dims.last().is_some_and(|&n| k <= n);
            return fits.then(|| self.top_k(x, k, largest, "top_k", &site));
        }
        match op.opcode {
            Opcode::Sort => Some(self.sort(f, op, args, env, &site)),
            _ => None,
        }
    }
}
