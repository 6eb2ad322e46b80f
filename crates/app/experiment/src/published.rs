//! What can be redone of published results: a table of data, and nothing that knows a paper's name.

mod control;
mod golden;
mod stated;

pub use control::Control;

use crate::args::{ElasticityArg, GivenArgs, StageArgs, WorldArgs};
use crate::failure::Failure;
use crate::given::{self, Given};
use crate::{choice, files, options, trainings};
use clap::ValueEnum;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use trainyard_diagnostic::nearest;
use trainyard_profile::Catalog;
use trainyard_profile::import::pollux::Authors;
use trainyard_profile::import::{chronus, gavel};
use trainyard_report::Summary;
use trainyard_report::column::Column;
use trainyard_sim::{JobOutcome, Outcome, Quiet, Semantics, simulate};

/// One file for each family of publications.
const TEXTS: [&str; 4] = [
    include_str!("../data/reproduce.toml"),
    include_str!("../data/reproduce_gavel.toml"),
    include_str!("../data/reproduce_deadlines.toml"),
    include_str!("../data/reproduce_pollux.toml"),
];

/// All that can be redone.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Published {
    table: Vec<Table>,
}

/// One figure or set of runs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Its name on the command line.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// Where the expected values come from.
    pub source: String,
    semantics: String,
    #[serde(default)]
    format: String,
    cluster: String,
    /// Too long to be run with all others: it must be named.
    #[serde(default)]
    pub slow: bool,
    /// Whether each run is repeated in our own semantics.
    #[serde(default = "yes")]
    native: bool,
    /// Gavel's table of speeds, for models of the trace.
    speeds: Option<String>,
    /// A folder of ElasticFlow's tables of throughputs, for models of the jobs.
    throughputs: Option<String>,
    /// Settings of the generator, instead of a trace.
    #[serde(default)]
    generate: Vec<String>,
    /// Seeds of the generator: the mean over them is what was published.
    #[serde(default)]
    seeds: Vec<u64>,
    /// Seeds of the policy's own draws on each trace: the mean over them is compared.
    #[serde(default)]
    draws: Vec<u64>,
    /// The jobs that are measured, in order of arrival; all if not given.
    measure: Option<String>,
    /// The placer; by default the policy's own.
    place: Option<String>,
    /// What policies may choose for its jobs.
    elasticity: Option<String>,
    /// Measured trainings that its jobs follow.
    trainings: Option<Folder>,
    golden: Option<String>,
    /// A JSON file with the completion time of each job in seconds.
    golden_jobs: Option<String>,
    /// Whether each job must end in the published second.
    #[serde(default)]
    each_job: bool,
    #[serde(default)]
    measures: Vec<(String, String)>,
    /// Chronus' table of speeds by placement, for models of the trace.
    placement_speeds: Option<String>,
    /// What one unit of time of the golden is in ours: 3600 for hours.
    unit: Option<f64>,
    relative: Option<f64>,
    absolute: Option<f64>,
    /// Measures of which less is better, and what ours must not exceed, however far from the published value it lies.
    #[serde(default)]
    at_most: BTreeMap<String, f64>,
    /// Measures with a tolerance of their own: how far from the published value ours may be.
    #[serde(default)]
    distance: BTreeMap<String, f64>,
    /// The same as a part of the published value.
    #[serde(default)]
    spread: BTreeMap<String, f64>,
    /// Whether only its ratios were published; its values stand for them and are not compared.
    #[serde(default)]
    ratios_only: bool,
    /// A policy that is not the published one and must miss its values; `fifo` if not given.
    control: Option<String>,
    /// Its runs.
    pub run: Vec<PublishedRun>,
    /// What its runs show beside each other.
    #[serde(default)]
    ratio: Vec<Ratio>,
}

/// One run over another in mean completion time: what a figure is drawn to show.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ratio {
    name: String,
    of: String,
    over: String,
    /// Ours must be at least this.
    least: f64,
    /// Ours must not be more than this, where the paper's own is a bound.
    most: Option<f64>,
}

