"""The lines of an exported training loop: what `app.training.stepper` does, and nothing that was not asked for."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from textwrap import indent
from typing import TYPE_CHECKING

from app.training.config import TrainingConfig
from app.training.registry import CLOSURE, PLATEAU, loss_call, optimizer_call, schedule_call

if TYPE_CHECKING:
    from app.export.script.multi_output import Several


@dataclass(frozen=True)
class Terms:
    """What the lines say of a batch, as expressions of `batch`.

    The inputs to learn from and those to validate with, what the loss compares with, the output as the loss takes it,
    and how many are right ("" where there are no classes). `answer` and `known` are the output and the labels that
    metrics are measured on, of `several` losses those of the first.
    """

    inputs: str = "samples[batch]"
    validated: str = "samples[batch]"
    target: str = "labels[batch]"
    output: str = "output"
    correct: str = "(output.argmax(1) == labels[batch]).sum()"
    picture: bool = False
    answer: str = "output"
    known: str = "labels[batch]"
    several: Several | None = None
    portions: bool = False  # of the losses of several outputs, where those differ

    def compared(self, inputs: str) -> str:
        """What the loss compares with; `inputs` is the expression of what went into the net."""
        return self.several.target(inputs) if self.several is not None else self.target

    @property
    def ready(self) -> str:
        """The inputs to learn from, once they are made of the samples."""
        return "samples[batch]" if self.inputs == "samples[batch]" else "inputs"


def seeds(config: TrainingConfig) -> str:
    """What is set before anything is drawn."""
    lines = []
    if config.threads:
        lines.append(f"torch.set_num_threads({config.threads!r})")
    if config.deterministic:
        lines += ["torch.use_deterministic_algorithms(True)", "torch.backends.cudnn.benchmark = False"]
    elif config.cudnn_benchmark:
        lines.append("torch.backends.cudnn.benchmark = True")
    if config.anomaly:
        lines.append("torch.autograd.set_detect_anomaly(True)")
    lines += ["random.seed(args.seed)", "np.random.seed(args.seed % 2**32)", "torch.manual_seed(args.seed)"]
    return _block(lines, 1)


def made(config: TrainingConfig, balance: str = "", several: Several | None = None) -> str:
    """Everything that takes part in a step, made once the model is on its device. `balance` sets the loss's weights."""
    lines = []
    if config.channels_last:
        lines.append("model = model.to(memory_format=torch.channels_last)")
    if config.recompute:
        lines.append(f"recompute(model, {list(config.recompute)!r})")
    lines.append(f"loss_function = {several.loss() if several is not None else loss_call(config.loss)}.to(device)")
    if balance:
        lines.append(balance)
    lines.append(f"optimizer = {optimizer_call(config.optimizer, _parameters(config))}")
    if config.schedule is not None:
        lines.append(f"schedule = {schedule_call(config.schedule)}")
    if config.amp == "float16":
        lines.append("scaler = torch.amp.GradScaler(device.type)")
    if config.ema is not None:
        lines += ["average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(EMA), use_buffers=True)"]
    lines.append("forward = nn.parallel.DistributedDataParallel(model) if PROCESSES > 1 else model")
    if config.compile:
        lines.append("forward = torch.compile(forward)")
    return "\n".join(f"    {line}" for line in lines)


def _parameters(config: TrainingConfig) -> str:
    if not _grouped(config):
        return "model.parameters()"
    own = {group.path: dict(group.options) for group in config.groups}
    return f"parameter_groups(model, {own!r}, {config.no_decay!r})"


def order(config: TrainingConfig, shuffle: bool, drop_last: bool) -> str:
    """The samples of each batch of an epoch."""
    draw = "torch.randperm(len(samples), generator=shuffle)" if shuffle else "torch.arange(len(samples))"
    lines = [f"batches = list({draw}.to(device).split(BATCH_SIZE))"]
    if config.one_batch:
        lines = [f"{draw}  # drawn, and left", "batches = [torch.arange(min(len(samples), BATCH_SIZE), device=device)]"]
        lines = lines if shuffle else lines[1:]
    elif drop_last:
        lines += ["if len(batches) > 1 and len(batches[-1]) < BATCH_SIZE:", "    batches.pop()"]
    return _block(lines, 2)


