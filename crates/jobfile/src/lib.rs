//! Jobs as text: TOML, YAML, JSON and batch scripts with `#SBATCH` lines become [`trainyard_api::JobSpec`]s.
