//! What a program on a shared GPU and the arbiter of that GPU say to each other.
//!
//! Every message is one frame of [`FRAME`] bytes: a mark, a version, a kind, five bytes of zero, and two numbers
//! (little-endian). There is no length to lie about, and whatever is not written here is refused.
//! A frame is read by the server from programs that it does not trust.
//!
//! The program speaks first: [`FromProgram::Hello`], answered by [`ToProgram::Welcome`]. Then
//! [`FromProgram::Want`] and `Renew` are answered by [`ToProgram::Granted`] when it is its turn, and `Return` by nothing;
//! `Reserve` and `Usage` are answered at once, and `Release` by nothing.

/// The length of every message.
pub const FRAME: usize = 24;
/// The version of these messages; another is refused.
pub const VERSION: u8 = 1;
/// The environment variable with the path of the socket.
pub const SOCKET_VARIABLE: &str = "TRAINYARD_SHARING_SOCKET";
/// The environment variable that says what to do when the arbiter is gone: `stop`, or anything else for going on.
pub const LOST_VARIABLE: &str = "TRAINYARD_SHARING_LOST";
/// A cap that is none.
pub const NO_CAP: u64 = u64::MAX;
/// The quota of a turn that never ends: its program asks for no other, and gives nothing back.
pub const FOREVER: u64 = u64::MAX;

const MARK: u8 = 0x59;

/// What a program says.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum FromProgram {
    /// I am here, and my driver calls are hooked.
    Hello,
    /// I want to give the GPU work.
    Want,
    /// The GPU has done all my work, which took so long after the last of it was given.
    Return {
        /// The turn that is over.
        token: u64,
        /// Microseconds of waiting for the GPU at the end.
        drain_us: u64,
    },
    /// The same, and I want to give the GPU more work: said in one, or the neighbour would be the only one to wait at
    /// the moment at which the next turn is given.
    Renew {
        /// The turn that is over.
        token: u64,
        /// Microseconds of waiting for the GPU at the end.
        drain_us: u64,
    },
    /// I am about to allocate.
    Reserve {
        /// How much.
        bytes: u64,
    },
    /// I have freed.
    Release {
        /// How much.
        bytes: u64,
    },
    /// How much is used?
    Usage,
}

/// What the arbiter says.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ToProgram {
    /// You are known.
    Welcome {
        /// Bytes that all programs of the job may allocate together, or [`NO_CAP`].
        memory_cap: u64,
    },
    /// It is your turn.
    Granted {
        /// Which turn.
        token: u64,
        /// For how many microseconds, or [`FOREVER`].
        quota_us: u64,
    },
    /// You may allocate it.
    Reserved {
        /// Bytes in use, this included.
        used: u64,
    },
    /// You may not: it would pass the cap.
    Refused {
        /// Bytes in use.
        used: u64,
    },
    /// The answer to [`FromProgram::Usage`].
    Used {
        /// Bytes in use.
        used: u64,
    },
}

/// A frame that is no message.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// It does not begin with the mark.
    Mark,
    /// It is of another version.
    Version(u8),
    /// There is no such kind.
    Kind(u8),
    /// Something is set that means nothing.
    Padding,
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Malformed::Mark => write!(f, "the frame does not begin with the mark"),
            Malformed::Version(found) => write!(f, "version {found}, expected {VERSION}"),
            Malformed::Kind(found) => write!(f, "unknown kind {found}"),
            Malformed::Padding => write!(f, "bytes that must be zero are not"),
        }
    }
}

impl std::error::Error for Malformed {}

impl FromProgram {
    /// As it travels.
    pub fn encode(self) -> [u8; FRAME] {
        match self {
            FromProgram::Hello => frame(1, 0, 0),
            FromProgram::Want => frame(2, 0, 0),
            FromProgram::Return { token, drain_us } => frame(3, token, drain_us),
            FromProgram::Reserve { bytes } => frame(4, bytes, 0),
            FromProgram::Release { bytes } => frame(5, bytes, 0),
            FromProgram::Usage => frame(6, 0, 0),
            FromProgram::Renew { token, drain_us } => frame(7, token, drain_us),
        }
    }

    /// What a frame says.
    pub fn decode(frame: &[u8; FRAME]) -> Result<FromProgram, Malformed> {
        match numbers(frame)? {
            (1, 0, 0) => Ok(FromProgram::Hello),
            (2, 0, 0) => Ok(FromProgram::Want),
            (3, token, drain_us) => Ok(FromProgram::Return { token, drain_us }),
            (4, bytes, 0) => Ok(FromProgram::Reserve { bytes }),
            (5, bytes, 0) => Ok(FromProgram::Release { bytes }),
            (6, 0, 0) => Ok(FromProgram::Usage),
            (7, token, drain_us) => Ok(FromProgram::Renew { token, drain_us }),
            (1..=7, ..) => Err(Malformed::Padding),
            (kind, ..) => Err(Malformed::Kind(kind)),
        }
    }
}

