//! A training that is described instead of measured, and the best way to divide it over given GPUs.
//!
//! This is what policies, the simulated world and a live daemon ask: a configuration goes in, seconds of an iteration
//! come out, and beside them how the model is divided. Nothing is remembered here; who asks often keeps the answers.

use crate::dapple::{Instance, Placed, Settings, data_parallel, paper_plan, straight};
use crate::devices::{DeviceGraph, KindFigures, LinkSpeeds, peak_flops};
use crate::plan::Request;
use crate::ptd_p::unequal::{self, Group};
use crate::ptd_p::{Costs, Extent, Machines, RING_SHARE, search};
use crate::transformer::STATE_BYTES;
use crate::{Cnn, Graph, PlanError, Transformer};
use trainyard_diagnostic::InputError;

/// A model by its shape.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// A transformer.
    Transformer(Transformer),
    /// A convolutional network.
    Cnn(Cnn),
}

/// A model, and the samples of an iteration.
#[derive(Clone, Debug, PartialEq)]
pub struct Described {
    /// As it was written.
    pub text: String,
    /// The model.
    pub shape: Shape,
    /// Samples of an iteration, however it is divided.
    pub batch: u32,
}

/// Samples of an iteration at most.
const BATCH_MAX: u32 = 1 << 24;

impl Described {
    /// Whether a text is the beginning of a description, and not the name of something else.
    pub fn is_one(text: &str) -> bool {
        let (first, rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        first == "transformer"
            || first == "cnn"
            || (rest.trim_start().starts_with("batch=") && !first.is_empty())
    }

    /// Reads `gpt-7.5b batch=512`, `transformer layers=24 hidden=2048 heads=16 batch=256` or
    /// `cnn image=224x224x3 layers=conv64k3,fc10 batch=256`.
    pub fn parse(text: &str) -> Result<Described, InputError> {
        let mut words: Vec<&str> = text.split_whitespace().collect();
        let at = words.iter().position(|word| word.starts_with("batch="));
        let at = at.ok_or_else(|| {
            InputError::missing(0, "batch", "the samples of an iteration, as in `batch=512`")
        })?;
        let stated = &words.remove(at)["batch=".len()..];
        let batch = stated.parse().ok().filter(|batch| (1..=BATCH_MAX).contains(batch));
        let batch = batch.ok_or_else(|| {
            InputError::wrong(0, "batch", stated, format!("a whole number from 1 to {BATCH_MAX}"))
        })?;
        let (first, rest) = words.split_first().map_or(("", &[][..]), |(one, rest)| (*one, rest));
        let shape = match first {
            "transformer" => Shape::Transformer(Transformer::parse(&rest.join(" "))?),
            "cnn" => Shape::Cnn(Cnn::parse(&rest.join(" "))?),
            name if rest.is_empty() => {
                Shape::Transformer(Transformer::named(name).ok_or_else(|| {
                    let names = Transformer::names().chain(["transformer", "cnn"]);
                    InputError::unknown(0, "model", name, names)
                })?)
            }
            _ => {
                let expected = "only `batch=` after the name of a model";
                return Err(InputError::wrong(0, "model", &rest.join(" "), expected));
            }
        };
        Ok(Described { text: text.split_whitespace().collect::<Vec<_>>().join(" "), shape, batch })
    }

    /// Bytes of weights, gradients and the state of the optimiser.
    pub fn state_bytes(&self) -> f64 {
        match &self.shape {
            Shape::Transformer(model) => STATE_BYTES * model.parameters(),
            Shape::Cnn(model) => match model.graph(STAND_IN, 1) {
                Ok(graph) => {
                    STATE_FACTOR
                        * graph.operators.iter().map(|one| one.parameter_bytes).sum::<f64>()
                }
                Err(_) => 0.0,
            },
        }
    }

    /// Bytes of the weights alone, as they are computed with.
    pub fn weight_bytes(&self) -> f64 {
        match self.shape {
            Shape::Transformer(_) => self.state_bytes() * 2.0 / STATE_BYTES,
            Shape::Cnn(_) => self.state_bytes() / STATE_FACTOR,
        }
    }

    /// Operations of an iteration without any done twice.
    fn seconds_of_work(&self, site: &Site) -> Result<f64, PlanError> {
        let speed: f64 = match &self.shape {
            Shape::Transformer(model) => {
                let each = |one: &SiteGroup| {
                    let peak = one.peak_flops()?;
                    let own = crate::transformer::EFFICIENCY.flops(peak, model.hidden);
                    Ok::<f64, PlanError>(f64::from(one.gpus) * own)
                };
                let all: Result<Vec<f64>, PlanError> = site.groups.iter().map(each).collect();
                let flops: f64 = all?.iter().sum();
                let layers = 3.0 * f64::from(model.layers) * model.layer_flops();
                return Ok(f64::from(self.batch) * (layers + 3.0 * model.head_flops()) / flops);
            }
            Shape::Cnn(_) => site.groups.iter().map(|one| f64::from(one.gpus)).sum(),
        };
        let Shape::Cnn(model) = &self.shape else { return Ok(0.0) };
        let graph = model.graph(&site.groups[0].kind, 1)?;
        let one: f64 = graph.operators.iter().map(|one| one.forward + one.backward).sum();
        Ok(f64::from(self.batch) * one / speed)
    }
}

/// Single precision: weights, gradients and two moments of Adam.
const STATE_FACTOR: f64 = 4.0;
/// A type by which sizes are read where time does not matter.
const STAND_IN: &str = "a100";

/// GPUs of one type.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteGroup {
    /// The type.
    pub kind: String,
    /// How many.
    pub gpus: u32,
    /// Memory of each; 0 means not known.
    pub memory_bytes: f64,
    /// Bytes a second of one direction of a GPU's port inside its machine.
    pub inside: f64,
}

