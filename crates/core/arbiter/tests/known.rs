//! Single cases of the rules.

use trainyard_arbiter::{
    Arbiter, ClientId, Hold, Next, Settings, SettingsError, Share, ShareError,
};
use trainyard_types::{Span, Time};

const A: ClientId = ClientId(0);
const B: ClientId = ClientId(1);

fn arbiter(shares: &[(u32, u32)]) -> Arbiter {
    let mut arbiter = Arbiter::new(Settings::default()).unwrap();
    for (index, (request, limit)) in shares.iter().enumerate() {
        let share = Share { request: *request, limit: *limit };
        arbiter.join(ClientId(index as u32), share).unwrap();
    }
    arbiter
}

fn grant(arbiter: &mut Arbiter, now: u64) -> Hold {
    match arbiter.select(Time(now)) {
        Next::Grant(hold) => hold,
        other => panic!("{other:?} at {now}"),
    }
}

#[test]
fn who_lacks_most_of_its_request_is_next() {
    let mut arbiter = arbiter(&[(300, 1000), (700, 1000)]);
    let mut order = Vec::new();
    let mut now = 0;
    for client in [A, B] {
        arbiter.request(Time(now), client).unwrap();
    }
    for _ in 0..10 {
        let hold = grant(&mut arbiter, now);
        order.push(hold.client.0);
        now += 250_000;
        arbiter.give_back(Time(now), hold.token).unwrap();
        arbiter.request(Time(now + 2_000), hold.client).unwrap();
        now += 2_000;
    }
    // Parts of their requests that are met: 0.083 a turn of A, 0.036 a turn of B.
    assert_eq!(order, [0, 1, 1, 1, 0, 1, 1, 0, 1, 1]);
}

#[test]
fn what_is_left_goes_to_the_one_that_used_least() {
    let mut arbiter = arbiter(&[(0, 1000), (0, 1000)]);
    arbiter.request(Time(0), A).unwrap();
    let first = grant(&mut arbiter, 0);
    arbiter.give_back(Time(100_000), first.token).unwrap();
    arbiter.request(Time(200_000), A).unwrap();
    arbiter.request(Time(300_000), B).unwrap();
    assert_eq!(grant(&mut arbiter, 300_000).client, B);
}

#[test]
fn a_client_alone_gets_no_more_than_its_limit() {
    let mut arbiter = arbiter(&[(100, 200)]);
    arbiter.request(Time(0), A).unwrap();
    let mut now = 0;
    let mut held = 0;
    for _ in 0..100 {
        match arbiter.select(Time(now)) {
            Next::Grant(hold) => {
                now += hold.quota.0;
                held += hold.quota.0;
                arbiter.give_back(Time(now), hold.token).unwrap();
                arbiter.request(Time(now), A).unwrap();
            }
            Next::Limited(moment) => {
                assert_eq!((now, held), (2_000_000, 2_000_000), "a fifth of ten seconds");
                assert_eq!(moment, Time(10_000_001), "when the first of it leaves the window");
                assert_eq!(arbiter.counters(A).unwrap().throttled_by_limit(), Span::ZERO);
                grant(&mut arbiter, 10_000_001);
                assert_eq!(arbiter.counters(A).unwrap().throttled_by_limit(), Span(8_000_001));
                return;
            }
            other => panic!("{other:?}"),
        }
    }
    panic!("the limit was never met");
}

#[test]
fn draining_past_the_quota_is_charged() {
    let mut arbiter = arbiter(&[(500, 1000), (500, 1000)]);
    arbiter.request(Time(0), A).unwrap();
    arbiter.request(Time(0), B).unwrap();
    let hold = grant(&mut arbiter, 0);
    assert_eq!((hold.client, hold.quota), (A, Span(250_000)));
    let charge = arbiter.give_back(Time(400_000), hold.token).unwrap();
    assert_eq!((charge.held, charge.overrun), (Span(400_000), Span(150_000)));
    assert_eq!(arbiter.usage(Time(400_000), A), Span(400_000));
    assert_eq!(arbiter.counters(B).unwrap().throttled_by[&A], Span(400_000));
    assert_eq!(arbiter.counters(A).unwrap().overrun, Span(150_000));
}

