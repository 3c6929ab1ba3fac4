"""A stopped run becomes a memory graph, two graphs a matching, a matching deltas, deltas memory writes."""