/// A folder of measured trainings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Folder {
    /// Whose trainings they are.
    authors: String,
    folder: String,
    /// A table of recorded times, for exact replays.
    queries: Option<String>,
}

/// The name of the measure that counts jobs that end in the published second.
const JOBS_EQUAL: &str = "jobs_equal";

/// The name of the measure of a ratio between two runs.
const RATIO: &str = "ratio";

/// One run of a table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedRun {
    /// What it is called.
    pub name: String,
    #[serde(default)]
    trace: String,
    /// Several traces instead of one: the mean over them is what was published.
    #[serde(default)]
    traces: Vec<String>,
    /// The policy, with its settings.
    pub policy: String,
    native: Option<String>,
    /// The control of this run alone, such as where the published policy is `fifo` itself.
    control: Option<String>,
    /// Whether its values are compared, or only shown: where a wrong policy gets the same they show nothing.
    #[serde(default = "yes")]
    compared: bool,
    /// What the policy may choose for its jobs; by default as the table says.
    elasticity: Option<String>,
    /// How often the policy decides, where it is not as in the semantics of the table.
    round: Option<String>,
    /// What jobs on several nodes lose beside each other.
    interference: Option<f64>,
    /// What jobs on the same GPU leave each other of their speed, in all its semantics.
    colocation: Option<String>,
    samples: Option<(String, String)>,
    #[serde(default)]
    key: BTreeMap<String, String>,
    #[serde(default)]
    expected: BTreeMap<String, f64>,
    /// Where the jobs of this run stand in the golden of jobs.
    #[serde(default)]
    jobs: Vec<String>,
    /// A golden of jobs for this run alone.
    golden_jobs: Option<String>,
    /// Whether each of its jobs must end in the published second; as in its table if not given.
    each_job: Option<bool>,
    /// Settings of the generator for this run, after those of its table.
    #[serde(default)]
    generate: Vec<String>,
}

/// How a row is simulated.
#[derive(Copy, Clone)]
struct How<'a> {
    policy: &'a str,
    semantics: &'a str,
    /// Whether the measured jobs may end after the last arrival: a control that cannot keep up is wrong either way.
    may_run_dry: bool,
}

/// Where the jobs of one simulation come from.
#[derive(Copy, Clone)]
enum Jobs<'a> {
    /// A trace, and the seed of everything that is drawn while it runs.
    Trace(&'a str, u64),
    Seed(u64),
}

fn yes() -> bool {
    true
}

/// What a run came to.
struct Run {
    summary: Summary,
    /// Completion times in seconds, by name of the job.
    jobs: BTreeMap<String, f64>,
}

/// Completion times that differ by less are equal: a finish that is rounded onto a decision is a microsecond late.
const SECONDS_EQUAL: f64 = 1e-3;

/// Parts such as 97/100 are not exact in binary.
const DISTANCES_EQUAL: f64 = 1e-9;

/// One measure of one run beside the published one.
#[derive(Clone)]
pub struct Redone {
    /// The run.
    pub name: String,
    /// The measure.
    pub measure: &'static str,
    /// The published value.
    pub paper: f64,
    /// Ours, in the semantics of the publication.
    pub ours: f64,
    /// Ours, in our own semantics.
    pub native: Option<f64>,
    /// Whether ours is within the tolerance.
    pub within: bool,
    /// What a wrong policy gets on the same jobs.
    pub control: Control,
}

/// All tables.
pub fn tables() -> Result<Vec<Table>, Failure> {
    let mut tables = Vec::new();
    for text in TEXTS {
        let all: Result<Published, _> = toml::from_str(text);
        let broken = |error| Failure::Operation(format!("the embedded tables: {error}"));
        tables.extend(all.map_err(broken)?.table);
    }
    Ok(tables)
}

