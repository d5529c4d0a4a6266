"""Video as a matrix, pixels x frames: the static background is its low-rank part, what moves are its outliers."""

from .quality import psnr
from .read import Video, VideoWarning, open_video
from .sample import sample_video
from .scene import SurveillanceScene, surveillance_scene

__all__ = ["SurveillanceScene", "Video", "VideoWarning", "open_video", "psnr", "sample_video", "surveillance_scene"]
