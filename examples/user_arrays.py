"""Learn an operator from NumPy arrays on a distorted mesh, with a plain PyTorch loop.

    python examples/user_arrays.py

The arrays here are samples of −Δu = f on a square, u = 0 on its boundary, in closed form: random
sine series, evaluated at the nodes of a curved mesh. Replace them by your arrays.
"""

import numpy as np
import torch
from safetensors.torch import save_file

import cato
from cato.data.normalise import Normaliser
from cato.physics.gradient import inverse_metric
from cato.physics.losses import LossConfig, PhysicalLoss, gradient_rms

SHAPE, NUM_TRAIN, NUM_TEST = (17, 13), 96, 16
EPOCHS, BATCH_SIZE, LEARNING_RATE = 30, 8, 2e-3
torch.manual_seed(0)
rng = np.random.default_rng(0)

# 1. The arrays: coords (17, 13, 2), f and u (samples, 17, 13, 1).
s, t = np.meshgrid(*(np.linspace(0, 1, n) for n in SHAPE), indexing="ij")
bulge = 0.08 * np.sin(np.pi * s) * np.sin(np.pi * t)
coords = np.stack((s + bulge * np.cos(2 * np.pi * t), t + bulge), axis=-1)
k, m = np.meshgrid([1, 2], [1, 2], indexing="ij")
waves = np.sin(np.pi * k * coords[..., :1, None]) * np.sin(np.pi * m * coords[..., 1:, None])
f_series = rng.standard_normal((NUM_TRAIN + NUM_TEST, 2, 2))
f = np.einsum("nkm,xykm->nxy", f_series, waves)[..., None]
u = np.einsum("nkm,xykm->nxy", f_series / (np.pi**2 * (k**2 + m**2)), waves)[..., None]

# 2. The problem, which decides the sizes of the model, and the checked data.
problem = cato.Problem(
    name="poisson",
    geometry="mesh",
    shape=SHAPE,
    inputs=("f",),
    outputs=("u",),
    normalise=("coords", "inputs", "outputs"),
)
train = cato.Dataset.from_arrays(problem, coords, f[:NUM_TRAIN], u[:NUM_TRAIN])

# 3. A CATO that takes and gives physical units, and the paper's loss.
metric = inverse_metric(train.coords, problem.shape, problem.periodic, problem.period)
scale = gradient_rms(train.targets, metric, problem.shape, problem.periodic)
loss = PhysicalLoss(LossConfig(gradient=0.2, flux=0.2, consistency=0.05), problem, scale)
config = cato.model_config("cato", width=32, depth=2, heads=2)
model = cato.build_model("cato", config, problem)
surrogate = cato.Surrogate(model, Normaliser.fit(train), scale, train.coords)

# 4. The loop.
optimizer = torch.optim.AdamW(model.parameters())
num_steps = EPOCHS * (NUM_TRAIN // BATCH_SIZE)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, num_steps)
for epoch in range(1, EPOCHS + 1):
    for indices in torch.randperm(len(train)).split(BATCH_SIZE):
        batch = train.batch(indices)
        values, flux = surrogate(batch.coords, batch.inputs)
        total, terms = loss(values, batch.targets, flux=flux, metric=metric)
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        schedule.step()
    if epoch % 10 == 0:
        print(f"epoch {epoch}: " + ", ".join(f"{name} {term:.4f}" for name, term in terms.items()))

# 5. Predict what was not trained on, and keep the weights.
predicted = surrogate.predict(f[NUM_TRAIN:])
difference, truth = predicted - u[NUM_TRAIN:], u[NUM_TRAIN:]
errors = np.linalg.norm(difference, axis=(1, 2)) / np.linalg.norm(truth, axis=(1, 2))
print(f"relative L2 error on {NUM_TEST} test samples: {errors.mean():.4f}")
save_file(surrogate.state_dict(), "poisson.safetensors")
np.savez("predictions.npz", outputs=predicted, targets=truth, coords=coords)
