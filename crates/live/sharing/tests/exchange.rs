//! What programs may say, in any order and at any time: no other program is harmed.

use proptest::prelude::{
    Just, ProptestConfig, Strategy, any, prop, prop_assert, prop_oneof, proptest,
};
use proptest::test_runner::{RngSeed, TestCaseError};
use std::collections::BTreeMap;
use trainyard_sharing::{ClientId, Effect, Exchange, Limits, OnOverdue, Peer, Settings, Share};
use trainyard_token::{FRAME, FromProgram, ToProgram};
use trainyard_types::{Span, Time};

const CAP: u64 = 1_000;

fn settings() -> Settings {
    Settings {
        window: Span(500_000),
        quota_base: Span(20_000),
        quota_min: Span(10_000),
        quota_max: Some(Span(20_000)),
        grace: Span(50_000),
        ..Settings::default()
    }
}

fn exchange(on_overdue: OnOverdue) -> Exchange {
    let limits = Limits { peers_max: 4, on_overdue, ..Limits::default() };
    let mut exchange = Exchange::new(settings(), limits).unwrap();
    for (number, request) in [300, 700].into_iter().enumerate() {
        exchange.join(ClientId(number as u32), Share { request, limit: 1000 }, CAP).unwrap();
    }
    exchange
}

#[derive(Clone, Debug)]
enum Step {
    Connect(u64),
    Say(u64, FromProgram),
    /// The turn that it has, if it has one.
    Return(u64, bool),
    Bytes(u64, [u8; FRAME]),
    Disconnect(u64),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let peer = 0..12u64;
    let words = prop_oneof![
        Just(FromProgram::Hello),
        Just(FromProgram::Want),
        Just(FromProgram::Usage),
        (0..3u64, any::<u64>())
            .prop_map(|(token, drain_us)| FromProgram::Return { token, drain_us }),
        prop_oneof![0..2 * CAP, any::<u64>()].prop_map(|bytes| FromProgram::Reserve { bytes }),
        (0..CAP).prop_map(|bytes| FromProgram::Release { bytes }),
    ];
    let step = prop_oneof![
        2 => peer.clone().prop_map(Step::Connect),
        4 => peer.clone().prop_map(|peer| Step::Say(peer, FromProgram::Hello)),
        4 => peer.clone().prop_map(|peer| Step::Say(peer, FromProgram::Want)),
        6 => (peer.clone(), words).prop_map(|(peer, said)| Step::Say(peer, said)),
        6 => (peer.clone(), any::<bool>()).prop_map(|(peer, renew)| Step::Return(peer, renew)),
        1 => (peer.clone(), any::<[u8; FRAME]>()).prop_map(|(peer, bytes)| Step::Bytes(peer, bytes)),
        1 => peer.prop_map(Step::Disconnect),
        4 => (0..30_000u64).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..200)
}

/// What is known from the outside: who is connected and who has which turn.
#[derive(Default)]
struct Outside {
    connected: BTreeMap<Peer, ClientId>,
    turns: BTreeMap<Peer, u64>,
}

impl Outside {
    fn see(&mut self, effects: Vec<Effect>, kills: bool) -> Result<(), TestCaseError> {
        for effect in effects {
            match effect {
                Effect::Send(peer, message) => {
                    prop_assert!(self.connected.contains_key(&peer), "said to one that is gone");
                    if let ToProgram::Granted { token, .. } = message {
                        prop_assert!(!kills || self.turns.is_empty(), "two holders");
                        self.turns.insert(peer, token);
                    }
                }
                Effect::Close(peer) | Effect::Kill(peer) => {
                    prop_assert!(self.connected.remove(&peer).is_some(), "ended twice");
                    self.turns.remove(&peer);
                }
            }
        }
        Ok(())
    }
}

