//! YARN's capacity scheduler: queues with guaranteed and maximum capacities, limits of users, and preemption towards what
//! is guaranteed.

mod moment;
mod queues;

use crate::place::part;
use crate::prelude::*;
use moment::Moment;
use queues::Queues;
use std::collections::BTreeMap;
use trainyard_types::TenantId;

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "yarn-capacity",
    about: "YARN's capacity scheduler: the queue that has least of what it is guaranteed goes first, and takes what others leave.",
    paper: "Apache Hadoop documentation: capacity scheduler; Vavilapalli et al., SoCC 2013",
    needs: Needs::NOTHING,
    class: Taxonomy::rigid(Objective::Fairness, Family::ClusterManager)
        .by_setting("`preempt=true` stops jobs"),
    settings: &[
        (
            "maximum",
            "the most that a queue may have, as a part of the most of its parent; never less than it is guaranteed",
        ),
        (
            "users",
            "whether tenants with a parent and none below them are users of their parent's queue instead of queues",
        ),
        (
            "minimum_user_limit",
            "the part of a queue to which what a user may have shrinks at most while others are active",
        ),
        (
            "user_limit_factor",
            "the most that a user may have, as a multiple of what its queue is guaranteed",
        ),
        (
            "ordering",
            "of the jobs in a queue: `fifo`, by priority and arrival, or `fair`, those of the user with the fewest GPUs first",
        ),
        (
            "fill",
            "`strict`: the first job of a queue blocks the rest; `backfill`: any job that fits may pass it",
        ),
        (
            "preempt",
            "whether jobs of queues above what they are guaranteed are stopped for queues below",
        ),
        (
            "preempt_wait",
            "how long a queue waits for what it is guaranteed before jobs are stopped",
        ),
        ("preempt_interval", "how often it is looked at after that"),
        ("preempt_per_round", "the part of the cluster that may be taken away at each such look"),
        (
            "preempt_tolerance",
            "how far above what it is guaranteed a queue is left alone, as a part of that",
        ),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Copy, Clone, Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    #[serde(deserialize_with = "part")]
    maximum: f64,
    users: bool,
    #[serde(deserialize_with = "part")]
    minimum_user_limit: f64,
    user_limit_factor: f64,
    ordering: Ordering,
    fill: Fill,
    preempt: bool,
    preempt_wait: Span,
    preempt_interval: Span,
    #[serde(deserialize_with = "part")]
    preempt_per_round: f64,
    preempt_tolerance: f64,
}

impl Default for Settings {
    /// The defaults of Hadoop: `yarn.resourcemanager.monitor.capacity.preemption.*` for the last five.
    fn default() -> Settings {
        Settings {
            maximum: 1.0,
            users: false,
            minimum_user_limit: 1.0,
            user_limit_factor: 1.0,
            ordering: Ordering::Fifo,
            fill: Fill::Backfill,
            preempt: false,
            preempt_wait: Span::secs(15),
            preempt_interval: Span::secs(3),
            preempt_per_round: 0.1,
            preempt_tolerance: 0.1,
        }
    }
}

#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Ordering {
    Fifo,
    Fair,
}

/// A decision costs O(admitted jobs, with their logarithm) and O(queues x depth + users) for each job that starts and for
/// each class that does not fit; preemption adds O(jobs with GPUs, with their logarithm) for each queue that starves.
struct YarnCapacity {
    settings: Settings,
    /// Since when queues have waited for what they are guaranteed, by tenant of their first job.
    starving: BTreeMap<TenantId, Time>,
}

impl YarnCapacity {
    /// Queues whose first job would still be within what they are guaranteed are given GPUs of queues above that, once
    /// they have waited long enough.
    fn preempt(&mut self, moment: &mut Moment<'_, '_, '_>) {
        let now = moment.view.now;
        let heads = moment.entitled();
        self.starving.retain(|tenant, _| heads.iter().any(|head| head.spec.tenant == *tenant));
        for head in heads {
            let since = *self.starving.entry(head.spec.tenant).or_insert(now);
            let ready = since + self.settings.preempt_wait;
            if ready > now {
                moment.offer.wake_at(ready);
                continue;
            }
            // What a round leaves for the next adds up, for a gang is stopped whole.
            let rounds = now.since(ready).0 / self.settings.preempt_interval.0 + 1;
            let allowed = self.settings.preempt_per_round * moment.total * rounds as f64;
            if moment.reclaim(head, allowed) {
                // The next job of that queue waits from now on.
                self.starving.insert(head.spec.tenant, now);
                moment.offer.wake_at(now + self.settings.preempt_wait.max(Span(1)));
            } else if allowed < moment.total {
                moment.offer.wake_at(ready + self.settings.preempt_interval.times(rounds));
            }
        }
    }
}

impl Policy for YarnCapacity {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        _cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        if view.waiting_len() == 0 {
            self.starving.clear();
            return Ok(());
        }
        let total = f64::from(offer.free().in_service_total()) * 1000.0;
        let settings = self.settings;
        let Settings { maximum, users, .. } = settings;
        let queues = Queues::new(view.tenants(), total, (maximum, users));
        let mut moment = Moment::new(&settings, (view, offer), queues, total);
        while moment.start_next() {}
        if self.settings.preempt {
            self.preempt(&mut moment);
        }
        Ok(())
    }

    fn forget(&mut self) {
        self.starving.clear();
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let settings: Settings = raw.read(ENTRY.name)?;
    let numbers = [
        ("user_limit_factor", settings.user_limit_factor),
        ("preempt_per_round", settings.preempt_per_round),
    ];
    for (key, number) in numbers {
        if !(number > 0.0 && number.is_finite()) {
            return Err(ENTRY.bad_value(key, number, "a number above 0"));
        }
    }
    if !(settings.preempt_tolerance >= 0.0 && settings.preempt_tolerance.is_finite()) {
        let found = settings.preempt_tolerance;
        return Err(ENTRY.bad_value("preempt_tolerance", found, "a number of at least 0"));
    }
    if settings.preempt_interval == Span::ZERO {
        let found = settings.preempt_interval;
        return Err(ENTRY.bad_value("preempt_interval", found, "a length of time above 0"));
    }
    let policy = YarnCapacity { settings, starving: BTreeMap::new() };
    Ok(Pipeline::new(policy, FewestNodes, ENTRY.needs))
}
