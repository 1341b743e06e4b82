"""A lesson as slides: one idea on each, a sentence, a chart or a few lines of code; the whole text is in the notes."""

import ast
import html
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from string import Template

from nbformat import NotebookNode

CODE_LINES, CODE_WIDTH = 10, 88  # of code or text in 24 pixels, what stands on one slide
LINES, LETTERS_IN_LINE, ROWS = 8, 62, 9  # of a list, and of a table
TABLE_WIDTH = 74  # letters of a table's row
LETTERS = 520  # of a slide's sentence; a longer one goes to the notes
LEFT_OUT = ("Exercises", "Further reading")  # sections that are the reader's
EXPERIMENT = "Your experiment"  # its question is on a slide; its cells are the reader's
CLAIM = ("✓", "✗")  # how a line begins that says whether a claim holds
HIDDEN = ("claim", "setup", "check", "quiz", "hint")  # functions of the workbook whose calls nobody wants to watch
PREDICTION = re.compile(r'^tl\.(predict|outcome)\("(\w+)"', re.MULTILINE)
SENTENCE = re.compile(r"(?<=[.?!:])(?<!e\.g\.)(?<!i\.e\.)(?<!et al\.)(?<!vs\.)\s+(?=[A-Z0-9*`$\[(])")


@dataclass(frozen=True)
class Slide:
    """One slide.

    Attributes:
        heading: of the section that it belongs to, as HTML.
        body: as HTML.
        kind: "title", "text", "code", "output", "table", "chart" or "found".
        notes: what the one who presents may say, as HTML.
    """

    heading: str
    body: str
    kind: str
    notes: str = ""


def slides_of(lesson: NotebookNode) -> list[Slide]:
    """Cut an executed lesson into slides.

    Of the text, what stands on a slide is the first sentence of each cell, what is printed bold, formulas, lists and
    tables; all of it is in the notes. Of the code, imports, assertions and claims are left out; cells that are longer
    than a slide show what they found, and their code is in the notes.

    Args:
        lesson: with its outputs.

    Returns:
        The slides in order, the title first. Exercises and further reading are left out.
    """
    slides, heading, results = [], "", _folded_results(lesson.cells)
    for cell in lesson.cells:
        if cell.cell_type == "markdown":
            text = cell.source.split("**Further reading**")[0]
            heading = _heading_in(text) or heading
            if heading in LEFT_OUT:
                break
            slides += _of_text(text, heading)
        elif (found := PREDICTION.search(cell.source)) and cell.cell_type == "code":
            if found[1] == "predict" and found[2] in results:
                slides.append(Slide(_inline(heading), results[found[2]], "text"))
        elif cell.cell_type == "code" and heading != EXPERIMENT:
            slides += [replace(slide, heading=_inline(heading)) for slide in _of_code(cell)]
    return slides


def _folded_results(cells: Iterable[NotebookNode]) -> dict[str, str]:
    """From each prediction to its question with the folded result, which a room can see before the lesson shows why."""
    from bs4 import BeautifulSoup

    found = {}
    for cell in cells:
        named = PREDICTION.search(cell.source)
        if cell.cell_type != "code" or not named or named[1] != "outcome":
            continue
        for output in cell.outputs:
            card = BeautifulSoup("".join(output.get("data", {}).get("text/html", "")), "html.parser")
            if card.strong and card.details:
                card.strong.span.decompose()  # it says that nobody has guessed
                found[named[2]] = f"<p>{card.strong}</p>{card.details}"
    return found


def deck(title: str, slides: Iterable[Slide], template: Template) -> str:
    """Put slides on one page for reveal.js.

    Args:
        title: of the page.
        slides: in order.
        template: of the page, with $title and $slides.
    """
    sections = []
    for slide in slides:
        kicker = f'<p class="section">{slide.heading}</p>' if slide.heading and slide.kind != "title" else ""
        notes = f'<aside class="notes">{slide.notes}</aside>' if slide.notes else ""
        sections.append(f'<section class="{slide.kind}">{kicker}{slide.body}{notes}</section>')
    return template.substitute(title=html.escape(title), slides="\n".join(sections))


def _heading_in(text: str) -> str:
    """The last heading of a section in a cell, below the title."""
    found = re.findall(r"^#{2,3} (.+)$", text, re.MULTILINE)
    return found[-1] if found else ""


def _of_text(text: str, heading: str) -> list[Slide]:
    slides, lead = [], ""
    for kind, block in _blocks(text):
        if kind == "title":
            slides.append(Slide("", f"<h1>{_inline(block)}</h1>", "title"))
        elif kind == "paragraph":
            sentences = SENTENCE.split(block)
            first = not any(slide.kind == "text" for slide in slides)
            said = " ".join(sentences[:2] if block.startswith("**") else sentences[:1])
            if slides and slides[-1].kind == "title" and block.startswith("*"):
                slides[-1] = replace(slides[-1], body=f"{slides[-1].body}<p>{_inline(block)}</p>")
            elif (first or block.startswith("**")) and said.endswith((".", "?", "!")) and len(said) <= LETTERS:
                slides.append(Slide("", f"<p>{_inline(said)}</p>", "text"))
            lead = sentences[-1]
        else:
            slides += _of_block(kind, block, lead)
    if slides:
        slides[0] = replace(slides[0], notes=_rendered(text))
    return [replace(slide, heading=_inline(heading)) for slide in slides]


