"""Our methods and other people's packages on the same problems: seconds, true error, peak memory.

    python -m bench.peers                            # small sizes, some minutes with every package
    python -m bench.peers --full --output results    # the paper's size, d = 3000; up to an hour
    python -m bench.peers --size 1000 --problem full --only robust_pca --only rpca
    python -m bench.peers --problem real --repeats 1 # the real matrices of bench.real_data; some minutes

Packages that are not installed are left out, with a line that says so. All of them:

    pip install -e ".[fast,peers]"
    pip install cmfrec                               # compiles: needs a C compiler

The problems: a fully observed matrix of rank 5 with 20 % outliers of size 10 (``full``), the same matrix seen through
cross-concentrated samples, 25 % of 30 % of the rows and columns (``cross``), and the background of a video (``video``).

``real``, only when asked for: the tasks of `bench.real` on matrices that other packages carry (bench/real_data.py says
which; what is not installed is left out, and of MovieLens only "missing" is asked), or on the .npy files of --data. All are
called with their defaults and told neither rank nor outliers. pyrpca, which takes no missing entries, is given medians of
rows and columns for them; tensorly what these medians leave, over its standard deviation: much better for it. The imputers
of scikit-learn take no part in "whole": they leave what was observed as it is. The error is that of the entries that count.

How it is measured. Every run is a process of its own, and the runs take turns: each method once, then each again; one that
takes more than five seconds runs once. All have the same number of threads, one unless told otherwise, because BLAS threads
that wait for each other burn the time of whoever shares the machine. All get the same float64 matrix (MOG2: its
bytes). The clock excludes imports, reading the data and, for ours, compiling (a small problem is solved first); it includes
taking our samples out of the dense matrix. Ours return factors, the others a dense matrix: ours are not multiplied out
on the clock. Memory is the highest resident size during the run (VmHWM of Linux, set back before it) minus the one before
it, with modules and data in place. The error is that of the whole matrix against the truth, relative. A run that is not
done when it has used up its seconds of CPU is stopped, and the table says so.
"""
