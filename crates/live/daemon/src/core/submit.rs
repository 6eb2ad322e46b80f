//! From a submission to a job.

use super::{Core, REMEMBERED_MAX, Said, names, shape, surroundings, text};
use crate::access::{self, Caller, Right};
use crate::record::{Element, Record, Submission, Unit};
use ring::digest::{SHA256, digest};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use trainyard_api::answer::{SubmitRequest, Submitted};
use trainyard_api::array::{ArraySpec, parse_array};
use trainyard_api::{BatchRule, Code, JobClass, JobSpec, Problem};
use trainyard_backend::Identity;
use trainyard_store::Write;
use trainyard_types::{
    BatchLimits, BatchMode, Class, End, Event, GroupId, Job, JobId, Labels, ModelId, Span, Tenant,
    TenantId, Time, Want, Work, soft_deadline,
};

/// The most jobs that one request may bring, elements of arrays counted.
pub const JOBS_MAX: usize = 100_000;
/// The most that may wait and run at once; beyond it a submission is refused.
const OPEN_MAX: usize = 2_000_000;
/// The most that one user may have waiting and running at once, unless the operator says otherwise.
pub const OPEN_PER_USER_MAX: usize = 250_000;
/// The most tenants that there may be; beyond it no new one is made.
const TENANTS_MAX: usize = 10_000;
const SIGNALS: [&str; 6] = ["TERM", "INT", "HUP", "USR1", "USR2", "CONT"];
const YEAR: f64 = 366.0 * 86_400.0;

/// A job to be taken on, checked.
struct Checked {
    spec: JobSpec,
    want: Want,
    element: Option<(u32, u32)>,
    model: Option<ModelId>,
}

impl Core {
    /// Takes jobs on, all or none. The same key gives the same answer.
    pub(super) fn submit(
        &mut self,
        caller: &Caller,
        request: &SubmitRequest,
        identity: Option<Identity>,
        known: Option<(String, String)>,
        ends: &BTreeMap<u32, End>,
    ) -> Result<Said, Problem> {
        access::check(caller, Right::Submit, None)?;
        if request.jobs.iter().any(|spec| spec.external.is_some() || spec.owner.is_some()) {
            access::check(caller, Right::RuleNodes, None)?;
        }
        let print = request.key.as_ref().map(|_| fingerprint(&request.jobs)).unwrap_or_default();
        if let Some(key) = &request.key {
            let own = (caller.user.clone(), key.clone());
            if let Some((digest, answer)) = self.keys.get(&own).cloned().or(known) {
                return repeated(&print, &digest, &answer, key);
            }
        }
        self.describe(&request.jobs)?;
        let mut checked = Vec::new();
        for (index, spec) in request.jobs.iter().enumerate() {
            let allowed = self.allow(caller, spec);
            allowed.and_then(|()| self.check(spec, ends, &mut checked)).map_err(
                |mut problem| {
                    if request.jobs.len() > 1 {
                        problem.detail =
                            format!("job {} of the request: {}", index + 1, problem.detail);
                    }
                    problem
                },
            )?;
        }
        if checked.is_empty() {
            return Err(bad("jobs", "the request names no job: expected at least one"));
        }
        if self.records.len() + checked.len() > OPEN_MAX {
            let detail =
                format!("{OPEN_MAX} jobs wait or run already: try again when some have ended");
            return Err(Problem::new(Code::TooMany, detail));
        }
        self.check_room(caller, &checked)?;
        let jobs = self.take_on(caller, checked, identity);
        let answer = Submitted { jobs, repeated: false };
        if let Some(key) = &request.key {
            self.remember_key(caller, key, print, &answer);
        }
        Ok(Said::Submitted(answer))
    }

    /// Whether a caller may submit this; what is refused is written down.
    fn allow(&mut self, caller: &Caller, spec: &JobSpec) -> Result<(), Problem> {
        let allowed = self.options.rules.check(caller, spec);
        if let Err(problem) = &allowed {
            let field = problem.field.as_deref().unwrap_or_default();
            self.audit(&caller.user, &format!("submit with {field}"), &spec.name, false);
        }
        allowed
    }

