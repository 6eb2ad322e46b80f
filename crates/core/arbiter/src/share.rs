//! What a client was promised.

use crate::arbiter::ClientId;

/// All of the time of a GPU, in permille.
pub const WHOLE: u32 = 1000;

/// How much of the time of a GPU a client gets, in permille.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// At least this, whenever it wants to; the requests on a GPU sum to at most [`WHOLE`].
    pub request: u32,
    /// At most this, even if no other client wants the GPU.
    pub limit: u32,
}

/// Why a share is refused.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShareError {
    /// A limit below the request, of nothing, or beyond the whole GPU.
    #[error("a share has a request of at most its limit and a limit of 1 to 1000 permille, not {} of {}", .0.request, .0.limit)]
    Nonsense(Share),
    /// The others were promised too much already.
    #[error(
        "a request of {asked} permille does not fit beside the {promised} permille promised to others"
    )]
    Oversold {
        /// What was asked for.
        asked: u32,
        /// The sum of the other requests.
        promised: u32,
    },
    /// The client is there already.
    #[error("client {} is there already", .0.0)]
    Twice(ClientId),
    /// There is no such client.
    #[error("there is no client {}", .0.0)]
    Unknown(ClientId),
}

impl Share {
    /// Itself, if it makes sense beside `promised` permille of others.
    pub(crate) fn checked(self, promised: u32) -> Result<Share, ShareError> {
        if self.limit == 0 || self.limit > WHOLE || self.request > self.limit {
            return Err(ShareError::Nonsense(self));
        }
        if self.request + promised > WHOLE {
            return Err(ShareError::Oversold { asked: self.request, promised });
        }
        Ok(self)
    }
}