#[test]
fn a_token_that_does_not_come_back_is_revoked_and_the_neighbour_goes_on() {
    let mut arbiter = arbiter(&[(500, 1000), (500, 1000)]);
    arbiter.request(Time(0), A).unwrap();
    arbiter.request(Time(0), B).unwrap();
    let lost = grant(&mut arbiter, 0);
    assert_eq!(arbiter.select(Time(1)), Next::Held(Time(5_250_000)));
    assert_eq!(arbiter.revoke_overdue(Time(5_249_999)), None);
    assert_eq!(arbiter.revoke_overdue(Time(5_250_000)), Some(lost));
    assert_eq!(arbiter.revoke_overdue(Time(5_250_000)), None);
    let next = grant(&mut arbiter, 5_250_000);
    assert_eq!(next.client, B);
    arbiter.give_back(Time(5_300_000), next.token).unwrap();
    arbiter.request(Time(5_300_000), A).unwrap();
    assert_eq!(arbiter.select(Time(5_300_000)), Next::Idle, "A has not given back what it lost");
    let late = arbiter.give_back(Time(6_250_000), lost.token).unwrap();
    assert_eq!((late.client, late.held), (A, Span(1_000_000)));
    assert_eq!(arbiter.usage(Time(6_250_000), A), Span(6_250_000));
    assert_eq!(grant(&mut arbiter, 6_250_000).client, A);
    assert_eq!(arbiter.counters(A).unwrap().revocations, 1);
    assert!(arbiter.give_back(Time(6_250_000), lost.token).is_err());
}

#[test]
fn a_holder_that_leaves_frees_the_token() {
    let mut arbiter = arbiter(&[(500, 1000), (500, 1000)]);
    arbiter.request(Time(0), A).unwrap();
    arbiter.request(Time(0), B).unwrap();
    grant(&mut arbiter, 0);
    arbiter.leave(Time(10), A);
    assert_eq!(grant(&mut arbiter, 10).client, B);
    assert!(arbiter.request(Time(10), A).is_err());
    arbiter.join(A, Share { request: 500, limit: 500 }).unwrap();
}

#[test]
fn shares_that_make_no_sense_are_refused() {
    let mut arbiter = arbiter(&[(600, 1000)]);
    let refused = [(0, 0), (10, 5), (10, 1001)];
    for (request, limit) in refused {
        let share = Share { request, limit };
        assert_eq!(arbiter.join(B, share), Err(ShareError::Nonsense(share)));
    }
    let error = arbiter.join(B, Share { request: 401, limit: 1000 }).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a request of 401 permille does not fit beside the 600 permille promised to others"
    );
    arbiter.join(B, Share { request: 400, limit: 400 }).unwrap();
    assert_eq!(arbiter.join(B, Share { request: 0, limit: 1 }), Err(ShareError::Twice(B)));
    assert!(arbiter.adjust(B, Share { request: 401, limit: 1000 }).is_err());
    arbiter.adjust(A, Share { request: 100, limit: 200 }).unwrap();
    arbiter.adjust(B, Share { request: 900, limit: 1000 }).unwrap();
    let unknown = ClientId(7);
    let share = Share { request: 0, limit: 1 };
    assert_eq!(arbiter.adjust(unknown, share), Err(ShareError::Unknown(unknown)));
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let base = Settings::default();
    let window = Settings { window: Span(10), ..base };
    assert!(matches!(Arbiter::new(window), Err(SettingsError::Window(_))));
    let quotas = [
        Settings { quota_min: Span::ZERO, ..base },
        Settings { quota_min: Span(300_000), ..base },
        Settings { quota_max: Some(Span(200_000)), ..base },
        Settings { quota_max: Some(Span::secs(11)), ..base },
    ];
    for settings in quotas {
        assert!(
            matches!(Arbiter::new(settings), Err(SettingsError::Quotas { .. })),
            "{settings:?}"
        );
    }
}

#[test]
fn time_that_runs_backwards_harms_nobody() {
    let mut arbiter = arbiter(&[(500, 1000)]);
    arbiter.request(Time(1_000_000), A).unwrap();
    let hold = grant(&mut arbiter, 10);
    assert_eq!(hold.since, Time(1_000_000));
    assert_eq!(arbiter.give_back(Time(0), hold.token).unwrap().held, Span::ZERO);
}