    /// Whether there is room for new jobs, in all and of each user. What another scheduler accepted already is admitted.
    fn check_room(&self, caller: &Caller, checked: &[Checked]) -> Result<(), Problem> {
        let mut new: BTreeMap<&str, usize> = BTreeMap::new();
        let mut tenants: BTreeSet<&str> = BTreeSet::new();
        for one in checked {
            let tenant = one.spec.tenant.as_deref().unwrap_or(&caller.user);
            if !self.tenant_ids.contains_key(tenant) {
                tenants.insert(tenant);
            }
            if one.spec.external.is_none() {
                *new.entry(one.spec.owner.as_deref().unwrap_or(&caller.user)).or_default() += 1;
            }
        }
        let most = self.options.open_per_user_max;
        for (user, count) in new {
            let open = self.open_of.get(user).copied().unwrap_or(0);
            if open + count > most {
                let detail = format!(
                    "{user} has {open} jobs that wait or run and asks for {count} more, and {most} are allowed at once: \
                     wait until some have ended, cancel some with `trainyard cancel`, or ask the operator for a larger \
                     `trainyard serve --jobs-per-user-max`"
                );
                return Err(Problem::new(Code::TooMany, detail));
            }
        }
        if !tenants.is_empty() && self.tenant_ids.len() + tenants.len() > TENANTS_MAX {
            let detail = format!("there are {TENANTS_MAX} tenants already: use one that exists");
            return Err(Problem::field(Code::TooMany, "tenant", detail));
        }
        Ok(())
    }

    /// One job of a user less is open.
    pub(super) fn count_closed(&mut self, user: &str) {
        if let Some(open) = self.open_of.get_mut(user) {
            *open = open.saturating_sub(1);
            if *open == 0 {
                self.open_of.remove(user);
            }
        }
    }

    /// The jobs that a submission would make, with the names of their tenants; nothing is taken on.
    pub(crate) fn draft(
        &self,
        caller: &Caller,
        request: &SubmitRequest,
        ends: &BTreeMap<u32, End>,
    ) -> Result<Vec<(Job, String)>, Problem> {
        access::check(caller, Right::Submit, None)?;
        let mut checked = Vec::new();
        for spec in &request.jobs {
            self.options.rules.check(caller, spec)?;
            self.check(spec, ends, &mut checked)?;
        }
        let drafts = (self.next_job..).zip(checked).map(|(id, one)| {
            let tenant = one.spec.tenant.clone().unwrap_or_else(|| caller.user.clone());
            let tenant_id = self.tenant_ids.get(&tenant).copied().unwrap_or_default();
            let ids = (tenant_id, one.model.unwrap_or_else(|| names::id(&one.spec.name)));
            let mut job = self.job(JobId(id), &one.spec, one.want, ids);
            job.group = search(caller, &one.spec);
            (job, tenant)
        });
        Ok(drafts.collect())
    }

    fn take_on(
        &mut self,
        caller: &Caller,
        checked: Vec<Checked>,
        identity: Option<Identity>,
    ) -> Vec<u32> {
        let first_of = self.next_job;
        let mut ids = Vec::with_capacity(checked.len());
        let mut first = JobId(first_of);
        for one in checked {
            let id = JobId(self.next_job);
            self.next_job += 1;
            ids.push(id.0);
            let starts_array = one.element.is_some_and(|(position, _)| position == 0);
            if starts_array || one.element.is_none() {
                first = id;
            }
            self.take_one(caller, id, first, one, identity.clone());
        }
        ids
    }

