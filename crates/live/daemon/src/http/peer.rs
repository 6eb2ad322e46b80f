//! The client at the other end of a connection, as the kernel tells.

use super::options::{HttpOptions, ServeError};
use super::rate::Who;
use crate::access::{Caller, Role};
use nix::unistd::{Gid, Group, Uid, User, getgrouplist};
use std::collections::HashMap;
use std::ffi::CString;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use trainyard_api::token::TokenInfo;
use trainyard_api::{Code, Problem};

/// How long a name or a membership is believed: the system's own table may be far away and slow.
const BELIEVED: Duration = Duration::from_secs(60);
/// Names kept at most.
const NAMES_MAX: usize = 10_000;

/// The other end of a connection.
#[derive(Clone, Debug)]
pub enum Peer {
    /// On the Unix socket.
    Local {
        /// Its Unix user.
        uid: u32,
        /// The caller, or why it is not served.
        caller: Result<Caller, Problem>,
    },
    /// On TCP.
    Remote {
        /// Its address.
        address: SocketAddr,
        /// The address it asked for.
        here: SocketAddr,
        /// Whether the connection is encrypted.
        encrypted: bool,
    },
}

impl Peer {
    /// Whose limits it shares before it is known by a token.
    pub fn who(&self) -> Who {
        match self {
            Peer::Local { uid, .. } => Who::Uid(*uid),
            Peer::Remote { address, .. } => Who::address(address.ip()),
        }
    }

    /// How it is named in records.
    pub fn label(&self) -> String {
        match self {
            Peer::Local { uid, .. } => format!("uid {uid}"),
            Peer::Remote { address, .. } => address.ip().to_canonical().to_string(),
        }
    }

    /// The address it asked for, unless it is local.
    pub fn here(&self) -> Option<(IpAddr, u16)> {
        match self {
            Peer::Local { .. } => None,
            Peer::Remote { here, .. } => Some((here.ip().to_canonical(), here.port())),
        }
    }
}

/// The Unix users of this machine, and what they may do here.
#[derive(Debug)]
pub struct Users {
    own: u32,
    only_own_user: bool,
    operators: Vec<String>,
    operator_group: Option<Gid>,
    callers: Mutex<HashMap<u32, (Instant, Caller)>>,
    known: Mutex<HashMap<String, (Instant, Option<Known>)>>,
}

/// The Unix user behind a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its number.
    pub uid: u32,
    /// The names of its groups.
    pub groups: Vec<String>,
}

impl Users {
    /// By the options; a group that does not exist is an error now rather than a surprise later.
    pub fn new(options: &HttpOptions) -> Result<Users, ServeError> {
        let operator_group = match &options.operator_group {
            None => None,
            Some(name) => {
                let group = Group::from_name(name).ok().flatten();
                Some(group.ok_or_else(|| ServeError::UnknownGroup(name.clone()))?.gid)
            }
        };
        Ok(Users {
            own: Uid::effective().as_raw(),
            only_own_user: options.only_own_user,
            operators: options.operators.clone(),
            operator_group,
            callers: Mutex::default(),
            known: Mutex::default(),
        })
    }

    /// The caller that a Unix user is here, or why it is not served.
    pub async fn caller(self: &Arc<Users>, uid: u32) -> Result<Caller, Problem> {
        let ours = uid == 0 || uid == self.own;
        if self.only_own_user && !ours {
            let detail = format!(
                "this daemon serves the Unix user with id {} only, and you have id {uid}: \
                 start one of your own, or ask for one that serves all users",
                self.own
            );
            return Err(Problem::new(Code::Denied, detail));
        }
        if let Some(caller) = recent(&self.callers, &uid) {
            return Ok(caller);
        }
        let users = Arc::clone(self);
        // The lookup may go over the network, so it must not hold up a thread that serves others.
        let caller = tokio::task::spawn_blocking(move || users.look_up(uid)).await;
        let caller = caller.map_err(|_| Problem::new(Code::Internal, "a user lookup was lost"))?;
        remember(&self.callers, uid, caller.clone());
        Ok(caller)
    }

