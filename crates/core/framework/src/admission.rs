//! Which jobs take part: the queue that a policy answers about, behind the admission controls of its pipeline.

use crate::{JobRef, Offer, View};
use trainyard_types::{IdSet, JobId, Reason, Time, Verdict};

/// What an admission control says about a job.
#[derive(Clone, Debug, PartialEq)]
pub enum Control {
    /// The policy is asked.
    Pass,
    /// The job is admitted and stays with the control for a while: the control grants it GPUs, and the policy is neither
    /// asked about it nor shown it.
    Keep,
    /// The job is asked about again later.
    Hold(Reason),
    /// The job is asked about again later, and no job behind it before that.
    Close(Reason),
    /// The job never takes part.
    Reject(Reason),
}

/// Admission control in front of any policy. A job is admitted when the control passes it and the policy accepts it, or
/// when the control keeps it.
pub trait AdmissionControl: Send {
    /// A decision begins.
    fn begin(&mut self, _view: &View<'_>) {}

    /// About a job, in order of arrival.
    fn judge(&mut self, job: JobRef<'_>, view: &View<'_>) -> Control;

    /// The policy accepted a job that was passed, or one that a control keeps was admitted.
    fn accepted(&mut self, _job: JobRef<'_>) {}

    /// Whether it ever keeps a job.
    fn has_kept_jobs(&self) -> bool {
        false
    }

    /// Whether an admitted job is with this control at this moment. What is known of the job must tell: a restart, a
    /// fallback and a change of the policy find the same jobs with it.
    fn keeps(&self, _job: JobRef<'_>, _now: Time) -> bool {
        false
    }

    /// Offers grants to the jobs it keeps, and takes grants from those that it lets go, before the policy is asked.
    fn allocate(&mut self, _view: &View<'_>, _offer: &mut Offer<'_>) {}
}

/// Jobs that wait for admission, in order of arrival. What is not answered stays and is asked again.
pub struct Admission<'a> {
    unadmitted: &'a IdSet<JobId>,
    /// The first that may not have been asked about, and how many were not.
    from: JobId,
    left: usize,
    controls: &'a mut [Box<dyn AdmissionControl>],
    view: &'a View<'a>,
    current: Option<JobId>,
    verdicts: Vec<(JobId, Verdict)>,
}

impl<'a> Admission<'a> {
    /// Over the jobs that were not admitted yet.
    pub fn new(
        unadmitted: &'a IdSet<JobId>,
        controls: &'a mut [Box<dyn AdmissionControl>],
        view: &'a View<'a>,
    ) -> Admission<'a> {
        controls.iter_mut().for_each(|control| control.begin(view));
        let (from, left) = (JobId(0), unadmitted.len());
        Admission { unadmitted, from, left, controls, view, current: None, verdicts: Vec::new() }
    }

    /// The next job to answer about: one that every control passes.
    #[allow(clippy::should_implement_trait)] // It is a cursor: the answers go to the same object.
    pub fn next(&mut self) -> Option<JobId> {
        loop {
            self.current = self.step();
            let id = self.current?;
            match self.control(id) {
                Control::Pass => return Some(id),
                Control::Keep => self.accept(),
                Control::Hold(reason) => self.answer(Verdict::Hold(reason)),
                Control::Reject(reason) => self.answer(Verdict::Reject(reason)),
                Control::Close(reason) => {
                    self.answer(Verdict::Hold(reason));
                    self.left = 0;
                    return None;
                }
            }
        }
    }

    fn step(&mut self) -> Option<JobId> {
        self.left = self.left.checked_sub(1)?;
        let id = self.unadmitted.at_least(self.from)?;
        self.from = JobId(id.0.saturating_add(1));
        Some(id)
    }

    /// What the first control says that neither passes a job nor keeps it; a job is kept when no other control objects.
    fn control(&mut self, id: JobId) -> Control {
        // Most runs have none, and this is asked about every job.
        if self.controls.is_empty() {
            return Control::Pass;
        }
        let Some(job) = self.view.job(id) else { return Control::Pass };
        let mut answer = Control::Pass;
        for control in self.controls.iter_mut() {
            match control.judge(job, self.view) {
                Control::Pass => {}
                Control::Keep => answer = Control::Keep,
                other => return other,
            }
        }
        answer
    }

    /// The current job may take part.
    pub fn accept(&mut self) {
        if !self.controls.is_empty()
            && let Some(job) = self.current.and_then(|id| self.view.job(id))
        {
            self.controls.iter_mut().for_each(|control| control.accepted(job));
        }
        self.answer(Verdict::Accept);
    }

    /// The current job is asked about again later.
    pub fn hold(&mut self, reason: Reason) {
        self.answer(Verdict::Hold(reason));
    }

    /// The current job never takes part.
    pub fn reject(&mut self, reason: Reason) {
        self.answer(Verdict::Reject(reason));
    }

    /// The answers given.
    pub fn into_verdicts(self) -> Vec<(JobId, Verdict)> {
        self.verdicts
    }

    fn answer(&mut self, verdict: Verdict) {
        if let Some(job) = self.current.take() {
            self.verdicts.push((job, verdict));
        }
    }
}
