//! The promises of the arbiter under random clients.

use proptest::prelude::{ProptestConfig, Strategy, any, prop, prop_assert, proptest};
use proptest::test_runner::{RngSeed, TestCaseError};
use trainyard_arbiter::{Arbiter, ClientId, Hold, Next, Settings, Share};
use trainyard_types::{Span, Time};

/// So many cases from a seed; `TRAINYARD_TEST_CASES=8` draws eight times as many, `TRAINYARD_TEST_SEED=1` others.
fn draws(seed: u64, cases: u32) -> ProptestConfig {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    let cases = cases * number("TRAINYARD_TEST_CASES").unwrap_or(1);
    let rng_seed =
        RngSeed::Fixed(seed + 1000 * u64::from(number("TRAINYARD_TEST_SEED").unwrap_or(0)));
    ProptestConfig { cases, rng_seed, failure_persistence: None, ..ProptestConfig::default() }
}

/// A program: how long it keeps the GPU busy at a time, how long it pauses then, and how late it gives back.
#[derive(Clone, Debug)]
struct Program {
    share: Share,
    burst: Span,
    /// `None` never pauses.
    pause: Option<Span>,
    overrun: Span,
}

impl Program {
    /// How long it keeps a turn with what is `left` of its burst, and how long it pauses then.
    fn used(&self, quota: Span, left: &mut Span) -> (Span, Span) {
        let held = if *left > quota { quota + self.overrun } else { *left };
        *left = left.minus(held);
        if *left > Span::ZERO {
            return (held, Span::ZERO);
        }
        *left = self.burst;
        (held, self.pause.unwrap_or_default())
    }
}

#[derive(Clone, Debug)]
struct Case {
    settings: Settings,
    programs: Vec<Program>,
}

fn settings() -> impl Strategy<Value = Settings> {
    (500u64..3_000, 1u64..20, 0u64..30, 0u64..60).prop_map(|(window, least, more, most)| Settings {
        window: Span(window * 1_000),
        quota_min: Span(least * 1_000),
        quota_base: Span((least + more) * 1_000),
        quota_max: Some(Span((least + more + most) * 1_000)),
        ..Settings::default()
    })
}

/// Programs whose requests fit on a GPU; `parts` are cut from the whole of it.
fn programs(backlogged: bool) -> impl Strategy<Value = Vec<Program>> {
    let one = (0u32..=500, 1u32..=1000, 1u64..80, 0u64..80, 0u64..10, any::<bool>());
    prop::collection::vec(one, 1..5).prop_map(move |drawn| {
        let mut left = 1000;
        let mut programs = Vec::new();
        for (request, above, burst, pause, overrun, pauses) in drawn {
            let request = request.min(left);
            left -= request;
            programs.push(Program {
                share: Share { request, limit: (request + above).min(1000) },
                burst: Span(burst * 1_000),
                pause: (pauses && !backlogged).then_some(Span(pause * 1_000)),
                overrun: Span(overrun * 100),
            });
        }
        programs
    })
}

fn cases(backlogged: bool) -> impl Strategy<Value = Case> {
    (settings(), programs(backlogged)).prop_map(|(settings, programs)| Case { settings, programs })
}

/// What happened: turns with their ends, and moments from which on each program waited.
struct Outcome {
    turns: Vec<(Hold, Time)>,
    longest_wait: Vec<Span>,
    end: Time,
}

/// Use by the turns themselves, counted without the arbiter.
fn used(turns: &[(Hold, Time)], client: u32, from: Time, to: Time) -> u64 {
    let own = turns.iter().filter(|(hold, _)| hold.client == ClientId(client));
    own.map(|(hold, end)| end.0.min(to.0).saturating_sub(hold.since.0.max(from.0))).sum()
}

