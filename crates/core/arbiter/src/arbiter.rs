//! The rules that choose among those who wait.

use crate::burst::Bursts;
use crate::counters::Counters;
use crate::history::History;
use crate::settings::{Settings, SettingsError};
use crate::share::{Share, ShareError, WHOLE};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use trainyard_types::{Span, Time};

/// One of those who share a GPU.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u32);

/// One turn. Never given twice, so that what is late is known to be late.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenId(pub u64);

/// A turn that lasts.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The turn.
    pub token: TokenId,
    /// Whose it is.
    pub client: ClientId,
    /// When it began.
    pub since: Time,
    /// How long it may last.
    pub quota: Span,
}

impl Hold {
    /// When the quota ends.
    pub fn due(&self) -> Time {
        self.since + self.quota
    }
}

/// What is to be done next.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// This turn has begun: tell its client.
    Grant(Hold),
    /// The token is out until it comes back, or until it is to be revoked at that moment.
    Held(Time),
    /// Those who wait are at their limits until then.
    Limited(Time),
    /// No client waits.
    Idle,
}

/// What a turn cost its client.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Charge {
    /// Whose turn it was.
    pub client: ClientId,
    /// How long the token was away, draining included; all of it counts as use.
    pub held: Span,
    /// The part past the quota.
    pub overrun: Span,
}

/// There is no such client.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no client {}", .0.0)]
pub struct Unknown(pub ClientId);

/// That turn is over already.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("token {} is not out", .0.0)]
pub struct Stale(pub TokenId);

#[derive(Clone, Debug)]
struct Client {
    share: Share,
    history: History,
    bursts: Bursts,
    waiting_since: Option<Time>,
    /// A turn that was taken from it and that it did not give back yet, and when it was taken.
    revoked: Option<(TokenId, Time)>,
    counters: Counters,
}

/// One token, those who share it, and what they used of late.
#[derive(Clone, Debug)]
pub struct Arbiter {
    settings: Settings,
    clients: BTreeMap<ClientId, Client>,
    holder: Option<Hold>,
    next_token: u64,
    /// The latest moment that was told: time does not run backwards here.
    now: Time,
}

impl Arbiter {
    /// Without clients.
    pub fn new(settings: Settings) -> Result<Arbiter, SettingsError> {
        let settings = settings.checked()?;
        Ok(Arbiter {
            settings,
            clients: BTreeMap::new(),
            holder: None,
            next_token: 0,
            now: Time::ZERO,
        })
    }

    /// A client comes.
    pub fn join(&mut self, client: ClientId, share: Share) -> Result<(), ShareError> {
        if self.clients.contains_key(&client) {
            return Err(ShareError::Twice(client));
        }
        let share = share.checked(self.promised_beside(client))?;
        let fresh = Client {
            share,
            history: History::new(self.settings.window),
            bursts: Bursts::new(&self.settings, share.limit),
            waiting_since: None,
            revoked: None,
            counters: Counters::default(),
        };
        self.clients.insert(client, fresh);
        Ok(())
    }

    /// A client's share changes; a turn that lasts goes on.
    pub fn adjust(&mut self, client: ClientId, share: Share) -> Result<(), ShareError> {
        let share = share.checked(self.promised_beside(client))?;
        let found = self.clients.get_mut(&client).ok_or(ShareError::Unknown(client))?;
        found.share = share;
        found.bursts.bound(&self.settings, share.limit);
        Ok(())
    }

    /// A client goes, and with it the turn that it may have. What it used is forgotten.
    pub fn leave(&mut self, now: Time, client: ClientId) {
        let now = self.clock(now);
        if let Some(hold) = self.holder.filter(|hold| hold.client == client) {
            self.end(now, hold);
        }
        self.clients.remove(&client);
    }

    /// A client wants the token. Asking twice is asking once.
    pub fn request(&mut self, now: Time, client: ClientId) -> Result<(), Unknown> {
        let now = self.clock(now);
        let holds = self.holder.is_some_and(|hold| hold.client == client);
        let found = self.clients.get_mut(&client).ok_or(Unknown(client))?;
        if found.waiting_since.is_none() {
            found.waiting_since = Some(now);
            if !holds {
                found.bursts.begins(&self.settings, now, found.share.limit);
            }
        }
        Ok(())
    }

    /// A client no longer wants the token.
    pub fn withdraw(&mut self, client: ClientId) {
        if let Some(found) = self.clients.get_mut(&client) {
            found.waiting_since = None;
        }
    }

    /// Gives the token to the one who has most right to it, if it is free.
    pub fn select(&mut self, now: Time) -> Next {
        let now = self.clock(now);
        if let Some(hold) = self.holder {
            return Next::Held(hold.due() + self.settings.grace);
        }
        let Some(client) = self.foremost(now) else { return self.without_turn(now) };
        let settings = self.settings;
        let found = self.clients.get_mut(&client).expect("the foremost is one of the clients");
        let waiting_since = found.waiting_since.take().expect("the foremost waits");
        // A quota ends at the limit, but a turn of less than the least quota is worth nothing.
        let quota = found.bursts.quota().min(found.remaining(&settings, now));
        let quota = quota.max(settings.quota_min);
        found.counters.grants += 1;
        found.counters.waited += now.since(waiting_since);
        let hold = Hold { token: TokenId(self.next_token), client, since: now, quota };
        self.next_token += 1;
        self.holder = Some(hold);
        Next::Grant(hold)
    }

