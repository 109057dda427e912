"""Train a network on an engine with that engine's own optimizers: PyTorch with torch.optim, or JAX with optax.

The network, its loss and its gradient are specgrad graphs; the data order is a function of the step number alone. So a
run that stops and resumes from its checkpoint makes the very same steps as one that never stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

import lenet
import resnet18
import specgrad as sg
from common import Tree, cross_entropy_of, each, flat, init, learnable

MOMENTUM = 0.9
EXAMPLE = """\
example: stop after 200 steps, go on to 400, and draw all of them
  python examples/train.py --net lenet --engine torch --steps 200 --checkpoint digits.safetensors
  python examples/train.py --net lenet --engine torch --steps 400 --checkpoint digits.safetensors --resume \\
      --curve digits.png --json
"""


# --- data -------------------------------------------------------------------------------------------------------


class Data(NamedTuple):
    """Images of float32 and their classes, to train on and to test on."""

    x: np.ndarray
    labels: np.ndarray
    test_x: np.ndarray
    test_labels: np.ndarray

    def batch(self, step: int, size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """The batch of a step. Every epoch is shuffled again, by its number, and drops what does not fill a batch."""
        epoch, k = divmod(step, len(self.x) // size)
        chosen = np.random.default_rng((seed, epoch)).permutation(len(self.x))[k * size : (k + 1) * size]
        return self.x[chosen], self.labels[chosen]


def digits() -> Data:
    """scikit-learn's 1,797 digits: 8x8 pixels from 0 to 16, each drawn as 4x4 here, which makes the 32x32 of LeNet."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    x = (images.reshape(-1, 1, 8, 8) / 8 - 1).astype(np.float32).repeat(4, axis=2).repeat(4, axis=3)
    order = np.random.default_rng(0).permutation(len(x))
    train, test = order[360:], order[:360]
    return Data(x[train], labels[train], x[test], labels[test])


