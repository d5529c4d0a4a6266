"""The noise model: offsets, shrunk rows and columns, Student-t noise with outliers, and how sure all of it is."""
