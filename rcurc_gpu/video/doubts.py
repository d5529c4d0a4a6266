"""What may be wrong with a background, in decibels and in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .motion import Motion
from .quality import decibels
from .spread import Spread

LEAST_PSNR = 32.0  # dB expected: two below which a background is not worth its name, as the estimate is rough
_FEW_FRAMES = 20  # with fewer, what moves slowly is at one place for most of them
_RIVAL_FROM, _RIVAL_TO = 0.3, 0.6  # times as many frames as show the background: a rival is a coin's toss from the second on
_LOOK_AT = 0.15  # share of frames in which a pixel differs, from which on rivals are looked for
_MANY_FRAMES = 0.05  # share of frames without light, or of pixels without a background, that is too much
_MOVING = 0.02  # share of the pixels before which leaves or water move, that is worth a word
_STILL = 0.002  # and of those that something else hides for long
_AT_ONCE = 1 << 15  # pixels


@dataclass(frozen=True, eq=False)
class Evidence:
    """What the judgement is made from; see `find._Solve`."""

    shape: tuple[int, ...]
    flat: np.ndarray
    left: np.ndarray
    right: np.ndarray
    cols: np.ndarray
    noise: float
    spread: Spread
    undetermined: int
    frames_without: int
    unexplained: float


@dataclass(frozen=True)
class Doubts:
    """The judgement.

    Attributes
    ----------
    cause : str
        Why the background is not confirmed; empty if it is.
    message : str
    notices : tuple of str
        Sentences about the video that matter in any case.
    expected_psnr : float
        Of the background to the true one, in dB.
    """

    cause: str
    message: str
    notices: tuple[str, ...]
    expected_psnr: float

    def figures(self) -> dict[str, Any]:
        """For the report."""
        confirmed = not self.cause
        return {
            "confirmed": confirmed,
            "cause": self.cause,
            "message": self.message,
            "notices": list(self.notices),
            "expected_psnr": self.expected_psnr,
        }


def find_doubts(e: Evidence, motion: Motion) -> Doubts:
    """Judge a background."""
    n1, n2 = len(e.left), len(e.right)
    wrong, hidden, share = _rivals(e)
    spread = (e.spread.typical / 0.6745) ** 2
    unrest = np.maximum(spread - max(e.noise, 1.0) ** 2, 0)
    error = float(np.mean(wrong)) + float(np.mean(unrest)) + e.unexplained + e.noise**2 / len(e.cols)
    psnr = decibels(error, 1)
    moving = float(np.mean(e.spread.wide > 0))
    causes, notices = [], []
    if motion.pans:
        words = f"the camera moves, by {motion.largest:.0f} pixels or more: a background needs one that stands"
        causes.append(("camera motion", words))
    elif motion.shakes:
        notices.append(f"The camera shakes, by up to {motion.largest:.1f} pixels: the frames were stabilised.")
    if n2 < _FEW_FRAMES:
        words = f"{n2} frames are too few to tell what moves from what stands: {_FEW_FRAMES} are needed, 200 are good"
        causes.append(("too short", words))
    if hidden > _STILL:
        words = f"Something stands still for about {share:.0%} of the time before {hidden:.1%} of the pixels"
        notices.append(f"{words}: a longer clip would tell what is behind it.")
    if moving > _MOVING:
        words = f"Before {moving:.0%} of the pixels leaves, water or the like move all the time"
        notices.append(f"{words}: they have wide thresholds.")
    if e.frames_without > _MANY_FRAMES * n2:
        words = f"in {e.frames_without:,} of {n2:,} frames too little of the background is seen to tell their light"
        causes.append(("light not found", words))
    if e.undetermined > _MANY_FRAMES * n1:
        words = f"{e.undetermined:,} of {n1:,} pixels were never seen often enough to tell their background"
        causes.append(("undetermined", words))
    if psnr < LEAST_PSNR and not causes:
        sources = {
            "something that stands still for long": float(np.mean(wrong)),
            "a background that moves": float(np.mean(unrest)),
            "changes of the light that are too many to follow": e.unexplained,
        }
        most = max(sources, key=lambda name: sources[name])
        causes.append(("doubtful", f"the background may be off by {error**0.5:.0f} grey levels, for {most}"))
    if causes:
        words = "; ".join(text for _, text in causes)
        return Doubts(causes[0][0], f"{words[0].upper()}{words[1:]}.", tuple(notices), psnr)
    message = f"The background is right to {error**0.5:.1f} grey levels, as far as the frames tell."
    if e.undetermined:
        message += f" {e.undetermined:,} of {n1:,} pixels were hardly seen and take their median."
    return Doubts("", message, tuple(notices), psnr)


def _rivals(e: Evidence) -> tuple[np.ndarray, float, float]:
    """What rivals of the background would make of it: the expected square of the error for each pixel, the share of pixels
    with a strong rival, and for what share of the time it is there."""
    depth = e.shape[2] if len(e.shape) == 3 else 1
    wrong = np.zeros(e.spread.typical.size)
    look = np.flatnonzero((e.spread.differs.ravel() > _LOOK_AT) & (e.spread.wide.ravel() == 0))
    right = e.right[e.cols]
    shares = []
    for start in range(0, len(look), _AT_ONCE):
        part = look[start : start + _AT_ONCE]
        at = (part[:, None] * depth + np.arange(depth)).ravel()
        apart = e.flat[:, at].T - e.left[at] @ right.T
        apart = apart.reshape(len(part), depth, -1).mean(axis=1)
        near = np.maximum(3 * e.spread.typical.ravel()[part], 8.0)[:, None]
        agree = np.mean(np.abs(apart) < near, axis=1)
        other = np.where(np.abs(apart) < near, np.nan, apart)
        other[:, 0] = np.where(np.isnan(other).all(axis=1), 0.0, other[:, 0])  # a median of nothing warns
        place = np.nanmedian(other, axis=1)
        rival = np.mean(np.abs(other - place[:, None]) < near, axis=1)
        chance = 0.5 * np.clip((rival / np.maximum(agree, 0.05) - _RIVAL_FROM) / (_RIVAL_TO - _RIVAL_FROM), 0, 1)
        wrong[part] = chance * place**2
        shares.append(rival[chance >= 0.25])
    strong = np.concatenate(shares) if shares else np.empty(0)
    return wrong, len(strong) / max(wrong.size, 1), float(np.median(strong)) if len(strong) else 0.0