def step(config: TrainingConfig, terms: Terms) -> str:
    """One batch."""
    lines = _with_closure if config.optimizer.name == CLOSURE else _plain
    return _block(lines(config, terms), 3)


COUNTED = "step, seen = step + 1, seen + len(every)"
LEFT_OUT = "step += 1  # and no sample was seen"


def numbered(config: TrainingConfig, keeps: bool = False) -> str:
    """The head of the loop over batches; one that can go on in the midst of an epoch leaves out those before."""
    if keeps:
        return "for number, every in enumerate(batches[skipped:], skipped + 1):"
    many = config.accumulate > 1 and config.optimizer.name != CLOSURE
    return "for number, every in enumerate(batches, 1):" if many else "for every in batches:"


def _forward(config: TrainingConfig, terms: Terms) -> list[str]:
    inputs, lines = terms.ready, []
    target, out = terms.compared(inputs), terms.output
    more = ", portions=portions" if terms.portions else ""
    if config.mixup:
        lines.append(f"mixture, others, share = mixed({inputs}, MIXUP)")
        inputs, more = "mixture", f", others, share{more}"
    called = f"loss_function({out}, {target}{more})"
    if config.mixup and terms.several is None:
        called = f"mixed_loss(loss_function, {out}, {target}, others, share)"
    body = [f"output = forward({last_channels(config, inputs, terms.picture)})", f"loss = {called}"]
    return [*lines, *cast(config, body), "loss = loss * portion"]


def last_channels(config: TrainingConfig, inputs: str, picture: bool) -> str:
    """The inputs as an expression, in the memory format of the run."""
    return f"{inputs}.contiguous(memory_format=torch.channels_last)" if config.channels_last and picture else inputs


def cast(config: TrainingConfig, body: list[str]) -> list[str]:
    """Lines in the precision of the run."""
    if not config.amp:
        return body
    return [f"with torch.autocast(device.type, dtype=torch.{config.amp}):", *(f"    {line}" for line in body)]


def _finite(config: TrainingConfig) -> list[str]:
    if config.not_finite != "skip":
        return []
    return [
        "if not math.isfinite(whole(loss).item()):",
        f"    {LEFT_OUT}",
        "    if args.json:",
        '        say("skipped", epoch=epoch, step=step)',
        *(f"    {line}" for line in [*_limits(config), *keeping(config)]),
        "    continue",
    ]


def _clip(config: TrainingConfig) -> list[str]:
    lines = []
    if config.clip_value is not None:
        lines.append("nn.utils.clip_grad_value_(model.parameters(), CLIP_VALUE)")
    if config.clip_norm is not None:
        lines.append("nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)")
    return lines


def _moved(config: TrainingConfig) -> list[str]:
    lines = []
    if config.ema is not None:
        lines.append("average.update_parameters(model)")
    if config.schedule is not None and config.schedule.per == "step":
        lines.append("schedule.step()")
    return lines


def _plain(config: TrainingConfig, terms: Terms) -> list[str]:
    many = config.accumulate > 1
    zero = "optimizer.zero_grad(set_to_none=True)"
    lines = [*_drawn(terms), "if not waiting:", f"    {zero}"] if many else [*_drawn(terms), zero]
    lines += [*_forward(config, terms), *_finite(config)]
    part = "(loss / ACCUMULATE)" if many else "loss"
    scaled = config.amp == "float16"
    lines.append(f"scaler.scale({part.strip('()')}).backward()" if scaled else f"{part}.backward()")
    update = ["scaler.unscale_(optimizer)"] if scaled else []
    update += _clip(config)
    update += ["scaler.step(optimizer)", "scaler.update()"] if scaled else ["optimizer.step()"]
    update += _moved(config)
    if not many:
        return lines + update
    ends = "number == len(batches)" + (" or step + 1 == MAX_STEPS" if config.max_steps is not None else "")
    lines += ["waiting += 1", f"if waiting == ACCUMULATE or {ends}:"]
    return lines + [f"    {line}" for line in [*update, "waiting = 0"]]


