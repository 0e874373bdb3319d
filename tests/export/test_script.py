"""The exported script is plain PyTorch, and its run is the run of the app, bit for bit."""

import ast
import json
import shutil
from pathlib import Path

import pytest
import torch
import torch._inductor.config as inductor
from msgspec.structs import replace

from app.data.config import DataConfig, Transform
from app.export.train_script import training_script
from app.project.weights import state_dicts
from app.training.choices import ChoiceError
from app.training.config import Choice, OutputLoss, Schedule
from app.training.control import Control
from app.training.events import to_json
from app.training.job import Job, JobError
from app.training.loop import train
from app.util.frozen import FrozenMap
from tests.data.test_mnist import files, put
from tests.support import script_here
from tests.support.forked_python import run_forked
from tests.support.training_jobs import (
    BAD_NET,
    CONV_NET,
    SETTINGS,
    SMALL_NET,
    TWO_OUTPUTS,
    adam,
    job,
    net,
)


def write(folder, a_job):
    (folder / "model.py").write_text(a_job.source.text)
    (folder / "train.py").write_text(training_script(a_job))


@pytest.fixture
def run_script(tmp_path, capsys):
    """Run the exported script in this process, where torch is loaded already: (lines, SystemExit or None)."""

    def run(a_job, *arguments):
        write(tmp_path, a_job)
        ended = script_here.run_script(tmp_path, *arguments)
        return capsys.readouterr().out.splitlines(), ended

    return run


@pytest.mark.parametrize("name", SETTINGS)
def test_every_way_of_taking_a_step_is_the_same_in_the_script(name, run_script):
    a_job = job(SMALL_NET, seed=3, **SETTINGS[name])
    lines, ended = run_script(a_job, "--json")
    assert ended is None and lines == app_lines(a_job)


@pytest.mark.parametrize("loss", ["CrossEntropyLoss", "BCEWithLogitsLoss"])
def test_metrics_are_the_same_in_the_script(loss, run_script):
    a_job = job(
        SMALL_NET, epochs=2, metrics=("f1", "auroc", "top3_accuracy"), loss=Choice(loss)
    )
    ours = app_lines(
        a_job
    )  # first, so that torchmetrics finds a torchvision that can be imported here
    lines, ended = run_script(a_job, "--json")
    assert ended is None and lines == ours and '"val_auroc"' in lines[-2]
    shown, _ = run_script(a_job)
    assert "val_f1 0." in shown[1]


def test_a_script_takes_checkpoints_and_goes_on_from_them_and_so_does_the_app(
    run_script, tmp_path
):
    """Dropout, accumulation, a running mean and a schedule: as if neither had ever stopped, whoever goes on."""
    cosine = Schedule(Choice("CosineAnnealingLR", FrozenMap(T_max=20)), "step", 3)
    a_job = job(
        SMALL_NET,
        epochs=2,
        batch_size=200,
        accumulate=3,
        ema=0.9,
        save_every=5,
        schedule=cosine,
    )
    whole = app_lines(a_job)
    lines, ended = run_script(a_job, "--json")
    saved = [json.loads(line)["path"] for line in lines if '"saved"' in line]
    assert ended is None and [line for line in lines if '"saved"' not in line] == whole
    assert saved[0] == str(Path("checkpoints", "step-00000005.pt")) and saved[
        -1
    ] == str(Path("checkpoints", "last.pt"))
    folder = tmp_path / "checkpoints"
    assert sorted(path.name for path in folder.iterdir()) == [
        "best.pt",
        "last.pt",
        "step-00000010.pt",
        "step-00000015.pt",
    ]
    at = folder / "step-00000010.pt"
    rest = [
        line
        for line in whole[1:]
        if json.loads(line)["step" if '"finished"' not in line else "steps"] > 10
    ]
    theirs, ended = run_script(
        a_job, "--json", "--resume", str(at), "--checkpoints", str(tmp_path / "again")
    )
    assert (
        ended is None and [line for line in theirs[1:] if '"saved"' not in line] == rest
    )
    ours = [line for event in train(a_job, resume=at) if (line := to_json(event))]
    assert ours[1:] == rest and '"resumed_at": 10' in theirs[0]
    shown, _ = run_script(a_job, "--resume", str(at))
    assert len(shown) == 3 and shown[1].startswith("epoch 2/2: ")
    _, ended = run_script(replace(a_job, source=CONV_NET), "--resume", str(at))
    assert "was saved from another net" in str(ended)
    whole_file = at.read_bytes()
    shuffle = torch.load(at, weights_only=True)["shuffle"].numpy().tobytes()
    flipped = bytearray(whole_file)
    flipped[whole_file.index(shuffle) + 30] ^= 1
    for data in (b"", whole_file[:-100], bytes(flipped)):
        at.write_bytes(data)
        _, ended = run_script(a_job, "--resume", str(at))
        assert isinstance(ended, SystemExit) and str(ended).startswith(
            f"{at} is damaged"
        )
        assert "Resume from another one." in str(ended) and "weights_only" not in str(
            ended
        )


