//! Kubernetes: what `kubectl get workloads -A -o json` or `kubectl get jobs -A -o json` prints, element by element.
//!
//! GPUs are requests, or else limits, of resources that end in `/gpu`, over the containers of a pod and times the
//! number of pods: `count` of each pod set of a Kueue Workload, `parallelism` of a Job. A Workload runs from the
//! transition of its condition `Admitted` to that of `Finished`, a Job from `status.startTime` to `completionTime`, or
//! to the transition of `Failed`. What never started, still runs or asks for no GPU is dropped; what failed is kept
//! with the time it ran. Submission is `creationTimestamp`. The tenant is the queue, or else the namespace; the id is
//! `namespace/name`. `nvidia.com/gpu.product` of the node selector is deliberately not read: labels differ between
//! clusters. Times are in UTC by the rules of Kubernetes.
//! No real file is at hand: tests use elements made by this schema.

use super::Skip;
use super::elements::{Elements, decode};
use super::moment::{self, MOMENT};
use super::sink::{Draft, NO_GPU, Sink};
use super::table::{GPUS_MAX, whole_gpus};
use crate::ReadError;
use serde_json::Value;
use std::io::BufRead;
use trainyard_diagnostic::InputError;

pub(crate) fn read(reader: &mut dyn BufRead, sink: &mut Sink) -> Result<(), ReadError> {
    sink.is_calendar = true;
    sink.report.time_zone = "UTC, by the rules of Kubernetes".to_owned();
    let mut elements = Elements::of_key(reader, "items")?;
    while let Some((line, piece)) = elements.next()? {
        let item: serde_json::Map<String, Value> =
            decode((line, piece), "a Job or a Workload of Kubernetes")?;
        let draft = draft(line, &Value::Object(item), sink);
        sink.take(line, draft)?;
    }
    Ok(())
}

fn draft(line: u64, item: &Value, sink: &mut Sink) -> Result<Draft<'static>, Skip> {
    let meta = &item["metadata"];
    let name = meta["name"].as_str().ok_or_else(|| Skip::missing("metadata.name"))?;
    let namespace = meta["namespace"].as_str().unwrap_or("default");
    let gpus = match item["spec"]["podSets"].as_array() {
        Some(sets) => {
            let mut gpus = 0.0;
            for set in sets {
                gpus += pods(line, ("count", &set["count"]))?
                    * pod_gpus(line, &set["template"]["spec"])?;
            }
            gpus
        }
        None => {
            let spec = &item["spec"];
            pods(line, ("parallelism", &spec["parallelism"]))?
                * pod_gpus(line, &spec["template"]["spec"])?
        }
    };
    if gpus == 0.0 {
        return Err(Skip::because(NO_GPU));
    }
    let gpus = whole_gpus(gpus).ok_or_else(|| {
        InputError::wrong(
            line,
            "gpus",
            &gpus.to_string(),
            "a whole number of GPUs, at most a million",
        )
    })?;
    let submitted = time(line, ("creationTimestamp", &meta["creationTimestamp"]))?;
    let submitted = submitted.ok_or_else(|| Skip::missing("creationTimestamp"))?;
    let (start, end, state) = ran(line, item)?;
    let start = start.ok_or_else(|| Skip::because("it never started"))?;
    let end = end.ok_or_else(|| Skip::because("it is not over yet"))?;
    let mut draft = Draft::new(format!("{namespace}/{name}"), submitted, (gpus, end - start))?;
    let label = &meta["labels"]["kueue.x-k8s.io/queue-name"];
    let queue = item["spec"]["queueName"].as_str().or(label.as_str());
    draft.job.tenant = sink.tenant(queue.unwrap_or(namespace));
    let priority = item["spec"]["priority"].as_i64().unwrap_or(0);
    draft.job.priority = priority.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32;
    sink.note_end(line, state);
    Ok(draft)
}

/// When it started and ended, and how.
type Ran = (Option<f64>, Option<f64>, &'static str);

fn ran(line: u64, item: &Value) -> Result<Ran, InputError> {
    let status = &item["status"];
    let turned = |name: &str| -> Result<Option<f64>, InputError> {
        let conditions = status["conditions"].as_array().into_iter().flatten();
        let mut found = conditions.filter(|one| {
            one["type"].as_str() == Some(name) && one["status"].as_str() == Some("True")
        });
        match found.next() {
            Some(one) => time(line, ("lastTransitionTime", &one["lastTransitionTime"])),
            None => Ok(None),
        }
    };
    if item["spec"]["podSets"].is_array() {
        return Ok((turned("Admitted")?, turned("Finished")?, "Finished"));
    }
    let start = time(line, ("startTime", &status["startTime"]))?;
    if let Some(end) = time(line, ("completionTime", &status["completionTime"]))? {
        return Ok((start, Some(end), "Complete"));
    }
    Ok((start, turned("Failed")?, "Failed"))
}

fn pods(line: u64, (field, count): (&str, &Value)) -> Result<f64, InputError> {
    match count {
        Value::Null => Ok(1.0),
        other => amount(line, field, other),
    }
}

/// GPUs of all containers of a pod.
fn pod_gpus(line: u64, spec: &Value) -> Result<f64, InputError> {
    let mut sum = 0.0;
    for container in spec["containers"].as_array().into_iter().flatten() {
        for place in ["requests", "limits"] {
            let listed = container["resources"][place].as_object().into_iter().flatten();
            let mut gpus = 0.0;
            for (name, value) in listed.filter(|(name, _)| name.ends_with("/gpu")) {
                gpus += amount(line, name, value)?;
            }
            if gpus > 0.0 {
                sum += gpus;
                break;
            }
        }
    }
    Ok(sum)
}

fn amount(line: u64, field: &str, value: &Value) -> Result<f64, InputError> {
    let number = match value {
        Value::String(text) => text.parse().ok(),
        other => other.as_f64(),
    };
    number.filter(|number| (0.0..=GPUS_MAX).contains(number)).ok_or_else(|| {
        InputError::wrong(line, field, &value.to_string(), "a number from 0 to a million")
    })
}

fn time(line: u64, (field, value): (&str, &Value)) -> Result<Option<f64>, InputError> {
    let text = match value {
        Value::Null => return Ok(None),
        Value::String(text) => text.as_str(),
        other => return Err(InputError::wrong(line, field, &other.to_string(), MOMENT)),
    };
    let moment = moment::parse(text).ok_or_else(|| InputError::wrong(line, field, text, MOMENT))?;
    Ok(Some(moment.seconds))
}