impl SiteGroup {
    fn peak_flops(&self) -> Result<f64, PlanError> {
        peak_flops(&self.kind).ok_or_else(|| {
            let known = crate::devices::PEAK_TFLOPS.iter().map(|(name, _)| *name);
            InputError::unknown(0, "type of GPU", &self.kind, known).into()
        })
    }
}

/// What a training would run on.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// By type.
    pub groups: Vec<SiteGroup>,
    /// GPUs that are together in one machine, of every part: where machines have different numbers of them, their
    /// greatest common divisor.
    pub together: u32,
    /// GPUs that share a machine's network at most.
    pub sharing: u32,
    /// Bytes a second of a machine's network, each way.
    pub network: f64,
    /// Bytes a second of the link between a GPU and the memory of its host.
    pub host: f64,
}

/// The best way to divide a training over a site.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    /// Seconds of an iteration.
    pub seconds: f64,
    /// The division in a few words.
    pub summary: String,
    /// GPUs that take part: all, or as many as can.
    pub gpus: u32,
    /// Which part of the model is where, but for copies: what stays the same needs no new cut of saved states.
    pub cut: String,
}

/// Passes from which the formula stands for the simulation.
const PASSES_MAX: u64 = 4_000;
/// GPUs up to which stages of a chain are looked for; more of them are copies.
const CHAIN_MAX: u32 = 16;

impl Described {
    /// The best division over a site; with fewer GPUs where the numbers do not divide.
    ///
    /// As many searches as GPUs have to be left out, which the divisors of batch, layers and heads keep few.
    pub fn best(&self, site: &Site) -> Result<Chosen, PlanError> {
        if site.groups.is_empty() || site.groups.iter().any(|one| one.gpus == 0) {
            return Err(PlanError::Empty("the GPUs".to_owned()));
        }
        match (&self.shape, &site.groups[..]) {
            (Shape::Transformer(model), [one]) => self.on_one_kind(model, one, site),
            (Shape::Transformer(model), _) => self.on_several_kinds(model, site),
            (Shape::Cnn(model), _) => self.of_chain(model, site),
        }
    }

    /// Seconds of an iteration where the model fits in no way and goes through host memory: what it computes, and
    /// weights that come and go three times (Harmony, packs that go round the devices: `3 W`).
    pub fn seconds_by_swaps(&self, site: &Site) -> Result<f64, PlanError> {
        let gpus: f64 = site.groups.iter().map(|one| f64::from(one.gpus)).sum();
        let swapped = crate::harmony::Form::WrapAround.swapped(self.state_bytes(), 1, 1);
        Ok(self.seconds_of_work(site)? + swapped / (gpus * site.host))
    }

    fn on_one_kind(
        &self,
        model: &Transformer,
        group: &SiteGroup,
        site: &Site,
    ) -> Result<Chosen, PlanError> {
        let mut first_error = None;
        for gpus in (1..=group.gpus).rev() {
            let machines = site.machines(group, gpus)?;
            match search((model, &machines), self.batch, Extent::Ours) {
                Ok(found) => {
                    let costs = Costs::new(model, &machines, found[0]);
                    let seconds = match found[0].passes() > PASSES_MAX {
                        true => costs.estimate(),
                        false => {
                            let devices = site.devices(&[(group, gpus)])?;
                            costs.pipeline(self.batch)?.simulate(&devices)?.run.seconds
                        }
                    };
                    let split = found[0];
                    let cut = format!(
                        "tensor {} pipeline {} chunks {} expert {}",
                        split.tensor, split.pipeline, split.chunks, split.expert
                    );
                    return Ok(Chosen { seconds, summary: split.summary(), gpus, cut });
                }
                // Fewer GPUs have no more room.
                Err(error @ PlanError::NoRoom { .. }) => {
                    first_error.get_or_insert(error);
                    break;
                }
                Err(error) => {
                    first_error.get_or_insert(error);
                }
            }
        }
        Err(first_error.unwrap_or_else(|| PlanError::Empty("the GPUs".to_owned())))
    }

