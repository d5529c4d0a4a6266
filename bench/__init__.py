"""Timings and comparisons; nothing here is installed. Each is run by ``python -m bench.NAME`` and says what it leaves out.

in_turns        two states of the library in turns: time, CPU time, true error
first_solve     what the first solve compiles, kernel by kernel, and what it costs with a warm cache
speed           against dense blocks and full SVDs, the style of the authors' related code
same_results    seeded results of two versions, to the bit
extension       the extension's regressions, compiled against plain NumPy
text_table      from a CSV of a million lines with labels of text to predictions: CPU time of the commands
shard_build     shards from a stream of observations: time and peak memory
out_of_core     a solve from disk against reading the files and against memory: time, peak memory, true error
dask_scaling    one worker of a Dask cluster against two, and the bytes between them
cost_model      what a solve on a cluster costs: fitted to two runs, checked on a third, projected to 1e8 x 1e8
linear          the cost by the number of observations, with a plot
trillion        a matrix of 1e12 entries: time, memory, true error
cpu_tools       how the compiled CPU path was chosen: NumPy, Numba in three ways, C
phase           success against observations per unknown, with and without Gauss-Newton steps; a plot
plan_calibration  how many observations are needed: the measurements behind plan_samples
ratings         held-out error on MovieLens-100k with wrong ratings, by method, with a plot
clean           exact data without a rank: is the rank right, and the error rounding?
growing         errors of so many per cent of each value: are they found, and intervals right for all sizes?
real            default calls on real matrices with planted outliers: error, coverage, verdict, CPU (data: real_data)
redteam         problems that break assumptions: is what is confirmed right? (families: redteam_problems, _data, _noise)
fuzz            readers and constructors on spoilt input: nothing but documented errors
registers       registers, spilled bytes and occupancy of the CUDA kernels
counts          what the CUDA regression executes for each observation, before and after (sass: how that is counted)
test_solve      the problems of `rcurc-gpu bench` under pytest-benchmark (backends, report: where, and tables)
video           background subtraction against OpenCV's, on made-up scenes with truth and on clips
peers           our methods and other packages on the same problems: time, true error, memory
readme_figure   draws docs/overview.png
sensors_figure  draws docs/sensors.png
"""
