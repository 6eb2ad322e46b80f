//! `trainyard compare --seeds`: every policy with several seeds.

use super::compare::{about, conclude, detail, headline, sorted_out, write_jobs, write_report};
use crate::args::{CompareArgs, OutArgs, RunArgs};
use crate::experiment::{self, Done, Record};
use crate::failure::Failure;
use crate::output::Output;
use crate::{choice, given, options, seeds};
use trainyard_report::Comparison;
use trainyard_report::replicas::{Repeated, Replicas};

/// Runs the command; the page and the list of jobs, where asked for, are those of the first seed.
pub fn run(args: &CompareArgs, text: &str, output: &Output) -> Result<(), Failure> {
    let RunArgs { stages, world, out, .. } = &args.run;
    let first = options::whole("--seed", &args.run.given.seed, options::SEED_MAX)?;
    let seeds = seeds::read(text, first)?;
    let entrants = choice::entrants(&args.policies, stages, world.semantics.semantics())?;
    let mut policies: Vec<Repeated> = Vec::new();
    let mut common = None;
    let mut trouble = Ok(());
    for seed in &seeds {
        let mut given = args.run.given.clone();
        given.seed = seed.to_string();
        let options = options::read(world, *seed)?;
        let given = given::load(&given)?;
        let results = experiment::run_all(&given, &entrants, &options, (out, Record::Nothing))?;
        let (done, broken) = sorted_out(&entrants, results);
        if !broken.is_empty() {
            // Without this run seeds could not be paired.
            return conclude(&given, &done, broken);
        }
        trouble = trouble.and(conclude(&given, &done, broken));
        add(&mut policies, &done);
        if common.is_none() {
            let about = about(&given, &args.run, &options);
            let runs = done.iter().map(|one| one.run.clone()).collect();
            let comparison = Comparison { about: about.clone(), runs };
            if let Some(path) = out.report.as_ref().filter(|path| path.as_os_str() != "none") {
                write_report(&comparison, &detail(&given, &done), (path, out), output)?;
            }
            if let Some(path) = &out.jobs_out {
                write_jobs(&given, &done, path, output)?;
            }
            common = Some(about);
        }
    }
    let about = common.unwrap_or_default();
    let replicas = Replicas { about, seeds, policies };
    print(&replicas, out, output)?;
    trouble
}

fn print(replicas: &Replicas, out: &OutArgs, output: &Output) -> Result<(), Failure> {
    if out.json {
        return output.print_json(&replicas.json());
    }
    if out.csv {
        return output.print_with(|out| replicas.csv(out));
    }
    let list: Vec<String> = replicas.seeds.iter().map(u64::to_string).collect();
    output.print(&headline(&replicas.about, &format!("seeds {}", list.join(", "))))?;
    output.print(&replicas.terminal(output.ink))?;
    output.print(
        "\nMean over seeds ± half of its 95 % t-interval. * best mean; ~ cannot be told apart from it, by differences at each seed.\n",
    )?;
    output.print(&replicas.verdict())
}

fn add(policies: &mut Vec<Repeated>, done: &[Done]) {
    for (index, one) in done.iter().enumerate() {
        let summary = one.run.summary.clone();
        match policies.get_mut(index) {
            Some(policy) => policy.summaries.push(summary),
            None => policies.push(Repeated {
                policy: one.run.policy.clone(),
                knows: one.run.knows,
                summaries: vec![summary],
            }),
        }
    }
}
