//! Tickets as bytes: `u8 version, node, u64 incarnation, peer, u24 slot index, u16 generation, claim token,
//! u32 window records, u32 window bytes, u64 expiry`.

use super::{ClaimToken, Cursor, NodeId, SlotRef};

/// Bytes of a ticket.
pub const TICKET_LEN: usize = 1 + 16 + 8 + 16 + 3 + 2 + 16 + 4 + 4 + 8;
const TICKET_VERSION: u8 = 1;

/// What a consumer mints so that a producer can open its stream with no round trip.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket {
    /// The consumer's node.
    pub node: NodeId,
    /// Its incarnation.
    pub incarnation: u64,
    /// The node that may claim.
    pub peer: NodeId,
    /// The consumer's slot.
    pub slot: SlotRef,
    /// Proves the right to claim.
    pub token: ClaimToken,
    /// Records that may be sent before the first grant.
    pub window_records: u32,
    /// Bytes that may be sent before the first grant.
    pub window_bytes: u32,
    /// Milliseconds since the Unix epoch on the consumer's clock, for logs; the consumer decides.
    pub expires_unix_ms: u64,
}

/// Bytes that are no ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TicketError {
    /// A version this build does not know.
    #[error("ticket version {0} is not known")]
    Version(u8),
    /// Too short or too long.
    #[error("a ticket has {TICKET_LEN} bytes")]
    Length,
}

impl Ticket {
    /// The ticket's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(TICKET_LEN);
        out.push(TICKET_VERSION);
        out.extend_from_slice(&self.node.0);
        out.extend_from_slice(&self.incarnation.to_le_bytes());
        out.extend_from_slice(&self.peer.0);
        let [i0, i1, i2, _] = self.slot.index.to_le_bytes();
        out.extend_from_slice(&[i0, i1, i2]);
        out.extend_from_slice(&self.slot.generation.to_le_bytes());
        out.extend_from_slice(&self.token.0);
        out.extend_from_slice(&self.window_records.to_le_bytes());
        out.extend_from_slice(&self.window_bytes.to_le_bytes());
        out.extend_from_slice(&self.expires_unix_ms.to_le_bytes());
        out
    }

    /// Parses a ticket.
    ///
    /// # Errors
    /// [`TicketError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, TicketError> {
        match bytes.first() {
            Some(&TICKET_VERSION) if bytes.len() == TICKET_LEN => {}
            Some(&TICKET_VERSION) | None => return Err(TicketError::Length),
            Some(&version) => return Err(TicketError::Version(version)),
        }
        parse(Cursor::new(bytes)).ok_or(TicketError::Length)
    }
}

fn parse(mut c: Cursor<'_>) -> Option<Ticket> {
    c.u8()?;
    let (node, incarnation, peer) = (NodeId(c.array()?), c.u64()?, NodeId(c.array()?));
    let [i0, i1, i2] = c.array()?;
    let slot = SlotRef {
        index: u32::from_le_bytes([i0, i1, i2, 0]),
        generation: c.u16()?,
    };
    Some(Ticket {
        node,
        incarnation,
        peer,
        slot,
        token: ClaimToken(c.array()?),
        window_records: c.u32()?,
        window_bytes: c.u32()?,
        expires_unix_ms: c.u64()?,
    })
}