def _drawn(terms: Terms) -> list[str]:
    """The inputs of a batch, where something is made of the samples: once a batch, in full precision."""
    return [f"inputs = {terms.inputs}"] if terms.ready != terms.inputs else []


def _with_closure(config: TrainingConfig, terms: Terms) -> list[str]:
    parts = ", loss_function.parts" if terms.several is not None else ""
    body = ["optimizer.zero_grad(set_to_none=True)", *_forward(config, terms), "loss.backward()",
            *_clip(config), f"told.append((output, loss.detach(){parts}))", "return whole(loss)"]  # fmt: skip
    return [
        *_drawn(terms),
        f"told: list[tuple[{'Any, Tensor, Mapping[str, Tensor]' if parts else 'Tensor, Tensor'}]] = []",
        "",
        "def closure() -> Tensor:",
        *(f"    {line}" for line in body),
        "",
        "optimizer.step(closure)",
        *_moved(config),
        f"output, loss{', parts' if parts else ''} = told[0]",
    ]


def evaluated(config: TrainingConfig, terms: Terms) -> str:
    """Output and loss of a batch that nothing is learnt from."""
    plain = terms.validated == "samples[batch]"
    inputs = terms.validated if plain else "inputs"
    before = "" if plain else _block([f"inputs = {terms.validated}"], 3) + "\n"
    body = [f"output = model({last_channels(config, inputs, terms.picture)})",
            f"loss = loss_function({terms.output}, {terms.compared(inputs)})"]  # fmt: skip
    return before + _block([line.replace("device.type", "samples.device.type") for line in cast(config, body)], 3)


def figures(config: TrainingConfig, accuracy: str) -> str:
    """The loss and accuracy of an epoch; none where every batch was left out."""
    if config.not_finite != "skip":
        return f"total / seen, {accuracy}"
    return f"(total / seen, {accuracy}) if seen else (math.nan, math.nan)"


def told_parts(config: TrainingConfig) -> str:
    """The line on the losses of several outputs."""
    if not config.losses:
        return ""
    given = "parts" if config.optimizer.name == CLOSURE else "loss_function.parts"
    told = f'{{f"loss_{{name}}": whole(part * portion).item() for name, part in {given}.items()}}'
    return "\n" + _block([f'    say("losses", epoch=epoch, step=step, **{told})'], 3)


def imports(config: TrainingConfig, functional: bool) -> str:
    """What the lines want of torch beside its root."""
    lines = ["from torch.nn import functional as F"] if functional else []
    if config.ema is not None:
        lines.append("from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn")
    if config.recompute:
        lines.append("from torch.utils.checkpoint import checkpoint")
    return "".join(f"{line}\n" for line in lines)


def typing_imports(config: TrainingConfig) -> str:
    """What the helpers want of the standard library."""
    lines = []
    wanted = (("Callable", config.mixup), ("Mapping", _grouped(config)), ("Sequence", config.recompute))
    names = [name for name, used in wanted if used]
    if names:
        lines.append(f"from collections.abc import {', '.join(names)}")
    if config.recompute:
        lines.append("from functools import partial")
    if _grouped(config) or config.mixup:
        lines.append("from typing import Any")
    return "".join(f"{line}\n" for line in lines)