def _of_block(kind: str, block: str, lead: str) -> Iterator[Slide]:
    """Slides of a formula, a list, a table or code in the text; the sentence before introduces the first of them."""
    introduces = kind == "formula" or not lead.endswith((".", "?", "!"))
    above = f"<p>{_inline(lead)}</p>" if lead and introduces else ""
    if kind == "formula":
        lines = [line.strip().rstrip(",") for line in block.strip("$").split("\\qquad")]  # beside each other on a page
        yield Slide("", f"{above}<div>{html.escape(''.join(f'$${line}$$' for line in lines))}</div>", "text")
    elif kind == "list":
        items = [SENTENCE.split(item) for item in re.split(r"^(?:[-*]|\d+\.) ", block, flags=re.MULTILINE) if item]
        short = [" ".join(parts[:2] if parts[0].endswith(":") else parts[:1]).strip() for parts in items]
        for number, part in enumerate(_that_fit(short, lambda item: -(-len(item) // LETTERS_IN_LINE), LINES)):
            shown = "".join(f"<li>{_inline(item.rstrip(';,'))}</li>" for item in part)
            yield Slide("", f"{'' if number else above}<ul>{shown}</ul>", "text")
    elif kind == "table":
        head, _, *rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in block.splitlines()]
        yield from _of_table([_inline(name) for name in head], [[_inline(cell) for cell in row] for row in rows])
    elif kind == "code":
        lines = [part for line in block.splitlines() for part in _wrapped(line)]
        yield from (Slide("", _code(part), "code") for part in _parts(lines, CODE_LINES))


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Cut Markdown into its blocks, each with its kind; a formula stays as it was written."""
    for part in re.split(r"(\$\$.+?\$\$|^```.*?^```$)", text, flags=re.DOTALL | re.MULTILINE):
        if part.startswith("$$"):
            yield "formula", part
        elif part.startswith("```"):
            yield "code", "\n".join(part.splitlines()[1:-1])
        else:
            for block in re.split(r"\n\s*\n", part.strip()):
                lines = [line for line in block.splitlines() if not line.startswith("##")]
                if lines and lines[0].startswith("# "):
                    yield "title", lines[0].removeprefix("# ")
                    lines = lines[1:]
                if not lines:
                    continue
                kind = "list" if re.match(r"[-*] |\d+\. ", lines[0]) else "paragraph"
                if lines[0].startswith("|"):
                    yield "table", "\n".join(lines)
                elif not lines[0].startswith(("!", "<")):
                    yield kind, "\n".join(line.strip() for line in lines) if kind == "list" else " ".join(lines)


def _of_code(cell: NotebookNode) -> list[Slide]:
    """A cell's code with what it printed, its charts and tables, and what it found to be true."""
    code = [part for line in _shown_code(cell.source) for part in _wrapped(line)]
    printed, claims, shown = [], [], []
    for output in cell.outputs:
        data = output.get("data", {})
        if "image/png" in data:
            words = html.escape(output.get("metadata", {}).get("image/png", {}).get("alt", ""))
            picture = "".join(data["image/png"].split())
            body = f'<img alt="{words}" src="data:image/png;base64,{picture}">'
            shown.append(Slide("", body, "chart", f"<p>{words}</p>"))
        elif "dataframe" in "".join(data.get("text/html", "")):
            shown += _of_frame("".join(data["text/html"]))
        elif "text/html" not in data and "application/vnd.jupyter.widget-view+json" not in data:
            for line in "".join(output.get("text", data.get("text/plain", ""))).strip("\n").splitlines():
                claims.append(line) if line.startswith(CLAIM) else printed.extend(_wrapped(line))
    slides = []
    if len(code) > CODE_LINES or (claims and not printed and not shown):
        code = []  # what only prepares a claim is not worth a slide
    if code and len(code) + len(printed) <= CODE_LINES + 3:
        below = f"<pre>{html.escape(chr(10).join(printed))}</pre>" if printed else ""
        slides.append(Slide("", f"{_code(code)}{below}", "code"))
    else:
        slides += [Slide("", _code(code), "code")] if code else []
        for part in _parts(printed, CODE_LINES + 3):
            slides.append(Slide("", f"<pre>{html.escape(chr(10).join(part))}</pre>", "output"))
    slides += shown
    for part in _that_fit(claims, lambda claim: -(-len(claim) // LETTERS_IN_LINE), LINES):
        slides.append(Slide("", f"<ul>{''.join(f'<li>{html.escape(one)}</li>' for one in part)}</ul>", "found"))
    if slides:
        slides[0] = replace(slides[0], notes=f"<pre>{html.escape(cell.source)}</pre>{slides[0].notes}")
    return slides


def _shown_code(source: str) -> list[str]:
    """Code without imports, assertions and claims."""
    try:
        statements = ast.parse(source).body
    except SyntaxError:  # a magic of IPython: as it is
        return source.splitlines()
    lines, shown, begin = source.splitlines(), [], 0
    for statement in statements:
        own = lines[begin : statement.end_lineno]  # with the comments and blank lines above it
        begin = statement.end_lineno
        shown += [] if _is_hidden(statement) else own
    return "\n".join(shown).strip("\n").splitlines()


def _is_hidden(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Import | ast.ImportFrom | ast.Assert):
        return True
    called = statement.value.func if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) else None
    return isinstance(called, ast.Attribute) and called.attr in HIDDEN


def _of_frame(text: str) -> Iterator[Slide]:
    """A table of pandas, as many rows and columns at a time as fit; its first column is on each slide."""
    from bs4 import BeautifulSoup

    table = BeautifulSoup(text, "html.parser").table
    head, *names = [[cell.get_text(strip=True) for cell in row.find_all("th")] for row in table.thead.find_all("tr")]
    for row in names:  # the name of the index stands in a row of its own
        head = [above or below for above, below in zip(head, row, strict=False)]
    rows = [[cell.get_text(strip=True) for cell in row.find_all(["th", "td"])] for row in table.tbody.find_all("tr")]
    if [row[0] for row in rows] == [str(number) for number in range(len(rows))]:  # rows are counted, not named
        head, rows = head[1:], [row[1:] for row in rows]
    yield from _of_table([html.escape(name) for name in head], [[html.escape(cell) for cell in row] for row in rows])


def _of_table(head: list[str], rows: list[list[str]]) -> Iterator[Slide]:
    widths = [max(min(len(cell), 30) for cell in column) + 3 for column in zip(head, *rows, strict=False)]
    groups, group = [], [0]
    for place in range(1, len(widths)):
        if len(group) > 1 and sum(widths[n] for n in [*group, place]) > TABLE_WIDTH:
            groups.append(group)
            group = [0]
        group.append(place)
    for columns in [*groups, group]:
        share = {n: TABLE_WIDTH * widths[n] / sum(widths[k] for k in columns) for n in columns}

        def lines_of(row: list[str], columns=columns, share=share) -> int:
            return max(-(-len(re.sub("<[^>]+>", "", row[n])) // max(1, int(share[n]))) for n in columns)

        yield from (_table(head, part, columns) for part in _that_fit(rows, lines_of, ROWS))


def _table(head: list[str], rows: list[list[str]], columns: list[int]) -> Slide:
    names = "".join(f"<th>{head[n]}</th>" for n in columns)
    cells = "".join("<tr>" + "".join(f"<td>{row[n]}</td>" for n in columns) + "</tr>" for row in rows)
    return Slide("", f"<table><thead><tr>{names}</tr></thead><tbody>{cells}</tbody></table>", "table")


def _that_fit(things: list, lines_of: Callable[..., int], most: int) -> Iterator[list]:
    """As many things at a time as have no more lines together; one that has more is alone."""
    part: list = []
    for thing in things:
        if part and sum(max(1, lines_of(one)) for one in [*part, thing]) > most:
            yield part
            part = []
        part.append(thing)
    if part:
        yield part


def _parts(lines: list[str], most: int) -> Iterator[list[str]]:
    yield from (lines[begin : begin + most] for begin in range(0, len(lines), most))


def _wrapped(line: str) -> list[str]:
    """A line that is wider than a slide goes on below."""
    return [line[begin : begin + CODE_WIDTH] for begin in range(0, len(line), CODE_WIDTH)] or [""]


def _code(lines: list[str]) -> str:
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    # Colours stand in the page itself; the pale ones of the usual style cannot be read on a projector.
    return highlight("\n".join(lines).strip("\n"), PythonLexer(), HtmlFormatter(noclasses=True, style="a11y-light"))


def _rendered(text: str) -> str:
    from markdown_it import MarkdownIt
    from mdit_py_plugins.dollarmath import dollarmath_plugin

    markdown = MarkdownIt("commonmark").enable("table")
    markdown.use(dollarmath_plugin, renderer=lambda content, options: html.escape(content))
    for kind, (opens, closes) in {"math_inline": ("\\(", "\\)"), "math_block": ("$$", "$$")}.items():
        markdown.add_render_rule(
            kind,
            lambda _, tokens, place, options, env, opens=opens, closes=closes: (
                f"{opens}{html.escape(tokens[place].content)}{closes}"
            ),
        )
    return markdown.render(re.sub(r"!\[([^\]]*)\]\([^)]*\)", r"\1", text))  # of a picture its words


def _inline(text: str) -> str:
    """A sentence of Markdown as HTML, without a paragraph around it; links are their words."""
    rendered = _rendered(re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", text)).strip()
    return rendered.removeprefix("<p>").removesuffix("</p>")
