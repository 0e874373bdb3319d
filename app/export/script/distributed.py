"""What lets an exported script run on several processes: every batch dealt out to them, gradients averaged by DDP.

`--processes N` starts them here: they meet over a file in a private folder and talk over the loopback interface, where
torchrun's store listens on every interface for anybody.

With one process nothing of it changes a number: the part of a batch is the whole of it, and counts for 1.0.
"""

from __future__ import annotations

import inspect

from app.export.script import launch
from app.export.script.multi_output import Several
from app.training.config import Choice, TrainingConfig
from app.training.job import Job
from app.training.registry import PLATEAU
from app.training.setup.class_weights import takes_weights

MEAN_OF_WEIGHTS = ("CrossEntropyLoss", "NLLLoss")  # whose mean is over the weights of the labels

CONSTANTS = (
    'RANK, PROCESSES = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))  # of --processes\n'
)

OPTIONS = '''\
    parser.add_argument("--processes", type=int, default=1, help="deal every batch out to so many, on this machine")
    parser.add_argument("--store", type=Path, help="file over which processes meet; --processes makes one")'''

_FUNCTIONS = '''


def join(device: torch.device, store: Path | None) -> torch.device:
    """Meet the other processes, over a file or as torchrun says: each has a GPU of its own, or all share the CPU."""
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    backend = "nccl" if device.type == "cuda" else "gloo"
    if store is None:
        distributed.init_process_group(backend)
    else:
        kept = distributed.FileStore(str(store), PROCESSES)
        distributed.init_process_group(backend, store=kept, rank=RANK, world_size=PROCESSES)
    return device


def part_of(batch: Tensor{arguments}) -> tuple[Tensor, float{or_tensor}]:
    """The samples of a batch that this process learns from, and what their loss counts for in the mean of all."""
    part = batch.tensor_split(PROCESSES)[RANK]
    if not len(part):
        return batch[:1], 0.0  # every process has to take part in the step
    return part, {portion}


def over_all(value: Tensor) -> Tensor:
    """The sum over the processes."""
    if PROCESSES > 1:
        value = value.detach().clone()
        distributed.all_reduce(value)
    return value


def whole(loss: Tensor) -> Tensor:
    """The loss of the whole batch: the mean over the processes."""
    return over_all(loss) / PROCESSES'''

_FIRST = '''


def agreed(value: float, device: torch.device) -> float:
    """What the first process found, so that all of them do the same."""
    if PROCESSES == 1:
        return value
    return over_all(torch.tensor(0.0 if RANK else value, dtype=torch.float64, device=device)).item()'''

_HANDS = '''


class Hands:
    """Words from standard input, one a line: pause, resume, step, stop. The first process hears, all obey.

    The word ready says that whoever speaks has said what he wanted to before the first batch.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.standing, self.credits, self.stopping, self.ended = False, 0, False, False
        self.ready = threading.Event()
        self.stood: int | None = None  # the step after which it said that it stands
        if not RANK:
            threading.Thread(target=self.listen, daemon=True).start()

    def listen(self) -> None:
        for line in sys.stdin:
            word = line.strip()
            if word == "ready":
                self.ready.set()
                continue
            self.credits = self.credits + 1 if word == "step" else 0
            self.standing = word in ("pause", "step")
            self.stopping = self.stopping or word == "stop"
        self.stopping = True  # there is nobody left who could say it
        self.ready.set()

    def wanted(self) -> int:
        """0 to go on, 1 to stand, 2 to end."""
        self.ready.wait()
        if self.stopping:
            return 2
        if self.standing and self.credits:
            self.credits -= 1
            return 0
        return int(self.standing)

    def stop(self, epoch: int, step: int) -> bool:
        """Stand for as long as that is asked for; whether to end."""
        while True:
            wanted = int(over_all(torch.tensor(0 if RANK else self.wanted(), device=self.device)))
            if wanted != 1:
                if self.stood is not None and not self.standing and not wanted:
                    say("resumed", epoch=epoch, step=step)
                    self.stood = None
                self.ended = wanted == 2
                return self.ended
            if self.stood != step:
                say("paused", epoch=epoch, step=step)
                self.stood = step
            time.sleep(0.05)'''


_OUTWEIGHS = '''


def outweighs(labels: Tensor, weight: Tensor, part: Tensor, batch: Tensor) -> Tensor:
    """How many times as much the samples of a part weigh as those of its batch, in the mean."""
    return weight[labels[part]].mean() / weight[labels[batch]].mean()'''