    /// The Unix user of a name, for tokens.
    pub async fn known(&self, name: &str) -> Option<Known> {
        let key = name.to_owned();
        if let Some(known) = recent(&self.known, &key) {
            return known;
        }
        let asked = key.clone();
        let found = tokio::task::spawn_blocking(move || {
            let user = User::from_name(&asked).ok().flatten()?;
            Some(Known { uid: user.uid.as_raw(), groups: groups_of(&user) })
        });
        let known = found.await.ok().flatten();
        remember(&self.known, key, known.clone());
        known
    }

    /// The caller that a token stands for. It is never root: a token travels and lies in files, and a client with a
    /// token of root's could run programs as root. Such a token keeps its role, under a name that no Unix user has.
    pub async fn behind_token(&self, token: &TokenInfo) -> Caller {
        let known = self.known(&token.user).await;
        match known {
            Some(known) if known.uid == 0 && !self.only_own_user => {
                Caller::named(&nobody_called(&token.name), token.role)
            }
            known => {
                let (uid, groups) = known.map(|known| (known.uid, known.groups)).unzip();
                let groups = groups.unwrap_or_default();
                Caller { user: token.user.clone(), uid, role: token.role, groups }
            }
        }
    }

    /// Whom a new token stands for: the user that was named, or the one who makes it, but never root.
    pub async fn stands_for(
        &self,
        maker: &Caller,
        named: Option<String>,
        (name, role): (&str, Role),
    ) -> Result<String, Problem> {
        let refused = |detail: String| Err(Problem::field(Code::BadInput, "user", detail));
        match named {
            Some(user) if self.is_root(&user).await => refused(format!(
                "a token does not stand for `{user}`, who is root: name another user, or none for a token of the role \
                 viewer, operator or admin that submits nothing"
            )),
            Some(user) => Ok(user),
            None if !self.is_root(&maker.user).await => Ok(maker.user.clone()),
            None if role == Role::User => refused(format!(
                "you are `{}`, and a token does not stand for root: say with `user` (--user NAME) whose jobs it submits",
                maker.user
            )),
            None => Ok(nobody_called(name)),
        }
    }

    async fn is_root(&self, name: &str) -> bool {
        !self.only_own_user && self.known(name).await.is_some_and(|known| known.uid == 0)
    }

    fn look_up(&self, uid: u32) -> Caller {
        let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
        let name = user.as_ref().map_or_else(|| uid.to_string(), |user| user.name.clone());
        let role = match uid == 0 || uid == self.own {
            true => Role::Admin,
            false if self.is_operator(&name, user.as_ref()) => Role::Operator,
            false => Role::User,
        };
        let groups = user.as_ref().map(groups_of).unwrap_or_default();
        Caller { user: name, uid: Some(uid), role, groups }
    }

    fn is_operator(&self, name: &str, user: Option<&User>) -> bool {
        let in_group = || {
            let (group, user) = (self.operator_group?, user?);
            let name = CString::new(user.name.as_str()).ok()?;
            Some(getgrouplist(&name, user.gid).ok()?.contains(&group))
        };
        self.operators.iter().any(|operator| operator == name) || in_group() == Some(true)
    }
}

/// A name that no Unix user has: jobs cannot be run as it.
fn nobody_called(token: &str) -> String {
    format!("@{token}")
}

/// The names of a user's groups.
fn groups_of(user: &User) -> Vec<String> {
    let name = CString::new(user.name.as_str());
    let ids = name.ok().and_then(|name| getgrouplist(&name, user.gid).ok()).unwrap_or_default();
    let names = ids.into_iter().filter_map(|id| Group::from_gid(id).ok().flatten());
    names.map(|group| group.name).collect()
}

fn recent<K, V>(kept: &Mutex<HashMap<K, (Instant, V)>>, key: &K) -> Option<V>
where
    K: std::hash::Hash + Eq,
    V: Clone,
{
    let kept = kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    kept.get(key).filter(|(at, _)| at.elapsed() < BELIEVED).map(|(_, value)| value.clone())
}

