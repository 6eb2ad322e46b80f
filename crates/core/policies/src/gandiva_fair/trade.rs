//! What each tenant is entitled to of each type of GPU: its share by tickets, and what trading makes of it.

/// What a tenant brings to the market.
#[derive(Clone, Debug, PartialEq)]
pub struct Stake {
    /// Its tickets; 0 for a tenant that only lives on what others leave.
    pub tickets: f64,
    /// GPUs that its jobs can use at once.
    pub demand: f64,
    /// How fast its jobs run on each type, relative to the type that suits them best: 0 where they cannot run.
    pub worth: Vec<f64>,
}

/// GPUs by tenant, then by type; real numbers, since they are shares of time.
pub type Holdings = Vec<Vec<f64>>;

/// Two types of GPU, by their place in the list of types.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Types {
    /// The one that tenants value more.
    pub fast: usize,
    /// The one that they value less.
    pub slow: usize,
}

/// One exchange.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Trade {
    /// The tenant that gets fast GPUs and gives slow ones.
    pub buyer: usize,
    /// The tenant that gives fast GPUs and gets slow ones.
    pub seller: usize,
    /// What is exchanged.
    pub types: Types,
    /// Fast GPUs that change hands.
    pub fast: f64,
    /// Slow GPUs for each of them.
    pub price: f64,
}

/// Less than this part of a GPU is nothing.
const NOTHING: f64 = 1e-9;

/// Shares by tickets, none larger than the demand; what one does not need is shared by the others. Every tenant gets
/// the same mix of types.
pub fn shares(stakes: &[Stake], capacity: &[u32]) -> Holdings {
    let total: f64 = capacity.iter().map(|gpus| f64::from(*gpus)).sum();
    let mut count = vec![0.0; stakes.len()];
    let mut left = total;
    let mut open: Vec<usize> = (0..stakes.len()).filter(|u| stakes[*u].tickets > 0.0).collect();
    // Each turn of the loop closes at least one tenant, or is the last.
    while !open.is_empty() && left > NOTHING {
        let tickets: f64 = open.iter().map(|u| stakes[*u].tickets).sum();
        let fits = |u: &usize| stakes[*u].demand <= left * stakes[*u].tickets / tickets;
        let (content, wanting): (Vec<usize>, Vec<usize>) = open.iter().partition(|u| fits(u));
        if content.is_empty() {
            for u in wanting {
                count[u] = left * stakes[u].tickets / tickets;
            }
            break;
        }
        for u in content {
            count[u] = stakes[u].demand;
            left -= stakes[u].demand;
        }
        open = wanting;
    }
    let mix = |gpus: &u32| if total > 0.0 { f64::from(*gpus) / total } else { 0.0 };
    count.iter().map(|count| capacity.iter().map(|gpus| count * mix(gpus)).collect()).collect()
}

/// Trades until no tenant gains, pair of types by pair of types, the most different pair first.
///
/// Of the tenants that hold slow GPUs, the tenant that gains most from a fast one buys from the tenant that gains
/// least, at the gain of the second: more than the seller asks and less than the buyer would give, so that no tenant
/// ends with less than it brought, by its own worth. At most 3 trades for each tenant and pair.
pub fn trade(stakes: &[Stake], held: &mut Holdings) -> Vec<Trade> {
    let types = stakes.first().map_or(0, |stake| stake.worth.len());
    let mean = |k: usize| stakes.iter().map(|stake| stake.tickets * stake.worth[k]).sum::<f64>();
    let mut pairs: Vec<Types> = Vec::new();
    for a in 0..types {
        for b in a + 1..types {
            let (fast, slow) = if mean(b) > mean(a) { (b, a) } else { (a, b) };
            pairs.push(Types { fast, slow });
        }
    }
    pairs.sort_by(|p, q| {
        let spread = |pair: &Types| mean(pair.fast) - mean(pair.slow);
        spread(q).total_cmp(&spread(p)).then(p.cmp(q))
    });
    let mut trades = Vec::new();
    for pair in pairs {
        for _ in 0..3 * stakes.len() {
            let Some(deal) = next_deal(stakes, held, pair) else { break };
            let Types { fast, slow } = pair;
            held[deal.buyer][fast] += deal.fast;
            held[deal.seller][fast] = (held[deal.seller][fast] - deal.fast).max(0.0);
            held[deal.buyer][slow] = (held[deal.buyer][slow] - deal.fast * deal.price).max(0.0);
            held[deal.seller][slow] += deal.fast * deal.price;
            trades.push(deal);
        }
    }
    trades
}

/// The best deal over a pair of types; nothing if no tenant gains.
fn next_deal(stakes: &[Stake], held: &Holdings, pair: Types) -> Option<Trade> {
    let Types { fast, slow } = pair;
    let gain = |u: usize| {
        let (fast, slow) = (stakes[u].worth[fast], stakes[u].worth[slow]);
        if slow > 0.0 { fast / slow } else { f64::INFINITY }
    };
    let takes_part = |u: &usize| {
        let worth = &stakes[*u].worth;
        stakes[*u].tickets > 0.0 && worth[fast] + worth[slow] > 0.0
    };
    let mut order: Vec<usize> = (0..stakes.len()).filter(takes_part).collect();
    order.sort_by(|a, b| gain(*b).total_cmp(&gain(*a)).then(a.cmp(b)));
    let room = |u: usize| (stakes[u].demand - held[u].iter().sum::<f64>()).max(0.0);
    for (place, &buyer) in order.iter().enumerate() {
        if held[buyer][slow] <= NOTHING {
            continue;
        }
        // The price is the second highest speed-up, so that no tenant gains by telling a wrong one. Those before the
        // buyer hold nothing to pay with: they do not bid.
        let price = order[place + 1..].iter().map(|u| gain(*u)).find(|gain| gain.is_finite())?;
        if gain(buyer) <= price * (1.0 + 1e-9) || price <= 0.0 {
            continue;
        }
        for &seller in order[place + 1..].iter().rev() {
            if gain(seller) > price {
                break;
            }
            let mut most = held[seller][fast].min(held[buyer][slow] / price);
            // A tenant that ends with more GPUs than before must have jobs for them.
            if price > 1.0 {
                most = most.min(room(seller) / (price - 1.0));
            } else if price < 1.0 {
                most = most.min(room(buyer) / (1.0 - price));
            }
            if most > NOTHING {
                return Some(Trade { buyer, seller, types: pair, fast: most, price });
            }
        }
    }
    None
}