def functions(job: Job, several: Several | None, hands: bool, keeps: bool) -> str:
    """The functions that deal out and gather."""
    argument = _weights(job)
    portion = f"PROCESSES * {argument.format('part')} / {argument.format('batch')}" if argument else (
        "PROCESSES * len(part) / len(batch)"
    )  # fmt: skip
    if several is None and job.training.loss.params.get("reduction") == "sum":
        portion = "float(PROCESSES)"
    text = "".join(f"\n\n\n{inspect.getsource(one).rstrip()}" for one in (launch.on_loopback, launch.launch))
    text += _FUNCTIONS.format(
        arguments=", labels: Tensor, weight: Tensor" if argument else "",
        or_tensor=" | Tensor" if argument else "",
        portion=portion,
    )
    if any("outweighs" in portion for portion in _portions(job, several)):
        text += _OUTWEIGHS
    return text + (_FIRST if keeps or _decides(job.training) else "") + (_HANDS if hands else "")


def _weights(job: Job) -> str:
    """The weight of the labels at some places as an expression of {}, "" where every sample counts alike."""
    if job.training.losses or not _is_weighed(job, job.training.loss):
        return ""
    return "weight[labels[{}]].sum()"


def _is_weighed(job: Job, loss: Choice) -> bool:
    """Whether the mean of a loss is over the weights of its labels."""
    weighs = loss.params.get("weight") is not None or (job.data.class_weights and takes_weights(loss))
    return loss.name in MEAN_OF_WEIGHTS and weighs and loss.params.get("reduction") != "sum"


def _portions(job: Job, several: Several | None) -> list[str]:
    """What the losses of some outputs count for beside `portion`, as entries of a dictionary by output."""
    found: list[str] = []
    if several is None:
        return found
    for number, row in enumerate(several.rows):
        if row.given.loss.params.get("reduction") == "sum":
            found.append(f"{row.given.output!r}: len(every) / len(batch)")
        elif _is_weighed(job, row.given.loss):
            weight = f"loss_function.losses[{number}].weight"
            found.append(f"{row.given.output!r}: outweighs({several.labels(row)}, {weight}, batch, every)")
    return found


def has_portions(job: Job, several: Several | None) -> bool:
    """Whether the losses of several outputs count differently."""
    return bool(_portions(job, several))


def _decides(config: TrainingConfig) -> bool:
    """Whether a number that each process has of its own decides what happens next."""
    plateau = config.schedule is not None and config.schedule.choice.name == PLATEAU
    return bool(config.max_minutes is not None or config.patience or plateau)


def part(job: Job, several: Several | None, hands: bool) -> str:
    """The lines that deal out a batch."""
    more = ", labels, loss_function.weight" if _weights(job) else ""
    lines = []
    if hands:
        # A run that goes on from the end of an epoch draws the order of the next one again.
        lines = [
            "if hands.stop(epoch, step):",
            "    if not taken:",
            "        shuffle.set_state(order)  # who goes on from here draws it again",
            "    break",
        ]
    lines.append(f"batch, portion = part_of(every{more})")
    if own := _portions(job, several):
        lines += ["portions = {", *(f"    {entry}," for entry in own), "}"]
    return "".join(f"            {line}\n" for line in lines)


def words(job: Job) -> str:
    """What the head of the script says of several processes."""
    own = "Random numbers, such as those of dropout, are drawn by each process for itself."
    if "BatchNorm" in job.source.text:
        own += "\nBatch normalization is over the whole batch on CUDA, over the part of a process on the CPU."
    return (
        "\nOn several processes BATCH_SIZE counts the samples of all of them together, and every loss is that of the"
        f"\nwhole batch. {own}"
        "\nThey can be reached from this machine alone. torchrun starts the script as well, but it listens on every"
        "\nnetwork interface and lets whoever connects run code: use it behind a firewall."
    )


def synced(job: Job) -> str:
    """Batch normalization over the whole batch, where torch can do it."""
    if "BatchNorm" not in job.source.text:
        return ""
    return (
        '\n    if PROCESSES > 1 and device.type == "cuda":'
        "\n        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)"
    )


def hands(on: bool) -> dict[str, str]:
    """What a script that is told on its standard input when to pause has more."""
    if not on:
        return {"hands": "", "interrupted": "", "reason": '"done"'}
    return {
        "hands": "\n    hands = Hands(device)",
        "interrupted": "\n        if hands.ended:\n            break\n",
        "reason": '"stopped" if hands.ended else "done"',
    }


def imports(hands: bool, keeps: bool) -> str:
    """What hands and checkpoints want of the standard library."""
    return "import threading\n" * hands + "import hashlib\nimport io\nfrom typing import Any\n" * keeps
