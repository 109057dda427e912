"""Images and sounds with structure, drawn by a seed: edges, gradients, smooth noise. Nobody uses white noise."""

from __future__ import annotations

import numpy as np

from specgrad.errors import ParameterError
from specgrad.scalar import Array

SAMPLE_RATE = 16000
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
PREPROCESSINGS = ("imagenet", "unit", "raw")


def draw_image(rng: np.random.Generator, height: int, width: int, channels: int) -> Array:
    """Return an image of shape (height, width, channels), uint8: smooth noise, a gradient, and shapes with edges.

    >>> a, b = (draw_image(np.random.default_rng(0), 48, 64, 3) for _ in range(2))
    >>> a.shape, a.dtype, (a == b).all(), a.min() < 40, a.max() > 215
    ((48, 64, 3), dtype('uint8'), np.True_, np.True_, np.True_)
    """
    y, x = np.mgrid[0:height, 0:width]
    y, x = y / height, x / width
    grey = _smooth_noise(rng, height, width)
    layers = []
    for _ in range(channels):
        angle = rng.uniform(0, 2 * np.pi)
        ramp = np.cos(angle) * x + np.sin(angle) * y
        layers.append(0.2 * grey + 0.05 * _smooth_noise(rng, height, width) + ramp)
    image = np.stack(layers, -1)
    for k in range(6):
        centre, radius = rng.uniform(0, 1, 2), rng.uniform(0.05, 0.3)
        dy, dx = np.abs(y - centre[0]), np.abs(x - centre[1])
        inside = dy**2 + dx**2 < radius**2 if k % 2 else np.maximum(dy, dx) < radius
        image[inside] = 0.3 * image[inside] + rng.uniform(-1, 1.5, channels)
    low, high = np.percentile(image, (2, 98))
    return np.asarray(np.rint(255 * np.clip((image - low) / max(high - low, 1e-9), 0, 1)), np.uint8)


def _smooth_noise(rng: np.random.Generator, height: int, width: int) -> Array:
    """Return noise (height, width) whose amplitudes fall as 1/frequency, as those of photographs do; standard deviation
    1.
    """
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None])
    frequency[0, 0] = np.inf
    noise = np.fft.irfft2(np.fft.rfft2(rng.normal(size=(height, width))) / frequency, (height, width))
    return np.asarray(noise / max(noise.std(), 1e-9))


def draw_sound(rng: np.random.Generator, samples: int) -> Array:
    """Return a sound in [-1, 1], float64: harmonics of a voice that swells, and quiet noise; 16000 samples a second.

    >>> sound = draw_sound(np.random.default_rng(0), 512)
    >>> sound.shape, bool(abs(sound).max() <= 1)
    ((512,), True)
    """
    time, pitch = np.arange(samples) / SAMPLE_RATE, rng.uniform(90, 220)
    voice = sum(np.sin(2 * np.pi * k * pitch * time + rng.uniform(0, 2 * np.pi)) / k for k in range(1, 20))
    swell = 0.6 + 0.4 * np.sin(2 * np.pi * 4 * time)
    sound = swell * voice + 0.02 * rng.normal(size=samples)
    return np.asarray(0.5 * sound / max(np.abs(sound).max(initial=0.0), 1e-9))


def preprocess(image: Array, how: str) -> Array:
    """Return an image (..., channels) of uint8 as float64 numbers, `how` being one of these.

    ParameterError for another word, or another number of channels.

    imagenet   over 255, less ImageNet's mean, over its deviation, per channel: 3 channels
    unit       over 255: from 0 to 1
    raw        as they are: from 0 to 255
    """
    numbers = image.astype(np.float64)
    if how == "raw":
        return numbers
    if how == "unit":
        return numbers / 255
    if how != "imagenet":
        raise ParameterError("--preprocess", f"must be one of {', '.join(PREPROCESSINGS)}; got {how!r:.40}")
    if image.shape[-1] != 3:
        raise ParameterError("--preprocess", f"imagenet is for 3 channels; the image has {image.shape[-1]}")
    return np.asarray((numbers / 255 - np.array(IMAGENET_MEAN)) / np.array(IMAGENET_STD))
