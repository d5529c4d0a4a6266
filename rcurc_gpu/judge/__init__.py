"""Whether a result can be trusted: evidence, expected error, verdict and its words."""
