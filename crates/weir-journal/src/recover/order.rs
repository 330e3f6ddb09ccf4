//! The order of segments: which are the log, from the oldest that is needed to the newest.
//!
//! Each header names the segment used before it. Walking back from the newest gives the log; what is not on the
//! way was given up. A gap on the way is a segment that someone took away.

use std::collections::BTreeMap;

use super::{Damage, DamageKind};

/// The ids of the log in order of use, given each segment's id and predecessor.
pub(crate) fn chain(links: &BTreeMap<u64, u64>, low_water: u64) -> Result<Vec<u64>, Damage> {
    let mut ids = Vec::new();
    let mut next = links.keys().next_back().copied().unwrap_or(0);
    while next != 0 && next >= low_water && ids.last() != Some(&next) {
        let Some(after) = links.get(&next) else {
            return Err(Damage {
                file: String::new(),
                segment: next,
                offset: 0,
                kind: DamageKind::Missing,
            });
        };
        ids.push(next);
        next = (*after).min(next);
    }
    ids.reverse();
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_what_the_newest_leads_back_to() {
        let links = BTreeMap::from([(3, 2), (4, 3), (5, 4), (7, 4)]);
        assert_eq!(chain(&links, 3), Ok(vec![3, 4, 7]));
        assert_eq!(chain(&links, 4), Ok(vec![4, 7]));
        assert_eq!(chain(&BTreeMap::new(), 0), Ok(vec![]));
    }

    #[test]
    fn a_missing_link_is_named() {
        let links = BTreeMap::from([(3, 2), (5, 4)]);
        assert_eq!(chain(&links, 3).unwrap_err().segment, 4);
        assert_eq!(chain(&links, 5), Ok(vec![5]));
    }

    #[test]
    fn a_link_to_itself_or_forward_ends_the_walk() {
        assert_eq!(chain(&BTreeMap::from([(5, 5)]), 1), Ok(vec![5]));
        assert_eq!(chain(&BTreeMap::from([(5, 9)]), 1), Ok(vec![5]));
    }
}
