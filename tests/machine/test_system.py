"""What some systems lack is asked for in one module, and the main job runs without it."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from support.places import REPOSITORY
from topdown.machine import files, memory, system

ABSENT_ON_WINDOWS = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}
ABSENT_NAMES = {
    "os": {
        *("fork", "forkpty", "fchmod", "fchown", "chown", "lchown", "getuid", "geteuid", "getgid", "getegid", "setuid"),
        *("setgid", "killpg", "getpgid", "setsid", "mkfifo", "mknod", "nice", "sysconf", "statvfs", "uname", "ttyname"),
        *(
            "openpty",
            "pread",
            "pwrite",
            "sched_getaffinity",
            "O_NOFOLLOW",
            "O_CLOEXEC",
            "O_DIRECTORY",
            "wait3",
            "wait4",
        ),
    },
    "signal": {
        *("SIGKILL", "SIGALRM", "SIGHUP", "SIGPIPE", "SIGUSR1", "SIGUSR2", "SIGCHLD", "alarm", "setitimer", "pause"),
        *("pthread_sigmask", "sigwait"),
    },
}


def posix_only(source: str) -> list[str]:
    """What ``source`` imports or names that Windows lacks."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] in ABSENT_ON_WINDOWS]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ABSENT_ON_WINDOWS:
            found.append(str(node.module))
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found += [ast.unparse(node)] if node.attr in ABSENT_NAMES.get(node.value.id, ()) else []
    return found


def test_what_windows_lacks_is_asked_for_in_one_module() -> None:
    assert posix_only("import fcntl, os\nfrom resource import getrlimit\nos.fork()\nos.open(x)") == [
        "fcntl", "resource", "os.fork"
    ]  # fmt: skip
    found = {path.relative_to(REPOSITORY).as_posix() for path in (REPOSITORY / "topdown").rglob("*.py")
             if posix_only(path.read_text(encoding="utf-8"))}  # fmt: skip
    assert found == {"topdown/machine/system.py"}


WITHOUT = """
import os, signal, sys
import cvxpy, filelock, multiprocessing.context, numpy, pandas, psutil, pyarrow.csv, pyarrow.parquet, scipy.stats
for name in {modules!r}:
    sys.modules[name] = None
for module, names in ((os, {os!r}), (signal, {signal!r})):
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
from topdown.machine import system
assert system.resource is system.fcntl is None
system._HAS_RIGHTS = False
from topdown.entry import main
main()
"""


@pytest.mark.parametrize("again", [False, True])
def test_the_main_job_runs_where_these_are_missing_and_says_what_is_weaker(toy_run: Path, again: bool) -> None:
    # Libraries need some of these here, while they are loaded and after; on Windows they have others.
    names = {module: sorted(names - {"O_CLOEXEC", "fchmod", "fork", "uname"}) for module, names in ABSENT_NAMES.items()}
    program = WITHOUT.format(modules=sorted(ABSENT_ON_WINDOWS - {"posix"}), **names)
    for _ in range(1 + again):
        done = subprocess.run(
            [sys.executable, "-c", program, "run", str(toy_run)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "on this system Topdown cannot protect files from other users" in done.stdout.replace("\n", " ")
    assert (toy_run.parent / "output" / "public" / "manifest.json").is_file()


COMMAND = """
import os, sys, types
sys.modules["topdown.cli"] = types.SimpleNamespace(main=lambda: print(os.environ["OPENBLAS_NUM_THREADS"]))
from topdown.entry import main
main()
"""


@pytest.mark.parametrize(("given", "expected"), [(None, "1"), ("3", "3")], ids=["left alone", "given"])
def test_the_command_keeps_linear_algebra_to_one_thread_where_nothing_else_is_asked(
    given: str | None, expected: str
) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    environment |= {} if given is None else {"OPENBLAS_NUM_THREADS": given}
    done = subprocess.run([sys.executable, "-c", COMMAND], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected


def test_here_nothing_is_weaker() -> None:
    assert system.weaker_promises() == ()


def test_without_rights_folders_are_neither_closed_nor_synced_and_files_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(system, "_HAS_RIGHTS", False)
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.readlink(f"/proc/self/fd/{handle}")))
    with files.whole_file(tmp_path / "a") as partial:
        partial.write_text("x")
    tmp_path.chmod(0o755)
    files.make_folder(tmp_path, private=True)
    system.sync_folder(tmp_path)
    assert (tmp_path / "a").read_text() == "x"
    assert synced == [str(tmp_path / "a.partial")]
    assert tmp_path.stat().st_mode & 0o777 == 0o755
    assert len(system.weaker_promises()) == 2


def test_a_folder_takes_the_name_of_an_empty_one_also_where_a_rename_does_not_replace_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    def as_on_windows(self: Path, target: Path) -> Path:
        if target.exists():
            raise FileExistsError(17, "exists")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", as_on_windows)
    monkeypatch.setattr(system, "_HAS_RIGHTS", False)
    (tmp_path / "public").mkdir()
    with files.whole_folder(tmp_path / "public") as staging:
        (staging / "a").write_text("x")
    assert (tmp_path / "public" / "a").is_file()
    with pytest.raises(FileExistsError), files.whole_folder(tmp_path / "public"):
        pass
    assert (tmp_path / "public" / "a").is_file()


@pytest.mark.parametrize("works", [True, False])
def test_where_a_drive_has_a_cache_of_its_own_it_is_emptied(
    tmp_path: Path, works: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def full(_: int, command: int) -> None:
        asked.append(command)
        if not works:
            raise OSError(25, "no such call")

    monkeypatch.setattr(system, "fcntl", SimpleNamespace(F_FULLFSYNC=51, fcntl=full))
    monkeypatch.setattr(os, "fsync", lambda _: asked.append("fsync"))
    (tmp_path / "a").write_text("x")
    system.sync_file(tmp_path / "a")
    assert asked == ([51] if works else [51, "fsync"])


def test_memory_is_known_without_what_windows_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    held = memory.held_memory()
    assert held > 1 << 24
    monkeypatch.setattr(system, "resource", None)
    assert system.address_space_limit() is None
    assert memory.address_space_left() is None
    available = memory.available_memory()
    assert available is not None
    assert available > 1 << 20


LEAVING = """
import atexit, sys, types
class Slow:
    def __del__(self): print("taken apart")
kept = Slow()
def command():
    atexit.register(lambda: print("tidied"))
    sys.stdout.write("said ")
    raise SystemExit({code})
sys.modules["topdown.cli"] = types.SimpleNamespace(main=command)
from topdown.entry import main
main()
"""


@pytest.mark.parametrize(("code", "expected"), [("0", 0), ("None", 0), ("3", 3), ("'why'", 1)])
def test_the_command_ends_with_its_code_and_all_it_said_and_takes_nothing_apart(code: str, expected: int) -> None:
    program = LEAVING.format(code=code)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (expected, "said tidied\n", "")
