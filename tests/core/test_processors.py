"""The default number of threads of a process."""

from pathlib import Path

import pytest

from dovetail.core import processors
from dovetail.core.processors import default_threads, quotas
from dovetail.errors import InputError


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "200000 100000\n"}, [2.0]),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, []),
        ({"proc/self/cgroup": "0::/\n"}, []),
        (
            {
                "proc/self/cgroup": "0::/kubepods/pod-1/box\n",
                "sys/fs/cgroup/kubepods/cpu.max": "max 100000\n",
                "sys/fs/cgroup/kubepods/pod-1/cpu.max": "150000 100000\n",
                "sys/fs/cgroup/kubepods/pod-1/box/cpu.max": "50000 100000\n",
            },
            [1.5, 0.5],
        ),
        # The path on the host; only the container's own part is mounted.
        ({"proc/self/cgroup": "0::/../pod-1/box\n", "sys/fs/cgroup/cpu.max": "300000 100000\n"}, [3.0]),
        (
            {
                "proc/self/cgroup": "9:memory:/box\n4:cpu,cpuacct:/box\n0::/\n",
                "sys/fs/cgroup/cpu/box/cpu.cfs_quota_us": "400000\n",
                "sys/fs/cgroup/cpu/box/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            [4.0],
        ),
        ({}, []),
    ],
)
def test_quotas_of_control_groups(files: dict[str, str], expected: list[float], tmp_path: Path) -> None:
    assert list(quotas(write(tmp_path, files))) == expected


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, 6),
        ({"OMP_NUM_THREADS": "1"}, 1),
        ({"OMP_NUM_THREADS": "3,2"}, 3),
        ({"OMP_NUM_THREADS": "many"}, 6),
        ({"DOVETAIL_THREADS": "4", "OMP_NUM_THREADS": "1"}, 4),
        ({"DOVETAIL_THREADS": " "}, 6),
    ],
)
def test_variables(variables: dict[str, str], expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processors, "processors", lambda: 6)
    for name in ("DOVETAIL_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert default_threads() == expected


@pytest.mark.parametrize("wrong", ["0", "two", "-1", "1.5"])
def test_a_wrong_variable_is_refused(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_THREADS", wrong)
    with pytest.raises(InputError, match="DOVETAIL_THREADS is a number of threads"):
        default_threads()
