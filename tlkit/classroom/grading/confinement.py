"""Where students' code runs: a process of its own, in a scratch folder, behind what walls the system has.

Everywhere: a reduced environment, and limits of time, memory and processes, which a watcher outside keeps. On Unix the
system keeps the limits of memory and of a file's size itself. On Linux, where an unprivileged user may make namespaces,
there is no network either, nothing outside of the scratch folder can be written, and no process is left behind.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

# What each wall keeps out, in words for a report.
WALLS = {
    "network": "had no network",
    "files": "could write only into a scratch folder",
    "processes": "could leave no process behind",
}
TRIED = (("network", "files", "processes"), ("network", "files"), ("network",), ())
KEPT = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "TLKIT_DEVICE")
KEPT += ("SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT")  # without these no program starts on Windows
LARGEST_FILE = 256 * 2**20  # bytes that a notebook may write into one file, and into all its messages
BETWEEN_LOOKS = 0.25  # seconds

_NEWNS, _NEWUSER, _NEWPID, _NEWNET = 0x00020000, 0x10000000, 0x20000000, 0x40000000
_BIND, _RECURSIVE, _PRIVATE = 0x1000, 0x4000, 0x40000
_MOUNT_SETATTR, _HERE, _ALL_BELOW, _READ_ONLY = 442, -100, 0x8000, 1
_DEATH_SIGNAL, _DROP_CAPABILITY, _NO_NEW_PRIVILEGES = 1, 24, 38


@dataclass(frozen=True)
class Limits:
    """What one notebook may take: seconds of time, bytes of memory, and processes."""

    seconds: float = 600
    memory: float = 4e9
    processes: int = 64

    @property
    def cell_seconds(self) -> float:
        """What one cell may take, so that the exercises behind one that never ends have their turn."""
        return self.seconds / 5


@dataclass(frozen=True)
class Ended:
    """What a confined program has said on stdout and stderr, and in words how it ended."""

    said: str
    complaints: str
    how: str


def run_confined(program: str, given: bytes, scratch: Path, limits: Limits, *, threads: int | None = None) -> Ended:
    """Run a Python program in a scratch folder; whatever it has started ends with it.

    Args:
        program: Python code; it calls `confine_here` first.
        given: what it reads from stdin.
        scratch: the only folder that it needs to write to.
        limits: of time, memory and processes.
        threads: that it computes on (None: as many as it likes).

    Raises:
        OSError: where no process can be started.
    """
    environment = _reduced_environment(scratch) | ({} if threads is None else {"OMP_NUM_THREADS": str(threads)})
    with TemporaryFile() as said, TemporaryFile() as complaints, TemporaryFile() as handed:
        handed.write(given)
        handed.seek(0)
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=handed,
            stdout=said,
            stderr=complaints,
            cwd=scratch,
            env=environment,
            start_new_session=True,
        )
        try:
            how = _watch(process, limits)
        finally:
            _end(process)
        return Ended(_text(said), _text(complaints), how)


@cache
def walls_here() -> tuple[str, ...]:
    """The walls that this system allows (see `WALLS`), found by trying them."""
    for walls in TRIED if sys.platform == "linux" else ():
        with TemporaryDirectory() as folder:
            here = str(Path(folder).resolve())
            program = (
                f"from tlkit.classroom.grading.confinement import confine_here; confine_here({here!r}, {walls!r}, 1e9)"
            )
            done = subprocess.run(
                [sys.executable, "-c", program],
                env=_reduced_environment(Path(here)),
                stdin=subprocess.DEVNULL,
                capture_output=True,
            )
        if done.returncode == 0:
            return walls
    return ()


def described(walls: Sequence[str], limits: Limits) -> str:
    """Say in one sentence how notebooks were kept apart, and in a second one what this system did not allow."""
    limit = f"{limits.seconds:g} s and {limits.memory / 1e9:g} GB of memory"
    kept = [f"had {limit} at most", *(WALLS[wall] for wall in walls)]
    text = f"Each notebook ran in a process of its own, {_listed(kept)}."
    missing = [words for wall, words in WALLS.items() if wall not in walls]
    if missing:
        said = _listed(missing, "or")
        text += f" This system does not let an ordinary user make sure that a notebook {said}; a container does."
    return text


def confine_here(scratch: str, walls: Sequence[str], memory: float) -> None:
    """Put this process behind walls; called first in it, before anything has made a thread.

    With "processes" among the walls, this process only waits from here on, and a child of it goes on.

    Args:
        scratch: the only folder that can be written afterwards.
        walls: of `WALLS`, those that `walls_here` has found.
        memory: bytes.

    Raises:
        OSError: where the system does not allow one of them.
    """
    if sys.platform == "win32":
        return
    import resource

    for limit, value in (("RLIMIT_DATA", int(memory)), ("RLIMIT_FSIZE", LARGEST_FILE), ("RLIMIT_CORE", 0)):
        with suppress(ValueError, OSError):  # a harder limit is there already, or the system has none of this kind
            resource.setrlimit(getattr(resource, limit), (value, value))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # too large a file is an OSError in the cell, not the end
    if not walls:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    kinds = {"network": _NEWNET, "files": _NEWNS, "processes": _NEWPID}
    _must(libc.unshare(_NEWUSER | sum(kinds[wall] for wall in walls)), "new namespaces")
    Path("/proc/self/setgroups").write_text("deny", encoding="utf-8")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="utf-8")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="utf-8")
    if "processes" in walls:
        _go_on_in_a_child(libc)
    if "files" in walls:
        _write_only(libc, scratch, own_processes="processes" in walls)
    _give_up_rights(libc)


def _go_on_in_a_child(libc: ctypes.CDLL) -> None:
    """Only a child is in the new namespace; it is killed with this process, and everything that it started with it."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        os._exit(code if code >= 0 else 128 - code)
    _must(libc.prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0), "a signal at the parent's end")