    fn on_several_kinds(&self, model: &Transformer, site: &Site) -> Result<Chosen, PlanError> {
        let groups: Result<Vec<Group>, PlanError> = site
            .groups
            .iter()
            .map(|one| {
                Ok(Group { kind: one.kind.clone(), machines: site.machines(one, one.gpus)? })
            })
            .collect();
        let groups = groups?;
        let found = unequal::search(model, &groups, self.batch)?;
        let passes = found.split.passes();
        let seconds = match passes > PASSES_MAX {
            true => found.seconds,
            false => {
                let parts: Vec<(&SiteGroup, u32)> =
                    site.groups.iter().map(|one| (one, one.gpus)).collect();
                found.pipeline(model, &groups).simulate(&site.devices(&parts)?)?.run.seconds
            }
        };
        let layers: Vec<String> = found.stages.iter().map(|stage| stage.1.to_string()).collect();
        let cut = format!("tensor {} layers {}", found.split.tensor, layers.join("+"));
        let gpus = site.groups.iter().map(|one| one.gpus).sum();
        Ok(Chosen { seconds, summary: found.summary(&groups), gpus, cut })
    }

    /// One copy on each GPU, two stages, or a stage for each GPU, by the formula and the simulation of DAPPLE.
    fn of_chain(&self, model: &Cnn, site: &Site) -> Result<Chosen, PlanError> {
        let graph: Graph = model.graph(&site.groups[0].kind, 1)?;
        let all: u32 = site.groups.iter().map(|one| one.gpus).sum();
        // A sample for each copy at least.
        let gpus = all.min(self.batch);
        let mut left = gpus;
        let parts: Vec<(&SiteGroup, u32)> = (site.groups.iter())
            .map(|one| {
                let own = one.gpus.min(left);
                left -= own;
                (one, own)
            })
            .filter(|(_, own)| *own > 0)
            .collect();
        let devices = site.devices(&parts)?;
        let (batch, state_factor) = (self.batch, STATE_FACTOR);
        let request =
            Request { graph: &graph, transformer: None, devices: &devices, batch, state_factor };
        let settings = Settings { join_share: 0.02, ..Settings::default() };
        let chain = graph.chain().joined(settings.join_share);
        let instance = Instance::new(&chain, &request, &settings)?;
        let mut plans: Vec<Vec<Placed>> = data_parallel(&instance).into_iter().collect();
        if gpus <= CHAIN_MAX {
            plans.push(paper_plan(&instance));
            plans.extend(straight(&instance));
        }
        let mut best: Option<Chosen> = None;
        let mut lacking = None;
        for plan in plans {
            for way in instance.ways(&plan, false) {
                let pipeline = match instance.pipeline(&plan, way) {
                    Ok(pipeline) => pipeline,
                    Err(error) => {
                        lacking.get_or_insert(error);
                        continue;
                    }
                };
                let seconds = pipeline.simulate(&devices)?.run.seconds;
                if best.as_ref().is_none_or(|best| seconds < best.seconds) {
                    let cuts: Vec<String> = plan.iter().map(|one| one.to.to_string()).collect();
                    let cut = format!("layers to {}", cuts.join(","));
                    let summary = instance.summary(&plan, &pipeline);
                    best = Some(Chosen { seconds, summary, gpus, cut });
                }
            }
        }
        match (best, lacking) {
            (Some(best), _) => Ok(best),
            (None, Some(error)) => Err(error),
            (None, None) => Err(PlanError::Empty(self.text.clone())),
        }
    }
}

impl Site {
    /// Machines of `together` GPUs, or fewer where there are fewer or they do not divide.
    fn machines(&self, group: &SiteGroup, gpus: u32) -> Result<Machines, PlanError> {
        let per_machine = common_divisor(gpus, self.together.max(1));
        // A machine's network is shared by all GPUs of the machine, so each part of it has its share.
        let share = f64::from(per_machine) / f64::from(self.sharing.max(per_machine).max(1));
        let is_alone = gpus <= self.sharing && self.together >= gpus && self.groups.len() == 1;
        Ok(Machines {
            devices: gpus,
            per_machine,
            inside: if per_machine > 1 { group.inside * RING_SHARE } else { f64::INFINITY },
            network: if is_alone { f64::INFINITY } else { self.network * share },
            memory_bytes: if group.memory_bytes > 0.0 { group.memory_bytes } else { MEMORY_USUAL },
            peak_flops: group.peak_flops()?,
        })
    }

