"""What comes of marks: a page for each student, and tables with the columns that other programs document."""

import html.parser
import io

import pandas as pd
import pytest

from tlkit.classroom.grading.feedback import feedback_page, write_feedback
from tlkit.classroom.grading.grade import COLUMNS
from tlkit.classroom.grading.gradebooks import gradebook, read_students
from tlkit.classroom.grading.submissions import Student, students_of
from tlkit.cli import main

STOPPED = (
    "its cell stopped with NameError: name '<img src=x onerror=alert(1)> ![a](http://there) [b](http://there)' is not"
)


def marks_of(*files):
    """Rows as `grade_all` makes them: of each file its student, name, lesson and which exercises are right."""
    rows = []
    for student, name, lesson, right in files:
        base = {"notebook": f"{student}/{lesson or 'none'}.ipynb", "student": student, "name": name, "lesson": lesson}
        if not lesson:
            rows.append(base | {"exercise": "", "right": None, "reason": "is no notebook (ValueError)", "seconds": 0.1})
        for number, one in enumerate(right, 1):
            reason = "" if one else STOPPED
            rows.append(base | {"exercise": f"ex{lesson}_{number}", "right": one, "reason": reason, "seconds": 1.0})
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype({"right": "boolean"})


MARKS = marks_of(
    ("101", "Ann Alder", "04", (True, True, False)),
    ("102", "Ben Birch", "04", (True, False, False)),
    ("101", "Ann Alder", "05", (False, True, True)),
    ("103", "Cem Cedar", "", ()),
)


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text += data

    def count(self, name):
        return sum(tag == name for tag, _ in self.tags)


def test_a_page_has_a_card_for_each_exercise_and_needs_nothing_else(tmp_path):
    pages = write_feedback(MARKS, tmp_path / "new" / "pages")
    names = ["Ann_Alder-101-lesson04", "Ben_Birch-102-lesson04", "Ann_Alder-101-lesson05", "Cem_Cedar-103-not_graded"]
    assert [page.stem for page in pages] == names
    text = pages[0].read_text(encoding="utf-8")
    page = Page(text)
    assert "2 of 3 exercises are right." in page.text and "Ann Alder" in page.text
    assert page.text.count("✓ right") == 2 and page.text.count("✗ not yet") == 1  # a sign and a word, not colour alone
    assert "checked was" in page.text.lower() and "Exercise 4.3 (think further)" in page.text
    assert page.count("h1") == 1 and page.count("h2") == 3 and page.tags[0] == ("html", {"lang": "en"})
    assert not {"script", "img", "link", "a", "iframe"} & {tag for tag, _ in page.tags}
    assert not any(name in ("src", "href") or name.startswith("on") for _, has in page.tags for name in has)
    assert "<img src=x onerror=alert(1)>" in page.text  # what a student's code said is shown, as text
    assert page.count("details") == 3 and "best loss *seen so far*" not in page.text
    assert "role=" not in text and "@media print" in text


def test_hints_can_be_left_out_and_a_file_that_was_not_graded_has_its_page():
    rows = MARKS[MARKS.student == "102"]
    assert Page(feedback_page(rows, hints=False)).count("details") == 0 < Page(feedback_page(rows)).count("details")
    page = Page(feedback_page(MARKS[MARKS.student == "103"]))
    assert "could not be graded: it is no notebook (ValueError)" in page.text and "Not graded" in page.text


def test_two_files_of_a_student_have_a_page_each_and_no_name_leaves_the_folder(tmp_path):
    files = marks_of(("../../up", "", "04", (True,) * 3), ("..//../up", "", "04", (False,) * 3))
    first, second = write_feedback(files, tmp_path / "pages")
    assert first.parent == second.parent == tmp_path / "pages" and first != second
    assert "3 of 3" in first.read_text(encoding="utf-8") and "0 of 3" in second.read_text(encoding="utf-8")


def test_whose_a_file_is_is_read_from_where_platforms_put_it(tmp_path):
    paths = [
        "submitted/ann/lesson04/04_full.ipynb",
        "Ben Birch_102_assignsubmission_file_/04_full.ipynb",
        "cedarcem_5103_77001_04_full.ipynb",
        "cedarcem_LATE_5104_77002_04_full-1.ipynb",
        "dora/homework.ipynb",
        "emil/homework.ipynb",
        "flora.ipynb",
    ]
    assert students_of([tmp_path / path for path in paths]) == [
        Student("ann"),
        Student("102", "Ben Birch"),
        Student("5103", "cedarcem"),
        Student("5104", "cedarcem"),
        Student("dora"),
        Student("emil"),
        Student("flora"),
    ]


def test_nbgraders_table_has_its_columns_and_a_row_for_each_student_and_lesson():
    """The columns of `nbgrader export`, in its order; its list of students is `nbgrader db student import`'s."""
    table = gradebook(MARKS, "nbgrader").table
    columns = "assignment,duedate,timestamp,student_id,last_name,first_name,email,raw_score,late_submission_penalty,"
    assert ",".join(table.columns) == columns + "score,max_score"
    assert table[["assignment", "student_id", "score", "max_score"]].values.tolist() == [
        ["lesson04", "101", 2.0, 3.0],
        ["lesson04", "102", 1.0, 3.0],
        ["lesson05", "101", 2.0, 3.0],
        ["lesson05", "102", 0.0, 3.0],
    ]
    students = listed("id,first_name,last_name,email\n101,Ann,Alder,ann@x.org\n104,Dora,Dogwood,d@x.org\n")
    book = gradebook(MARKS, "nbgrader", students)
    assert "Not in the list of students, and left out: 102." in book.remarks
    row = book.table.iloc[0]
    assert (row.last_name, row.first_name, row.email, row.raw_score) == ("Alder", "Ann", "ann@x.org", 2.0)
    assert list(book.table[book.table.student_id == "104"].score) == [0.0, 0.0]


