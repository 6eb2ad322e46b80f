//! The published planners and models of communication that this crate has, in one table.

/// One of them.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct CommunicationPlanner {
    /// Its name.
    pub name: &'static str,
    /// Where it was published.
    pub paper: &'static str,
    /// What it is.
    pub about: &'static str,
    /// The module that has it.
    pub module: &'static str,
}

const fn entry(
    name: &'static str,
    paper: &'static str,
    about: &'static str,
    module: &'static str,
) -> CommunicationPlanner {
    CommunicationPlanner { name, paper, about, module }
}

/// All of them.
pub const PLANNERS: &[CommunicationPlanner] = &[
    entry(
        "genmodel",
        "GenModel and GenTree, arXiv 2409.04202",
        "the time of an all-reduce from rounds, bytes, additions, memory accesses and incast",
        "cost",
    ),
    entry(
        "gentree",
        "GenModel and GenTree, arXiv 2409.04202",
        "a plan of an all-reduce for a tree of switches, from the leaves up",
        "gentree",
    ),
    entry(
        "cassini",
        "CASSINI, NSDI 2024",
        "shifts in time with which jobs take turns on the links they share",
        "cassini",
    ),
    entry(
        "eflops",
        "EFLOPS, HPCA 2020",
        "ranks placed in a BiGraph so that halving and doubling share no link; NICs bound to GPUs",
        "bigraph",
    ),
    entry(
        "prophet",
        "Prophet, ICPP 2021",
        "gradients sent in blocks that fit before the next are ready",
        "prophet",
    ),
    entry(
        "prague",
        "Prague, ASPLOS 2020",
        "averages among groups of workers instead of all",
        "prague",
    ),
    entry(
        "memory-contention",
        "Denis, Jeannot and Swartvagher, ICPP 2021",
        "what communication and computation leave each other of a memory bus",
        "memory_contention",
    ),
    entry(
        "synchronisation",
        "Ko and others, IPDPS 2021",
        "seven ways to keep workers in step, beside each other",
        "synchronisation",
    ),
];
