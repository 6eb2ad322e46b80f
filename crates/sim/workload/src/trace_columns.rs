//! The columns of our own trace format.

macro_rules! columns {
    ($($variant:ident $name:literal,)*) => {
        /// A column; in JSON lines, a key.
        #[derive(Copy, Clone, Debug, PartialEq, Eq)]
        pub(crate) enum Column { $($variant,)* }

        /// All columns, in the order in which they are written.
        pub(crate) const COLUMNS: &[(Column, &str)] = &[$((Column::$variant, $name),)*];
    };
}

columns! {
    Id "id",
    Submit "submit_s",
    Gpus "gpus",
    Steps "steps",
    Duration "duration_s",
    Model "model",
    Tenant "tenant",
    Kinds "kinds",
    GpusMin "gpus_min",
    GpusMax "gpus_max",
    Permille "permille",
    GpuMemory "gpu_memory_mib",
    Cpus "cpus_per_gpu",
    Memory "memory_mib_per_gpu",
    NodesMax "nodes_max",
    Pool "pool",
    Batch "batch",
    Priority "priority",
    Weight "weight",
    Class "class",
    Deadline "deadline_s",
    Value "value",
    After "after",
    NotBefore "not_before_s",
    RunMax "run_max_s",
    MinRun "min_run_s",
    Preemptible "preemptible",
    RetriesMax "retries_max",
    Group "group",
    Declared "declared_steps",
    FailsAt "fails_at_steps",
    BatchMode "batch_mode",
    Batches "batches",
    PermilleMax "permille_max",
    GpuMemoryPersistent "gpu_memory_persistent_mib",
    Affinity "affinity",
    AntiAffinity "anti_affinity",
    Exclusion "exclusion",
    AcrossKinds "across_kinds",
}

/// How many there are.
pub(crate) const COLUMN_COUNT: usize = COLUMNS.len();

impl Column {
    /// Its name.
    pub fn name(self) -> &'static str {
        COLUMNS[self as usize].1
    }

    /// The column of that name.
    pub fn find(name: &str) -> Option<Column> {
        // What it was called before version 0.1 was out.
        let name = if name == "worth" { "value" } else { name };
        COLUMNS.iter().find(|(_, known)| *known == name).map(|(column, _)| *column)
    }

    /// All names.
    pub fn names() -> impl Iterator<Item = &'static str> {
        COLUMNS.iter().map(|(_, name)| *name)
    }
}
