"""Data that the tests of several rooms make."""

import numpy as np

LOSSLESS = "ffv1"


def heavy_tailed(n, shape, decay, seed=0):
    """About n places of a matrix, each once, with counts of rows and columns that fall as a power of their place."""
    rng = np.random.default_rng(seed)
    drawn = []
    for size in shape:
        share = np.arange(1, size + 1) ** -decay
        drawn.append(rng.permutation(size)[rng.choice(size, n, p=share / share.sum())])
    key = rng.permutation(np.unique(drawn[0] * shape[1] + drawn[1]))
    return np.divmod(key, shape[1])


def write_video(path, frames, codec=LOSSLESS, pixels="gray", fps=10):
    """Encode frames (n, height, width[, 3]) into a file."""
    import av  # the tests without videos run without it

    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=fps)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = pixels
        for frame in frames:
            picture = av.VideoFrame.from_ndarray(frame, format="rgb24" if frame.ndim == 3 else "gray")
            container.mux(stream.encode(picture))
        container.mux(stream.encode())
    return path