    fn take_one(
        &mut self,
        caller: &Caller,
        id: JobId,
        first: JobId,
        one: Checked,
        identity: Option<Identity>,
    ) {
        let Checked { spec, want, element, model } = one;
        let tenant = spec.tenant.clone().unwrap_or_else(|| caller.user.clone());
        let tenant_id = self.tenant(&tenant);
        let model = model.unwrap_or_else(|| names::id(&spec.name));
        let mut job = self.job(id, &spec, want, (tenant_id, model));
        job.group = search(caller, &spec);
        let job = Arc::new(job);
        let unit = match (spec.steps, spec.expected_seconds) {
            (None, Some(_)) => Unit::Seconds,
            _ => Unit::Steps,
        };
        let hold = spec.hold;
        let array = element.map(|(_, index)| {
            let at_once = spec.array.as_deref().and_then(|text| parse_array(text).ok());
            let at_once = at_once.and_then(|array| array.at_once).unwrap_or(0);
            Element { first, index, at_once }
        });
        let (user, wall) = (spec.owner.clone().unwrap_or_else(|| caller.user.clone()), self.wall);
        let job_of_engine = Arc::clone(&job);
        *self.open_of.entry(user.clone()).or_default() += 1;
        let (owner, payer) = (user.clone(), tenant.clone());
        let submission = Submission { job, spec, user, tenant, identity, wall, array, unit };
        self.write_new(id, &submission);
        let record = Record::new(Arc::new(self.packer.brief(submission)));
        Arc::make_mut(&mut self.records).insert(id, Arc::new(record));
        self.apply(Event::Submitted(job_of_engine));
        if !self.windows.all.is_empty() {
            self.join_windows(&owner, &payer);
        }
        if hold {
            self.apply(Event::Hold(id));
        }
        self.join_array(id, array);
        self.announce(id);
    }

    /// The row of a new job. Its state is written into it at the end of the turn, when it is known.
    fn write_new(&mut self, id: JobId, submission: &Submission) {
        self.added.insert(id, self.turn.writes.len());
        self.turn.writes.push(Write::AddJob {
            job: id.0,
            user: submission.user.clone(),
            tenant: submission.tenant.clone(),
            spec: text(submission),
            state: String::new(),
            wall: self.wall,
        });
        let sentence =
            format!("{} submitted job {} ({})", submission.user, id.0, submission.spec.name);
        self.event_of(
            "submitted",
            (Some(id), Some(submission.user.clone())),
            &sentence,
            json!({ "gpus": submission.spec.gpus }),
        );
    }

    fn job(
        &self,
        id: JobId,
        spec: &JobSpec,
        want: Want,
        (tenant, model): (TenantId, ModelId),
    ) -> Job {
        let now = self.now;
        let declared = spec.steps.or(spec.expected_seconds).map(Work);
        let begin = spec.begin.map(|begin| {
            let ahead = (begin * 1e6 - self.wall as f64).max(0.0);
            Time(now.0 + ahead as u64)
        });
        let accepted = spec.tolerance_seconds.unwrap_or(0.0);
        let value = spec.deadline_seconds.map(|seconds| {
            soft_deadline((now + Span::from_secs_f64(seconds)).as_secs_f64(), accepted)
        });
        Job {
            tenant,
            model,
            want,
            class: class(spec.class),
            labels: labels(spec),
            batch_mode: batch_mode(spec.batch_mode),
            priority: spec.priority,
            weight: spec.weight,
            declared,
            value: value.unwrap_or_default(),
            // Those that are over have finished, or the submission would have been refused.
            after: (spec.after.iter().map(|job| JobId(*job)))
                .filter(|job| self.records.contains_key(job))
                .collect(),
            not_before: begin.filter(|begin| *begin > now),
            run_max: spec.time_limit_seconds.map(Span::from_secs_f64),
            min_run: Span::from_secs_f64(spec.min_run_seconds),
            preemptible: spec.preemptible,
            saves: spec.saves,
            grace: Span::from_secs_f64(spec.checkpoint.grace_seconds.max(0.0)),
            retries_max: spec.retries,
            ..Job::simple(id, now, spec.gpus)
        }
    }

