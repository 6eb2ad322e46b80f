//! A route for each endpoint: what is read of a request, what the service is asked, what is sent back.

use super::fields::Checked;
use super::reply::HttpAnswer;
use super::router::Rim;
use super::{input, own};
use crate::access::Caller;
use axum::body::Bytes;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use trainyard_api::Problem;
#[allow(clippy::wildcard_imports, reason = "the rows of the table name all of them")]
use trainyard_api::endpoint::types::*;
use trainyard_api::endpoint::{ENDPOINTS, Endpoint, Param};

/// What came of it.
pub type Said = Result<HttpAnswer, Problem>;

/// An answer that comes later.
pub type Saying = Pin<Box<dyn Future<Output = Said> + Send>>;

/// A request of a caller who is known.
pub struct Asked {
    /// Everything the rim has.
    pub rim: Arc<Rim>,
    /// The caller.
    pub caller: Caller,
    /// The part of the path that varies, decoded.
    pub part: String,
    /// What follows `?`.
    pub query: String,
    /// The body.
    pub body: Bytes,
    /// The client's own key.
    pub key: Option<String>,
    /// Whether it understands an answer that is packed.
    pub takes_gzip: bool,
    /// Whether it asks for metrics as OpenMetrics.
    pub takes_open_metrics: bool,
}

/// The function that answers.
#[derive(Copy, Clone)]
pub enum Call {
    /// For clients without a token, too, without a look at the service.
    Open(fn(&Rim) -> Said),
    /// For callers who are known; the service checks whether they may.
    Known(fn(Asked) -> Saying),
}

/// One route.
pub struct Route {
    /// Its row in the table.
    pub endpoint: &'static Endpoint,
    /// What may follow `?`.
    pub params: Vec<Param>,
    /// The function that answers.
    pub call: Call,
}

/// All routes.
pub fn routes() -> &'static [Route] {
    static ROUTES: LazyLock<Vec<Route>> = LazyLock::new(|| {
        let route = |endpoint: &'static Endpoint| {
            let call = CALLS.iter().find(|(name, _)| *name == endpoint.name);
            let (_, call) = call.expect("rows and calls are made of the same table");
            Route { endpoint, params: endpoint.params(), call: *call }
        };
        ENDPOINTS.iter().map(route).collect()
    });
    &ROUTES
}

/// What comes in under a name, checked.
macro_rules! comes_in {
    ($asked:ident, query, $type:ty) => {
        input::query::<$type>(&$asked.query)?.checked(&$asked)?
    };
    ($asked:ident, body, $type:ty) => {
        input::json::<$type>(&$asked.body)?.checked(&$asked)?
    };
    ($asked:ident, job, $type:ty) => {
        input::number("job", &$asked.part)?
    };
    ($asked:ident, window, $type:ty) => {
        input::number("window", &$asked.part)?
    };
    ($asked:ident, name, $type:ty) => {
        $asked.part.clone()
    };
}

macro_rules! comes_back {
    ($said:ident, $rim:ident, one($type:ty)) => {
        HttpAnswer::json(&$said, &$rim.limits)
    };
    ($said:ident, $rim:ident, list($name:literal, $type:ty)) => {
        HttpAnswer::list($name, &$said, &$rim.limits)
    };
    ($said:ident, $rim:ident, nothing()) => {{
        let () = $said;
        Ok(HttpAnswer::nothing())
    }};
}

/// What the rim makes of a request itself.
macro_rules! own_call {
    (Anybody, $name:ident()) => { Call::Open(own::$name) };
    ($least:ident, $name:ident($($arg:ident: $type:ty),*)) => {
        Call::Known(|asked| Box::pin(async move {
            $(let $arg = comes_in!(asked, $arg, $type);)*
            own::$name(asked, $($arg),*).await
        }))
    };
}

macro_rules! calls {
    (
        service {$(
            $(#[doc = $about:literal])+
            $verb:ident $path:literal $name:ident($($arg:ident: $type:ty),*) -> $gives:ident($($what:tt)*),
                $least:ident $(, $again:ident)?;
        )*}
        rim {$(
            $(#[doc = $own_about:literal])+
            $own_verb:ident $own_path:literal $own:ident($($own_arg:ident: $own_type:ty),*)
                -> $own_gives:ident($($own_what:tt)*), $own_least:ident;
        )*}
    ) => {
        const CALLS: &[(&str, Call)] = &[
            $((stringify!($name), Call::Known(|asked| Box::pin(async move {
                $(let $arg = comes_in!(asked, $arg, $type);)*
                let Asked { rim, caller, .. } = asked;
                let said = rim.service.$name(caller, $($arg),*).await?;
                comes_back!(said, rim, $gives($($what)*))
            }))),)*
            $((stringify!($own), own_call!($own_least, $own($($own_arg: $own_type),*))),)*
        ];
    };
}

trainyard_api::endpoints!(calls);