    /// The same as a graph of devices.
    fn devices(&self, parts: &[(&SiteGroup, u32)]) -> Result<DeviceGraph, PlanError> {
        let first = parts.first().ok_or_else(|| PlanError::Empty("the GPUs".to_owned()))?;
        let reference = first.0.peak_flops()?;
        let mut graph: Option<DeviceGraph> = None;
        for (group, gpus) in parts {
            let machines = self.machines(group, *gpus)?;
            let speeds = LinkSpeeds {
                inside: group.inside,
                network: self.network * f64::from(machines.per_machine)
                    / f64::from(self.sharing.max(machines.per_machine)),
                between_two: f64::INFINITY,
                host: self.host,
                latency: 5e-6,
            };
            let figures = KindFigures {
                speed: machines.peak_flops / reference,
                memory_bytes: machines.memory_bytes,
                peak_flops: machines.peak_flops,
            };
            let graph = graph.get_or_insert_with(|| DeviceGraph::new(&speeds));
            for _ in 0..gpus / machines.per_machine {
                graph.add_machine(machines.per_machine, &group.kind, figures, &speeds);
            }
        }
        graph.ok_or_else(|| PlanError::Empty("the GPUs".to_owned()))
    }
}

/// Memory of a GPU of which nothing is known.
const MEMORY_USUAL: f64 = 16e9;

fn common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(parts: &[(&str, u32, f64)]) -> Site {
        let group = |(kind, gpus, memory): &(&str, u32, f64)| SiteGroup {
            kind: (*kind).to_owned(),
            gpus: *gpus,
            memory_bytes: memory * 1e9,
            inside: 150e9,
        };
        let groups = parts.iter().map(group).collect();
        Site { groups, together: 8, sharing: 8, network: 12.5e9, host: 12e9 }
    }

    #[test]
    fn a_description_is_read_and_a_wrong_one_names_what_is_wrong() {
        let read = Described::parse("gpt-7.5b  batch=512").unwrap();
        assert_eq!((read.text.as_str(), read.batch), ("gpt-7.5b batch=512", 512));
        let cases = [
            ("gpt-7.5b", "batch"),
            ("gpt-75b batch=512", "did you mean `gpt-7.5b`"),
            ("gpt-7.5b batch=0", "a whole number from 1"),
            ("gpt-7.5b fast batch=8", "only `batch=`"),
            ("transformer layers=24 hidden=1000 heads=16 batch=8", "a divisor"),
            ("cnn image=32x32x3 batch=8", "layers"),
        ];
        for (text, expected) in cases {
            let error = Described::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        assert!(!Described::is_one("resnet-50") && Described::is_one("gpt-7b batch=512"));
    }

    #[test]
    fn more_gpus_are_faster_and_too_few_are_refused_with_what_is_lacking() {
        let model = Described::parse("gpt-7.5b batch=512").unwrap();
        let seconds = |gpus| model.best(&site(&[("a100", gpus, 80.0)])).unwrap().seconds;
        assert!(seconds(8) > 1.7 * seconds(16) && seconds(16) > 1.7 * seconds(32));
        let error = model.best(&site(&[("v100", 2, 16.0)])).unwrap_err().to_string();
        assert!(error.contains("gpt-7.5b") && error.contains("are lacking"), "{error}");
        let swapped = model.seconds_by_swaps(&site(&[("v100", 2, 16.0)])).unwrap();
        assert!(swapped > 10.0, "{swapped}");
    }

    #[test]
    fn a_number_that_does_not_divide_leaves_gpus_out() {
        let model = Described::parse("gpt-1.7b batch=512").unwrap();
        let chosen = model.best(&site(&[("a100", 7, 80.0)])).unwrap();
        assert!(chosen.gpus < 7 && chosen.gpus >= 4, "{chosen:?}");
    }

    #[test]
    fn a_network_of_layers_runs_on_two_types_by_their_speed() {
        let text = "cnn image=224x224x3 layers=conv64k3,conv64k3,pool8,conv128k3,fc10 batch=1024";
        let model = Described::parse(text).unwrap();
        let both = model.best(&site(&[("a100", 2, 80.0), ("v100", 2, 16.0)])).unwrap();
        let alone = model.best(&site(&[("a100", 2, 80.0)])).unwrap();
        assert!(both.seconds < alone.seconds, "{both:?} {alone:?}");
    }

    #[test]
    fn copies_alone_do_not_change_the_cut() {
        let model = Described::parse("gpt-7.5b batch=512").unwrap();
        let cut = |gpus| model.best(&site(&[("a100", gpus, 80.0)])).unwrap().cut;
        assert_eq!(cut(32), cut(64));
    }
}