    /// Checks one submission and adds the job or the elements of the array that it makes.
    fn check(
        &self,
        spec: &JobSpec,
        ends: &BTreeMap<u32, End>,
        into: &mut Vec<Checked>,
    ) -> Result<(), Problem> {
        check_command(spec)?;
        check_numbers(spec)?;
        surroundings::check(spec, self.options.announces)?;
        self.options.notify.check(&spec.notify)?;
        let want = self.want(spec)?;
        let model = match &spec.model {
            None => None,
            Some(name) => Some(
                self.options
                    .catalog
                    .lookup(0, "model", name)
                    .map_err(|fault| Problem::field(Code::BadInput, "model", fault.to_string()))?,
            ),
        };
        if let Some(reason) = model.and_then(|model| self.fits_nowhere(model, &want)) {
            return Err(Problem::field(Code::Infeasible, "model", reason));
        }
        for job in &spec.after {
            self.check_after(*job, ends)?;
        }
        let mut spec = spec.clone();
        if spec.name.is_empty() {
            let command = spec.argv.first().map_or("job", String::as_str);
            spec.name = command.rsplit('/').next().unwrap_or(command).to_owned();
        }
        let array = spec.array.as_deref().map(parse_array).transpose();
        let array = array.map_err(|fault| bad("array", &fault.to_string()))?;
        match array {
            None => into.push(Checked { spec, want, element: None, model }),
            Some(ArraySpec { indices, .. }) => {
                for (position, index) in (0u32..).zip(indices) {
                    let element = Some((position, index));
                    into.push(Checked { spec: spec.clone(), want: want.clone(), element, model });
                }
            }
        }
        if into.len() > JOBS_MAX {
            let detail = format!("the request makes more than {JOBS_MAX} jobs: send it in parts");
            return Err(Problem::field(Code::TooLarge, "jobs", detail));
        }
        Ok(())
    }

    fn check_after(&self, job: u32, ends: &BTreeMap<u32, End>) -> Result<(), Problem> {
        let id = JobId(job);
        // The engine knows first: a job that is over since this turn began still has its record.
        let end = self.engine.end(id).or_else(|| self.ends.get(&id).copied());
        if end.is_none() && self.records.contains_key(&id) {
            return Ok(());
        }
        match end.or_else(|| ends.get(&job).copied()) {
            Some(End::Finished) => Ok(()),
            Some(_) => {
                let detail =
                    format!("job {job} has ended and did not finish: nothing can follow it");
                Err(Problem::field(Code::Infeasible, "after", detail))
            }
            None => {
                let detail = format!("there is no job {job} to wait for");
                Err(Problem::field(Code::NotFound, "after", detail))
            }
        }
    }

    fn want(&self, spec: &JobSpec) -> Result<Want, Problem> {
        let cluster = &self.options.cluster;
        let (least, most) =
            (spec.gpus_min.unwrap_or(spec.gpus), spec.gpus_max.unwrap_or(spec.gpus));
        if spec.gpus == 0 || least == 0 || least > spec.gpus || spec.gpus > most {
            let detail = format!(
                "`gpus` is {}, `gpus_min` {least}, `gpus_max` {most}: expected 1 <= gpus_min <= gpus <= gpus_max",
                spec.gpus
            );
            return Err(bad("gpus", &detail));
        }
        let mut want = Want::gpus(spec.gpus);
        (want.gpus_min, want.gpus_max) = (least, most);
        set_batch(&mut want, spec)?;
        for name in &spec.gpu_types {
            let kind = cluster.kind(name).ok_or_else(|| {
                let names: Vec<&str> =
                    cluster.kinds.iter().map(|kind| kind.name.as_str()).collect();
                let detail =
                    format!("no GPU here is a `{name}`: expected one of {}", names.join(", "));
                bad("gpu_types", &detail)
            })?;
            want.kinds.push(kind);
        }
        shape::leave_out_slices(cluster, &mut want)?;
        if let Some(permille) = spec.gpu_permille {
            if !(1..=1000).contains(&permille) || (permille < 1000 && spec.gpus != 1) {
                let detail = "expected 1 to 1000 thousandths of one GPU, with `gpus` 1";
                return Err(bad("gpu_permille", detail));
            }
            want.permille = permille;
        }
        check_labels(spec)?;
        if let Some(most) = spec.gpu_permille_max {
            if !(want.permille.min(999)..=1000).contains(&most) {
                let detail =
                    "expected a limit from its share (`gpu_permille`, less than 1000) to 1000";
                return Err(bad("gpu_permille_max", detail));
            }
            want.permille_max = most;
        }
        want.resizes_in_place = spec.resizes_in_place;
        want.gpu_memory_mib = spec.gpu_memory_mib;
        want.cpus_per_gpu = spec.cpus_per_gpu;
        want.memory_mib_per_gpu = spec.memory_mib_per_gpu;
        want.nodes_max = shape::nodes_max(cluster, spec, &want);
        let there = cluster.largest_size(&want, want.gpus_max);
        if least > there && !cluster.rules.is_none() && least <= cluster.most_gpus(&want) {
            return Err(Problem::field(Code::Infeasible, "gpus", shape::uneven(cluster, &want)));
        }
        if least > there {
            let detail = format!(
                "it needs {least} GPUs, and there are at most {there} for it here: ask for fewer or for other types"
            );
            return Err(Problem::field(Code::Infeasible, "gpus", detail));
        }
        Ok(want)
    }