def patterns(classes: int = 10, size: int = 32) -> Data:
    """Synthetic colour images: one random pattern of 8x8 patches per class, under noise as strong as itself."""
    rng = np.random.default_rng(0)
    pattern = rng.standard_normal((classes, 3, size // 8, size // 8)).repeat(8, axis=2).repeat(8, axis=3)

    def draw(n: int) -> tuple[np.ndarray, np.ndarray]:
        labels = rng.integers(0, classes, n)
        return (pattern[labels] + rng.standard_normal((n, 3, size, size))).astype(np.float32), labels

    return Data(*draw(512), *draw(64))


@dataclass(frozen=True)
class Task:
    """A network, its data, and settings that suit them."""

    net: Callable[[Tree, Any], Any]
    shapes: Tree
    load: Callable[[], Data]
    steps: int
    batch: int
    lr: float
    every: int  # steps between two looks at the test set

    @cached_property
    def data(self) -> Data:
        return self.load()

    def loss_graph(self, batch: int) -> sg.Graph:
        x = self.data.x.shape[1:]
        return sg.trace(cross_entropy_of(self.net), self.shapes, (batch, *x), sg.Index((batch,)))

    def test_graph(self) -> sg.Graph:
        return sg.trace(self.net, self.shapes, self.data.test_x.shape)


TASKS = {
    "lenet": Task(lenet.net, lenet.shapes(), digits, steps=400, batch=64, lr=0.05, every=20),
    "resnet18": Task(resnet18.net, resnet18.shapes(classes=10), patterns, steps=20, batch=16, lr=0.01, every=5),
}


# --- engines ----------------------------------------------------------------------------------------------------


class Trainer(Protocol):
    """What an engine does: one step of gradient descent, the test accuracy, and its state as NumPy arrays."""

    def step(self, x: np.ndarray, labels: np.ndarray) -> float: ...

    def accuracy(self) -> float: ...

    def state(self) -> tuple[Tree, Tree]: ...


class TorchTrainer:
    """The loss as a module that owns the parameters; PyTorch's autograd runs through it."""

    def __init__(self, task: Task, params: Tree, momentum: Tree, args: argparse.Namespace) -> None:
        import torch

        torch.set_num_threads(args.threads)
        self.torch, self.task = torch, task
        # torch.tensor copies into PyTorch's own aligned memory, so that a resumed run adds up in the same order
        self.loss = sg.compile(
            task.loss_graph(args.batch), "torch", parameters=each(lambda _, a: torch.tensor(a), params)
        )
        self.net = sg.compile(task.test_graph(), "torch")
        self.weights = dict(zip(flat(task.shapes), self.loss.parameters(), strict=True))
        for path, p in self.weights.items():
            p.requires_grad_(learnable(path))
        self.optimizer = torch.optim.SGD(
            [p for p in self.weights.values() if p.requires_grad], args.lr, momentum=MOMENTUM
        )
        for path, a in flat(momentum).items():
            self.optimizer.state[self.weights[path]] = {"momentum_buffer": torch.tensor(a)}

    def step(self, x: np.ndarray, labels: np.ndarray) -> float:
        self.optimizer.zero_grad()
        loss = self.loss(self.torch.from_numpy(x), self.torch.from_numpy(labels))
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def accuracy(self) -> float:
        data = self.task.data
        with self.torch.no_grad():
            y = self.net(self._tree(self.weights), self.torch.from_numpy(data.test_x))
        return float(np.mean(y.argmax(1).numpy() == data.test_labels))

    def state(self) -> tuple[Tree, Tree]:
        momentum = {path: self.optimizer.state[p]["momentum_buffer"] for path, p in self.weights.items()}
        return tuple(each(lambda _, t: t.detach().numpy(), self._tree(values)) for values in (self.weights, momentum))

    def _tree(self, values: dict[str, Any]) -> Tree:
        return each(lambda path, _: values[path], self.task.shapes)


class JaxTrainer:
    """Value and gradient as one graph; one jitted function makes the whole step."""

    def __init__(self, task: Task, params: Tree, momentum: Tree, args: argparse.Namespace) -> None:
        import jax
        import jax.numpy as jnp
        import optax

        optimizer = optax.sgd(args.lr, MOMENTUM)
        gradient = sg.compile(sg.grad(task.loss_graph(args.batch), "params", value=True), "jax")

        def step(params: Tree, state: Any, x: Any, labels: Any) -> tuple[Tree, Any, Any]:
            loss, found = gradient(params, x, labels)
            found = each(lambda path, g: g if learnable(path) else jnp.zeros_like(g), found)
            updates, state = optimizer.update(found, state)
            return optax.apply_updates(params, updates), state, loss

        self.task, self.optax, self.jitted = task, optax, jax.jit(step)
        self.net = sg.compile(task.test_graph(), "jax")
        self.params = each(lambda _, a: jnp.array(a), params)
        self.moments = optax.tree_utils.tree_set(
            optimizer.init(self.params), trace=each(lambda _, a: jnp.array(a), momentum)
        )

    def step(self, x: np.ndarray, labels: np.ndarray) -> float:
        self.params, self.moments, loss = self.jitted(self.params, self.moments, x, labels)
        return float(loss)

    def accuracy(self) -> float:
        data = self.task.data
        return float(np.mean(np.asarray(self.net(self.params, data.test_x)).argmax(1) == data.test_labels))

    def state(self) -> tuple[Tree, Tree]:
        found = self.params, self.optax.tree_utils.tree_get(self.moments, "trace")
        return tuple(each(lambda _, a: np.asarray(a), tree) for tree in found)


TRAINERS: dict[str, Callable[..., Trainer]] = {"torch": TorchTrainer, "jax": JaxTrainer}


# --- a run and its checkpoint -----------------------------------------------------------------------------------


@dataclass
class Run:
    """Everything that the next step depends on, and the curves so far."""

    params: Tree
    momentum: Tree
    losses: list[float]  # one per step made
    accuracies: list[tuple[int, float]]  # after how many steps, and what

    @property
    def step(self) -> int:
        return len(self.losses)


def settings(args: argparse.Namespace) -> dict[str, np.ndarray]:
    """What a resumed run must share with the run that it goes on with."""
    return {name: np.array([getattr(args, name)]) for name in ("batch", "lr", "seed", "threads")}


def described(found: dict[str, np.ndarray]) -> str:
    return ", ".join(f"{name} {value[0]:g}" for name, value in found.items())


def fresh(task: Task, seed: int) -> Run:
    """He's initial values, but a residual block starts as the identity.

    The statistics of the normalisations are fixed here, so nothing else keeps the sum over the blocks from growing.
    """

    def first(path: str, a: np.ndarray) -> np.ndarray:
        return (0 * a if path.endswith("bn2.weight") else a).astype(np.float32)

    params = each(first, init(task.shapes, seed))
    return Run(params, each(lambda _, a: np.zeros_like(a), params), [], [])


def save(run: Run, args: argparse.Namespace) -> None:
    """Written beside its place and moved there: a run that is killed leaves the previous checkpoint whole."""
    tree = {
        "step": np.array([run.step]),
        "params": run.params,
        "momentum": run.momentum,
        "losses": np.array(run.losses),
        "accuracies": np.array(run.accuracies).reshape(-1, 2),
        "settings": settings(args),
    }
    beside = args.checkpoint.with_name(args.checkpoint.name + ".part")
    sg.save_params(tree, beside)
    os.replace(beside, args.checkpoint)


def load(args: argparse.Namespace) -> Run:
    tree = sg.load_params(args.checkpoint)
    made, now = described(tree["settings"]), described(settings(args))
    if made != now:
        raise SystemExit(f"{args.checkpoint} was made with {made}; these are {now}")
    if len(tree["losses"]) > args.steps:
        raise SystemExit(f"{args.checkpoint} has made {len(tree['losses'])} steps already; --steps is {args.steps}")
    return Run(
        tree["params"], tree["momentum"], tree["losses"].tolist(), [(int(n), a) for n, a in tree["accuracies"].tolist()]
    )


def train(task: Task, run: Run, args: argparse.Namespace) -> float:
    """Steps up to args.steps, with a look at the test set, and a checkpoint, every now and then and at the end.

    Gives the seconds from the first step on; JAX compiles in them, imports and tracing come before.
    """
    from tqdm import tqdm

    trainer = TRAINERS[args.engine](task, run.params, run.momentum, args)
    start = time.perf_counter()
    if not run.accuracies:
        run.accuracies.append((0, trainer.accuracy()))
    with tqdm(total=args.steps, initial=run.step, desc=f"{args.net} on {args.engine}", unit="step") as bar:
        while run.step < args.steps:
            run.losses.append(trainer.step(*task.data.batch(run.step, args.batch, args.seed)))
            bar.update()
            if run.step % task.every == 0 or run.step == args.steps:
                run.accuracies.append((run.step, trainer.accuracy()))
                bar.set_postfix(loss=f"{run.losses[-1]:.3f}", accuracy=f"{run.accuracies[-1][1]:.1%}")
                run.params, run.momentum = trainer.state()
                if args.checkpoint:
                    save(run, args)
    return time.perf_counter() - start


# --- the picture ------------------------------------------------------------------------------------------------


def smoothed(losses: Sequence[float], reach: int) -> np.ndarray:
    """The geometric mean of each value and as many neighbours on either side, `reach` or what the ends allow."""
    sums = np.concatenate([[0.0], np.cumsum(np.log(np.maximum(losses, np.finfo(np.float32).tiny)))])
    here = np.arange(len(losses))
    reaches = np.minimum(reach, np.minimum(here, here[::-1]))
    return np.exp((sums[here + reaches + 1] - sums[here - reaches]) / (2 * reaches + 1))


def draw_loss(axes: Any, losses: Sequence[float]) -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    steps, reach = np.arange(1, len(losses) + 1), max(1, len(losses) // 40)
    axes.plot(steps, losses, color="#9ecae1", linewidth=1, label="each batch")
    axes.plot(steps, smoothed(losses, reach), color="#08519c", linewidth=2, label=f"mean of {2 * reach + 1} batches")
    axes.set(ylabel="training loss (cross-entropy)", yscale="log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter("{x:g}")
    axes.legend(frameon=False)


def draw_accuracy(axes: Any, accuracies: Sequence[tuple[int, float]]) -> None:
    steps, percent = zip(*((n, 100 * a) for n, a in accuracies), strict=True)
    axes.plot(steps, percent, color="#006d2c", linewidth=2, marker="o", markersize=4)
    last = steps[-1], percent[-1]
    axes.annotate(f"{last[1]:.1f} %", last, (0, -15), textcoords="offset points", ha="right", color="#006d2c")
    axes.set(xlabel="step", ylabel="test accuracy (%)", xlim=(0, last[0] * 1.02), ylim=(0, 104))
    axes.xaxis.get_major_locator().set_params(integer=True)


def draw(run: Run, title: str, path: Path) -> None:
    """Training loss above, test accuracy below, over the same steps."""
    from matplotlib.figure import Figure  # without pyplot: pixels only, on any machine, no window

    figure = Figure(figsize=(7, 5.2), layout="constrained")
    loss, accuracy = figure.subplots(2, 1, sharex=True)
    draw_loss(loss, run.losses)
    draw_accuracy(accuracy, run.accuracies)
    loss.set_title(title)
    for axes in (loss, accuracy):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150, format="png")


# --- command line -----------------------------------------------------------------------------------------------


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--net", choices=TASKS, default="lenet", help="lenet: digits; resnet18: synthetic images")
    parser.add_argument("--engine", choices=TRAINERS, default="torch")
    parser.add_argument("--steps", type=int, help="in all, those of the checkpoint included (lenet 400, resnet18 20)")
    parser.add_argument("--batch", type=int, help="images per step (lenet 64, resnet18 16)")
    parser.add_argument("--lr", type=float, help="learning rate of SGD with momentum 0.9 (lenet 0.05, resnet18 0.01)")
    parser.add_argument("--seed", type=int, default=0, help="of the first parameters and of the data order")
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch; how many there are decides how sums round")
    parser.add_argument("--checkpoint", type=Path, metavar="FILE", help="where parameters and momentum are kept")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint")
    parser.add_argument("--curve", type=Path, metavar="FILE.png", help="draw loss and accuracy")
    parser.add_argument("--json", action="store_true", help="end with one JSON object on stdout")
    args = parser.parse_args(argv)
    for name in ("steps", "batch", "lr", "threads"):
        if getattr(args, name) is None:
            setattr(args, name, getattr(TASKS[args.net], name))
        if getattr(args, name) <= 0:
            parser.error(f"--{name} must be positive")
    if args.resume and not args.checkpoint:
        parser.error("--resume needs --checkpoint")
    return args


def main(argv: Sequence[str] | None = None) -> None:
    args = parse(argv)
    task = TASKS[args.net]
    if args.batch > len(task.data.x):
        raise SystemExit(f"--batch must be at most {len(task.data.x)}, the images there are; got {args.batch}")
    run = load(args) if args.resume else fresh(task, args.seed)
    seconds = train(task, run, args)
    result = {
        "net": args.net,
        "engine": args.engine,
        "steps": run.step,
        "loss": run.losses[-1],
        "accuracy": run.accuracies[-1][1],
        "seconds": round(seconds, 3),
    }
    if args.curve:
        draw(run, f"{args.net} on {args.engine}: SGD, lr {args.lr:g}, batch {args.batch}", args.curve)
    if args.json:
        print(json.dumps(result))
    else:
        print(
            "{net} on {engine}: step {steps}, loss {loss:.4f}, accuracy {accuracy:.1%}, {seconds:.1f} s".format(
                **result
            )
        )


if __name__ == "__main__":
    main()
