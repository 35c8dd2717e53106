//! Communication between devices. The evaluator sees one device, so it knows none of them.

use super::{Arity, Eval, OpDef, Rule, rules};
use crate::hlo::Opcode;

macro_rules! unsupported {
    ($op:ident) => {
        OpDef::new(Opcode::$op, Arity::AtLeast(0), Rule::Check(rules::any), Eval::Unsupported)
            .regions(Arity::AtLeast(0))
    };
}

pub(super) static OPS: &[OpDef] = &[
    unsupported!(AllGather),
    unsupported!(AllReduce),
    unsupported!(AllToAll),
    unsupported!(AsyncDone),
    unsupported!(AsyncStart),
    unsupported!(CollectiveBroadcast),
    unsupported!(CollectivePermute),
    unsupported!(CrossReplicaSum),
    unsupported!(Infeed),
    unsupported!(Outfeed),
    unsupported!(PartitionId),
    unsupported!(Recv),
    unsupported!(ReduceScatter),
    unsupported!(ReplicaId),
    unsupported!(Send),
    unsupported!(SdyAllGather),
    unsupported!(SdyAllReduce),
    unsupported!(SdyAllSlice),
    unsupported!(SdyAllToAll),
    unsupported!(SdyCollectivePermute),
    unsupported!(SdyReduceScatter),
];
