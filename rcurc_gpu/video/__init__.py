"""Video as a matrix, pixels x frames: the static background is its low-rank part, what moves are its outliers."""

from .background import Background
from .follow import LIVE_KINDS, LiveOptions, follow_into
from .live import BackgroundSubtractor
from .options import MEMORY, Options
from .outputs import Outputs
from .quality import psnr
from .read import Video, VideoWarning, open_video
from .record import KINDS, MASKS
from .sample import sample_video
from .scene import SurveillanceScene, surveillance_scene
from .separate import Separation, separate, separate_into
from .sheet import contact_sheet, difference_picture
from .sources import LiveSource, is_live

__all__ = [
    "Background",
    "BackgroundSubtractor",
    "Separation",
    "SurveillanceScene",
    "Video",
    "VideoWarning",
    "open_video",
    "psnr",
]
__all__ += ["sample_video", "separate", "surveillance_scene"]
# For commands and the paper's table:
__all__ += ["MEMORY", "Options", "Outputs", "contact_sheet", "difference_picture", "separate_into"]
__all__ += ["KINDS", "LIVE_KINDS", "MASKS", "LiveOptions", "LiveSource", "follow_into", "is_live"]
