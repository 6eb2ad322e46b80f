//! The ids of names: jobs without a profile are kin when they have the same name, and an id stands for it.
//!
//! The id is made from the name alone. Nothing has to be remembered to find it again, so a new name costs what it is
//! long, however many there are, and a restart changes no id. Two names may by chance have the same id (once in some
//! four thousand million pairs): then what is learnt of one is believed of the other, as of any two jobs of one name.

use ring::digest::{SHA256, digest};
use serde_json::Value;
use trainyard_types::{GroupId, ModelId};

/// Ids of names without a profile begin here, far above those of profiles.
pub(crate) const KIN_FROM: u32 = 1 << 24;
/// Ids made from names begin here, above those that older versions gave out one after the other.
const HASHED_FROM: u32 = 1 << 25;

/// The id of a name.
pub(crate) fn id(name: &str) -> ModelId {
    let digest = digest(&SHA256, name.as_bytes());
    let bytes = digest.as_ref().first_chunk::<8>().expect("a digest has 32 bytes");
    let room = u64::from(u32::MAX - HASHED_FROM);
    ModelId(HASHED_FROM + (u64::from_be_bytes(*bytes) % room) as u32)
}

/// The id of a search of a user; the same name of another user is another search.
pub(crate) fn group(user: &str, search: &str) -> GroupId {
    // No name of a user has a zero byte, so that no two pairs are one text.
    let digest = digest(&SHA256, format!("{user}\0{search}").as_bytes());
    GroupId(u32::from_be_bytes(*digest.as_ref().first_chunk::<4>().expect("a digest has 32 bytes")))
}

/// What was learnt under the numbers that older versions gave to names, under the ids of those names.
pub(crate) fn by_name(learnt: &str, numbered: &[String]) -> String {
    if numbered.is_empty() {
        return learnt.to_owned();
    }
    // What cannot be read is learnt again, as everything of this sort.
    let Ok(mut memory) = serde_json::from_str::<Value>(learnt) else { return learnt.to_owned() };
    let Some(kin) = memory["kin"].as_array_mut() else { return learnt.to_owned() };
    for one in kin {
        let number = one[0].as_u64().and_then(|id| id.checked_sub(u64::from(KIN_FROM)));
        let name = number.and_then(|number| numbered.get(usize::try_from(number).ok()?));
        if let Some(name) = name {
            one[0] = Value::from(id(name).0);
        }
    }
    memory.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_search_is_its_users_own() {
        assert_eq!(group("ada", "width"), group("ada", "width"));
        assert_ne!(group("ada", "width"), group("bob", "width"));
        assert_ne!(group("ada", "width"), group("ada", "depth"));
    }

    #[test]
    fn names_have_ids_of_their_own_that_stay() {
        assert_eq!(id("train"), id("train"));
        let ids: BTreeSet<ModelId> =
            (0..10_000).map(|number| id(&format!("job-{number}"))).collect();
        assert_eq!(ids.len(), 10_000);
        assert!(ids.iter().all(|id| id.0 >= HASHED_FROM));
        // Written down in stores: another digest would lose what was learnt.
        assert_eq!(id(""), ModelId(HASHED_FROM + 4_067_940_302));
    }
}