def test_canvas_gets_its_five_columns_its_row_of_points_and_a_column_for_each_lesson():
    header = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section"]
    table = gradebook(MARKS, "canvas").table
    assert list(table.columns) == [*header, "Lesson 04", "Lesson 05"]
    assert table.values.tolist() == [
        ["    Points Possible", "", "", "", "", 3, 3],
        ["Ann Alder", "101", "", "", "", 2, 2],
        ["Ben Birch", "102", "", "", "", 1, ""],
    ]
    exported = (
        "Student,ID,SIS User ID,SIS Login ID,Section,Essay (77)\n    Points Possible,,,,,10\n"
        '"Birch, Ben",102,s102,ben,A,7\n"Dogwood, Dora",104,s104,dora,A,\n'
    )
    book = gradebook(MARKS, "canvas", listed(exported))
    assert list(book.table.columns) == [*header, "Lesson 04", "Lesson 05"]  # other grades are not written back
    assert book.table.values.tolist()[1:] == [
        ["Birch, Ben", "102", "s102", "ben", "A", 1, ""],
    ]  # Dora has handed in nothing: an empty place would take away what Canvas has of her
    assert "Not in the list of students, and left out: 101." in book.remarks
    there = gradebook(MARKS, "canvas", listed(exported.replace("Essay (77)", "Lesson 05 · Freeze (4711)"))).table
    assert list(there.columns[5:]) == ["Lesson 04", "Lesson 05 · Freeze (4711)"]


def test_moodles_grade_import_has_points_and_feedback_side_by_side():
    files = marks_of(("ann@x.org", "", "04", (True, False, True)), ("102", "", "04", (True,) * 3))
    table = gradebook(files, "moodle").table
    columns = ["First name", "Last name", "ID number", "Email address", "Lesson 04", "Lesson 04 (Feedback)"]
    assert list(table.columns) == columns
    assert table.iloc[0].tolist()[2:5] == ["", "ann@x.org", 2] and table.iloc[1].tolist()[2:5] == ["102", "", 3]
    said = table.iloc[0, 5].splitlines()
    assert said[0] == "ex04_1: right" and said[1].startswith("ex04_2: not yet: its cell stopped with NameError")


def test_a_worksheet_of_moodle_is_filled_in_with_its_own_maximum():
    worksheet = listed(
        "Identifier,Full name,Email address,Status,Grade,Maximum grade,Grade can be changed,"
        "Last modified (submission),Last modified (grade),Feedback comments\n"
        'Participant 102,Ben Birch,b@x.org,Submitted,,"100,00",Yes,"Monday, 2 November 2026, 10:00 AM",-,\n'
        'Participant 104,Dora Dogwood,d@x.org,No submission,,"100,00",Yes,-,-,\n'
    )
    lesson = MARKS[MARKS.lesson.isin(["04"])]
    book = gradebook(lesson, "moodle", worksheet)
    assert list(book.table.columns) == list(worksheet.columns)
    assert list(book.table.Grade) == ["33.33", ""] and "ex04_1: right" in book.table["Feedback comments"][0]
    with pytest.raises(ValueError, match="these are lessons 04, 05"):
        gradebook(MARKS, "moodle", worksheet)
    with pytest.raises(ValueError, match="lacks Feedback comments"):
        gradebook(lesson, "moodle", worksheet.drop(columns="Feedback comments"))


def test_the_best_of_several_files_counts_and_what_was_not_graded_is_said():
    twice = pd.concat(
        [MARKS, marks_of(("102", "", "04", (True,) * 3)).assign(notebook="again.ipynb")], ignore_index=True
    )
    book = gradebook(twice, "nbgrader")
    assert book.table.set_index(["assignment", "student_id"]).score["lesson04", "102"] == 3.0
    assert "102 has handed in lesson 04 2 times: the best file counts." in book.remarks
    assert "103/none.ipynb was not graded and has no points in it." in book.remarks


def test_a_list_of_students_that_is_none_is_refused_before_grading(tmp_path, capsys):
    (tmp_path / "one.ipynb").write_text("{}")
    (tmp_path / "list.csv").write_bytes(b"\xff\xfe\x00")
    arguments = ["grade", str(tmp_path / "one.ipynb"), "--gradebook", str(tmp_path / "out.csv"), "--students"]
    assert main([*arguments, str(tmp_path / "list.csv")]) == 2
    assert "expected a CSV file" in capsys.readouterr().err
    (tmp_path / "list.csv").write_text("colour,shape\nred,round\n")
    assert main([*arguments, str(tmp_path / "list.csv")]) == 2
    assert "expected one of student_id" in capsys.readouterr().err and not (tmp_path / "out.csv").exists()


def listed(text):
    return read_students(io.StringIO(text))