LIMITS = {
    "steps": {"max_steps": 25, "accumulate": 4},
    "patience": {
        "epochs": 9,
        "patience": 2,
        "optimizer": Choice("SGD", FrozenMap(lr=0.0)),
    },
    "one batch": {"one_batch": True},
    "per epoch": {
        "schedule": Schedule(
            Choice("MultiStepLR", FrozenMap(milestones=(1, 2))), "epoch"
        )
    },
    "channels last": {"channels_last": True, "amp": "bfloat16"},
    "saved on the CPU": {"save_on_cpu": True, "ema": 0.9, "accumulate": 2},
}


@pytest.mark.parametrize("name", LIMITS)
def test_a_run_ends_where_the_script_ends(name, run_script):
    a_job = job(
        CONV_NET,
        **{"epochs": 2, "batch_size": 256, "deterministic": True, **LIMITS[name]},
    )
    lines, ended = run_script(a_job, "--json")
    assert ended is None
    theirs, ours = (
        [json.loads(line) for line in lines],
        [json.loads(line) for line in app_lines(a_job)],
    )
    ours[-1].pop("note", None)
    assert theirs == ours


def test_batches_that_are_not_finite_are_left_out_in_the_script_too(run_script):
    a_job = job(BAD_NET, epochs=1, batch_size=8, not_finite="skip")
    ours = app_lines(a_job)
    lines, ended = run_script(a_job, "--json")
    assert (
        ended is None and lines == ours and any('"skipped"' in line for line in lines)
    )
    told = [json.loads(line) for line in ours]
    taken = [one["loss"] for one in told if one["event"] == "step"]
    assert told[-2]["train_loss"] == pytest.approx(sum(taken) / len(taken), rel=1e-2), (
        "what is left out counts not"
    )


def test_an_epoch_whose_batches_are_all_left_out_has_no_loss(run_script, tmp_path):
    source = net(
        ["self.linear1 = nn.Linear(64, 10)"],
        ["return self.linear1(torch.log(x.flatten(1)))"],
    )
    a_job = job(source, epochs=2, batch_size=400, not_finite="skip", max_steps=4)
    ours = app_lines(a_job)
    lines, ended = run_script(a_job, "--json")
    assert (
        ended is None
        and lines[:-1] == ours[:-1]
        and json.loads(lines[-1])["steps"] == 4
    )
    assert (
        json.loads(ours[-2])["train_loss"] is None
        and json.loads(ours[-2])["train_accuracy"] is None
    )
    shown, _ = run_script(a_job)
    assert shown[1].startswith("epoch 1/2: training nan")


def test_what_was_left_out_is_known_to_a_checkpoint(run_script, tmp_path):
    a_job = job(BAD_NET, epochs=1, batch_size=8, not_finite="skip", save_every=90)
    whole = app_lines(a_job)
    lines, _ = run_script(a_job, "--json")
    assert [line for line in lines if '"saved"' not in line] == whole
    at = tmp_path / "checkpoints" / "step-00000090.pt"
    theirs, _ = run_script(a_job, "--json", "--resume", str(at))
    ours = [line for event in train(a_job, resume=at) if (line := to_json(event))]
    assert whole[-2] == ours[-2] and whole[-2] in theirs


def test_a_plain_order_and_whole_batches_are_the_same_in_the_script(run_script):
    a_job = job(
        SMALL_NET, batch_size=100, data=DataConfig(shuffle=False, drop_last=True)
    )
    lines, ended = run_script(a_job, "--json")
    assert ended is None and lines == app_lines(a_job)


def app_lines(a_job, control=None):
    return [line for event in train(a_job, control) if (line := to_json(event))]


