"""Models on top of the solver: ratings, and an estimator in scikit-learn's conventions."""