    /// The token comes back; its GPU is drained.
    pub fn give_back(&mut self, now: Time, token: TokenId) -> Result<Charge, Stale> {
        let now = self.clock(now);
        if let Some(hold) = self.holder.filter(|hold| hold.token == token) {
            return Ok(self.end(now, hold));
        }
        let late = |client: &Client| client.revoked.is_some_and(|(revoked, _)| revoked == token);
        let found = self.clients.iter_mut().find(|(_, client)| late(client));
        let (client, found) = found.ok_or(Stale(token))?;
        let (_, since) = found.revoked.take().ok_or(Stale(token))?;
        // Until now its work was on the GPU beside that of others: it pays for all of it.
        let extra = now.since(since);
        found.history.charge(since, now);
        found.counters.held += extra;
        found.counters.overrun += extra;
        Ok(Charge { client: *client, held: extra, overrun: extra })
    }

    /// Takes the token from a holder that kept it past quota and grace, and says from whom. The client gets no other
    /// turn before it gives this one back or leaves.
    pub fn revoke_overdue(&mut self, now: Time) -> Option<Hold> {
        let now = self.clock(now);
        let hold = self.holder.filter(|hold| now >= hold.due() + self.settings.grace)?;
        self.end(now, hold);
        let client = self.clients.get_mut(&hold.client).expect("a holder is one of the clients");
        client.revoked = Some((hold.token, now));
        client.counters.revocations += 1;
        Some(hold)
    }

    /// Who has the token.
    pub fn holder(&self) -> Option<Hold> {
        self.holder
    }

    /// What a client used within the window; nothing for one that is not there.
    pub fn usage(&self, now: Time, client: ClientId) -> Span {
        let lasting = self.holder.filter(|hold| hold.client == client);
        let lasting = lasting.map_or(Span::ZERO, |hold| now.since(hold.since));
        let past = self.clients.get(&client).map_or(Span::ZERO, |found| found.history.used(now));
        past + lasting
    }

    /// What happened to a client.
    pub fn counters(&self, client: ClientId) -> Option<&Counters> {
        self.clients.get(&client).map(|found| &found.counters)
    }

    /// The share of a client.
    pub fn share(&self, client: ClientId) -> Option<Share> {
        self.clients.get(&client).map(|found| found.share)
    }

    /// The figures of the rules.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The waiting client below its limit that lacks most of its request; where all have theirs, the one that used
    /// least. Ties go to the lower id.
    fn foremost(&self, now: Time) -> Option<ClientId> {
        let waiting = self.clients.iter().filter(|(_, client)| client.may_run(&self.settings, now));
        let right = |client: &Client| {
            let used = client.history.used(now);
            let requested = self.settings.part(client.share.request);
            let missing = requested.minus(used);
            // missing / (missing + usage), in parts of a million; the sum is the request.
            let lacks = missing.0.saturating_mul(1_000_000) / requested.0.max(1);
            (missing > Span::ZERO, lacks, Reverse(used))
        };
        let first = waiting.max_by_key(|(id, client)| (right(client), Reverse(**id)));
        first.map(|(id, _)| *id)
    }

    /// What is next where no client may run.
    fn without_turn(&self, now: Time) -> Next {
        let waiting = self.clients.values();
        let waiting = waiting.filter(|one| one.waiting_since.is_some() && one.revoked.is_none());
        let moments = waiting
            .map(|one| one.history.below(self.settings.part(one.share.limit).max(Span(1)), now));
        moments.min().map_or(Next::Idle, |moment| Next::Limited(moment.max(now + Span(1))))
    }

    /// A turn ends: use is charged, and those who waited know for whom.
    fn end(&mut self, now: Time, hold: Hold) -> Charge {
        self.holder = None;
        let held = now.since(hold.since);
        let overrun = held.minus(hold.quota);
        for (id, client) in &mut self.clients {
            if *id == hold.client {
                client.history.charge(hold.since, now);
                client.bursts.ended(&self.settings, now, held);
                client.counters.held += held;
                client.counters.overrun += overrun;
            } else if let Some(since) = client.waiting_since {
                let kept = now.since(since.max(hold.since));
                *client.counters.throttled_by.entry(hold.client).or_default() += kept;
            }
        }
        Charge { client: hold.client, held, overrun }
    }

    fn promised_beside(&self, client: ClientId) -> u32 {
        let others = self.clients.iter().filter(|(id, _)| **id != client);
        others.map(|(_, other)| other.share.request).sum()
    }

    fn clock(&mut self, now: Time) -> Time {
        self.now = self.now.max(now);
        self.now
    }
}

impl Client {
    /// What is left until its limit; a limit of everything is none.
    fn remaining(&self, settings: &Settings, now: Time) -> Span {
        match self.share.limit {
            WHOLE => settings.window,
            limit => settings.part(limit).max(Span(1)).minus(self.history.used(now)),
        }
    }

    fn may_run(&self, settings: &Settings, now: Time) -> bool {
        self.waiting_since.is_some()
            && self.revoked.is_none()
            && self.remaining(settings, now) > Span::ZERO
    }
}
