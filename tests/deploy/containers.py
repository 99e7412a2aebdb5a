"""The services of docker-compose.yml as processes of this machine.

Each service has a folder as its root. Volumes and files of the repository are below it, where the
compose file mounts them, and paths below a mount in commands and variables point there. Names of
other services become addresses of this machine. As root, read-only root file systems and dropped
capabilities are applied as well. Nothing else changes.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path

from tests.deploy.composed import ROOT, SERVICES, mounts
from tests.end_to_end.programs import Programs, recalib_command, until

__all__ = ["Containers", "can_confine", "free_port"]

#: Separate mounts: only the folders before -- are writable.
_CONFINED = r"""
set -e
mount --make-rprivate /
writable=" "
while [ "$1" != -- ]; do mount --bind "$1" "$1"; writable="$writable$1 "; shift; done
while read -r _ target _; do
    case "$target" in /dev*|/proc*|/sys*) continue ;; esac
    case "$writable" in *" $target "*) ;; *) mount -o remount,bind,ro "$target" ;; esac
done < /proc/self/mounts
shift
# The retained capability lets root read the folder of the tests' PostgreSQL, owned by another user.
exec setpriv $GROUPS_OPTION --no-new-privs --bounding-set=-all,+dac_override --inh-caps=-all -- "$@"
"""


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe_socket:
        probe_socket.bind(("127.0.0.1", 0))
        return int(probe_socket.getsockname()[1])


@cache
def can_confine() -> bool:
    """Return whether this machine permits a read-only file system for one program."""
    tools = [shutil.which(name) for name in ("bash", "mount", "setpriv", "unshare")]
    if os.geteuid() != 0 or None in tools:
        return False
    command = ["unshare", "--mount", "mount", "-o", "remount,bind,ro", "/"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


class Containers:
    """Services of the compose file on this machine.

    Parameters
    ----------
    addresses: replacements of addresses, such as ``{"http://s3:8333": "http://127.0.0.1:4711"}``.
    """

    def __init__(self, folder: Path, programs: Programs, addresses: dict[str, str]) -> None:
        self.folder = folder
        self.addresses = addresses
        self._programs = programs
        self._started: list[subprocess.Popen[bytes]] = []

    def volume(self, name: str) -> Path:
        """Return the folder of a volume."""
        folder = self.folder / "volumes" / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def run(self, service: str, command: list[str] | None = None) -> str:
        """Run a service, or another command in its place, to its end; return its output."""
        process = subprocess.run(
            self.confined(service, self._words(service, command)),
            env=self._environment(service),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert process.returncode == 0, f"{service}: {process.stdout}{process.stderr}"
        return process.stdout

    def start(self, service: str) -> subprocess.Popen[bytes]:
        """Start a service; its output goes to a file of its name."""
        with (self.folder / f"{service}.log").open("wb") as log:
            process = subprocess.Popen(
                self.confined(service, self._words(service, None)),
                env=self._environment(service),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._started.append(process)
        return process

    def until_healthy(self, service: str) -> None:
        """Run the health check until it succeeds."""
        _, *words = SERVICES[service]["healthcheck"]["test"]
        command, output = self._program(service, words), ""

        def look() -> bool:
            nonlocal output
            process = subprocess.run(
                command,
                env=self._environment(service),
                capture_output=True,
                text=True,
                check=False,
            )
            output = process.stdout + process.stderr
            return process.returncode == 0

        try:
            until(look, f"{service} to be healthy")
        except AssertionError as error:
            log = (self.folder / f"{service}.log").read_text()
            raise AssertionError(f"{error}: {output}\n{log[-4000:]}") from None

    def clean_up(self) -> None:
        """End all remaining services; `Programs` ends their children."""
        for process in self._started:
            process.kill()
            process.wait()

    def localized(self, service: str, text: str) -> str:
        """Return a word or a value with paths and hosts of this machine."""
        for name, address in self.addresses.items():
            text = text.replace(name, address)
        root = self.folder / "roots" / service
        for source, target, _ in mounts(service):
            place = root / target.removeprefix("/")
            if not place.exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                place.symlink_to(ROOT / source if source[0] == "." else self.volume(source))
        # Whole words only: /prometheus is a mount and part of /etc/prometheus.
        tops = {f"/{target.split('/')[1]}" for _, target, _ in mounts(service)}
        head, _, path = text.rpartition("=")
        place = f"{root}{path}" if path[:1] == "/" and f"/{path.split('/')[1]}" in tops else path
        return f"{head}={place}" if head else place

    def confined(self, service: str, words: list[str]) -> list[str]:
        """Return a command whose file system is writable only where the service may write."""
        if not SERVICES[service].get("read_only") or not can_confine():
            return words
        # The /tmp and /var/lib/recalib of the images.
        writable = [self._programs.temporary, self._programs.home]
        writable += [self.volume(source) for source, _, only in mounts(service) if not only]
        for folder in writable:
            folder.mkdir(exist_ok=True)
        folders = [str(folder.resolve()) for folder in writable]
        groups = SERVICES[service].get("group_add", [])
        script = _CONFINED.replace(
            "$GROUPS_OPTION", f"--groups={','.join(groups)}" if groups else "--keep-groups"
        )
        return ["unshare", "--mount", "bash", "-c", script, service, *folders, "--", *words]

    def _words(self, service: str, command: list[str] | None) -> list[str]:
        entry = SERVICES[service].get("entrypoint", ["recalib"] if _is_ours(service) else [service])
        return self._program(service, [*entry, *(command or SERVICES[service].get("command", []))])

    def _program(self, service: str, words: list[str]) -> list[str]:
        program, *rest = [self.localized(service, word) for word in words]
        if program == "recalib":
            return recalib_command(*rest)
        path = sys.executable if program == "python" else shutil.which(program)
        assert path is not None, program
        return [path, *rest]

    def _environment(self, service: str) -> dict[str, str]:
        programs = self.folder / "programs"
        if not programs.exists():  # those of the images
            programs.mkdir()
            (programs / "recalib-backup").symlink_to(ROOT / "deploy" / "backup.sh")
            (programs / "recalib").symlink_to(Path(sys.executable).with_name("recalib"))
        environment = {
            name: self.localized(service, str(value))
            for name, value in SERVICES[service].get("environment", {}).items()
        }
        path = {"PATH": f"{programs}:{os.environ['PATH']}"}
        return {**self._programs.environment(), **path, **environment, **self.settings(service)}

    def settings(self, service: str) -> dict[str, str]:
        """Return the settings that differ from the container: ports, which this machine shares."""
        if service != "server":
            return {}
        return {
            "RECALIB_PORT": self.addresses["server:8000"].rpartition(":")[2],
            "RECALIB_GRPC_PORT": "0",
        }


def _is_ours(service: str) -> bool:
    return "build" in SERVICES[service]