/// Plays the programs for several windows. Checks at each moment what must hold at each moment.
fn play(case: &Case, windows: u64) -> Result<Outcome, TestCaseError> {
    let mut arbiter = Arbiter::new(case.settings).expect("settings that work");
    let count = case.programs.len();
    for (index, program) in case.programs.iter().enumerate() {
        arbiter.join(ClientId(index as u32), program.share).expect("a share that fits");
    }
    let mut left: Vec<Span> = case.programs.iter().map(|program| program.burst).collect();
    let mut asks: Vec<Option<Time>> = vec![Some(Time::ZERO); count];
    let mut waits: Vec<Option<Time>> = vec![None; count];
    let mut outcome =
        Outcome { turns: Vec::new(), longest_wait: vec![Span::ZERO; count], end: Time::ZERO };
    let end = Time(case.settings.window.0 * windows);
    let mut now = Time::ZERO;
    for _ in 0..200_000 {
        if now >= end {
            break;
        }
        for (index, ask) in asks.iter_mut().enumerate() {
            if ask.is_some_and(|moment| moment <= now) {
                arbiter.request(now, ClientId(index as u32)).expect("it joined");
                waits[index] = ask.take();
            }
        }
        let upcoming = asks.iter().flatten().min().copied().unwrap_or(Time::NEVER);
        let hold = match arbiter.select(now) {
            Next::Grant(hold) => hold,
            Next::Limited(moment) => {
                free_below_limit(case, &outcome.turns, &waits, now)?;
                now = moment.min(upcoming);
                continue;
            }
            Next::Idle => {
                prop_assert!(waits.iter().all(Option::is_none), "idle though someone waits");
                now = upcoming;
                continue;
            }
            Next::Held(_) => return Err(TestCaseError::fail("held though no client holds it")),
        };
        let index = hold.client.0 as usize;
        let since = waits[index].take();
        let wait = since.map_or(Span::ZERO, |since| now.since(since));
        prop_assert!(since.is_some(), "a turn for one that did not ask");
        outcome.longest_wait[index] = outcome.longest_wait[index].max(wait);
        prop_assert!(matches!(arbiter.select(now), Next::Held(_)), "a second holder");
        let program = &case.programs[index];
        let (held, pause) = program.used(hold.quota, &mut left[index]);
        let back = now + held;
        asks[index] = Some(back + pause);
        // Others ask while the token is out.
        for (other, ask) in asks.iter_mut().enumerate() {
            if other != index && ask.is_some_and(|moment| moment <= back) {
                let moment = ask.take().expect("just seen");
                arbiter.request(moment.max(now), ClientId(other as u32)).expect("it joined");
                waits[other] = Some(moment);
            }
        }
        let charge = arbiter.give_back(back, hold.token).expect("it is out");
        prop_assert!(charge.held == held && charge.overrun == held.minus(hold.quota));
        prop_assert!(arbiter.give_back(back, hold.token).is_err(), "given back twice");
        outcome.turns.push((hold, back));
        now = back;
    }
    prop_assert!(now >= end, "time went on too slowly: {now:?}");
    outcome.end = now;
    Ok(outcome)
}

/// Work conservation: where the token lies idle, each one that waits is at its limit.
fn free_below_limit(
    case: &Case,
    turns: &[(Hold, Time)],
    waits: &[Option<Time>],
    now: Time,
) -> Result<(), TestCaseError> {
    let window = case.settings.window.0;
    for (index, _) in waits.iter().enumerate().filter(|(_, wait)| wait.is_some()) {
        let limit = case.programs[index].share.limit;
        let from = Time(now.0.saturating_sub(window));
        let used = used(turns, index as u32, from, now);
        // Short turns are joined: what is known of the edge of the window is known to a part of it.
        let room = window / 1024 + 2;
        let most = window * u64::from(limit) / 1000;
        prop_assert!(
            limit < 1000 && used + room >= most,
            "{index} waits below its limit: {used} of {most}"
        );
    }
    Ok(())
}

/// The longest turn that a client can have: the quota and what comes after it.
fn longest_turn(case: &Case) -> u64 {
    let overrun = case.programs.iter().map(|program| program.overrun.0).max().unwrap_or(0);
    case.settings.quota_max.expect("set").0 + overrun
}

proptest! {
    #![proptest_config(draws(40, 120))]

    /// In the whole run a share is off by at most one turn for each window. In a single window at any moment no client
    /// has more than a turn beyond its limit, and none lacks more of its request than a turn for each neighbour: one
    /// quota, where two share.
    #[test]
    fn backlogged_programs_get_their_request_and_no_more_than_their_limit(case in cases(true)) {
        let outcome = play(&case, 5)?;
        let window = case.settings.window.0;
        let turn = longest_turn(&case) + window / 1024 + 2;
        let neighbours = case.programs.len() as u64 - 1;
        for (index, program) in case.programs.iter().enumerate() {
            let index = index as u32;
            let part = |permille: u32, span: u64| span * u64::from(permille) / 1000;
            for step in 0..10 {
                // Windows that end at any moment, not at those of turns.
                let to = Time(outcome.end.0 - outcome.end.0 / 30 * step);
                let used = used(&outcome.turns, index, Time(to.0 - window), to);
                let least = part(program.share.request, window);
                let most = part(program.share.limit, window);
                prop_assert!(used <= most + turn, "{index} got {used}, limit {most}, turn {turn}");
                prop_assert!(used + turn * neighbours >= least, "{index} got {used} of {least}, turn {turn}");
            }
            let span = outcome.end.0;
            let all = used(&outcome.turns, index, Time::ZERO, outcome.end);
            let error = turn * (span / window + 1);
            prop_assert!(all + error >= part(program.share.request, span), "{index} got {all} of {span}");
            prop_assert!(all <= part(program.share.limit, span + window) + error, "{index} got {all} of {span}");
        }
    }

    #[test]
    fn the_token_is_never_idle_while_one_below_its_limit_waits(case in cases(false)) {
        let outcome = play(&case, 4)?;
        for pair in outcome.turns.windows(2) {
            prop_assert!(pair[0].1 <= pair[1].0.since, "two holders at once");
        }
    }

    #[test]
    fn who_was_promised_something_waits_no_longer_than_a_window(case in cases(false)) {
        let outcome = play(&case, 6)?;
        let bound = case.settings.window.0 + longest_turn(&case) * case.programs.len() as u64;
        for (index, program) in case.programs.iter().enumerate() {
            let wait = outcome.longest_wait[index].0;
            prop_assert!(program.share.request == 0 || wait <= bound, "{index} waited {wait}, bound {bound}");
        }
    }
}
