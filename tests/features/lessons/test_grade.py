"""Hand-ins are graded: by what they are, whatever they are called, and none of them runs code or stops the others."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from app.builder.catalog.catalog import catalog
from app.builder.edits.edits import delete_and_reconnect
from app.cli import run
from app.features.lessons import cli as grade
from app.features.lessons.lesson import LessonError, read, seeded
from app.features.lessons.values import GoalVerdict
from app.project import file
from app.project.project import LessonWork, Project
from app.training.config import Choice, TrainingConfig
from app.util import resources
from app.util.frozen import FrozenMap
from tests.slow import graded_hand_ins
from tests.slow.graded_hand_ins import GOALS, LESSON, net, right, zipped


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "hand-ins"
    folder.mkdir()
    good = file.dumps(right())
    (folder / "a" / "deeper").mkdir(parents=True)
    (folder / "a" / "deeper" / "Kopie (2).TAPE").write_bytes(good)
    (folder / "b.zip").write_bytes(zipped(good))
    (folder / "c.tape").write_bytes(b"")
    wrong = replace(right(), graph=net(inputs=60), lesson=None)
    (folder / "d.tape").write_bytes(file.dumps(wrong))
    (folder / "notes.txt").write_text("not a hand-in")
    return folder


def test_a_folder_is_graded(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["grade", LESSON, str(folder), "--json"]) == 2
    answer = json.loads(capsys.readouterr().out)
    assert answer["lesson"] == LESSON
    submissions = {each["file"]: each for each in answer["submissions"]}
    assert list(submissions) == [
        "a/deeper/Kopie (2).TAPE",
        "b.zip/../../leaves/net.tape",
        "c.tape",
        "d.tape",
    ]
    renamed, inside, empty, wrong = submissions.values()
    for each in (renamed, inside):
        assert each["score"] == 1.0 and not each["error"]
        assert len(each["goals"]) == GOALS
        assert set(each["goals"][0]) == {
            "goal",
            "passed",
            "seen",
            "wanted",
            "evidence",
        }
    assert empty["score"] == 0.0 and "not a Tapedeck project" in empty["error"]
    assert "cannot run" in wrong["error"]
    missed = [goal["goal"] for goal in wrong["goals"] if not goal["passed"]]
    assert "The net has 0 errors" in missed


def test_a_hand_in_that_does_not_end_is_stopped() -> None:
    (endless,) = (case for case in graded_hand_ins.cases(0) if case.kind == "endless")
    lesson, text = grade.lesson_named(LESSON)
    hand_in = grade.HandIn(endless.name, endless.data)
    submission = grade.graded(hand_in, lesson, text, 3, 4096)
    assert submission.graded.error == "It took longer than 3 seconds, and was stopped."
    assert submission.score == 0.0 and not submission.unread


def test_other_forms(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "c.tape").unlink()
    (folder / "d.tape").unlink()
    (folder / "b.zip").unlink()
    assert run(["grade", LESSON, str(folder), "--csv"]) == 0
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert row["file"] == "a/deeper/Kopie (2).TAPE" and row["score"] == "1.0000"
    assert row["from the record"] == "0" and list(row.values())[4:] == ["1"] * GOALS
    assert run(["grade", LESSON, str(folder), "--gradescope"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert results["score"] == 100.0 and len(results["tests"]) == GOALS


def test_a_lesson_of_ones_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "my-lesson"
    assert run(["lesson", "new", str(own)]) == 0
    assert read(own).title == "my lesson"
    assert run(["lesson", "new", str(own)]) != 0  # what is there stays
    assert run(["lesson", "check", str(own)]) == 0
    text = (own / "lesson.md").read_text("utf-8")
    (own / "lesson.md").write_text(text.replace("layers", "layer"), "utf-8")
    capsys.readouterr()
    assert run(["lesson", "check", str(own)]) == 1
    assert "there is no fact 'layer'" in capsys.readouterr().err
    with pytest.raises(LessonError):
        read(own)


def test_what_is_measured_cannot_be_forged_and_what_is_recorded_is_said_to_be() -> None:
    lesson, text = grade.lesson_named("06-loss-and-rate")
    work = LessonWork(
        lesson.name, reached=FrozenMap({goal.key: "" for goal in lesson.goals})
    )
    project = replace(right(), lesson=work, training=TrainingConfig(epochs=1))
    hand_in = grade.HandIn("forged.tape", file.dumps(project))
    submission = grade.graded(hand_in, lesson, text, 60, 4096)
    verdicts = dict(zip(lesson.goals, submission.graded.goals, strict=True))
    for goal, verdict in verdicts.items():
        if goal.stays:
            assert verdict.passed
        elif goal.question:
            assert not verdict.passed and verdict.evidence == "measured"
        else:
            assert verdict.evidence == "measured"
    records = [each for each in verdicts.values() if each.evidence != "measured"]
    assert records and all(each.passed for each in records)
    assert submission.recorded == len(records)
    (row,) = csv.DictReader(io.StringIO(grade.as_csv(lesson, [submission])))
    assert row["from the record"] == str(len(records))
    (small,) = (each for goal, each in verdicts.items() if "1e-06" in goal.key)
    assert small.passed and small.evidence == "from the record"


def ids_of(project: Project, name: str) -> list[str]:
    return [node.id for node in project.graph.nodes.values() if node.name == name]


def claimed(name: str, project: Project) -> dict[str, GoalVerdict]:
    """The verdicts on a project whose record says that every goal of a lesson was reached."""
    lesson, text = grade.lesson_named(name)
    reached = FrozenMap({goal.key: "" for goal in lesson.goals})
    project = replace(project, lesson=LessonWork(name, reached=reached))
    hand_in = grade.HandIn("claimed.tape", file.dumps(project))
    submission = grade.graded(hand_in, lesson, text, 60, 4096)
    keys = (goal.key for goal in lesson.goals)
    return dict(zip(keys, submission.graded.goals, strict=True))


def test_a_record_of_a_tape_that_the_net_does_not_give_is_not_believed() -> None:
    lesson = "01-what-a-tape-is"
    with_tape, without = claimed(lesson, right()), claimed(lesson, Project())
    of_nothing = claimed(lesson, replace(right(), graph=net(inputs=60)))
    for act in ("captured = 1", "played = 1"):
        assert with_tape[act].passed
        assert with_tape[act].evidence == "from the record"
        assert not without[act].passed and not of_nothing[act].passed


def test_facts_of_the_tape_and_findings_are_measured_on_what_is_handed_in() -> None:
    start = file.read(resources.path("lessons", "09-no-grad-and-detach") / "start.tape")
    verdicts = claimed("09-no-grad-and-detach", start)
    assert verdicts["finding none >= 1"].passed
    assert verdicts["finding none >= 1"].evidence == "measured"
    for key in ("tape_leaves = 6", "finding none = 0"):
        assert not verdicts[key].passed, key
    assert verdicts["tape_leaves = 6"].seen == "2"
    mended = delete_and_reconnect(start, catalog(), ids_of(start, "detach1"))
    verdicts = claimed("09-no-grad-and-detach", mended)
    for key in ("tape_leaves = 6", "finding none = 0"):
        assert verdicts[key].passed and verdicts[key].evidence == "measured"
    assert verdicts["finding none >= 1"].passed  # of the net that it began with
    assert verdicts["finding none >= 1"].evidence == "from the record"
    tape = claimed("09-no-grad-and-detach", right())
    assert not tape["tape_leaves = 6"].passed and tape["finding none = 0"].passed


def test_a_lesson_with_a_seed_a_student_is_graded_with_the_students() -> None:
    lesson, text = grade.lesson_named(LESSON)
    text = text.replace("+++", '+++\nseed = "student"', 1)
    work = LessonWork(LESSON, right().lesson.answers, student="Ada Lovelace")
    project = replace(right(), lesson=work)
    for student, error in (("Ada Lovelace", False), ("", True)):
        handed_in = replace(project, lesson=replace(work, student=student))
        submission = grade.graded(
            grade.HandIn("a.tape", file.dumps(handed_in)), lesson, text, 60, 4096
        )
        assert bool(submission.graded.error) == error
        seed = seeded(project, student).training.seed if student else 0
        assert (submission.graded.student, submission.graded.seed) == (student, seed)
        assert submission.score == 1.0


def test_few_of_the_two_hundred() -> None:
    """The short form of `python -m tests.slow.graded_hand_ins`."""
    cases = graded_hand_ins.cases(1)
    kinds = {case.kind for case in cases}
    assert len(cases) >= len(kinds) >= 15
    lesson, text = grade.lesson_named(LESSON)
    for case in cases:
        if case.kind in ("own files", "deep JSON", "names a file", "wrong answer"):
            submission = grade.graded(
                grade.HandIn(case.name, case.data), lesson, text, 60, 4096
            )
            reached = sum(goal.passed for goal in submission.graded.goals)
            assert reached == case.reached, (case.kind, submission)
            assert bool(submission.graded.error) == case.error, case.kind
            assert submission.unread == case.unread, case.kind


def test_what_a_hand_in_carries_is_read_again() -> None:
    project = right()
    assert file.loads(file.dumps(project)) == project
    assert project.lesson is not None


def start_of(lesson: str) -> Project:
    return file.read(resources.path("lessons", lesson) / "start.tape")


def test_the_memory_of_a_step_is_estimated_again() -> None:
    lesson = "15-memory"
    start = file.read(resources.path("examples", "MLP on digits.tape"))
    verdicts = claimed(lesson, start)
    assert verdicts["memory total > 0"].evidence == "measured"
    for key in ("memory optimizer = 0", "memory activations >= 150000"):
        assert not verdicts[key].passed, key
        assert float(verdicts[key].seen) > 0, "what the grader measured"
    sgd = Choice("SGD", FrozenMap(lr=0.01, momentum=0.0))
    training = replace(start.training, optimizer=sgd, batch_size=128)
    verdicts = claimed(lesson, replace(start, training=training))
    for key in ("memory optimizer = 0", "memory activations >= 150000"):
        assert verdicts[key].passed and verdicts[key].evidence == "measured"


def test_the_end_of_a_run_is_seen_again() -> None:
    lesson = "14-nan-hunt"
    verdicts = claimed(lesson, start_of(lesson))
    assert verdicts["ended = failed"].evidence == "measured"
    assert not verdicts["ended = done"].passed, "the run of this net fails"
    few = replace(right(), training=replace(right().training, epochs=2))
    verdicts = claimed(lesson, few)
    assert verdicts["ended = done"].passed
    assert verdicts["ended = done"].evidence == "measured"
    assert verdicts["ended = failed"].passed  # of the net that it began with
    assert verdicts["ended = failed"].evidence == "from the record"


def test_a_gradcheck_of_a_net_that_cannot_run_is_not_believed() -> None:
    lesson = "13-a-function"
    assert claimed(lesson, right())["gradcheck = 1"].evidence == "from the record"
    for project in (Project(), replace(right(), graph=net(inputs=60))):
        assert not claimed(lesson, project)["gradcheck = 1"].passed