/// The table of a name.
pub fn find(name: &str) -> Result<Table, Failure> {
    let mut tables = tables()?;
    let Some(index) = tables.iter().position(|table| table.id == name) else {
        let ids: Vec<&str> = tables.iter().map(|table| table.id.as_str()).collect();
        let hint = nearest(name, ids.iter().copied());
        let hint = hint.map(|id| format!("; did you mean `{id}`?")).unwrap_or_default();
        let expected = format!("all or one of {}{hint}", ids.join(", "));
        return Err(Failure::flag("reproduce", name, expected));
    };
    Ok(tables.swap_remove(index))
}

impl Table {
    /// Whether it reads files of the authors.
    pub fn needs_data(&self) -> bool {
        let own = [
            &self.speeds,
            &self.placement_speeds,
            &self.throughputs,
            &self.golden,
            &self.golden_jobs,
        ];
        let own = own.into_iter().any(Option::is_some);
        let row = |row: &PublishedRun| {
            let traces = !row.trace.is_empty() || !row.traces.is_empty();
            traces || row.golden_jobs.is_some() || row.samples.is_some()
        };
        own || self.trainings.is_some() || self.run.iter().any(row)
    }

    /// The stated ratios of runs that were redone.
    pub fn ratios(&self, redone: &[Redone]) -> Vec<Redone> {
        let find =
            |name: &str| redone.iter().find(|one| one.name == name && one.measure == "jct_mean_s");
        let ratio = |ratio: &Ratio| {
            let (of, over) = (find(&ratio.of)?, find(&ratio.over)?);
            let ours = of.ours / over.ours;
            let is_met = |one: f64| one >= ratio.least && ratio.most.is_none_or(|most| one <= most);
            // The wrong policy stands in the place of the one that the ratio praises.
            let wrong = of.ours / over.control.value;
            Some(Redone {
                name: ratio.name.clone(),
                measure: RATIO,
                paper: of.paper / over.paper,
                ours,
                native: of.native.zip(over.native).map(|(of, over)| of / over),
                within: is_met(ours),
                control: Control { value: wrong, within: is_met(wrong), ..over.control.clone() },
            })
        };
        self.ratio.iter().filter_map(ratio).collect()
    }

    /// Runs one row, below the folder of the data.
    pub fn redo(&self, row: &PublishedRun, data: &Path) -> Result<Vec<Redone>, Failure> {
        let expected = self.expected(row, data)?;
        let theirs = self.expected_jobs(row, data)?;
        let own_name = row.policy.split(':').next().unwrap_or(&row.policy);
        let native = row.native.as_deref().unwrap_or(own_name);
        let semantics = self.semantics.as_str();
        let how = How { policy: &row.policy, semantics, may_run_dry: false };
        let ours = self.simulate_all(row, data, how)?;
        let native = match self.native {
            true => {
                self.simulate_all(row, data, How { policy: native, semantics: "native", ..how })?
            }
            false => Vec::new(),
        };
        let wrong = self.control(row);
        let control =
            self.simulate_all(row, data, How { policy: wrong, may_run_dry: true, ..how })?;
        let mut redone = Vec::new();
        if !theirs.is_empty() {
            redone.extend(self.by_job(row, &theirs, (&ours[0], native.first(), &control[0])));
        }
        for (column, paper) in expected {
            let value = mean_of(column, &ours).unwrap_or(f64::NAN);
            let control = mean_of(column, &control).unwrap_or(f64::NAN);
            redone.push(Redone {
                name: row.name.clone(),
                measure: column.key,
                paper,
                ours: value,
                native: mean_of(column, &native),
                within: self.is_within(column.key, paper, value),
                control: Control {
                    policy: wrong.to_owned(),
                    value: control,
                    within: self.is_within(column.key, paper, control),
                },
            });
        }
        Ok(redone)
    }

