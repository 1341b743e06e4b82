"""Marks as the tables that nbgrader, Canvas and Moodle have for grades: one point for each exercise that is right.

Columns are those that their documentation names. Where a list of the students is given, as the platform itself writes
it, its rows are filled in, so that everybody is found again when the table is read there.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from tlkit.classroom.lab.experiments import experiments_of

# nbgrader: nbgrader/plugins/export.py, `CsvExportPlugin`.
NBGRADER = ("assignment", "duedate", "timestamp", "student_id", "last_name", "first_name", "email")
NBGRADER += ("raw_score", "late_submission_penalty", "score", "max_score")
# Canvas: lib/gradebook_importer.rb, which reads what the Gradebook exports.
CANVAS = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")
CANVAS_POINTS = "    Points Possible"  # the row below the header, as Canvas itself writes it
# Moodle: https://docs.moodle.org/en/Grade_import, and the offline grading worksheet of an assignment, which is read by
# mod/assign/feedback/offline/importgradeslib.php.
MOODLE = ("First name", "Last name", "ID number", "Email address")
WORKSHEET = ("Identifier", "Grade", "Maximum grade", "Last modified (grade)", "Feedback comments")
PARTICIPANT = "Participant "
LAYOUTS = ("nbgrader", "canvas", "moodle")
# Where a student's id may stand in a list of students.
KEYS = ("student_id", "id", "email", "ID", "SIS User ID", "SIS Login ID", "Student", "ID number", "Username")
KEYS += ("Email address", "Identifier", "Full name")


@dataclass(frozen=True)
class Gradebook:
    """A table for another program, and what its reader has to know, in sentences."""

    table: pd.DataFrame
    remarks: tuple[str, ...]


def gradebook(marks: pd.DataFrame, layout: str, students: pd.DataFrame | None = None) -> Gradebook:
    """Lay marks out for another program.

    Args:
        marks: what `grade_all` returned. Of several files of a student for one lesson the best one counts.
        layout: one of `LAYOUTS`.
        students: the platform's own list, with all columns as text; None writes what the files' places say.

    Returns:
        For nbgrader a row for each student and lesson; for the others a row for each student and a column for each
        lesson. A file that was not graded leaves its place empty, and who has no points stands in none of those two,
        because an empty place may take away points that are there. For a worksheet of Moodle (a list with a column
        Identifier) its grades and comments, in points of its own maximum.

    Raises:
        ValueError: for a worksheet and several lessons, or one that lacks a column.
    """
    scores, remarks = _scores(marks)
    if students is None:
        rows = _rows_without_list(scores, layout)
    else:
        rows, unknown = _rows_of(students, scores)
        if unknown:
            remarks.append(f"Not in the list of students, and left out: {', '.join(unknown)}.")
    if layout == "nbgrader":
        table = _for_nbgrader(rows, scores)
    elif students is not None and "Identifier" in students:
        table = _worksheet(rows, scores)
    else:
        table = _with_columns(rows, scores, canvas=layout == "canvas")
    return Gradebook(table, tuple(remarks))


def read_students(file: Path) -> pd.DataFrame:
    """Read a platform's own list of students, all of it as text.

    Raises:
        ValueError: for a file that is no table, or has no column that says who a student is.
        OSError: where it cannot be read.
    """
    try:
        students = pd.read_csv(file, dtype=str, encoding="utf-8-sig").fillna("")
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise ValueError(f"{file}: expected a CSV file with a line of column names ({error})") from None
    if not any(column in KEYS for column in students):
        raise ValueError(f"{file} has columns {', '.join(students)}: expected one of {', '.join(KEYS)}")
    return students


def _scores(marks: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """A row for each student and lesson: student, name, lesson, right, of, and what is said about each exercise.

    An experiment gives no point: only those have a row for it who have stored a decision.
    """
    found, remarks = [], []
    for (student, lesson), rows in marks[marks.lesson != ""].groupby(["student", "lesson"], sort=False):
        files = [part for _, part in rows.groupby("notebook", sort=False)]
        best = max(files, key=lambda part: _points(part).sum())
        if len(files) > 1:
            remarks.append(f"{student} has handed in lesson {lesson} {len(files)} times: the best file counts.")
        said = [f"{one.exercise}: {'right' if one.right else f'not yet: {one.reason}'}" for one in best.itertuples()]
        row = {"student": student, "name": best["name"].iloc[0], "lesson": lesson}
        points = _points(best)
        found.append(row | {"right": int(points.sum()), "of": len(points), "said": "\n".join(said)})
    for row in marks[marks.lesson == ""].itertuples():
        remarks.append(f"{row.notebook} was not graded and has no points in it.")
    columns = ["student", "name", "lesson", "right", "of", "said"]
    return pd.DataFrame(found, columns=columns), remarks


def _points(rows: pd.DataFrame) -> pd.Series:
    """Of each exercise."""
    return rows.right[~rows.exercise.isin(experiments_of(rows.lesson.iloc[0]))]


def _rows_without_list(scores: pd.DataFrame, layout: str) -> pd.DataFrame:
    """The students of the marks, in the columns of a layout, as far as files say who they are."""
    columns = {"nbgrader": NBGRADER[3:7], "canvas": CANVAS, "moodle": MOODLE}[layout]
    rows = []
    for one in scores.drop_duplicates("student").itertuples():
        key = {"nbgrader": "student_id", "canvas": "SIS Login ID", "moodle": "ID number"}[layout]
        if layout == "canvas" and one.student.isdecimal():
            key = "ID"
        elif layout == "moodle" and "@" in one.student:
            key = "Email address"
        row = dict.fromkeys(columns, "") | {key: one.student}
        rows.append(row | ({"Student": one.name or one.student} if layout == "canvas" else {}) | {"_": one.student})
    return pd.DataFrame(rows, columns=[*columns, "_"])


def _rows_of(students: pd.DataFrame, scores: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The platform's rows, each with the student of the marks in a column "_", and who of them is in no row."""
    keys = [column for column in students if column in KEYS]
    known = {_plain(student): student for student in scores.student}
    for name, student in zip(scores.name, scores.student, strict=True):
        if name:
            known.setdefault(_plain(name), student)
    whose = [
        next((known[_plain(row[key])] for key in keys if _plain(row[key]) in known), "")
        for row in students.to_dict("records")
    ]
    unknown = [student for student in dict.fromkeys(scores.student) if student not in whose]
    return students.assign(_=whose), unknown


