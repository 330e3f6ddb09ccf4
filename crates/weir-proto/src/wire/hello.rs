//! Hellos: the first bytes each way on a connection.
//!
//! `"WEIR", u16 length`, then a body. The dialer's body is `u16 oldest version, u16 newest version` and fields; the
//! acceptor answers `u16 chosen version` (0: refused) and fields, or a refusal's code and message. A field is
//! `u8 tag, u16 length, value`; unknown tags are skipped, so that fields can be added (resume, lanes, security).

use super::{Cursor, NodeId};

/// The version this build speaks.
pub const VERSION: u16 = 1;
/// Largest body of a hello.
pub const MAX_HELLO: usize = 4096;
/// Bytes before the body.
pub const PREFIX: usize = 6;
const MAGIC: [u8; 4] = *b"WEIR";

const TAG_NODE: u8 = 1;
const TAG_INCARNATION: u8 = 2;
const TAG_MAX_WINDOW: u8 = 3;
const TAG_LISTEN: u8 = 4;

/// What a node says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// Its id.
    pub node: NodeId,
    /// Which life of it.
    pub incarnation: u64,
    /// The largest window in records it will ever grant.
    pub max_window_records: u32,
    /// The largest window in bytes it will ever grant.
    pub max_window_bytes: u32,
    /// Where it listens, as text; empty if unknown.
    pub listen: String,
}

/// Why an acceptor refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefuseCode {
    /// No version in common.
    Version,
    /// A node of this id is linked already.
    NodeIdInUse,
    /// A link between the two nodes exists or is being made in the other direction.
    Crossing,
    /// The acceptor is closing.
    Closing,
    /// The dialer is the acceptor itself.
    Itself,
}

impl RefuseCode {
    const ALL: [(Self, u16); 5] = [
        (Self::Version, 1),
        (Self::NodeIdInUse, 2),
        (Self::Crossing, 3),
        (Self::Closing, 4),
        (Self::Itself, 5),
    ];

    /// The number on the wire.
    pub fn number(self) -> u16 {
        Self::ALL
            .iter()
            .find(|(code, _)| *code == self)
            .map_or(0, |(_, n)| *n)
    }
}

/// What an acceptor says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The link stands, in this version.
    Accept(Hello),
    /// It does not.
    Refuse(RefuseCode, String),
}

/// Bytes that are no hello this build can use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HelloError {
    /// Something else talks here.
    #[error("it does not speak weir")]
    Magic,
    /// The body is over the limit or cut short.
    #[error("its hello is malformed")]
    Malformed,
    /// No version in common.
    #[error("it speaks versions {oldest} to {newest}, this build speaks {VERSION}")]
    Version {
        /// Oldest version of the peer.
        oldest: u16,
        /// Newest version of the peer.
        newest: u16,
    },
}

/// The body length that a prefix announces.
///
/// # Errors
/// [`HelloError`] when the magic is wrong or the length over the limit.
pub(crate) fn body_len(prefix: [u8; PREFIX]) -> Result<usize, HelloError> {
    let [m0, m1, m2, m3, l0, l1] = prefix;
    if [m0, m1, m2, m3] != MAGIC {
        return Err(HelloError::Magic);
    }
    let len = usize::from(u16::from_le_bytes([l0, l1]));
    if len > MAX_HELLO {
        Err(HelloError::Malformed)
    } else {
        Ok(len)
    }
}

impl Hello {
    /// The body length that a connection's first [`PREFIX`] bytes announce.
    ///
    /// # Errors
    /// [`HelloError`] when the magic is wrong or the length over the limit.
    pub fn body_len(prefix: [u8; PREFIX]) -> Result<usize, HelloError> {
        body_len(prefix)
    }

