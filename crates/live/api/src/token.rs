//! Tokens: what is asked for, what is listed, and the secret that is shown once.

use crate::access::Role;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A token as it is listed; the secret itself is shown once, when it is made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TokenInfo {
    /// What people call it.
    pub name: String,
    /// Whose requests it makes.
    pub user: String,
    /// What it allows.
    pub role: Role,
    /// When it was made, in seconds of Unix time.
    pub created: f64,
    /// When it ends.
    pub expires: Option<f64>,
}

/// A token to be made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// What people call it.
    pub name: String,
    /// The user whose requests it makes; by default the one who makes it, unless that is root.
    #[serde(default)]
    pub user: Option<String>,
    /// What it allows.
    pub role: Role,
    /// How long it is good; 90 days by default, ten years at most.
    #[serde(default)]
    pub expires_seconds: Option<f64>,
}

/// A token that was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TokenMade {
    /// The secret, shown this once.
    pub token: String,
    /// What is listed of it.
    pub info: TokenInfo,
}
