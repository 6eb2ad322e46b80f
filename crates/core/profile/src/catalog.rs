//! All models of a run, by id and by name.

use crate::{ModelProfile, zoo};
use std::collections::BTreeMap;
use std::sync::Arc;
use trainyard_diagnostic::{InputError, nearest};
use trainyard_planner::Described;
use trainyard_types::ModelId;

/// The name of the model that does one second of work in each second.
pub const GENERIC: &str = "generic";

/// All models of a run. Model 0 is always [`GENERIC`].
#[derive(Clone, Debug, PartialEq)]
pub struct Catalog {
    models: Vec<Arc<ModelProfile>>,
    ids: BTreeMap<String, ModelId>,
}

impl Default for Catalog {
    /// Only the generic model.
    fn default() -> Catalog {
        let mut catalog = Catalog { models: Vec::new(), ids: BTreeMap::new() };
        let source = "by definition: work is given as seconds at the wanted size";
        catalog.add(ModelProfile::steady(GENERIC, source, 1.0));
        catalog
    }
}

impl Catalog {
    /// The generic model and the whole zoo.
    pub fn builtin() -> Catalog {
        zoo::catalog().clone()
    }

    /// Adds a model; one of the same name is replaced and keeps its id.
    pub fn add(&mut self, profile: ModelProfile) -> ModelId {
        if let Some(id) = self.find(&profile.name) {
            self.models[id.index()] = Arc::new(profile);
            return id;
        }
        let id = ModelId(self.models.len() as u32);
        self.ids.insert(profile.name.clone(), id);
        self.models.push(Arc::new(profile));
        id
    }

    /// The model of that name.
    pub fn find(&self, name: &str) -> Option<ModelId> {
        let known = self.ids.get(name).copied();
        // Spaces do not make another model of a description.
        let plain = || name.split_whitespace().collect::<Vec<_>>().join(" ");
        known.or_else(|| {
            Described::is_one(name).then(plain).and_then(|it| self.ids.get(&it).copied())
        })
    }

    /// The model of that name, or a fault that names the nearest one.
    pub fn lookup(&self, line: u64, field: &str, name: &str) -> Result<ModelId, InputError> {
        let found = self.find(name);
        if found.is_none() && Described::is_one(name) {
            Described::parse(name).map_err(|fault| InputError { line, ..fault })?;
        }
        found.ok_or_else(|| InputError {
            nearest: nearest(name, self.names()).map(str::to_owned),
            ..InputError::wrong(line, field, name, "the name of a model in the catalog")
        })
    }

    /// The model of that name, which is added where it is a description of a model (`gpt-7.5b batch=512`); or a fault.
    ///
    /// The second value says whether it was added, so that what was bound to the catalog is to be bound anew.
    pub fn resolve(
        &mut self,
        line: u64,
        field: &str,
        name: &str,
    ) -> Result<(ModelId, bool), InputError> {
        if let Some(known) = self.find(name) {
            return Ok((known, false));
        }
        if !Described::is_one(name) {
            return self.lookup(line, field, name).map(|id| (id, false));
        }
        let described = Described::parse(name).map_err(|fault| InputError { line, ..fault })?;
        Ok((self.add(ModelProfile::described(described)), true))
    }

    /// A model.
    ///
    /// # Panics
    /// When the id is not of this catalog.
    pub fn get(&self, id: ModelId) -> &ModelProfile {
        &self.models[id.index()]
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.models.len()
    }

    /// Always false.
    pub fn is_empty(&self) -> bool {
        self.models.is_empty()
    }

    /// The names, in order of id.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.models.iter().map(|model| model.name.as_str())
    }

    /// Each with its id.
    pub fn iter(&self) -> impl Iterator<Item = (ModelId, &ModelProfile)> {
        self.models.iter().enumerate().map(|(index, model)| (ModelId(index as u32), model.as_ref()))
    }

    /// All models in order of id, to be kept without a copy.
    pub fn shared(&self) -> &[Arc<ModelProfile>] {
        &self.models
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_zero_is_generic_and_names_are_unique() {
        let mut catalog = Catalog::builtin();
        assert_eq!(catalog.find(GENERIC), Some(ModelId(0)));
        let count = catalog.len();
        let changed = ModelProfile::steady(GENERIC, "test", 2.0);
        assert_eq!(catalog.add(changed), ModelId(0));
        assert_eq!(catalog.len(), count);
    }

    #[test]
    fn a_description_becomes_a_model_once() {
        let mut catalog = Catalog::default();
        let (id, is_new) = catalog.resolve(1, "model", "gpt-7.5b batch=512").unwrap();
        assert!(is_new && catalog.get(id).described.is_some());
        assert_eq!(catalog.resolve(2, "model", "gpt-7.5b   batch=512").unwrap(), (id, false));
        let fault = catalog.resolve(3, "model", "gpt-75b batch=512").unwrap_err();
        assert_eq!((fault.line, fault.nearest.as_deref()), (3, Some("gpt-7.5b")));
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_nearest() {
        let error = Catalog::default().lookup(4, "model", "genreic").unwrap_err();
        assert_eq!((error.line, error.nearest.as_deref()), (4, Some("generic")));
    }
}