def _plain(text: str) -> str:
    return text.strip().removeprefix(PARTICIPANT).casefold()


def _for_nbgrader(rows: pd.DataFrame, scores: pd.DataFrame) -> pd.DataFrame:
    """As nbgrader writes it: who handed nothing in has 0 points."""
    found, by_place = [], scores.set_index(["lesson", "student"])
    for lesson, of in scores.groupby("lesson", sort=True).of.max().items():
        for row in rows.to_dict("records"):
            points = float(by_place.right.get((lesson, row["_"]), 0))
            who = {name: row.get(name, "") for name in NBGRADER[4:7]} | {"student_id": row.get("student_id", "")}
            who["student_id"] = who["student_id"] or row.get("id", "") or row["_"]
            points = {"raw_score": points, "late_submission_penalty": 0.0, "score": points, "max_score": float(of)}
            found.append({"assignment": f"lesson{lesson}", "duedate": "", "timestamp": ""} | who | points)
    return pd.DataFrame(found, columns=list(NBGRADER))


def _with_columns(rows: pd.DataFrame, scores: pd.DataFrame, *, canvas: bool) -> pd.DataFrame:
    """A column of points for each lesson behind who a student is; for Canvas with a row of what can be had."""
    who = [column for column in (CANVAS if canvas else rows) if column in rows and column != "_"]
    table = rows[rows["_"] != ""][[*who, "_"]]
    by_place = scores.set_index(["lesson", "student"])
    points = {}
    for lesson, of in scores.groupby("lesson", sort=True).of.max().items():
        column = [by_place.right.get((lesson, student), "") for student in table["_"]]
        if canvas:  # an assignment that is there has its number behind its title
            there = [name for name in rows if re.fullmatch(rf"Lesson {lesson}\b.*\(\d+\)", name)]
            points[there[0] if there else f"Lesson {lesson}"] = [int(of), *column]
        else:
            points[f"Lesson {lesson}"] = column
            points[f"Lesson {lesson} (Feedback)"] = [by_place.said.get((lesson, one), "") for one in table["_"]]
    table = table.drop(columns="_")
    if canvas:
        top = pd.DataFrame([dict.fromkeys(table, "") | {"Student": CANVAS_POINTS}])
        table = pd.concat([top, table], ignore_index=True)
    return table.reset_index(drop=True).assign(**points)


def _worksheet(rows: pd.DataFrame, scores: pd.DataFrame) -> pd.DataFrame:
    missing = [column for column in WORKSHEET if column not in rows]
    if missing:
        raise ValueError(f"the worksheet lacks {', '.join(missing)}: allow offline grading and feedback comments")
    if scores.lesson.nunique() > 1:
        raise ValueError(f"a worksheet is of one assignment, and these are lessons {', '.join(scores.lesson.unique())}")
    by_student = scores.set_index("student")
    table = rows.drop(columns="_")
    for place, student in zip(table.index, rows["_"], strict=True):
        if student in by_student.index:
            one = by_student.loc[student]
            most = float(str(table.at[place, "Maximum grade"]).replace(",", ".") or one.of)
            table.at[place, "Grade"] = f"{one.right / one.of * most:.2f}"
            table.at[place, "Feedback comments"] = one.said
    return table