/// What holdings are worth to a tenant.
pub fn value(stake: &Stake, held: &[f64]) -> f64 {
    stake.worth.iter().zip(held).map(|(worth, gpus)| worth * gpus).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stake(tickets: f64, demand: f64, worth: &[f64]) -> Stake {
        Stake { tickets, demand, worth: worth.to_vec() }
    }

    #[test]
    fn shares_follow_tickets_and_what_one_does_not_need_goes_to_the_others() {
        let stakes = [stake(1.0, 1.0, &[1.0]), stake(1.0, 90.0, &[1.0]), stake(2.0, 90.0, &[1.0])];
        assert_eq!(shares(&stakes, &[10]), [[1.0], [3.0], [6.0]]);
    }

    #[test]
    fn the_one_who_gains_most_buys_at_the_gain_of_the_second() {
        // Speedups of 5, 2 and 1.25 on the fast type: nine GPUs of each, three for each tenant.
        let stakes = [
            stake(1.0, 90.0, &[1.0, 0.2]),
            stake(1.0, 90.0, &[1.0, 0.5]),
            stake(1.0, 90.0, &[1.0, 0.8]),
        ];
        let mut held = shares(&stakes, &[9, 9]);
        let trades = trade(&stakes, &mut held);
        assert_eq!((trades[0].buyer, trades[0].seller, trades[0].price), (0, 2, 2.0));
        // It pays all its three slow GPUs, two for each fast one.
        assert!((trades[0].fast - 1.5).abs() < 1e-12 && (held[0][0] - 4.5).abs() < 1e-12);
        // The second then buys from the third at the gain of the third, the only other bidder.
        assert_eq!((trades[1].buyer, trades[1].seller, trades[1].price), (1, 2, 1.25));
    }

    #[test]
    fn nobody_trades_for_more_gpus_than_it_has_jobs_for() {
        let stakes = [stake(1.0, 90.0, &[1.0, 0.2]), stake(1.0, 4.0, &[1.0, 0.5])];
        let mut held = shares(&stakes, &[4, 4]);
        assert!(trade(&stakes, &mut held).is_empty(), "the seller could not use the second GPU");
    }

    #[test]
    fn a_tenant_that_cannot_use_the_slow_type_sells_all_of_it() {
        let stakes = [stake(1.0, 90.0, &[1.0, 0.0]), stake(1.0, 90.0, &[1.0, 0.5])];
        let mut held = shares(&stakes, &[4, 4]);
        trade(&stakes, &mut held);
        assert_eq!(held, [[3.0, 0.0], [1.0, 4.0]]);
    }

    prop_compose! {
        fn any_stake(types: usize)(
            tickets in 0.1f64..5.0,
            demand in 1u32..40,
            worth in proptest::collection::vec(prop_oneof![1 => Just(0.0), 9 => 0.05f64..1.0], types),
            best in 0..types,
        ) -> Stake {
            let mut worth = worth;
            worth[best] = 1.0;
            Stake { tickets, demand: f64::from(demand), worth }
        }
    }

    proptest! {
        #[test]
        fn nobody_ends_with_less_than_its_share_and_no_gpu_is_lost(
            stakes in proptest::collection::vec(any_stake(3), 1..7),
            capacity in proptest::collection::vec(0u32..16, 3),
        ) {
            let fair = shares(&stakes, &capacity);
            let mut held = fair.clone();
            let trades = trade(&stakes, &mut held);
            for (u, stake) in stakes.iter().enumerate() {
                let (before, after) = (value(stake, &fair[u]), value(stake, &held[u]));
                prop_assert!(after >= before - 1e-7, "{u}: {before} became {after} by {trades:?}");
                prop_assert!(held[u].iter().sum::<f64>() <= stake.demand + 1e-6);
            }
            for k in 0..3 {
                let sum = |held: &Holdings| held.iter().map(|row| row[k]).sum::<f64>();
                prop_assert!((sum(&fair) - sum(&held)).abs() < 1e-6, "type {k}");
                prop_assert!(sum(&held) <= f64::from(capacity[k]) + 1e-6);
            }
        }

        #[test]
        fn a_share_is_at_least_the_part_by_tickets_of_all_gpus_or_the_whole_demand(
            stakes in proptest::collection::vec(any_stake(2), 1..7),
            capacity in proptest::collection::vec(0u32..16, 2),
        ) {
            let fair = shares(&stakes, &capacity);
            let tickets: f64 = stakes.iter().map(|stake| stake.tickets).sum();
            let total = f64::from(capacity.iter().sum::<u32>());
            for (stake, row) in stakes.iter().zip(&fair) {
                let least = (total * stake.tickets / tickets).min(stake.demand);
                prop_assert!(row.iter().sum::<f64>() >= least - 1e-7);
            }
        }
    }
}