    /// Whether a value is within the tolerance; one that is not a number is within nothing.
    fn is_within(&self, measure: &str, paper: f64, value: f64) -> bool {
        let off = (value - paper).abs();
        match (self.at_most.get(measure), self.distance.get(measure)) {
            _ if self.ratios_only => true,
            (Some(most), _) => value <= *most,
            (None, Some(distance)) => off <= distance + DISTANCES_EQUAL,
            (None, None) => match self.spread.get(measure) {
                Some(part) => off <= part * paper.abs(),
                None => off <= self.allowed(paper),
            },
        }
    }

    /// Runs each trace or seed of a row; there is at least one.
    fn simulate_all(
        &self,
        row: &PublishedRun,
        data: &Path,
        how: How<'_>,
    ) -> Result<Vec<Run>, Failure> {
        self.jobs(row).into_iter().map(|jobs| self.simulate(row, jobs, data, how)).collect()
    }

    /// What a row is run on.
    fn jobs<'a>(&'a self, row: &'a PublishedRun) -> Vec<Jobs<'a>> {
        let draws = if self.draws.is_empty() { &[1][..] } else { &self.draws };
        let drawn = |trace: &'a str| draws.iter().map(move |seed| Jobs::Trace(trace, *seed));
        match (row.traces.is_empty(), row.trace.is_empty()) {
            (false, _) => row.traces.iter().flat_map(|trace| drawn(trace)).collect(),
            (true, false) => drawn(&row.trace).collect(),
            (true, true) => self.seeds.iter().map(|seed| Jobs::Seed(*seed)).collect(),
        }
    }

    /// How far from a published value ours may be.
    fn allowed(&self, paper: f64) -> f64 {
        self.absolute.unwrap_or(0.0) + self.relative.unwrap_or(0.0) * paper.abs()
    }

    /// The mean over the published jobs, and how many of them end in the published second.
    fn by_job(
        &self,
        row: &PublishedRun,
        theirs: &BTreeMap<String, f64>,
        (ours, native, control): (&Run, Option<&Run>, &Run),
    ) -> Vec<Redone> {
        let mean = |run: &Run| {
            let times = theirs.keys().map(|job| run.jobs.get(job).copied().unwrap_or(f64::NAN));
            times.sum::<f64>() / theirs.len() as f64
        };
        let equal = |run: &Run| {
            let is_equal = |(job, time): &(&String, &f64)| {
                run.jobs.get(*job).is_some_and(|own| (own - **time).abs() < SECONDS_EQUAL)
            };
            theirs.iter().filter(is_equal).count() as f64
        };
        let paper = theirs.values().sum::<f64>() / theirs.len() as f64;
        let count = theirs.len() as f64;
        let is_near = |run: &Run| (mean(run) - paper).abs() <= self.allowed(paper);
        let is_equal = |run: &Run| !self.wants_each_job(row) || equal(run) == count;
        let wrong = |value: f64, within: bool| Control {
            policy: self.control(row).to_owned(),
            value,
            within,
        };
        vec![
            Redone {
                name: row.name.clone(),
                measure: "jct_mean_s",
                paper,
                ours: mean(ours),
                native: native.map(mean),
                within: is_near(ours),
                control: wrong(mean(control), is_near(control)),
            },
            Redone {
                name: row.name.clone(),
                measure: JOBS_EQUAL,
                paper: count,
                ours: equal(ours),
                native: native.map(equal),
                within: is_equal(ours),
                control: wrong(equal(control), is_equal(control)),
            },
        ]
    }

