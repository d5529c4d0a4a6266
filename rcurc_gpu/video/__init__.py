"""Video as a matrix, pixels x frames: the static background is its low-rank part, what moves are its outliers."""

from .background import Background
from .quality import psnr
from .read import Video, VideoWarning, open_video
from .sample import sample_video
from .scene import SurveillanceScene, surveillance_scene
from .separate import Separation, separate

__all__ = [
    "Background",
    "Separation",
    "SurveillanceScene",
    "Video",
    "VideoWarning",
    "open_video",
    "psnr",
    "sample_video",
    "separate",
    "surveillance_scene",
]
