//! Communication and computation on one memory bus (Denis, Jeannot and Swartvagher, ICPP 2021).
//!
//! Three runs tell the parameters: communication alone, computation alone, and both. The form is a threshold: while the
//! bus has room for both neither loses; beyond it communication gives way first, down to a least share of the NIC, and
//! then computation does. The paper measures the effect; that threshold form is this module's.

/// A bus and what hangs on it, in bytes per second.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct MemoryBus {
    /// What memory gives at most.
    pub memory: f64,
    /// What the NIC sends when nothing else uses memory.
    pub nic: f64,
    /// What communication keeps of the NIC in any case; a setting, 0.1 unless measured.
    pub least_share: f64,
    /// What one computing core takes at most.
    pub core: f64,
    /// Operations per second of a core.
    pub core_flops: f64,
}

/// What both get.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct BusShares {
    /// Bytes per second of communication.
    pub communication: f64,
    /// Bytes per second of all computing cores.
    pub computation: f64,
}

/// One line of the three measurements.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct BusRun {
    /// Cores that compute.
    pub cores: u32,
    /// Bytes per second of communication, when it runs.
    pub communication: Option<f64>,
    /// Bytes per second of computation, when it runs.
    pub computation: Option<f64>,
}

impl MemoryBus {
    /// What a core wants at an arithmetic intensity, in operations for each byte.
    pub fn core_wish(&self, intensity: f64) -> f64 {
        if intensity <= 0.0 { self.core } else { self.core.min(self.core_flops / intensity) }
    }

    /// What communication and computation get beside each other.
    pub fn shares(&self, cores: u32, intensity: f64) -> BusShares {
        let wish = f64::from(cores) * self.core_wish(intensity);
        let least = self.least_share * self.nic;
        let communication = (self.memory - wish).clamp(least, self.nic);
        BusShares { communication, computation: wish.min((self.memory - communication).max(0.0)) }
    }

    /// What part of its speed alone communication keeps, for a placer to weigh.
    pub fn kept(&self, cores: u32, intensity: f64) -> f64 {
        self.shares(cores, intensity).communication / self.nic
    }

    /// Parameters from runs that use memory as fast as they can; `core_flops` is given.
    ///
    /// The NIC is the best of communication alone, a core the best of computation alone on few cores, memory the best
    /// sum of both in one run or computation alone on many, and the least share the least that communication kept.
    /// Nothing, when one of the three kinds of run is missing.
    pub fn fit(runs: &[BusRun], core_flops: f64) -> Option<MemoryBus> {
        let alone = |run: &&BusRun| run.computation.is_none();
        let nic = runs.iter().filter(alone).filter_map(|run| run.communication);
        let nic = nic.max_by(f64::total_cmp)?;
        let computing = runs.iter().filter(|run| run.communication.is_none() && run.cores > 0);
        let computing: Vec<(u32, f64)> =
            computing.filter_map(|run| Some((run.cores, run.computation?))).collect();
        let core = computing.iter().map(|(cores, rate)| rate / f64::from(*cores));
        let core = core.max_by(f64::total_cmp)?;
        let both = runs.iter().filter_map(|run| Some((run.communication?, run.computation?)));
        let both: Vec<(f64, f64)> = both.collect();
        let kept = both.iter().map(|(communication, _)| communication / nic);
        let least_share = kept.min_by(f64::total_cmp)?.min(1.0);
        let sums = both.iter().map(|(a, b)| a + b).chain(computing.iter().map(|(_, rate)| *rate));
        let memory = sums.max_by(f64::total_cmp)?;
        Some(MemoryBus { memory, nic, least_share, core, core_flops })
    }
}