impl ToProgram {
    /// As it travels.
    pub fn encode(self) -> [u8; FRAME] {
        match self {
            ToProgram::Welcome { memory_cap } => frame(65, memory_cap, 0),
            ToProgram::Granted { token, quota_us } => frame(66, token, quota_us),
            ToProgram::Reserved { used } => frame(67, used, 0),
            ToProgram::Refused { used } => frame(68, used, 0),
            ToProgram::Used { used } => frame(69, used, 0),
        }
    }

    /// What a frame says.
    pub fn decode(frame: &[u8; FRAME]) -> Result<ToProgram, Malformed> {
        match numbers(frame)? {
            (65, memory_cap, 0) => Ok(ToProgram::Welcome { memory_cap }),
            (66, token, quota_us) => Ok(ToProgram::Granted { token, quota_us }),
            (67, used, 0) => Ok(ToProgram::Reserved { used }),
            (68, used, 0) => Ok(ToProgram::Refused { used }),
            (69, used, 0) => Ok(ToProgram::Used { used }),
            (65..=69, ..) => Err(Malformed::Padding),
            (kind, ..) => Err(Malformed::Kind(kind)),
        }
    }
}

fn frame(kind: u8, first: u64, second: u64) -> [u8; FRAME] {
    let mut frame = [0; FRAME];
    frame[..3].copy_from_slice(&[MARK, VERSION, kind]);
    frame[8..16].copy_from_slice(&first.to_le_bytes());
    frame[16..].copy_from_slice(&second.to_le_bytes());
    frame
}

fn numbers(frame: &[u8; FRAME]) -> Result<(u8, u64, u64), Malformed> {
    let number = |at: usize| {
        (0..8).fold(0, |sum: u64, index| sum | u64::from(frame[at + index]) << (8 * index))
    };
    if frame[0] != MARK {
        return Err(Malformed::Mark);
    }
    if frame[1] != VERSION {
        return Err(Malformed::Version(frame[1]));
    }
    if frame[3..8].iter().any(|byte| *byte != 0) {
        return Err(Malformed::Padding);
    }
    Ok((frame[2], number(8), number(16)))
}

#[cfg(test)]
mod tests {
    use super::{FRAME, FromProgram, Malformed, ToProgram, VERSION, frame};

    #[test]
    fn every_message_reads_back_as_itself() {
        let big = u64::MAX - 7;
        let said = [
            FromProgram::Hello,
            FromProgram::Want,
            FromProgram::Return { token: big, drain_us: 3 },
            FromProgram::Reserve { bytes: big },
            FromProgram::Release { bytes: 1 << 40 },
            FromProgram::Usage,
            FromProgram::Renew { token: 1, drain_us: big },
        ];
        for message in said {
            assert_eq!(FromProgram::decode(&message.encode()), Ok(message));
            assert!(ToProgram::decode(&message.encode()).is_err(), "{message:?} goes one way");
        }
        let told = [
            ToProgram::Welcome { memory_cap: big },
            ToProgram::Granted { token: 1, quota_us: big },
            ToProgram::Reserved { used: big },
            ToProgram::Refused { used: 0 },
            ToProgram::Used { used: 5 },
        ];
        for message in told {
            assert_eq!(ToProgram::decode(&message.encode()), Ok(message));
            assert!(FromProgram::decode(&message.encode()).is_err(), "{message:?} goes one way");
        }
    }

    #[test]
    fn what_is_no_message_is_refused() {
        assert_eq!(FromProgram::decode(&[0; FRAME]), Err(Malformed::Mark));
        let mut other = FromProgram::Hello.encode();
        other[1] = VERSION + 1;
        assert_eq!(FromProgram::decode(&other), Err(Malformed::Version(VERSION + 1)));
        for kind in [0, 8, 64, 65, 255] {
            assert_eq!(FromProgram::decode(&frame(kind, 0, 0)), Err(Malformed::Kind(kind)));
        }
        assert_eq!(FromProgram::decode(&frame(2, 1, 0)), Err(Malformed::Padding));
        assert_eq!(FromProgram::decode(&frame(4, 1, 1)), Err(Malformed::Padding));
        for at in 3..8 {
            let mut padded = FromProgram::Want.encode();
            padded[at] = 1;
            assert_eq!(FromProgram::decode(&padded), Err(Malformed::Padding));
        }
    }
}
