"""Problems with known truth, and Algorithm 1 to be read beside the paper."""