    /// The tenant of that name; a new one is added at the top.
    fn tenant(&mut self, name: &str) -> TenantId {
        if let Some(id) = self.tenant_ids.get(name) {
            return *id;
        }
        self.apply(Event::TenantAdded(Tenant::named(name)));
        let tenants = &self.engine.state().tenants;
        let id = TenantId((tenants.len() - 1) as u32);
        self.tenant_ids.insert(name.to_owned(), id);
        self.has_new_tenants = true;
        id
    }

    fn remember_key(&mut self, caller: &Caller, key: &str, print: String, answer: &Submitted) {
        let own = (caller.user.clone(), key.to_owned());
        let answer = text(answer);
        self.turn.writes.push(Write::AddKey {
            user: caller.user.clone(),
            key: key.to_owned(),
            digest: print.clone(),
            answer: answer.clone(),
            wall: self.wall,
        });
        self.keys.insert(own.clone(), (print, answer));
        self.key_order.push_back(own);
        if self.key_order.len() > REMEMBERED_MAX
            && let Some(oldest) = self.key_order.pop_front()
        {
            self.keys.remove(&oldest);
        }
    }
}

/// The search that a job is a trial of.
fn search(caller: &Caller, spec: &JobSpec) -> Option<GroupId> {
    let user = spec.owner.as_deref().unwrap_or(&caller.user);
    spec.search.as_deref().map(|name| names::group(user, name))
}

/// The answer that a key was given before, if it was for the same request.
fn repeated(print: &str, digest: &str, answer: &str, key: &str) -> Result<Said, Problem> {
    if print != digest {
        let detail = format!("the key `{key}` was used for another submission: choose a new one");
        return Err(Problem::field(Code::Conflict, "key", detail));
    }
    let answer: Submitted = serde_json::from_str(answer).map_err(|fault| {
        Problem::new(Code::Internal, format!("a stored answer is damaged: {fault}"))
    })?;
    Ok(Said::Submitted(Submitted { repeated: true, ..answer }))
}