def _write_only(libc: ctypes.CDLL, scratch: str, *, own_processes: bool) -> None:
    class Attributes(ctypes.Structure):
        _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "user")]

    def change(path: str, below: int, attributes: Attributes) -> None:
        size = ctypes.sizeof(attributes)
        done = libc.syscall(_MOUNT_SETATTR, _HERE, path.encode(), below, ctypes.byref(attributes), size)
        _must(done, f"other rights for {path}")

    _must(libc.mount(None, b"/", None, _RECURSIVE | _PRIVATE, None), "mounts of its own")
    _must(libc.mount(scratch.encode(), scratch.encode(), None, _BIND, None), "a mount of the scratch folder")
    if own_processes:  # with the old one, a process would look up itself under the number of another
        _must(libc.mount(b"proc", b"/proc", b"proc", 0, None), "a /proc of its own")
    change("/", _ALL_BELOW, Attributes(set=_READ_ONLY))
    change(scratch, 0, Attributes(clear=_READ_ONLY))
    os.chdir(scratch)  # by its new mount; the old one can no longer be written


def _give_up_rights(libc: ctypes.CDLL) -> None:
    """In a namespace of its own a process may do everything, open the walls, too: it gives that up for good."""
    _must(libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0), "no new privileges")
    for capability in range(64):
        libc.prctl(_DROP_CAPABILITY, capability, 0, 0, 0)  # those beyond the last one are refused
    header, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    _must(libc.capset(header, none), "no capabilities")


def _must(code: int, what: str) -> None:
    if code:
        raise OSError(ctypes.get_errno(), f"this system does not allow {what}")


def _watch(process: subprocess.Popen, limits: Limits) -> str:
    """Wait until a process ends, or has taken too much, and say which."""
    import psutil

    until = time.monotonic() + limits.seconds
    while time.monotonic() < until:
        with suppress(subprocess.TimeoutExpired):
            return f"Python ended before (exit code {process.wait(BETWEEN_LOOKS)})"
        memory = count = 0
        with suppress(psutil.Error):  # it has just ended
            mother = psutil.Process(process.pid)
            for one in (mother, *mother.children(recursive=True)):
                with suppress(psutil.Error):
                    memory, count = memory + one.memory_info().rss, count + 1
        if memory > limits.memory:
            return f"the notebook took more than {limits.memory / 1e9:g} GB of memory"
        if count > limits.processes:
            return f"the notebook started more than {limits.processes} processes"
    return f"the notebook took more than {limits.seconds:g} s"


def _end(process: subprocess.Popen) -> None:
    """End a notebook's process, and those that it has started, as far as the system still knows whose they are."""
    import psutil

    with suppress(psutil.Error):
        for one in psutil.Process(process.pid).children(recursive=True):  # also those in a session of their own
            with suppress(psutil.Error):
                one.kill()
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError):  # all of them have ended
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()


def _reduced_environment(scratch: Path) -> dict[str, str]:
    """Nobody's tokens, caches or home: only what starts Python, and finds the copy of tlkit before any other."""
    root, here = str(Path(__file__).resolve().parents[3]), str(Path.cwd())
    found = [place for place in sys.path if place not in ("", here)]  # in this folder students' own modules may lie
    places = [str(scratch), *found, root]
    own = dict.fromkeys(("HOME", "USERPROFILE", "IPYTHONDIR", "MPLCONFIGDIR", "TMPDIR", "TEMP", "TMP"), str(scratch))
    own |= {"PYTHONPATH": os.pathsep.join(places), "MPLBACKEND": "agg", "HF_HUB_OFFLINE": "1"}
    own |= {"TLKIT_PROGRESS": "off"}
    return {name: os.environ[name] for name in KEPT if name in os.environ} | own


def _text(file) -> str:
    file.seek(0)
    return file.read(LARGEST_FILE).decode(errors="replace")


def _listed(words: Sequence[str], last: str = "and") -> str:
    *most, end = words
    return f"{', '.join(most)} {last} {end}" if most else end
