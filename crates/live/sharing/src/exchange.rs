//! What is said and answered, without a clock, a socket or a process.

use crate::stats::{ClientStats, Stats};
use std::collections::{BTreeMap, VecDeque};
use trainyard_arbiter::{
    Arbiter, ClientId, Hold, Next, Settings, SettingsError, Share, ShareError,
};
use trainyard_arbiter::{Stale, TokenId};
use trainyard_token::{FOREVER, FRAME, FromProgram, Malformed, ToProgram};
use trainyard_types::{Span, Time};

/// One end of a connection, on our side.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer(pub u64);

/// What happens to the process that keeps a token past quota and grace.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum OnOverdue {
    /// It is killed.
    #[default]
    Kill,
    /// It goes on beside the others, pays for it, and gets no other turn before it gave back.
    Charge,
}

/// Bounds of what programs may do.
#[derive(Copy, Clone, Debug)]
pub struct Limits {
    /// Connections of one client at once.
    pub peers_max: usize,
    /// A connection without a hello is ended after this time.
    pub hello_within: Span,
    /// What happens to holders that are overdue.
    pub on_overdue: OnOverdue,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { peers_max: 64, hello_within: Span::secs(5), on_overdue: OnOverdue::default() }
    }
}

/// What the server has to do.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send this.
    Send(Peer, ToProgram),
    /// End the connection; the exchange has forgotten it.
    Close(Peer),
    /// Kill the process at the other end, and end the connection.
    Kill(Peer),
}

/// Why a connection was ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It is no message.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// Something else than hello came first, or hello came twice.
    #[error("hello comes first, and once")]
    Hello,
    /// A turn is asked for by one that has one, or has asked.
    #[error("a turn was asked for twice")]
    Twice,
    /// A turn is given back that the program does not have.
    #[error("a turn was given back that is not out")]
    NotHeld,
    /// More is freed than was allocated.
    #[error("more memory was freed than allocated")]
    NotReserved,
    /// There are too many connections.
    #[error("too many connections")]
    TooMany,
    /// There is no such connection or client.
    #[error("there is no such connection or client")]
    Unknown,
}

struct Program {
    client: ClientId,
    process: i32,
    since: Time,
    said_hello: bool,
    wants: bool,
    holds: Option<TokenId>,
    reserved: u64,
}

struct Client {
    /// Whether its programs wait for turns.
    takes_turns: bool,
    memory_cap: u64,
    memory_used: u64,
    memory_peak: u64,
    memory_refusals: u64,
    hellos: u64,
    faults: u64,
    strangers: u64,
    pauses: u64,
    drained: Span,
    /// Programs that wait for a turn, in order.
    queue: VecDeque<Peer>,
}

/// The programs on one GPU, their turns and their memory.
pub struct Exchange {
    arbiter: Arbiter,
    limits: Limits,
    clients: BTreeMap<ClientId, Client>,
    programs: BTreeMap<Peer, Program>,
    /// When the present turn is overdue, or the next one can begin.
    turn_due: Option<Time>,
}

impl Exchange {
    /// Without clients.
    pub fn new(settings: Settings, limits: Limits) -> Result<Exchange, SettingsError> {
        let arbiter = Arbiter::new(settings)?;
        Ok(Exchange {
            arbiter,
            limits,
            clients: BTreeMap::new(),
            programs: BTreeMap::new(),
            turn_due: None,
        })
    }

    /// A job comes to this GPU.
    pub fn join(&mut self, id: ClientId, share: Share, memory_cap: u64) -> Result<(), ShareError> {
        self.arbiter.join(id, share)?;
        let fresh = Client {
            takes_turns: true,
            memory_cap,
            memory_used: 0,
            memory_peak: 0,
            memory_refusals: 0,
            hellos: 0,
            faults: 0,
            strangers: 0,
            pauses: 0,
            drained: Span::ZERO,
            queue: VecDeque::new(),
        };
        self.clients.insert(id, fresh);
        Ok(())
    }