fn remember<K, V>(kept: &Mutex<HashMap<K, (Instant, V)>>, key: K, value: V)
where
    K: std::hash::Hash + Eq,
{
    let mut kept = kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if kept.len() >= NAMES_MAX {
        kept.clear();
    }
    kept.insert(key, (Instant::now(), value));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    fn users(change: impl FnOnce(&mut HttpOptions)) -> Arc<Users> {
        let mut options = HttpOptions::new(Arc::new(Metrics::new()));
        change(&mut options);
        Arc::new(Users::new(&options).unwrap())
    }

    #[tokio::test]
    async fn strangers_are_users_unless_they_are_operators_or_not_served_at_all() {
        // A user id that no user has: its number is its name.
        let (own, stranger) = (Uid::effective().as_raw(), 3_999_999_999);
        let everybody = users(|_| {});
        assert_eq!(everybody.caller(own).await.unwrap().role, Role::Admin);
        assert_eq!(everybody.caller(0).await.unwrap().role, Role::Admin);
        let caller = everybody.caller(stranger).await.unwrap();
        assert_eq!((caller.user.as_str(), caller.role), ("3999999999", Role::User));
        assert_eq!(caller.uid, Some(stranger));

        let operators = users(|options| options.operators = vec!["3999999999".to_owned()]);
        assert_eq!(operators.caller(stranger).await.unwrap().role, Role::Operator);

        let alone = users(|options| options.only_own_user = true);
        assert_eq!(alone.caller(own).await.unwrap().role, Role::Admin);
        assert_eq!(alone.caller(stranger).await.unwrap_err().code, Code::Denied);
    }

    #[tokio::test]
    async fn no_token_is_roots() {
        let everybody = users(|_| {});
        let root = Caller { uid: Some(0), ..Caller::named("root", Role::Admin) };
        let asked = |named: Option<&str>, role| {
            let (users, root, named) = (&everybody, &root, named.map(str::to_owned));
            async move { users.stands_for(root, named, ("ci", role)).await }
        };
        assert_eq!(asked(None, Role::User).await.unwrap_err().field.as_deref(), Some("user"));
        assert_eq!(asked(Some("root"), Role::Viewer).await.unwrap_err().code, Code::BadInput);
        assert_eq!(asked(Some("ann"), Role::User).await.unwrap(), "ann");
        assert_eq!(asked(None, Role::Admin).await.unwrap(), "@ci", "it rules, and runs nothing");
        // One that an older version made.
        let (name, user, role) = ("old".to_owned(), "root".to_owned(), Role::User);
        let old = TokenInfo { name, user, role, created: 0.0, expires: None };
        let caller = everybody.behind_token(&old).await;
        assert_eq!((caller.user.as_str(), caller.uid), ("@old", None));
        // Where all jobs are the daemon's own user's, nothing runs as root by it.
        let alone = users(|options| options.only_own_user = true);
        assert_eq!(alone.behind_token(&old).await.user, "root");
    }

    #[tokio::test]
    async fn members_of_a_group_are_operators() {
        // A user of the system's table other than this process's, in the group that is its own.
        let own = Uid::effective();
        let other = ["nobody", "daemon", "bin"].iter().find_map(|name| {
            User::from_name(name)
                .ok()
                .flatten()
                .filter(|user| user.uid != own && !user.uid.is_root())
        });
        let group = other.as_ref().and_then(|user| Group::from_gid(user.gid).ok().flatten());
        let (Some(other), Some(group)) = (other, group) else {
            trainyard_testkit::skip!("users", "this system has none of the usual users");
            return;
        };
        let members = users(|options| options.operator_group = Some(group.name));
        let caller = members.caller(other.uid.as_raw()).await.unwrap();
        assert_eq!((caller.user.as_str(), caller.role), (other.name.as_str(), Role::Operator));
        let known = members.known(&other.name).await.expect("it was found above");
        assert_eq!(known.uid, other.uid.as_raw());
        assert!(caller.groups == known.groups && !known.groups.is_empty(), "{known:?}");
    }
}
