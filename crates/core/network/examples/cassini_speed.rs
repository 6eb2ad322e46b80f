//! How long CASSINI takes to choose among 10 candidates for 100 jobs. `cargo run --release -p trainyard-network
//! --example cassini_speed`

use std::time::Instant;
use trainyard_network::cassini::{Candidate, CircleSettings, Loops, Profile, SharedLink, choose};
use trainyard_types::{LinkId, Span};

fn main() {
    let periods = [120, 160, 200, 240, 320, 400];
    let jobs: Vec<Profile> = (0..100u64)
        .map(|at| {
            let period = periods[at as usize % periods.len()] * 1000;
            let on = period * (15 + at * 7 % 40) / 100;
            Profile::on_off(Span(period - on), Span(on), 50e9 / 8.0)
        })
        .collect();
    for size in [2usize, 3, 4, 5] {
        // Links of neighbouring jobs, another arrangement for each candidate; half of them with loops.
        let candidates: Vec<Candidate> = (0..10)
            .map(|turn| {
                let link = |at: usize| {
                    let mut jobs: Vec<usize> = (0..size)
                        .map(|member| (at * (size - 1) + member * (1 + turn)) % 100)
                        .collect();
                    jobs.sort_unstable();
                    jobs.dedup();
                    SharedLink { link: LinkId(at as u32), capacity: 50e9 / 8.0, jobs }
                };
                Candidate { links: (0..100 / (size - 1).max(1)).map(link).collect() }
            })
            .collect();
        for loops in [Loops::Discard, Loops::Solve] {
            let mut best = f64::MAX;
            let mut chosen = None;
            for _ in 0..5 {
                let begun = Instant::now();
                chosen = choose(&jobs, &candidates, loops, &CircleSettings::default());
                best = best.min(begun.elapsed().as_secs_f64());
            }
            let score = chosen.map_or(f64::NAN, |(_, judged)| judged.score);
            println!(
                "{size} jobs on a link, loops {loops:?}: {:.1} ms, score {score:.3}",
                best * 1e3
            );
        }
    }
}
