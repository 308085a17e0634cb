"""What goes between members: batches of queries, sealed envelopes, and the mailbox that they lie in."""
