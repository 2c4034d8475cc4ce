"""Train CATO on Darcy flow, predict the test samples, and plot one of them.

    python examples/train_and_predict.py                    # smoke scale, seconds
    python examples/train_and_predict.py --scale small      # minutes on two cores

An existing run folder is used as it is, so a second call only predicts.
"""

import argparse
from pathlib import Path

import numpy as np

import cato

parser = argparse.ArgumentParser(description="Train CATO on Darcy flow and predict.")
parser.add_argument("--scale", default="smoke", help="smoke, small or paper")
parser.add_argument("--out", type=Path, default=Path("runs/example"), help="run folder")
parser.add_argument("--picture", type=Path, default=Path("darcy.png"), help="where to draw")
options = parser.parse_args()

# 1. Train. Missing data are generated. Any setting of the recipe can be changed by group.
if not (options.out / "run.json").exists():
    settings = {"epochs": 40} if options.scale == "smoke" else {}
    cato.train("darcy", options.scale, out=options.out, train_settings=settings)

# 2. Predict: NumPy arrays in physical units, samples first, channels last.
model = cato.load(options.out)
test = cato.load_dataset("darcy", options.scale).test
arrays = test.arrays()  # coords (29, 29, 2), inputs (200, 29, 29, 1), targets alike at small scale
u = model.predict(arrays["inputs"], arrays["coords"])

# 3. Evaluate with the metric of the paper, ‖û − u‖ / ‖u‖ for each sample.
difference = (u - arrays["targets"]).reshape(len(test), -1)
size = arrays["targets"].reshape(len(test), -1)
errors = np.linalg.norm(difference, axis=1) / np.linalg.norm(size, axis=1)
print(f"relative L2 error on {len(test)} test samples: {errors.mean():.4f}")

# 4. Plot the sample with the median error.
options.picture.parent.mkdir(parents=True, exist_ok=True)
middle = int(errors.argsort()[len(errors) // 2])
cato.plot(model, test, middle).savefig(options.picture, dpi=150)
print(f"sample {middle} is in {options.picture}")
