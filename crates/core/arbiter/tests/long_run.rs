//! What is computed of the long run beside what the arbiter does.

use proptest::prelude::{ProptestConfig, Strategy, prop, prop_assert, proptest};
use proptest::test_runner::RngSeed;
use trainyard_arbiter::{Arbiter, ClientId, Next, Settings, Share, long_run};
use trainyard_types::{Span, Time};

/// Windows before use is counted, and windows over which it is.
const WINDOWS: (u64, u64) = (10, 40);

/// The parts of the time that clients hold the token which always want it and keep each turn to its end, and the
/// longest turn.
fn played(shares: &[Share], settings: Settings) -> (Vec<f64>, Span) {
    let mut arbiter = Arbiter::new(settings).expect("valid settings");
    let ids: Vec<ClientId> = (0..shares.len() as u32).map(ClientId).collect();
    for (id, share) in ids.iter().zip(shares) {
        arbiter.join(*id, *share).expect("the requests fit");
        arbiter.request(Time::ZERO, *id).expect("it is there");
    }
    let mut now = Time::ZERO;
    let (from, until) = (settings.window.times(WINDOWS.0), settings.window.times(WINDOWS.1));
    let mut held = vec![Span::ZERO; shares.len()];
    let mut longest = Span::ZERO;
    while now < Time::ZERO + until {
        match arbiter.select(now) {
            Next::Grant(hold) => {
                let end = hold.due();
                let inside = end.0.min(until.0).saturating_sub(hold.since.0.max(from.0));
                held[hold.client.0 as usize] += Span(inside);
                longest = longest.max(hold.quota);
                arbiter.give_back(end, hold.token).expect("it is out");
                arbiter.request(end, hold.client).expect("it is there");
                now = end;
            }
            Next::Limited(at) => now = at,
            next => panic!("{next:?} though all wait"),
        }
    }
    let counted = until.minus(from).as_secs_f64();
    (held.into_iter().map(|span| span.as_secs_f64() / counted).collect(), longest)
}

fn shares() -> impl Strategy<Value = Vec<Share>> {
    prop::collection::vec((0u32..=600, 0u32..=1000), 1..6).prop_map(|drawn| {
        let mut left = 1000;
        let one = |(request, above): (u32, u32)| {
            let request = request.min(left);
            left -= request;
            // A limit below the least quota's part of the window cannot be kept: 20 of 1000 here.
            Share { request, limit: (request + above).clamp(20, 1000) }
        };
        drawn.into_iter().map(one).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 128, rng_seed: RngSeed::Fixed(33), failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn backlogged_clients_get_what_is_computed_to_one_quota_in_a_window(shares in shares()) {
        let settings = Settings {
            quota_min: Span(50_000),
            quota_base: Span(100_000),
            quota_max: Some(Span(200_000)),
            ..Settings::default()
        };
        let (parts, longest) = played(&shares, settings);
        let quota = longest.as_secs_f64() / settings.window.as_secs_f64();
        let expected = long_run(&shares);
        for ((part, expected), share) in parts.iter().zip(&expected).zip(&shares) {
            prop_assert!((part - expected).abs() <= quota, "{parts:?}, not {expected} of {shares:?}");
            prop_assert!(*part >= f64::from(share.request) / 1000.0 - quota);
            prop_assert!(*part <= f64::from(share.limit) / 1000.0 + quota);
        }
        // Work-conserving: nothing is left over below the limits.
        let limits: f64 = shares.iter().map(|share| f64::from(share.limit) / 1000.0).sum();
        let total: f64 = expected.iter().sum();
        prop_assert!((total - limits.min(1.0)).abs() < 1e-9, "{expected:?} of {shares:?}");
        prop_assert!(parts.iter().sum::<f64>() >= limits.min(1.0) - quota * shares.len() as f64);
    }
}

#[test]
fn what_is_left_goes_to_the_lowest_until_all_are_level() {
    let share = |request, limit| Share { request, limit };
    assert_eq!(long_run(&[]), [] as [f64; 0]);
    assert_eq!(long_run(&[share(300, 1000)]), [1.0]);
    assert_eq!(long_run(&[share(300, 700)]), [0.7]);
    assert_eq!(long_run(&[share(600, 1000), share(400, 1000)]), [0.6, 0.4]);
    assert_eq!(long_run(&[share(600, 1000), share(0, 1000)]), [0.6, 0.4]);
    assert_eq!(
        long_run(&[share(200, 1000), share(100, 250), share(0, 1000)]),
        [0.375, 0.25, 0.375]
    );
    assert_eq!(long_run(&[share(1000, 1000), share(0, 1000)]), [1.0, 0.0]);
}
