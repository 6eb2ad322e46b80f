//! `trainyard compare --seeds`: every policy with several seeds.

use super::bound;
use super::compare::{
    about, add_parts, conclude, detail, headline, recorded, report_path, sorted_out, write_jobs,
    write_report,
};
use crate::args::{CompareArgs, OutArgs, RunArgs};
use crate::failure::Failure;
use crate::output::Output;
use crate::side_by_side::load;
use crate::{figures, side_by_side};
use trainyard_experiment::given::Given;
use trainyard_experiment::runs::{Done, Record};
use trainyard_experiment::{choice, options, seeds};
use trainyard_policies::registry::Traits;
use trainyard_report::html::More;
use trainyard_report::parts::Parts;
use trainyard_report::replicas::{Repeated, Replicas};
use trainyard_report::{About, Comparison};

/// Runs the command; single jobs, on the page and in files, are those of the first seed.
pub fn run(args: &CompareArgs, text: &str, output: &Output) -> Result<(), Failure> {
    let RunArgs { stages, world, out, .. } = &args.run;
    let first = options::whole("--seed", &args.run.given.seed, options::SEED_MAX)?;
    let seeds = seeds::read(text, first)?;
    figures::refuse_early(out)?;
    let jobs = match args.policies.is_empty() {
        true => choice::traits_of(&load(&args.run.given)?.workload),
        false => Traits::default(),
    };
    let entrants = choice::entrants(&args.policies, stages, (world.semantics, jobs))?;
    let mut policies: Vec<Repeated> = Vec::new();
    let mut parts = out.by.map(|by| Parts::new(by.by()));
    let mut kept: Option<(Given, Vec<Done>, About)> = None;
    let mut trouble = Ok(());
    for seed in &seeds {
        let mut given = args.run.given.clone();
        given.seed = seed.to_string();
        let options = options::read(world, *seed)?;
        let given = load(&given)?;
        options::refuse_window(&options, &given.workload)?;
        options::refuse_pool(&options, &given.cluster)?;
        // Only the first is looked into job by job.
        let record = if kept.is_none() { recorded(out) } else { Record::Nothing };
        let bounds = bound::of(args.run.bound, &given, &options)?;
        let results = side_by_side::run_all(&given, &entrants, &options, (out, record))?;
        let (mut done, broken) = sorted_out(&entrants, results);
        if !broken.is_empty() {
            // Without this run seeds could not be paired.
            return conclude(&given, &done, broken);
        }
        trouble = trouble.and(conclude(&given, &done, broken));
        bound::add(&mut done, bounds.as_ref());
        add(&mut policies, &done);
        if let Some(parts) = &mut parts {
            add_parts(parts, &given, &done);
        }
        if kept.is_none() {
            let about = about(&given, &args.run, &options);
            kept = Some((given, done, about));
        }
    }
    // There is at least one seed.
    let Some((given, done, about)) = kept else { return trouble };
    let replicas = Replicas { about, seeds, policies };
    print(&replicas, parts.as_ref(), out, output)?;
    write(&replicas, parts.as_ref(), (&given, &done), (out, output))?;
    trouble
}

/// The files: single jobs are those of the first seed.
fn write(
    replicas: &Replicas,
    parts: Option<&Parts>,
    (given, done): (&Given, &[Done]),
    (out, output): (&OutArgs, &Output),
) -> Result<(), Failure> {
    let runs = done.iter().map(|one| one.run.clone()).collect();
    let comparison = Comparison { about: replicas.about.clone(), runs };
    let detail = detail(given, done);
    let more = More { detail: Some(&detail), replicas: Some(replicas), parts };
    if let Some(path) = report_path(out) {
        write_report(&comparison, &more, (&path, out), output)?;
    }
    figures::write(&comparison, &more, out, output)?;
    match &out.jobs_out {
        Some(path) => write_jobs(given, done, path, output),
        None => Ok(()),
    }
}

fn print(
    replicas: &Replicas,
    parts: Option<&Parts>,
    out: &OutArgs,
    output: &Output,
) -> Result<(), Failure> {
    if out.json {
        let mut value = replicas.json();
        if let Some(parts) = parts {
            value["groups"] = parts.json();
        }
        return output.print_json(&value);
    }
    if out.csv {
        return output.print_with(|out| replicas.csv(out));
    }
    let list: Vec<String> = replicas.seeds.iter().map(u64::to_string).collect();
    output.print(&headline(&replicas.about, &format!("seeds {}", list.join(", "))))?;
    output.print(&replicas.terminal(output.ink))?;
    output.print(
        "\nMean over seeds ± half of its 95 % t-interval. * best mean; ~ no significant difference from it (95 %), seed by seed.\n",
    )?;
    output.print(&replicas.verdict())?;
    match parts {
        Some(parts) => output.print(&format!("\n{}\n", parts.terminal(output.ink))),
        None => Ok(()),
    }
}

fn add(policies: &mut Vec<Repeated>, done: &[Done]) {
    for (index, one) in done.iter().enumerate() {
        let summary = one.run.summary.clone();
        match policies.get_mut(index) {
            Some(policy) => policy.summaries.push(summary),
            None => policies.push(Repeated {
                policy: one.run.policy.clone(),
                information: one.run.information,
                summaries: vec![summary],
            }),
        }
    }
}
