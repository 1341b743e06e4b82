"""The doctor finds what is broken, and says what to do."""

import hashlib
import json

import pytest

import tlkit.commands.doctor as doctor
from tlkit.cli import main


def test_a_whole_installation_is_ok(capsys):
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("] ")[1].split(":")[0] for line in lines] == list(doctor.CHECKS)
    assert all(line.startswith("[OK]") for line in lines), lines


def test_what_is_wrong_is_named_with_its_fix(monkeypatch, capsys):
    def broken():
        raise RuntimeError("planted")

    checks = {"corpus": broken, "packages": doctor.packages}
    monkeypatch.setattr(doctor, "CHECKS", checks)
    assert main(["doctor", "--json"]) == 1
    corpus, packages = json.loads(capsys.readouterr().out)
    assert corpus == {"check": "corpus", "status": "FAIL", "found": "RuntimeError: planted", "fix": doctor.INSTALL}
    assert packages["status"] == "OK", "one broken check does not stop the others"


def test_altered_data_is_found_by_its_hash(monkeypatch, tmp_path):
    lines = []
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(name)
        lines.append(f"{hashlib.sha256(name.encode()).hexdigest()}  {name}\n")
    (tmp_path / "SHA256SUMS").write_text("".join(lines))
    monkeypatch.setattr(doctor, "DATA", tmp_path)
    assert doctor.data()[:2] == ("OK", "2 files, hashes as recorded")
    for damage in (lambda file: file.write_text("x"), lambda file: file.unlink()):
        damage(tmp_path / "b.txt")
        assert doctor.data() == ("FAIL", "missing or altered: b.txt", doctor.MEND_DATA)


@pytest.mark.parametrize(("version", "status"), [("0.1", "WARN"), ("2.13.0+cu126", "OK")])
def test_a_version_outside_of_the_bounds_is_a_warning(version, status, monkeypatch):
    real = doctor.metadata.version
    monkeypatch.setattr(doctor.metadata, "version", lambda name: version if name == "torch" else real(name))
    found, words, *_ = doctor.packages()
    assert found == status and (status == "OK" or "torch 0.1" in words)


def test_what_is_missing_is_named(monkeypatch):
    def gone(name):
        raise doctor.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor.metadata, "version", gone)
    status, words, fix = doctor.packages()
    assert status == "FAIL" and "torch" in words and "pip install" in fix
    monkeypatch.setattr(doctor, "LEAST_MEMORY", 1e18)
    assert doctor.device()[0] == "WARN" and "close other programs" in doctor.device()[2]


def test_a_kernel_of_another_python_is_a_warning(monkeypatch):
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    class Spec:
        argv = ["/elsewhere/python"]

    monkeypatch.setattr(KernelSpecManager, "get_kernel_spec", lambda self, name: Spec)
    assert doctor.kernel() == ("WARN", "notebooks run /elsewhere/python", doctor.KERNEL)

    def none(self, name):
        raise NoSuchKernel(name)

    monkeypatch.setattr(KernelSpecManager, "get_kernel_spec", none)
    assert doctor.kernel()[0] == "FAIL"
