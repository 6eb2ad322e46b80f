//! One line for each job, as CSV.

use crate::comparison::SCHEMA_VERSION;
use crate::fairness::rhos;
use crate::metrics::{jct, slowdown};
use std::io::{self, Write};
use trainyard_sim::Outcome;
use trainyard_types::{Cluster, Time, printable};
use trainyard_workload::Workload;

const HEADING: [&str; 19] = [
    "schema_version",
    "policy",
    "job",
    "tenant",
    "model",
    "gpus",
    "submit_s",
    "first_start_s",
    "end_s",
    "end",
    "jct_s",
    "queueing_s",
    "ran_s",
    "gpu_s",
    "ideal_s",
    "slowdown",
    "restarts",
    "preemptions",
    "rho",
];

/// Writes what came of every job of one or more runs; a job that was never over has empty fields.
pub struct JobsCsv<'a, W: Write> {
    workload: &'a Workload,
    ideal: Vec<trainyard_types::Span>,
    gpus: u32,
    out: csv::Writer<W>,
}

impl<'a, W: Write> JobsCsv<'a, W> {
    /// Begins a file with its heading.
    pub fn new(workload: &'a Workload, cluster: &Cluster, out: W) -> io::Result<JobsCsv<'a, W>> {
        let mut out = csv::Writer::from_writer(out);
        out.write_record(HEADING)?;
        Ok(JobsCsv { workload, ideal: workload.ideal(cluster), gpus: cluster.gpus(), out })
    }

    /// Adds the jobs of one run.
    pub fn add(&mut self, policy: &str, outcome: &Outcome) -> io::Result<()> {
        let rho = rhos(self.workload, self.gpus, outcome, &self.ideal);
        let mut over = outcome.jobs.iter().zip(rho).peekable();
        for one in self.workload.jobs.iter().filter(|one| outcome.measures(one.job.id)) {
            let job = &one.job;
            let mut row = vec![
                SCHEMA_VERSION.to_string(),
                policy.to_owned(),
                printable(&self.workload.label(job.id)).into_owned(),
                printable(&self.workload.tenants.get(job.tenant).name).into_owned(),
                self.workload.catalog.get(job.model).name.clone(),
                job.want.gpus.to_string(),
                seconds(job.submitted),
            ];
            if let Some((end, rho)) = over.next_if(|(end, _)| end.job == job.id) {
                let ideal = self.ideal[job.id.index()];
                row.extend([
                    end.first_start.map(seconds).unwrap_or_default(),
                    seconds(end.ended),
                    end.end.name().to_owned(),
                    jct(job, end).as_secs_f64().to_string(),
                    jct(job, end).minus(end.ran).as_secs_f64().to_string(),
                    end.ran.as_secs_f64().to_string(),
                    end.gpu_time.as_secs_f64().to_string(),
                    ideal.as_secs_f64().to_string(),
                    slowdown(job, end, ideal).to_string(),
                    end.restarts.to_string(),
                    end.preemptions.to_string(),
                    rho.to_string(),
                ]);
            } else {
                row.resize(HEADING.len(), String::new());
                row[9] = "unfinished".to_owned();
            }
            self.out.write_record(&row)?;
        }
        Ok(())
    }

    /// Ends the file.
    pub fn finish(mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn seconds(time: Time) -> String {
    time.as_secs_f64().to_string()
}