JOBS = {
    "digits": job(CONV_NET, epochs=2, seed=5),
    "one-hot": job(
        SMALL_NET,
        epochs=2,
        batch_size=100,
        data=DataConfig(validation_fraction=0.31, split_seed=9),
        loss=Choice("SmoothL1Loss", FrozenMap(beta=0.5)),
        optimizer=Choice("SGD", FrozenMap(lr=0.3, momentum=0.9, nesterov=True)),
    ),
    "weights, no validation": job(
        SMALL_NET,
        epochs=1,
        data=DataConfig(validation_fraction=0.0),
        loss=Choice(
            "CrossEntropyLoss",
            FrozenMap(weight=(1, 2, 1, 1, 1, 1, 1, 1, 1, 0.5), label_smoothing=0.1),
        ),
        optimizer=adam(lr=0.01, betas=(0.8, 0.99), amsgrad=True),
    ),
}


def test_the_script_run_alone_prints_the_lines_of_the_app(tmp_path):
    """Another process, another thread, nobody watching: the same losses bit for bit, and the same weights."""
    import torch

    write(tmp_path, job(CONV_NET, epochs=9))
    arguments = ["--json", "--out", "w", "--epochs", "2", "--seed", "5"]
    script = run_forked(tmp_path / "train.py", *arguments, cwd=tmp_path)
    assert script.returncode == 0, script.stderr
    control = Control()
    assert script.stdout.splitlines() == app_lines(
        job(CONV_NET, epochs=2, seed=5), control
    )
    theirs = state_dicts.read(tmp_path / "w" / "weights.pt").tensors
    for name, value in control.weights().items():
        assert torch.equal(value, theirs[name])


AS_ELSEWHERE = """import runpy, sys
sys.meta_path[:] = [finder for finder in sys.meta_path if not type(finder).__module__.startswith("app.")]
runpy.run_path("train.py", run_name="__main__")
"""


def test_a_script_with_transforms_runs_where_torchvision_was_built_for_another_torch(
    tmp_path,
):
    """As pip brings it beside a torch for the CPU; Python there knows nothing of the program's own cure."""
    data = DataConfig(
        train_transforms=(Transform("Normalize", FrozenMap(mean=(0.5,), std=(0.5,))),)
    )
    a_job = job(SMALL_NET, data=data, epochs=1, max_steps=2, threads=1)
    write(tmp_path, a_job)
    (tmp_path / "elsewhere.py").write_text(AS_ELSEWHERE)
    script = run_forked(tmp_path / "elsewhere.py", "--json", cwd=tmp_path)
    assert script.returncode == 0, script.stderr
    assert script.stdout.splitlines()[:2] == app_lines(a_job)[:2]


@pytest.mark.parametrize("a_job", JOBS.values(), ids=JOBS)
def test_every_kind_of_run_prints_the_lines_of_the_app(a_job, run_script):
    lines, ended = run_script(a_job, "--json")
    assert ended is None and lines == app_lines(a_job)
    assert json.loads(lines[-1])["event"] == "finished"


def test_mnist_needs_torch_alone_and_says_where_the_files_belong(tmp_path, run_script):
    source = net(
        ["self.linear1 = nn.Linear(784, 10)"],
        ["return self.linear1(x.flatten(1))"],
        (1, 28, 28),
    )
    data = tmp_path / "da ta"
    a_job = Job(
        source,
        DataConfig("torchvision.MNIST"),
        job(epochs=2, batch_size=8).training,
        str(data),
    )
    assert {"torchvision", "sklearn"}.isdisjoint(imports(training_script(a_job)))
    _, ended = run_script(a_job)
    assert "--data" in str(ended)
    put(data, files())
    lines, ended = run_script(a_job, "--json")
    assert ended is None and lines == app_lines(a_job)


def imports(text):
    return {name for node in ast.walk(ast.parse(text)) for name in names_imported(node)}


def names_imported(node):
    if isinstance(node, ast.Import):
        return [alias.name.partition(".")[0] for alias in node.names]
    return [node.module.partition(".")[0]] if isinstance(node, ast.ImportFrom) else []


def test_a_script_goes_on_from_a_limit_as_the_app_does(tmp_path, run_script):
    schedule = Schedule(Choice("StepLR", FrozenMap(step_size=1, gamma=0.5)), "epoch")
    whole = job(SMALL_NET, epochs=3, schedule=schedule, save_every=50)
    limited = replace(
        whole, training=replace(whole.training, max_steps=30)
    )  # of 23 an epoch
    first, _ = run_script(limited, "--json", "--checkpoints", str(tmp_path / "kept"))
    at = str(tmp_path / "kept" / "last.pt")
    again, ended = run_script(
        limited, "--json", "--resume", at, "--checkpoints", str(tmp_path / "kept")
    )
    assert ended is None and not [line for line in again if '"step"' in line[:20]], (
        "the limit is reached"
    )
    rest, _ = run_script(
        whole, "--json", "--resume", at, "--checkpoints", str(tmp_path / "more")
    )
    plain = app_lines(replace(whole, training=replace(whole.training, save_every=0)))
    steps = [
        [line for line in lines if line.startswith('{"event": "step"')]
        for lines in (first, rest, plain)
    ]
    assert steps[0] + steps[1] == steps[2] and len(steps[0]) == 30
    ours = [line for event in train(whole, resume=Path(at)) if (line := to_json(event))]
    assert ours[1:] == [line for line in rest[1:] if '"saved"' not in line]
    end = json.loads(again[-1])
    assert (
        end.items()
        <= json.loads(to_json(list(train(limited, resume=Path(at)))[-1])).items()
        and end["steps"] == 30
    )


