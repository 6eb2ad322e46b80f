//! Changes, and what must be looked up before the loop is asked.

use super::{ServiceImpl, ending, lost};
use crate::access::{self, Caller, Right};
use crate::core::{Ask, Said, TrialAsked, over_already};
use crate::host::{Message, Refusal};
use crate::service::NewToken;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::oneshot;
use trainyard_api::answer::{SubmitRequest, Submitted};
use trainyard_api::request::PolicyRequest;
use trainyard_api::token::TokenInfo;
use trainyard_api::trial::TrialRequest;
use trainyard_api::{Code, Problem};
use trainyard_backend::Identity;
use trainyard_framework::Pipeline;
use trainyard_types::{End, JobId, Span};

/// How often something is asked again when others get in between.
const TRIES: usize = 4;

/// The text that names a policy with all that is put around it.
pub fn label(request: &PolicyRequest) -> String {
    let mut label = request.policy.trim().to_owned();
    let place = request.place.iter().map(|choice| ("place", choice));
    let admit = request.admit.iter().map(|choice| ("admit", choice));
    for (stage, choice) in place.chain(admit) {
        label.push_str(&format!(" {stage}={}", choice.trim()));
    }
    label
}

impl ServiceImpl {
    /// Asks the loop for a change, again where something else got in between.
    pub(super) async fn ask(
        &self,
        caller: &Caller,
        ask: impl Fn() -> Ask,
    ) -> Result<Said, Problem> {
        for _ in 0..TRIES {
            if let Some(said) = self.ask_once(caller, ask(), None).await? {
                return Ok(said);
            }
        }
        Err(crowded())
    }

    async fn ask_once(
        &self,
        caller: &Caller,
        ask: Ask,
        pipeline: Option<Pipeline>,
    ) -> Result<Option<Said>, Problem> {
        let (reply, said) = oneshot::channel();
        let (caller, ask) = (caller.clone(), Box::new(ask));
        self.say(Message::Ask { caller, ask, pipeline, reply })?;
        match said.await.map_err(|_| ending())? {
            Ok(said) => Ok(Some(said)),
            Err(Refusal::Problem(problem)) => Err(problem),
            Err(Refusal::Again) => Ok(None),
        }
    }

    /// A job that the loop does not know may have ended before this start: the store remembers it.
    pub(super) async fn unless_over(&self, job: u32, problem: Problem) -> Problem {
        if problem.code != Code::NotFound {
            return problem;
        }
        match self.read(move |reader| reader.end_of(job)).await {
            Ok(Some(end)) => over_already(JobId(job), &end),
            _ => problem,
        }
    }

    pub(super) async fn take_submission(
        &self,
        caller: Caller,
        request: SubmitRequest,
    ) -> Result<Submitted, Problem> {
        access::check(&caller, Right::Submit, None)?;
        let identity = self.identity(&caller).await?;
        for _ in 0..TRIES {
            let (known, ends) = self.look_up(&caller, &request).await?;
            let (request, identity) = (request.clone(), identity.clone());
            let ask = Ask::Submit { request, identity, known, ends };
            match self.ask_once(&caller, ask, None).await? {
                Some(Said::Submitted(submitted)) => return Ok(submitted),
                Some(Said::Done | Said::Window(_)) => return Err(lost()),
                None => {}
            }
        }
        Err(crowded())
    }

    /// What the store knows of the key and of jobs that are waited for.
    pub(super) async fn look_up(
        &self,
        caller: &Caller,
        request: &SubmitRequest,
    ) -> Result<(Option<(String, String)>, BTreeMap<u32, End>), Problem> {
        let after: Vec<u32> = request.jobs.iter().flat_map(|job| job.after.clone()).collect();
        if request.key.is_none() && after.is_empty() {
            return Ok((None, BTreeMap::new()));
        }
        let (user, key) = (caller.user.clone(), request.key.clone());
        self.read(move |reader| {
            let known = match &key {
                Some(key) => reader.key(&user, key)?,
                None => None,
            };
            let mut ends = BTreeMap::new();
            for job in after {
                let end = reader.end_of(job)?;
                ends.extend(end.as_deref().and_then(End::named).map(|end| (job, end)));
            }
            Ok((known, ends))
        })
        .await
    }

