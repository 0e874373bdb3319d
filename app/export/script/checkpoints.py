"""Checkpoints of a script, as those of `app.training.checkpoints.checkpoint`: taken by watched scripts, and by those
that were asked to.

Every process has a part in a checkpoint, the states of its random numbers; the first one writes it.
"""

from __future__ import annotations

import inspect

from app.export.script.steps import Terms, keeping, may_end_early
from app.training.checkpoints import checkpoint, checksums
from app.training.config import TrainingConfig
from app.training.registry import CLOSURE

_FUNCTIONS = '''


def of_all(mine: Any, device: torch.device) -> list[Any]:
    """What each process has, in their order; it travels as tensors, and nothing that comes is run as a program."""
    if PROCESSES == 1:
        return [mine]
    kept = io.BytesIO()
    torch.save(mine, kept)
    data = torch.frombuffer(kept.getbuffer(), dtype=torch.uint8).to(device)
    sizes = torch.zeros(PROCESSES, dtype=torch.int64, device=device)
    sizes[RANK] = len(data)
    sizes = over_all(sizes).tolist()
    found = [torch.empty(max(sizes), dtype=torch.uint8, device=device) for _ in sizes]
    distributed.all_gather(found, nn.functional.pad(data, (0, max(sizes) - len(data))))
    files = (io.BytesIO(one[:size].cpu().numpy().tobytes()) for one, size in zip(found, sizes, strict=True))
    return [torch.load(file, map_location="cpu", weights_only=True) for file in files]


def written(folder: Path, name: str, state: dict[str, Any]) -> str:
    """Write a checkpoint whole or not at all, and keep the newest two by step; returns what went wrong."""
    temporary = folder / f".{name}.{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            torch.save({**state, "sha256": checksums(state)}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, folder / name)
        for old in sorted(folder.glob("step-*.pt"))[:-2]:
            old.unlink(missing_ok=True)
    except (OSError, RuntimeError) as error:
        temporary.unlink(missing_ok=True)
        return f"{folder / name} could not be written: {error}. The run goes on without it."
    return ""


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint, and verify it."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        known, version = state.pop("sha256", None), state["tapedeck_checkpoint"]
    except Exception:  # a damaged file raises what its reader pleases
        raise SystemExit(f"{path} is damaged, or no checkpoint. Resume from another one.") from None
    if known != (checksums(state) if version > 1 else None):
        raise SystemExit(f"{path} is damaged: it is not what was written. Resume from another one.")
    return dict(state)'''

_OPTIONS = '''
    parser.add_argument("--checkpoints", type=Path{default}, help="folder for checkpoints{without}")
    parser.add_argument("--resume", type=Path, help="the checkpoint to go on from")'''

_RESTORED = '''
    at: dict[str, Any] = {{}}
    if args.resume is not None:
        state = read_checkpoint(args.resume)
        if state["source"] != SOURCE.read_text(encoding="utf-8"):
            raise SystemExit(f"{{args.resume}} was taken of another net than {{SOURCE.name}}.")
        at = state["position"]
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"]){objects}
        shuffle.set_state(at["order"] if at["batch"] and at["order"] is not None else state["shuffle"])
        known = state.get("ranks", [state["generators"]])
        if RANK < len(known):
            restore_generators(known[RANK])'''

_KEEP = '''
    epoch, done, taken, total = at.get("epoch", 0), at.get("done", 0), at.get("batch", 0), at.get("total", 0.0)
    best, stale, order, clock = at.get("best"), at.get("stale", 0), at.get("order"), time.perf_counter()
    step = at.get("step", 0){taken_over}

    def keep(name: str) -> None:
        """Take a checkpoint; all processes come here at the same time."""
        if args.checkpoints is None or not step:
            return
        right, ranks = {right}, of_all(generators(), device)
        if RANK:
            return
        seconds = at.get("seconds", 0.0) + time.perf_counter() - clock
        position = {{
            "epoch": epoch, "done": done, "batch": taken, "step": step, "seconds": seconds, "total": total,
            "correct": right, "best": best, "stale": stale, "order": order, "left_out": {left_out},
        }}
        state = {{
            "tapedeck_checkpoint": {version}, "position": position, "source": SOURCE.read_text(encoding="utf-8"),
            "shuffle": shuffle.get_state(), "generators": ranks[0], "ranks": ranks,
            "ran_on": {{
                "torch": str(torch.__version__), "threads": torch.get_num_threads(), "processes": PROCESSES,
            }},
            "model": dict(model.state_dict()), "optimizer": optimizer.state_dict(),
            "schedule": {schedule}, "scaler": {scaler},
            "average": {average}, "waiting": {waiting},
            "gradients": {gradients},
        }}
        problem = written(args.checkpoints, name, state)
        if args.json:
            say("saved", step=step, path=str(args.checkpoints / name), problem=problem)
        elif problem:
            print(problem)
'''