    /// The dialer's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend_from_slice(&VERSION.to_le_bytes());
        body.extend_from_slice(&VERSION.to_le_bytes());
        self.fields(&mut body);
        prefixed(&body)
    }

    /// Parses the dialer's body. Versions come first: nothing else is believed before one is agreed.
    ///
    /// # Errors
    /// [`HelloError`].
    pub fn decode(body: &[u8]) -> Result<Self, HelloError> {
        let mut c = Cursor::new(body);
        let (Some(oldest), Some(newest)) = (c.u16(), c.u16()) else {
            return Err(HelloError::Malformed);
        };
        if !(oldest..=newest).contains(&VERSION) {
            return Err(HelloError::Version { oldest, newest });
        }
        parse_fields(c).ok_or(HelloError::Malformed)
    }

    fn fields(&self, out: &mut Vec<u8>) {
        field(out, TAG_NODE, &self.node.0);
        field(out, TAG_INCARNATION, &self.incarnation.to_le_bytes());
        let mut window = self.max_window_records.to_le_bytes().to_vec();
        window.extend_from_slice(&self.max_window_bytes.to_le_bytes());
        field(out, TAG_MAX_WINDOW, &window);
        field(out, TAG_LISTEN, self.listen.as_bytes());
    }
}

impl Answer {
    /// The acceptor's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        match self {
            Self::Accept(hello) => {
                body.extend_from_slice(&VERSION.to_le_bytes());
                hello.fields(&mut body);
            }
            Self::Refuse(code, message) => {
                body.extend_from_slice(&0_u16.to_le_bytes());
                body.extend_from_slice(&code.number().to_le_bytes());
                body.extend_from_slice(
                    message
                        .as_bytes()
                        .get(..message.len().min(1024))
                        .unwrap_or_default(),
                );
            }
        }
        prefixed(&body)
    }

    /// Parses the acceptor's body.
    ///
    /// # Errors
    /// [`HelloError`].
    pub fn decode(body: &[u8]) -> Result<Self, HelloError> {
        let mut c = Cursor::new(body);
        match c.u16().ok_or(HelloError::Malformed)? {
            VERSION => parse_fields(c).map(Self::Accept).ok_or(HelloError::Malformed),
            0 => {
                let number = c.u16().ok_or(HelloError::Malformed)?;
                let code = RefuseCode::ALL
                    .iter()
                    .find(|(_, n)| *n == number)
                    .map(|(code, _)| *code);
                let message = String::from_utf8_lossy(c.rest()).into_owned();
                Ok(Self::Refuse(code.ok_or(HelloError::Malformed)?, message))
            }
            other => Err(HelloError::Version {
                oldest: other,
                newest: other,
            }),
        }
    }
}

fn prefixed(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len().saturating_add(PREFIX));
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&u16::try_from(body.len()).unwrap_or(u16::MAX).to_le_bytes());
    out.extend_from_slice(body);
    out
}

fn field(out: &mut Vec<u8>, tag: u8, value: &[u8]) {
    out.push(tag);
    out.extend_from_slice(&u16::try_from(value.len()).unwrap_or(0).to_le_bytes());
    out.extend_from_slice(value);
}

fn parse_fields(mut c: Cursor<'_>) -> Option<Hello> {
    let (mut node, mut incarnation, mut window, mut listen) = (None, None, None, String::new());
    while !c.is_empty() {
        let tag = c.u8()?;
        let len = usize::from(c.u16()?);
        let value = c.bytes(len)?;
        match tag {
            TAG_NODE => node = Some(NodeId(value.try_into().ok()?)),
            TAG_INCARNATION => incarnation = Some(u64::from_le_bytes(value.try_into().ok()?)),
            TAG_MAX_WINDOW => {
                let mut both = Cursor::new(value);
                window = Some((both.u32()?, both.u32()?));
            }
            TAG_LISTEN => std::str::from_utf8(value).ok()?.clone_into(&mut listen),
            _ => {}
        }
    }
    let (max_window_records, max_window_bytes) = window?;
    Some(Hello {
        node: node?,
        incarnation: incarnation?,
        max_window_records,
        max_window_bytes,
        listen,
    })
}
