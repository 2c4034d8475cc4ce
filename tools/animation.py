"""The animation of the README: a Navier–Stokes rollout of the pretrained model next to the solver.

    make animation       # writes docs/images/rollout.gif

The sample is the first of the test split. The first frames are given; from there the model
continues on its own, each frame computed from its previous ones.
"""

from io import BytesIO

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from cato.benchmarks import view_of
from cato.data.sampling import generate_sample
from cato.files import atomic_write
from cato.progress import note
from cato.runs.folder import PRETRAINED, open_run
from cato.runs.load import data_spec, load_surrogate
from cato.viz.fields import DIVERGING
from tools.results import ROOT

TARGET = ROOT / "docs" / "images" / "rollout.gif"
MILLISECONDS, LAST_MILLISECONDS = 220, 2200
NUM_COLOURS = 255


def rollout(number: int = 0) -> tuple[np.ndarray, np.ndarray, list[str], int]:
    """Frames (T, H, W) of solver and model, their times, and the number of given frames."""
    run = open_run(PRETRAINED / "navier_stokes")
    sample = generate_sample(data_spec(run.config), "test", number).sample
    outputs = load_surrogate(run).predict(sample.inputs[None])[0]
    given = np.moveaxis(sample.inputs, -1, 0)
    times = [view_of(run.problem).time_title(k) for k in range(-len(given), len(outputs))]
    truth, model = (np.concatenate([given, frames[..., 0]]) for frames in (sample.targets, outputs))
    return truth, model, times, len(given)


def draw_frame(
    truth: np.ndarray, model: np.ndarray, size: float, title: str, is_given: bool
) -> Image.Image:
    """Solver, model and difference side by side, on one scale."""
    figure = Figure(figsize=(7.2, 2.85), dpi=100, facecolor="white")
    panels = figure.subplots(1, 3)
    error = np.linalg.norm(model - truth) / np.linalg.norm(truth)
    titles = ("solver", "CATO", f"difference: {100 * error:.1f} %")
    for axes, values, name in zip(panels, (truth, model, model - truth), titles, strict=True):
        style = {"cmap": DIVERGING, "vmin": -size, "vmax": size, "interpolation": "bicubic"}
        axes.imshow(values.T, origin="lower", **style)
        axes.set_title(name, fontsize=11)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_linewidth(0.5)
    phase = "given to the model" if is_given else "predicted by the model"
    figure.suptitle(f"Vorticity at {title}, {phase}", fontsize=11, x=0.5, y=0.07)
    figure.subplots_adjust(left=0.01, right=0.99, top=0.9, bottom=0.13, wspace=0.04)
    stream = BytesIO()
    figure.savefig(stream, format="png")
    return Image.open(stream).convert("RGB")


def main() -> None:
    """Draw all frames and write the animation."""
    truth, model, times, num_given = rollout()
    size = float(np.abs(truth).max())
    images = [
        draw_frame(truth[k], model[k], size, times[k], k < num_given) for k in range(len(times))
    ]
    # One palette for all frames, taken from the most colourful: flat areas do not flicker.
    palette = images[-1].quantize(NUM_COLOURS)
    frames = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    durations = [MILLISECONDS] * (len(frames) - 1) + [LAST_MILLISECONDS]
    with atomic_write(TARGET) as temporary:
        frames[0].save(
            temporary,
            format="GIF",
            save_all=True,
            append_images=frames[1:],
            duration=durations,
            loop=0,
            optimize=True,
        )
    note(f"wrote {TARGET.relative_to(ROOT)}: {TARGET.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
