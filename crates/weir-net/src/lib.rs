//! Node, links, lanes, anchors, senders and calls: the async API of the weir plane.
