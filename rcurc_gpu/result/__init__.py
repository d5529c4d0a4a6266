"""What a solve gives back: the matrix as factors, outliers, diagnostics."""