    /// The built-in models and the measured trainings of the table.
    fn catalog(&self, data: &Path) -> Result<Catalog, Failure> {
        let mut catalog = Catalog::builtin();
        if let Some(path) = self.placement_speeds.as_ref().map(|path| data.join(path)) {
            let models = chronus::read(&files::read_text(&path)?);
            for model in models.map_err(|fault| Failure::input(path.display(), fault))? {
                catalog.add(model);
            }
        }
        if let Some(path) = self.speeds.as_ref().map(|path| data.join(path)) {
            let models = gavel::read(&files::read_text(&path)?);
            let models = models.map_err(|fault| Failure::input(path.display(), fault))?;
            for model in models {
                catalog.add(model);
            }
        }
        if let Some(folder) = self.throughputs.as_ref().map(|path| data.join(path)) {
            for model in trainings::throughputs(&folder, "a100")? {
                catalog.add(model);
            }
        }
        if let Some(Folder { authors, folder, queries }) = &self.trainings {
            let queries = queries.as_ref().map(|path| data.join(path));
            let unknown = || Failure::flag("reproduce", authors, "known authors of trainings");
            let authors = Authors::named(authors).ok_or_else(unknown)?;
            let found = trainings::load(authors, &data.join(folder), queries.as_deref())?;
            for model in found.models {
                catalog.add(model);
            }
        }
        Ok(catalog)
    }

    fn simulate(
        &self,
        row: &PublishedRun,
        jobs: Jobs<'_>,
        data: &Path,
        How { policy, semantics, may_run_dry }: How<'_>,
    ) -> Result<Run, Failure> {
        let unknown = |value: &str| Failure::flag("reproduce", value, "a known name");
        let seed = match jobs {
            Jobs::Trace(_, seed) | Jobs::Seed(seed) => seed,
        };
        let mut policy = policy.replace("{seed}", &seed.to_string());
        if let Some((key, file)) = row.samples.as_ref().filter(|_| policy.contains(':')) {
            policy.push_str(&format!(",{key}=[{}]", first_column(&data.join(file))?.join(",")));
        }
        let world = WorldArgs {
            semantics: Semantics::find(semantics).ok_or_else(|| unknown(semantics))?,
            colocation: row.colocation.clone(),
            interference: row.interference.map(|part| part.to_string()),
            round: row.round.clone(),
            measure: self.measure.clone(),
            ..WorldArgs::usual()
        };
        let place = self.place.clone().filter(|_| semantics == self.semantics);
        let stages = StageArgs { place, admit: Vec::new(), tune: Vec::new(), sets: Vec::new() };
        let given = given::load_with(&self.given(row, jobs, data)?, self.catalog(data)?)?;
        let options = options::read(&world, seed)?;
        options::refuse_window(&options, &given.workload)?;
        options::refuse_pool(&options, &given.cluster)?;
        let entrant = choice::entrant_alone(&policy, &stages, world.semantics)?;
        let pipeline = entrant.selection.build().map_err(|error| Failure::config("", error))?;
        let outcome = simulate(&given.workload, &given.cluster, pipeline, &options, &mut Quiet);
        if !may_run_dry {
            refuse_dry(row, &given, &outcome)?;
        }
        let time = |one: &JobOutcome| {
            let submitted = given.workload.jobs[one.job.index()].job.submitted;
            (given.workload.label(one.job), one.ended.since(submitted).as_secs_f64())
        };
        Ok(Run {
            jobs: outcome.finished().map(time).collect(),
            summary: Summary::new(&given.workload, &given.cluster, &outcome),
        })
    }

    /// The jobs and the cluster of one simulation.
    fn given(&self, row: &PublishedRun, jobs: Jobs<'_>, data: &Path) -> Result<GivenArgs, Failure> {
        let (trace, generate, seed) = match jobs {
            Jobs::Trace(trace, _) => (Some(data.join(trace)), None, 1),
            Jobs::Seed(seed) => {
                let laws = self.generate.iter().chain(&row.generate).cloned().collect();
                (None, Some(laws), seed)
            }
        };
        let elasticity = row.elasticity.as_ref().or(self.elasticity.as_ref());
        let elasticity = match elasticity {
            Some(name) => ValueEnum::from_str(name, true)
                .map_err(|_| Failure::flag("reproduce", name, "a known elasticity of jobs"))?,
            None => ElasticityArg::Rigid,
        };
        Ok(GivenArgs {
            cluster: Some(self.cluster.clone()),
            trace,
            format: if self.format.is_empty() { "auto".to_owned() } else { self.format.clone() },
            generate,
            profiles: Vec::new(),
            elasticity,
            seed: seed.to_string(),
        })
    }
}

