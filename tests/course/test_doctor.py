"""The doctor finds what is broken, and says what to do."""

import json
import sys

import pytest

import tlkit.doctor as doctor
from tlkit.cli import main


def test_a_whole_installation_is_ok(capsys):
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("] ")[1].split(":")[0] for line in lines] == list(doctor.CHECKS)
    assert all(line.startswith("[OK]") for line in lines), lines


def test_what_is_wrong_is_named_with_its_fix(monkeypatch, capsys):
    def broken(name):
        raise RuntimeError("planted")

    monkeypatch.setitem(doctor.CHECKS, "corpus", (broken, "do this"))
    assert main(["doctor", "--json"]) == 1
    found = {row["check"]: row for row in json.loads(capsys.readouterr().out)}
    assert found["corpus"] == {"check": "corpus", "status": "FAIL", "found": "RuntimeError: planted", "fix": "do this"}
    assert found["rust corpus"]["status"] == "OK", "one broken check does not stop the others"


@pytest.mark.parametrize(("change", "said"), [(lambda p: p.unlink(), "b.txt"), (lambda p: p.write_text("x"), "b.txt")])
def test_altered_data_is_found_by_its_hash(monkeypatch, tmp_path, change, said):
    import hashlib

    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text(name)
    sums = [f"{hashlib.sha256((folder / n).read_bytes()).hexdigest()}  {n}" for n in ("a.txt", "b.txt")]
    (folder / "SHA256SUMS").write_text("\n".join(sums) + "\n")
    monkeypatch.setattr(doctor, "DATA", folder)
    assert doctor.data("data").status == "OK"
    change(folder / "b.txt")
    assert doctor.data("data").status == "FAIL" and said in doctor.data("data").found
    assert "git checkout" in doctor.data("data").fix


@pytest.mark.parametrize(("version", "status"), [("0.1", "WARN"), ("2.13.0+cu126", "OK")])
def test_a_version_outside_of_the_bounds_is_a_warning(version, status, monkeypatch):
    real = doctor.metadata.version
    monkeypatch.setattr(doctor.metadata, "version", lambda name: version if name == "torch" else real(name))
    finding = doctor.packages("packages")
    assert finding.status == status and (status == "OK" or "torch 0.1" in finding.found)


def test_requirements_are_known_without_the_repository_too(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "ROOT", tmp_path)
    monkeypatch.setattr(doctor.metadata, "requires", lambda _: ["torch>=2.9", 'voila>=0.5; extra == "demo"'])
    assert doctor.needed() == ["torch>=2.9"] and doctor.packages("packages").status == "OK"


def test_missing_packages_are_named(monkeypatch):
    def gone(name):
        raise doctor.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor.metadata, "version", gone)
    found = doctor.packages("packages")
    assert found.status == "FAIL" and "torch" in found.found and "pip install" in found.fix
    assert doctor.extras("extras").status == "WARN" and "no qlora" in doctor.extras("extras").found


def test_too_little_memory_or_disk_is_a_warning(monkeypatch):
    monkeypatch.setattr(doctor, "LEAST_MEMORY", 1e18)
    monkeypatch.setattr(doctor, "LEAST_DISK", 1e18)
    assert doctor.memory("memory").status == doctor.disk("disk").status == "WARN"
    assert "close other programs" in str(doctor.memory("memory"))


def test_a_kernel_of_another_python_is_a_warning(monkeypatch):
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    class Spec:
        argv = ["/elsewhere/python"]

    monkeypatch.setattr(KernelSpecManager, "get_kernel_spec", lambda self, name: Spec)
    assert doctor.kernel("kernel").status == "WARN" and "/elsewhere/python" in doctor.kernel("kernel").found

    def none(self, name):
        raise NoSuchKernel(name)

    monkeypatch.setattr(KernelSpecManager, "get_kernel_spec", none)
    assert doctor.kernel("kernel").status == "FAIL"


def test_an_old_python_and_missing_widgets(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 9, 1))
    assert doctor.python("python").status == "FAIL"
    monkeypatch.undo()
    monkeypatch.setattr("jupyter_core.paths.jupyter_path", lambda *names: [])
    assert doctor.widgets("widgets").status == "WARN" and "as text" in doctor.widgets("widgets").found
