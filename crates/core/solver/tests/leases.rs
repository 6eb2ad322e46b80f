//! Lease plans for gangs of one size beside every choice of deadlines there is.

use trainyard_solver::leases::{Demand, Now, Piece, Program, Step, pack};

/// Numbers of a fixed sequence.
struct Draw(u64);

impl Draw {
    fn below(&mut self, most: u64) -> u32 {
        let next = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = next.wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % most) as u32
    }
}

/// Up to five demands of one GPU on two or four, with deadlines that are worth less the later they are.
fn program(draw: &mut Draw) -> Program {
    let demand = |draw: &mut Draw| {
        let mut steps = Vec::new();
        let (mut before, mut value) = (0, 11.0);
        for _ in 0..1 + draw.below(3) {
            before += 1 + draw.below(3);
            value -= f64::from(1 + draw.below(3));
            steps.push(Step { before, value });
        }
        Demand { gpus: 1, leases: 1 + draw.below(3), steps, prefers: false }
    };
    let demands = (0..1 + draw.below(5)).map(|_| demand(draw)).collect();
    Program { demands, capacity: vec![2 + 2 * draw.below(2)], now: Now::Most }
}

/// How many demands can be served at most, and what that is worth then; packing is exact for gangs of one size.
fn best(program: &Program) -> (usize, f64) {
    let mut best = (0, 0.0);
    let mut chosen = vec![0; program.demands.len()];
    loop {
        let step = |at: usize| program.demands[at].steps.get(chosen[at]);
        let piece = |(at, demand): (usize, &Demand)| {
            Some(Piece { gpus: 1, leases: demand.leases, before: step(at)?.before })
        };
        let pieces: Vec<Option<Piece>> = program.demands.iter().enumerate().map(piece).collect();
        let can_wait = pieces.iter().flatten().all(|piece| piece.leases <= piece.before);
        if can_wait && pack(&pieces, &program.capacity).is_ok() {
            let served = pieces.iter().flatten().count();
            let value: f64 = (0..chosen.len()).filter_map(step).map(|step| step.value).sum();
            if served > best.0 || (served == best.0 && value > best.1) {
                best = (served, value);
            }
        }
        // One past the last step stands for none.
        let more = (0..chosen.len()).find(|at| chosen[*at] < program.demands[*at].steps.len());
        let Some(at) = more else { return best };
        chosen[..at].fill(0);
        chosen[at] += 1;
    }
}

#[test]
fn a_plan_for_a_few_equal_gangs_is_the_best_there_is() {
    let mut draw = Draw(1);
    for case in 0..3_000 {
        let program = program(&mut draw);
        let plan = program.solve(1_000_000);
        let (served, value) = best(&program);
        let ours = plan.steps.iter().flatten().count();
        assert_eq!(ours, served, "case {case}: {program:?}");
        assert!(
            (plan.value - value).abs() < 1e-9,
            "case {case}: {} of {value}: {program:?}",
            plan.value
        );
    }
}