/// Refuses a steady state that was none: arrivals must go on until the last measured job has ended.
fn refuse_dry(row: &PublishedRun, given: &Given, outcome: &Outcome) -> Result<(), Failure> {
    let last = given.workload.jobs.last().map(|one| one.job.submitted);
    match last {
        Some(last) if outcome.measured.is_some() && outcome.ended > last => {
            let short = outcome.ended.since(last);
            Err(Failure::Operation(format!(
                "{}: the last job comes {short} before the measured ones have ended; state more `jobs`",
                row.name
            )))
        }
        _ => Ok(()),
    }
}

/// The mean of a measure over runs; nothing if one of them has no such value.
fn mean_of(column: &Column, runs: &[Run]) -> Option<f64> {
    if runs.is_empty() {
        return None;
    }
    let values: Option<Vec<f64>> = runs.iter().map(|run| (column.value)(&run.summary)).collect();
    values.map(|values| values.iter().sum::<f64>() / values.len() as f64)
}

fn first_column(path: &Path) -> Result<Vec<String>, Failure> {
    let mut reader = csv::Reader::from_reader(files::open(path)?);
    let broken = |error: csv::Error| Failure::Operation(format!("{}: {error}", path.display()));
    let rows: Result<Vec<_>, _> = reader.records().collect();
    let rows = rows.map_err(broken)?;
    Ok(rows.iter().filter_map(|row| row.get(0)).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::golden::column;
    use super::*;
    use trainyard_sim::Semantics;

    #[test]
    fn the_embedded_tables_are_sound() {
        let tables = tables().expect("tables");
        let mut ids: Vec<&str> = tables.iter().map(|table| table.id.as_str()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), tables.len(), "every id once");
        for table in &tables {
            assert!(!table.run.is_empty(), "{}", table.id);
            for (ours, _) in &table.measures {
                assert!(column(ours).is_ok(), "{}: {ours}", table.id);
            }
            for row in &table.run {
                let sources = [!row.expected.is_empty(), !row.key.is_empty(), !row.jobs.is_empty()];
                assert_eq!(sources.iter().filter(|one| **one).count(), 1, "{}", row.name);
                assert_eq!(table.golden.is_some(), !row.key.is_empty(), "{}", row.name);
                let is_drawn = !(table.generate.is_empty() && row.generate.is_empty());
                let jobs = [is_drawn, !row.trace.is_empty(), !row.traces.is_empty()];
                assert_eq!(jobs.iter().filter(|one| **one).count(), 1, "{}", row.name);
                assert_eq!(is_drawn, !table.seeds.is_empty(), "{}", row.name);
                assert!(row.jobs.is_empty() || row.traces.is_empty(), "{}", row.name);
                let of_jobs = table.golden_jobs.is_some() || row.golden_jobs.is_some();
                assert_eq!(of_jobs, !row.jobs.is_empty(), "{}", row.name);
                let stages = StageArgs {
                    place: None,
                    admit: Vec::new(),
                    tune: Vec::new(),
                    sets: Vec::new(),
                };
                let policy = row.policy.replace("{seed}", "0");
                let found = choice::entrant_alone(&policy, &stages, Semantics::Native);
                let found = found.unwrap_or_else(|it| panic!("{}: {}", row.name, it.message()));
                // Samples are only told when it runs.
                assert!(row.samples.is_some() || found.selection.build().is_ok(), "{}", row.name);
            }
            for Ratio { name, of, over, .. } in &table.ratio {
                let known = |name: &String| table.run.iter().any(|row| row.name == *name);
                assert!(known(of) && known(over), "{}: {name}", table.id);
            }
        }
    }
}