def helpers(config: TrainingConfig) -> str:
    """The functions of `app.training.script_recipes` that the lines call."""
    from app.training import script_recipes

    wanted = ((script_recipes.parameter_groups, _grouped(config)), (script_recipes.recompute, config.recompute),
              (script_recipes.mixed, config.mixup),
              (script_recipes.mixed_loss, config.mixup and not config.losses))  # fmt: skip
    return "".join(f"\n\n\n{inspect.getsource(function).rstrip()}" for function, used in wanted if used)


def _grouped(config: TrainingConfig) -> bool:
    return bool(config.groups) or config.no_decay


def limits(config: TrainingConfig) -> str:
    """What ends an epoch before its last batch."""
    lines = _limits(config)
    return _block(["", *lines], 3) if lines else ""


def _limits(config: TrainingConfig) -> list[str]:
    lines = []
    if config.max_steps is not None:
        lines += ["if step >= MAX_STEPS:", "    break"]
    if config.max_minutes is not None:
        lines += ["if agreed(time.perf_counter() - began, device) >= 60 * MAX_MINUTES:", "    break"]
    return lines


def may_end_early(config: TrainingConfig) -> bool:
    """Whether a limit may end an epoch before its last batch; one that goes on then takes the rest of it."""
    return config.max_steps is not None or config.max_minutes is not None


def keeping(config: TrainingConfig) -> list[str]:
    """The checkpoint every so many batches."""
    if not config.save_every:
        return []
    return [f"if step % {config.save_every} == 0:", '    keep(f"step-{step:08d}.pt")']


def end_of_epoch(config: TrainingConfig, keeps: bool = False) -> str:
    """The schedule, and what ends a run before its last epoch; with `keeps` the best epoch is known in any case."""
    lines = []
    schedule = config.schedule
    if config.patience or keeps or (schedule is not None and schedule.choice.name == PLATEAU):
        lines.append("val_loss = val_loss if val_loss is None else agreed(val_loss, device)")
    if schedule is not None and schedule.per == "epoch":
        plateau = schedule.choice.name == PLATEAU
        conditions = ["val_loss is not None"] * plateau + ["taken == len(batches)"] * (keeps and may_end_early(config))
        call = f"schedule.step({'val_loss' * plateau})"
        lines += [f"if {' and '.join(conditions)}:", f"    {call}"] if conditions else [call]
    if config.patience or keeps:
        lines += [
            "if val_loss is not None and (best is None or val_loss < best):",
            "    best, stale = val_loss, 0",
            "else:",
            "    stale += 1",
        ]
    return _block(lines, 2) if lines else ""


def end_of_run(config: TrainingConfig) -> str:
    """Whether another epoch follows."""
    lines = []
    if config.patience:
        lines += ["if stale >= PATIENCE:", "    break"]
    lines += _limits(config)
    return _block(lines, 2) if lines else ""


def before(config: TrainingConfig) -> str:
    """What is counted over the whole run."""
    lines = ["step = 0"]
    if config.accumulate > 1 and config.optimizer.name != CLOSURE:
        lines.append("waiting = 0  # batches whose gradients the optimizer has not had yet")
    if config.patience:
        lines.append("best, stale = None, 0  # the smallest validation loss, and epochs since")
    if config.max_minutes is not None:
        lines.append("began = time.perf_counter()")
    return _block(lines, 1)


def constants(config: TrainingConfig) -> str:
    """The numbers at the top of the script."""
    named = (
        ("ACCUMULATE", config.accumulate, 1), ("CLIP_VALUE", config.clip_value, None),
        ("CLIP_NORM", config.clip_norm, None), ("EMA", config.ema, None), ("MIXUP", config.mixup, 0.0),
        ("MAX_STEPS", config.max_steps, None), ("MAX_MINUTES", config.max_minutes, None),
        ("PATIENCE", config.patience, 0),
    )  # fmt: skip
    return "".join(f"{name} = {value!r}\n" for name, value, plain in named if value != plain)


def _block(lines: list[str], levels: int) -> str:
    return indent("\n".join(lines), "    " * levels)