    /// The programs of a job are held to its share by other means than turns: each gets one that never ends.
    pub fn without_turns(&mut self, id: ClientId) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.takes_turns = false;
        }
    }

    /// A job's share and cap change. What is allocated beyond a lower cap stays; nothing is added to it.
    pub fn adjust(
        &mut self,
        now: Time,
        id: ClientId,
        (share, memory_cap): (Share, u64),
    ) -> Result<Vec<Effect>, ShareError> {
        self.arbiter.adjust(id, share)?;
        self.clients.get_mut(&id).ok_or(ShareError::Unknown(id))?.memory_cap = memory_cap;
        let mut effects = Vec::new();
        self.advance(now, &mut effects);
        Ok(effects)
    }

    /// A job goes; its connections end.
    pub fn leave(&mut self, now: Time, id: ClientId) -> Vec<Effect> {
        let of_it = |(_, program): &(&Peer, &Program)| program.client == id;
        let peers: Vec<Peer> = self.programs.iter().filter(of_it).map(|(peer, _)| *peer).collect();
        for peer in &peers {
            self.programs.remove(peer);
        }
        self.arbiter.leave(now, id);
        self.clients.remove(&id);
        let mut effects: Vec<Effect> = peers.into_iter().map(Effect::Close).collect();
        self.advance(now, &mut effects);
        effects
    }

    /// A process of that client connects.
    pub fn connected(
        &mut self,
        now: Time,
        peer: Peer,
        client: ClientId,
        process: i32,
    ) -> Result<(), Fault> {
        let others = self.programs.values().filter(|program| program.client == client).count();
        let found = self.clients.get_mut(&client).ok_or(Fault::Unknown)?;
        if others >= self.limits.peers_max {
            found.faults += 1;
            return Err(Fault::TooMany);
        }
        let fresh = Program {
            client,
            process,
            since: now,
            said_hello: false,
            wants: false,
            holds: None,
            reserved: 0,
        };
        self.programs.insert(peer, fresh);
        Ok(())
    }

    /// A process of another user tried to connect.
    pub fn turned_away(&mut self, client: ClientId) {
        if let Some(found) = self.clients.get_mut(&client) {
            found.strangers += 1;
        }
    }

    /// A frame came. One that makes no sense ends its connection.
    pub fn received(&mut self, now: Time, peer: Peer, frame: &[u8; FRAME]) -> Vec<Effect> {
        let mut effects = Vec::new();
        match self.heard(now, peer, frame) {
            Ok(Some(answer)) => effects.push(Effect::Send(peer, answer)),
            Ok(None) => {}
            Err(_) => {
                self.fault(peer);
                self.forget(now, peer);
                effects.push(Effect::Close(peer));
            }
        }
        self.advance(now, &mut effects);
        effects
    }

    /// A connection ended: what it held and had reserved is free.
    pub fn disconnected(&mut self, now: Time, peer: Peer) -> Vec<Effect> {
        self.forget(now, peer);
        let mut effects = Vec::new();
        self.advance(now, &mut effects);
        effects
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Time) -> Vec<Effect> {
        let late = |program: &Program| {
            !program.said_hello && now.since(program.since) >= self.limits.hello_within
        };
        let silent = self.programs.iter().filter(|(_, program)| late(program));
        let silent: Vec<Peer> = silent.map(|(peer, _)| *peer).collect();
        let mut effects = Vec::new();
        for peer in silent {
            self.fault(peer);
            self.forget(now, peer);
            effects.push(Effect::Close(peer));
        }
        self.advance(now, &mut effects);
        effects
    }

    /// When `tick` is due if nothing else happens.
    pub fn due(&self) -> Option<Time> {
        let silent = self.programs.values().filter(|program| !program.said_hello);
        let silent = silent.map(|program| program.since + self.limits.hello_within).min();
        silent.into_iter().chain(self.turn_due).min()
    }

    /// Everything worth telling.
    pub fn stats(&self, now: Time) -> Stats {
        let clients = self.clients.iter().map(|(id, client)| self.client_stats(now, *id, client));
        let holder = self.arbiter.holder().map(|hold| hold.client);
        Stats { clients: clients.collect(), holder }
    }

    fn client_stats(&self, now: Time, id: ClientId, client: &Client) -> ClientStats {
        let hooked = self.programs.values();
        let hooked = hooked.filter(|program| program.client == id && program.said_hello);
        ClientStats {
            client: id,
            share: self.arbiter.share(id).expect("a client of the exchange is one of the arbiter"),
            usage: self.arbiter.usage(now, id),
            counters: self.arbiter.counters(id).cloned().unwrap_or_default(),
            drained: client.drained,
            memory_used: client.memory_used,
            memory_peak: client.memory_peak,
            memory_cap: client.memory_cap,
            memory_refusals: client.memory_refusals,
            hellos: client.hellos,
            processes: hooked.map(|program| program.process).collect(),
            faults: client.faults,
            strangers: client.strangers,
            pauses: client.pauses,
        }
    }

    /// What a frame means and what is answered at once.
    fn heard(
        &mut self,
        now: Time,
        peer: Peer,
        frame: &[u8; FRAME],
    ) -> Result<Option<ToProgram>, Fault> {
        let program = self.programs.get_mut(&peer).ok_or(Fault::Unknown)?;
        let client = self.clients.get_mut(&program.client).ok_or(Fault::Unknown)?;
        let said = FromProgram::decode(frame)?;
        if (said == FromProgram::Hello) == program.said_hello {
            return Err(Fault::Hello);
        }
        match said {
            FromProgram::Hello => {
                program.said_hello = true;
                client.hellos += 1;
                Ok(Some(ToProgram::Welcome { memory_cap: client.memory_cap }))
            }
            FromProgram::Want => self.want(now, peer),
            FromProgram::Return { token, drain_us } => {
                client.pauses += 1;
                self.give_back(now, peer, (token, drain_us))
            }
            FromProgram::Renew { token, drain_us } => {
                self.give_back(now, peer, (token, drain_us))?;
                self.want(now, peer)
            }
            FromProgram::Reserve { bytes } => Ok(Some(client.reserve(program, bytes))),
            FromProgram::Release { bytes } => {
                program.reserved = program.reserved.checked_sub(bytes).ok_or(Fault::NotReserved)?;
                client.memory_used -= bytes;
                Ok(None)
            }
            FromProgram::Usage => Ok(Some(ToProgram::Used { used: client.memory_used })),
        }
    }

    fn want(&mut self, now: Time, peer: Peer) -> Result<Option<ToProgram>, Fault> {
        let program = self.programs.get_mut(&peer).ok_or(Fault::Unknown)?;
        let client = self.clients.get_mut(&program.client).ok_or(Fault::Unknown)?;
        if program.wants || program.holds.is_some() {
            return Err(Fault::Twice);
        }
        if !client.takes_turns {
            return Ok(Some(ToProgram::Granted { token: 0, quota_us: FOREVER }));
        }
        program.wants = true;
        client.queue.push_back(peer);
        self.arbiter.request(now, program.client).map_err(|_| Fault::Unknown)?;
        Ok(None)
    }

    fn give_back(
        &mut self,
        now: Time,
        peer: Peer,
        (token, drain_us): (u64, u64),
    ) -> Result<Option<ToProgram>, Fault> {
        let program = self.programs.get_mut(&peer).ok_or(Fault::Unknown)?;
        let client = self.clients.get_mut(&program.client).ok_or(Fault::Unknown)?;
        let held = program.holds.filter(|held| held.0 == token).ok_or(Fault::NotHeld)?;
        program.holds = None;
        let charge = self.arbiter.give_back(now, held).map_err(|Stale(_)| Fault::NotHeld)?;
        client.drained += Span(drain_us).min(charge.held);
        Ok(None)
    }

    /// Takes back what is overdue and gives the next turn.
    fn advance(&mut self, now: Time, effects: &mut Vec<Effect>) {
        if let Some(hold) = self.arbiter.revoke_overdue(now) {
            self.overdue(now, hold, effects);
        }
        self.turn_due = loop {
            match self.arbiter.select(now) {
                Next::Grant(hold) => self.grant(now, hold, effects),
                Next::Held(moment) | Next::Limited(moment) => break Some(moment),
                Next::Idle => break None,
            }
        };
    }

    /// Tells the first in the queue. A turn without a program to tell is given back at once: its client waits no more.
    fn grant(&mut self, now: Time, hold: Hold, effects: &mut Vec<Effect>) {
        let client = self.clients.get_mut(&hold.client);
        let client = client.expect("a client of the arbiter is one of the exchange");
        let Some(peer) = client.queue.pop_front() else {
            let _ = self.arbiter.give_back(now, hold.token);
            return;
        };
        if !client.queue.is_empty() {
            let _ = self.arbiter.request(now, hold.client);
        }
        let program = self.programs.get_mut(&peer).expect("queues hold connections only");
        program.wants = false;
        program.holds = Some(hold.token);
        let granted = ToProgram::Granted { token: hold.token.0, quota_us: hold.quota.0 };
        effects.push(Effect::Send(peer, granted));
    }

    fn overdue(&mut self, now: Time, hold: Hold, effects: &mut Vec<Effect>) {
        let holds = |(_, program): &(&Peer, &Program)| program.holds == Some(hold.token);
        let holder = self.programs.iter().find(holds).map(|(peer, _)| *peer);
        match (self.limits.on_overdue, holder) {
            (OnOverdue::Kill, Some(peer)) => {
                self.forget(now, peer);
                effects.push(Effect::Kill(peer));
            }
            (OnOverdue::Charge, Some(_)) => {}
            (_, None) => {
                let _ = self.arbiter.give_back(now, hold.token);
            }
        }
    }

    fn fault(&mut self, peer: Peer) {
        let client = self.programs.get(&peer).map(|program| program.client);
        if let Some(found) = client.and_then(|client| self.clients.get_mut(&client)) {
            found.faults += 1;
        }
    }

    fn forget(&mut self, now: Time, peer: Peer) {
        let Some(program) = self.programs.remove(&peer) else { return };
        if let Some(token) = program.holds {
            // Stale where it was given back with the fault that ends the connection.
            let _ = self.arbiter.give_back(now, token);
        }
        let Some(client) = self.clients.get_mut(&program.client) else { return };
        client.memory_used -= program.reserved;
        client.queue.retain(|other| *other != peer);
        if client.queue.is_empty() {
            self.arbiter.withdraw(program.client);
        }
    }
}

impl Client {
    fn reserve(&mut self, program: &mut Program, bytes: u64) -> ToProgram {
        let sum = self.memory_used.checked_add(bytes).filter(|sum| *sum <= self.memory_cap);
        let Some(used) = sum else {
            self.memory_refusals += 1;
            return ToProgram::Refused { used: self.memory_used };
        };
        self.memory_used = used;
        self.memory_peak = self.memory_peak.max(used);
        program.reserved += bytes;
        ToProgram::Reserved { used }
    }
}