_SHARED = (checkpoint.generators, checkpoint.restore_generators, checksums.checksums)

_SKIPPED = '''
        skipped = taken if epoch == done + 1 else 0
        if skipped:
            total, seen = at["total"], sum(map(len, batches[:skipped])){left_out}{correct}'''

_NAMES = ("kept_functions", "kept_options", "restored", "resumed_at", "keeper", "first", "order_kept", "skipped",
          "kept_step", "kept_epoch", "kept_best", "kept_last")  # fmt: skip


def takes(config: TrainingConfig, hands: bool) -> bool:
    """Whether a script takes checkpoints."""
    return hands or config.save_every > 0


def parts(config: TrainingConfig, terms: Terms, hands: bool) -> dict[str, str]:
    """What goes where in the text of the script; nothing of it in one without checkpoints."""
    if not takes(config, hands):
        return {**dict.fromkeys(_NAMES, ""), "first": "1"}
    leaves_out = config.not_finite == "skip"
    waits = config.accumulate > 1 and config.optimizer.name != CLOSURE
    objects = [name for name, there in (
        ("schedule", config.schedule is not None), ("scaler", config.amp == "float16"),
        ("average", config.ema is not None),
    ) if there]  # fmt: skip
    loaded = "".join(f'\n        {name}.load_state_dict(state["{name}"])' for name in objects)
    if waits:
        loaded += (
            "\n        for name, parameter in model.named_parameters():"
            '\n            gradient = state["gradients"].get(name)'
            "\n            parameter.grad = gradient.to(parameter) if gradient is not None else None"
        )
    taken_over = "\n    waiting = state[\"waiting\"] if at else 0" if waits else ""
    if config.max_minutes is not None:
        taken_over += '\n    began -= at.get("seconds", 0.0)'
    states = {name: f"{name}.state_dict()" if name in objects else "None" for name in ("schedule", "scaler")}
    grown = "{n: p.grad for n, p in model.named_parameters() if waiting and p.grad is not None}"
    keep = _KEEP.format(
        right="int(over_all(correct))" if terms.correct else "0", version=checkpoint.VERSION, **states,
        average="dict(average.state_dict())" if "average" in objects else "None",
        left_out="sum(map(len, batches[:taken])) - seen if taken else 0" if leaves_out else "0",
        waiting="waiting" if waits else "0", gradients=grown if waits else "{}",
        taken_over=taken_over + (
            '\n    correct = torch.zeros((), dtype=torch.int64, device=device)' if terms.correct else ""
        ),
    )  # fmt: skip
    correct = '\n            correct += 0 if RANK else at["correct"]' if terms.correct else ""
    every = "".join(f"\n            {line}" for line in keeping(config))
    functions = "".join(
        f"\n\n\n{inspect.getsource(one).rstrip()}" for one in _SHARED
    )
    return {
        "kept_functions": functions + _FUNCTIONS,
        "kept_options": _OPTIONS.format(
            default="" if hands else ', default=Path("checkpoints")', without="; none are taken without" * hands
        ),
        "restored": _RESTORED.format(objects=loaded),
        "resumed_at": ', **({"resumed_at": at["step"]} if at else {})',
        "keeper": keep,
        "first": "done + 1" if config.max_steps is None else "done + 1 if step < MAX_STEPS else args.epochs + 1",
        "order_kept": "        order = order if taken and epoch == done + 1 else shuffle.get_state()\n",
        "skipped": _SKIPPED.format(correct=correct, left_out=' - at.get("left_out", 0)' * leaves_out),
        "kept_step": every,
        "kept_epoch": (
            "\n        if taken == len(batches):  # else a limit came first\n            done, taken = epoch, 0"
            if may_end_early(config)
            else "\n        done, taken = epoch, 0"
        ),
        "kept_best": '\n        if stale == 0:\n            keep("best.pt")',
        "kept_last": '    keep("last.pt")\n',
    }


def constants(on: bool, module: str) -> str:
    """Where the text of the net lies, by which a checkpoint is known."""
    return f'SOURCE = Path(__file__).with_name("{module}.py")\n' if on else ""


def words(config: TrainingConfig, hands: bool) -> str:
    """What the head of the script says of checkpoints."""
    if hands or not config.save_every:
        return ""
    return (
        f"\nIt takes a checkpoint every {config.save_every:,} batches, of the best epoch and at the end: in the folder"
        "\ncheckpoints, or that of --checkpoints. With --resume FILE it goes on from one as if it had never stopped."
    )