fn play(steps: &[Step], on_overdue: OnOverdue) -> Result<(), TestCaseError> {
    let mut exchange = exchange(on_overdue);
    let mut outside = Outside::default();
    let kills = on_overdue == OnOverdue::Kill;
    let mut now = Time(0);
    for step in steps {
        let effects = match step {
            Step::Connect(peer) => {
                let (peer, client) = (Peer(*peer), ClientId((*peer % 2) as u32));
                let is_new = !outside.connected.contains_key(&peer);
                if is_new && exchange.connected(now, peer, client, 1).is_ok() {
                    outside.connected.insert(peer, client);
                }
                continue;
            }
            Step::Say(peer, said) => {
                heard(&mut exchange, &mut outside, now, (Peer(*peer), said.encode()))
            }
            Step::Bytes(peer, bytes) => {
                heard(&mut exchange, &mut outside, now, (Peer(*peer), *bytes))
            }
            Step::Return(peer, renew) => {
                let peer = Peer(*peer);
                let token = outside.turns.get(&peer).copied().unwrap_or(u64::MAX);
                let said = match renew {
                    true => FromProgram::Renew { token, drain_us: 1 },
                    false => FromProgram::Return { token, drain_us: u64::MAX },
                };
                outside.turns.remove(&peer);
                heard(&mut exchange, &mut outside, now, (peer, said.encode()))
            }
            Step::Disconnect(peer) => {
                let peer = Peer(*peer);
                outside.turns.remove(&peer);
                if outside.connected.remove(&peer).is_none() {
                    continue;
                }
                exchange.disconnected(now, peer)
            }
            Step::Pass(span) => {
                now = now + Span(*span);
                exchange.tick(now)
            }
        };
        // A turn that was given back in this step is over before the next begins.
        if let Step::Say(peer, FromProgram::Return { token, .. }) = step
            && outside.turns.get(&Peer(*peer)) == Some(token)
        {
            outside.turns.remove(&Peer(*peer));
        }
        outside.see(effects, kills)?;
        for client in exchange.stats(now).clients {
            prop_assert!(client.memory_used <= CAP, "{client:?}");
            prop_assert!(client.drained <= client.counters.held, "{client:?}");
        }
    }
    // When all are gone, nothing is left of them.
    for peer in std::mem::take(&mut outside.connected).into_keys() {
        exchange.disconnected(now, peer);
    }
    let stats = exchange.stats(now);
    prop_assert!(stats.holder.is_none() && stats.clients.iter().all(|one| one.memory_used == 0));
    Ok(())
}

fn heard(
    exchange: &mut Exchange,
    outside: &mut Outside,
    now: Time,
    (peer, frame): (Peer, [u8; FRAME]),
) -> Vec<Effect> {
    if !outside.connected.contains_key(&peer) {
        return Vec::new();
    }
    exchange.received(now, peer, &frame)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, rng_seed: RngSeed::Fixed(41), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn there_is_one_holder_and_no_more_memory_than_the_cap(steps in steps()) {
        play(&steps, OnOverdue::Kill)?;
    }

    #[test]
    fn holders_that_live_on_do_no_harm_either(steps in steps()) {
        play(&steps, OnOverdue::Charge)?;
    }
}

#[test]
fn a_program_that_gives_back_and_asks_in_one_is_not_passed_over() {
    let mut exchange = exchange(OnOverdue::Kill);
    let [low, high] = [Peer(0), Peer(1)];
    for (peer, client) in [(low, ClientId(0)), (high, ClientId(1))] {
        exchange.connected(Time(0), peer, client, 1).unwrap();
        exchange.received(Time(0), peer, &FromProgram::Hello.encode());
    }
    exchange.received(Time(0), high, &FromProgram::Want.encode());
    exchange.received(Time(0), low, &FromProgram::Want.encode());
    let renew = FromProgram::Renew { token: 0, drain_us: 0 };
    let effects = exchange.received(Time(20_000), high, &renew.encode());
    assert!(
        matches!(effects[..], [Effect::Send(peer, ToProgram::Granted { token: 1, .. })] if peer == low)
    );
    let renew = FromProgram::Renew { token: 1, drain_us: 0 };
    let effects = exchange.received(Time(40_000), low, &renew.encode());
    let granted = [Effect::Send(high, ToProgram::Granted { token: 2, quota_us: 20_000 })];
    assert_eq!(effects, granted, "20 of 150 ms are more than 20 of 350 ms");
    let renew = FromProgram::Renew { token: 2, drain_us: 0 };
    let effects = exchange.received(Time(60_000), high, &renew.encode());
    assert_eq!(effects, [Effect::Send(high, ToProgram::Granted { token: 3, quota_us: 20_000 })]);
}

#[test]
fn due_is_when_a_turn_is_overdue() {
    let mut exchange = exchange(OnOverdue::Kill);
    assert_eq!(exchange.due(), None);
    exchange.connected(Time(0), Peer(0), ClientId(0), 7).unwrap();
    assert_eq!(exchange.due(), Some(Time(5_000_000)), "hello is due");
    exchange.received(Time(0), Peer(0), &FromProgram::Hello.encode());
    exchange.received(Time(0), Peer(0), &FromProgram::Want.encode());
    assert_eq!(exchange.due(), Some(Time(70_000)), "quota and grace");
    assert_eq!(exchange.tick(Time(69_999)), []);
    assert_eq!(exchange.tick(Time(70_000)), [Effect::Kill(Peer(0))]);
    assert_eq!(exchange.due(), None);
}