    /// The Unix user that a job runs as, where jobs run as users.
    async fn identity(&self, caller: &Caller) -> Result<Option<Identity>, Problem> {
        if !self.shared().health().runs_as_users {
            return Ok(None);
        }
        let (name, uid) = (caller.user.clone(), caller.uid);
        let found = tokio::task::spawn_blocking(move || match uid {
            Some(uid) => nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid)),
            None => nix::unistd::User::from_name(&name),
        });
        let found = found.await.map_err(|_| lost())?.ok().flatten();
        let user = found.ok_or_else(|| {
            let detail = format!(
                "`{}` is no Unix user of this machine, and jobs run as the users who submit them: add that user, or \
                 use a token of another",
                caller.user
            );
            Problem::new(Code::Denied, detail)
        })?;
        Ok(Some(Identity {
            uid: user.uid.as_raw(),
            gid: user.gid.as_raw(),
            name: user.name,
            home: user.dir.display().to_string(),
        }))
    }

    pub(super) async fn change_policy(
        &self,
        caller: &Caller,
        request: PolicyRequest,
    ) -> Result<(), Problem> {
        let ask = |label: String, half_life: Span| Ask::SetPolicy { label, half_life };
        self.build_policy(caller, &request, ask).await
    }

    pub(super) async fn put_on_trial(
        &self,
        caller: &Caller,
        request: TrialRequest,
    ) -> Result<(), Problem> {
        let TrialRequest { policy, place, admit, seconds, guard } = request;
        let ask = |label: String, half_life: Span| {
            Ask::TryPolicy(TrialAsked { label, half_life, seconds, guard })
        };
        self.build_policy(caller, &PolicyRequest { policy, place, admit }, ask).await
    }

    /// Builds a policy and asks for it.
    async fn build_policy(
        &self,
        caller: &Caller,
        request: &PolicyRequest,
        ask: impl Fn(String, Span) -> Ask,
    ) -> Result<(), Problem> {
        let label = label(request);
        for _ in 0..TRIES {
            let (factory, text) = (Arc::clone(&self.0.factory), label.clone());
            let built = tokio::task::spawn_blocking(move || factory(&text)).await;
            let pipeline = built.map_err(|_| lost())?;
            let pipeline = pipeline.map_err(|why| Problem::field(Code::BadInput, "policy", why))?;
            let half_life = pipeline.usage_half_life;
            let ask = ask(label.clone(), half_life);
            if self.ask_once(caller, ask, Some(pipeline)).await?.is_some() {
                return Ok(());
            }
        }
        Err(crowded())
    }

    pub(super) async fn take_token(
        &self,
        caller: Caller,
        token: NewToken,
    ) -> Result<TokenInfo, Problem> {
        let may = access::check(&caller, Right::RuleStore, None).is_ok();
        let name = token.info.name.clone();
        for _ in 0..TRIES {
            // A caller that may not is told so by the core, which writes it down.
            if may && self.shared().tokens().iter().any(|other| other.name == name) {
                let detail =
                    format!("there is a token `{name}` already: drop it, or choose another name");
                return Err(Problem::field(Code::Conflict, "name", detail));
            }
            if self.ask_once(&caller, Ask::AddToken(token.clone()), None).await?.is_some() {
                return Ok(token.info);
            }
        }
        Err(crowded())
    }

    pub(super) async fn let_token_go(&self, caller: Caller, name: String) -> Result<(), Problem> {
        let may = access::check(&caller, Right::RuleStore, None).is_ok();
        for _ in 0..TRIES {
            if may && !self.shared().tokens().iter().any(|other| other.name == name) {
                let detail = format!("there is no token `{name}`");
                return Err(Problem::field(Code::NotFound, "name", detail));
            }
            if self.ask_once(&caller, Ask::DropToken(name.clone()), None).await?.is_some() {
                return Ok(());
            }
        }
        Err(crowded())
    }
}

fn crowded() -> Problem {
    Problem::new(Code::Conflict, "others changed the same thing at the same time; try again")
}