@pytest.mark.parametrize("a_job", JOBS.values(), ids=JOBS)
def test_the_script_knows_nothing_of_the_app(a_job):
    text = training_script(a_job)
    known = {
        "argparse",
        "json",
        "math",
        "os",
        "pathlib",
        "random",
        "sys",
        "numpy",
        "torch",
        "model",
        "sklearn",
    }
    assert imports(text) <= known | {"subprocess", "tempfile", "time"}
    assert max(map(len, text.splitlines())) <= 120 and "$" not in text


def test_without_json_it_speaks_to_a_person(tmp_path, run_script):
    lines, _ = run_script(job(SMALL_NET), "--epochs", "2")
    assert [line.split(":")[0] for line in lines[:3]] == [
        "loss",
        "epoch 1/2",
        "epoch 2/2",
    ] and len(lines) == 4
    assert (tmp_path / "trained" / "weights.pt").is_file()


@pytest.mark.parametrize(
    ("a_job", "error"),
    [
        (job(optimizer=adam(lr="0.1); print('x'")), ChoiceError),
        (job(loss=Choice("L1Loss(); import os")), ChoiceError),
        (job(device="cpu'); import os"), JobError),
        (job(epochs="3"), JobError),
        (job(data=DataConfig(source="x")), JobError),
        (job(data=DataConfig(validation_fraction="0); import os")), JobError),
    ],
)
def test_no_text_of_a_project_reaches_the_script_unchecked(a_job, error):
    with pytest.raises(error):
        training_script(a_job)


def test_names_of_a_persons_own_data_are_texts_in_the_script(tmp_path):
    """A file may be called what it likes, and so may a column: neither ends a text of the script."""
    path, column = tmp_path / 'a"""\\N + print(1) + """.csv', "k\"] or print('x')  #"
    quoted = '"' + column.replace('"', '""') + '"'
    path.write_text(
        f"a,{quoted},s\n" + "".join(f"{i / 7},{i % 2},{i % 3}\n" for i in range(30))
    )
    data = DataConfig(
        "file.csv",
        path=str(path),
        options=FrozenMap(target=column, more_targets=("s",)),
    )
    losses = (OutputLoss("digit", Choice("CrossEntropyLoss"), 1.0, column),)
    tree = ast.parse(training_script(job(TWO_OUTPUTS, data=data, losses=losses)))
    assert path.name in ast.get_docstring(tree)
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    assert column in texts and "x" not in texts


@pytest.mark.parametrize("name", ["a b", "", "1x", "os\n", "class"])
def test_the_module_must_have_a_name_that_python_can_import(name):
    with pytest.raises(JobError):
        training_script(job(), name)


def test_a_loss_that_is_not_finite_ends_the_script_as_it_ends_the_app(run_script):
    source = net(
        ["self.linear1 = nn.Linear(64, 10)"],
        ["return self.linear1(torch.log(x.flatten(1)))"],
    )
    _, ended = run_script(job(source), "--json")
    assert "The loss of step 1 is" in str(ended)


def test_a_script_imports_each_module_once(tmp_path) -> None:
    text = training_script(job(CONV_NET))
    imports = [line for line in text.splitlines() if line.startswith("import ")]
    assert len(imports) == len(set(imports)) and "import math" in imports


@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a C++ compiler")
def test_a_compiled_run_has_the_losses_of_the_compiled_script(run_script):
    source = net(["self.fc = nn.Linear(64, 10)"], ["return self.fc(x.flatten(1))"])
    a_job = job(source, epochs=1, batch_size=512, compile=True)
    with inductor.patch(compile_threads=1):  # which leaves no other processes behind
        lines, ended = run_script(a_job, "--json")
        assert ended is None and lines == app_lines(a_job)
    assert sum('"step"' in line for line in lines) >= 3