fn fingerprint(jobs: &[JobSpec]) -> String {
    let digest = digest(&SHA256, text(&jobs).as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn check_command(spec: &JobSpec) -> Result<(), Problem> {
    let names_program = spec.argv.first().is_some_and(|program| !program.is_empty());
    if !names_program && spec.external.is_none() {
        return Err(bad("argv", "the command is empty: expected a program and its arguments"));
    }
    let texts = spec.argv.iter().chain(spec.env.values()).chain(&spec.cwd);
    if texts.into_iter().any(|text| text.contains('\0')) {
        return Err(bad("argv", "a text contains a zero byte, which no process can be given"));
    }
    let named_well = |name: &String| !name.is_empty() && !name.contains(['=', '\0']);
    if let Some(name) = spec.env.keys().find(|name| !named_well(name)) {
        return Err(bad("env", &format!("`{name}` cannot be the name of a variable")));
    }
    if !SIGNALS.contains(&spec.checkpoint.signal.as_str()) {
        let detail = format!(
            "`{}` is not a signal that can ask a job to save: expected one of {}",
            spec.checkpoint.signal,
            SIGNALS.join(", ")
        );
        return Err(bad("checkpoint.signal", &detail));
    }
    Ok(())
}

fn check_numbers(spec: &JobSpec) -> Result<(), Problem> {
    let spans = [
        ("expected_seconds", spec.expected_seconds, 10.0 * YEAR),
        ("deadline_seconds", spec.deadline_seconds, 10.0 * YEAR),
        ("tolerance_seconds", spec.tolerance_seconds, 10.0 * YEAR),
        ("time_limit_seconds", spec.time_limit_seconds, 10.0 * YEAR),
        ("min_run_seconds", Some(spec.min_run_seconds), YEAR),
        ("hang_times", spec.hang_times, 1e6),
        ("hang_min_seconds", spec.hang_min_seconds, YEAR),
        ("idle_seconds", spec.idle_seconds, YEAR),
        ("checkpoint.grace_seconds", Some(spec.checkpoint.grace_seconds), 86_400.0),
        ("steps", spec.steps, 1e18),
        ("weight", Some(spec.weight), 1e6),
        ("begin", spec.begin, 1e11),
    ];
    for (field, value, most) in spans {
        let zero = ["min_run_seconds", "checkpoint.grace_seconds", "begin"].contains(&field);
        let Some(value) = value else { continue };
        let low = if zero { value < 0.0 } else { value <= 0.0 };
        if !value.is_finite() || low || value > most {
            let least = if zero { "0 or more" } else { "more than 0" };
            let detail =
                format!("`{field}` cannot be {value}: expected {least} and at most {most:.0}");
            return Err(bad(field, &detail));
        }
    }
    if spec.tolerance_seconds.is_some() && spec.deadline_seconds.is_none() {
        return Err(bad(
            "tolerance_seconds",
            "it counts from a deadline: give `deadline_seconds` too",
        ));
    }
    Ok(())
}

/// With which jobs it may share a GPU.
fn labels(spec: &JobSpec) -> Option<Box<Labels>> {
    let names = [&spec.affinity, &spec.anti_affinity, &spec.exclusion];
    let [affinity, anti_affinity, exclusion] = names.map(Option::as_deref);
    Labels::of(affinity, anti_affinity, exclusion)
}

/// Labels are names.
fn check_labels(spec: &JobSpec) -> Result<(), Problem> {
    for (key, name) in [
        ("affinity", &spec.affinity),
        ("anti_affinity", &spec.anti_affinity),
        ("exclusion", &spec.exclusion),
    ] {
        if name.as_deref().is_some_and(|name| !Labels::is_name(name)) {
            return Err(bad(key, &format!("expected {}", Labels::NAME)));
        }
    }
    Ok(())
}

fn class(class: JobClass) -> Class {
    match class {
        JobClass::Guaranteed => Class::Guaranteed,
        JobClass::BestEffort => Class::BestEffort,
        JobClass::Opportunistic => Class::Opportunistic,
    }
}

fn batch_mode(rule: BatchRule) -> BatchMode {
    match rule {
        BatchRule::Static => BatchMode::Static,
        BatchRule::Accordion => BatchMode::Accordion,
        BatchRule::Gns => BatchMode::Gns,
    }
}

/// Its batch, fixed or between limits.
fn set_batch(want: &mut Want, spec: &JobSpec) -> Result<(), Problem> {
    if let Some((name, value, expected)) = spec.batch_fault() {
        return Err(bad(name, &format!("it is {value}: expected {expected}")));
    }
    match (spec.batch, spec.batch_max) {
        (Some(first), Some(most)) => {
            let local_least = spec.batch_per_gpu_min.unwrap_or(1);
            let local_most = spec.batch_per_gpu_max.unwrap_or(most);
            want.batch_limits = Some(BatchLimits { first, most, local_least, local_most });
        }
        (fixed, _) => want.batch = fixed,
    }
    Ok(())
}

fn bad(field: &str, detail: &str) -> Problem {
    Problem::field(Code::BadInput, field, detail)
}
