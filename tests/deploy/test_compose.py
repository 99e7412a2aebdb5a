"""docker-compose.yml is valid, has no secrets, and matches the programs."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest
import yaml

from recalib.cli import root_command
from recalib.settings import Settings
from service.run import _STOP_SECONDS
from service.shutdown import GRACE_SECONDS
from tests.deploy.composed import ROOT, SERVICES, STACK, mounts, once, settings_in

OURS = [name for name, service in SERVICES.items() if "build" in service]
_SECRETS = {name for name in STACK["volumes"] if name.endswith("-secrets")}


def test_compose_file_is_valid() -> None:
    """Checked by the schema of the Compose specification."""
    process = subprocess.run(
        [
            Path(sys.executable).with_name("check-jsonschema"),
            "--builtin-schema",
            "vendor.compose-spec",
            ROOT / "docker-compose.yml",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert "${" not in yaml.safe_dump(STACK), "every variable has a default"


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_has_limits_and_a_health_check(name: str) -> None:
    """No capabilities, resource limits, a pinned image, and a health check if it keeps running."""
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert set(service["deploy"]["resources"]["limits"]) == {"cpus", "memory", "pids"}
    assert re.fullmatch(r"[\w./-]+:(?!latest)[\w.-]+(@sha256:[0-9a-f]{64})?", service["image"])
    assert service["read_only"] is True
    assert not {"privileged", "cap_add", "devices", "pid", "ipc"} & set(service)
    if once(name):
        assert "healthcheck" not in service
    else:
        assert service["restart"] == "unless-stopped"
        assert service["healthcheck"]["test"][0] == "CMD"
    for port in service.get("ports", []):
        assert port.startswith("127.0.0.1:")


@pytest.mark.parametrize("name", SERVICES)
def test_no_service_runs_as_root(name: str) -> None:
    """Except `secrets`, which creates the files of new volumes and has no network."""
    service = SERVICES[name]
    if name == "secrets":
        assert service["user"] == "0:0"
        assert service["network_mode"] == "none"
        return
    # Our images name their user in the Dockerfile.
    user = service.get("user", "10001:10001" if name in OURS else "0")
    assert int(user.partition(":")[0]) > 0


def test_store_listens_with_keys_only() -> None:
    """Its parts without keys are on loopback, off, or require a certificate that no client has."""
    command = SERVICES["s3"]["command"]
    for option in ("-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3.config=/secrets/config.json"):
        assert option in command
    assert [word for word in command if "0.0.0.0" in word] == ["-s3.ip.bind=0.0.0.0"]  # noqa: S104
    for option in ("-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.iam=false"):
        assert option in command
    source = {target: source for source, target, _ in mounts("s3")}["/etc/seaweedfs/security.toml"]
    settings = tomllib.loads((ROOT / source).read_text())
    assert settings["grpc"]["ca"] == "/secrets/grpc-ca.crt"
    assert set(settings["grpc"]["s3"]) == {"cert", "key"}


@pytest.mark.parametrize("name", SERVICES)
def test_every_dependency_has_a_condition(name: str) -> None:
    """Long-running services must be healthy, others must succeed; `secrets` comes first."""
    before = SERVICES[name].get("depends_on", {})
    for other, condition in before.items():
        expected = "service_completed_successfully" if once(other) else "service_healthy"
        assert condition == {"condition": expected}
    assert before or name == "secrets"


@pytest.mark.parametrize("name", SERVICES)
def test_volumes_and_networks_are_declared(name: str) -> None:
    service = SERVICES[name]
    assert set(service.get("networks", [])) <= set(STACK["networks"])
    for source, _, read_only in mounts(name):
        if source.startswith("."):
            assert (ROOT / source).exists(), source
            assert read_only
        else:
            assert source in STACK["volumes"]


def test_compose_file_contains_no_secrets() -> None:
    """Secrets are files, and only services that need one mount its volume."""
    for name, service in SERVICES.items():
        environment = service.get("environment", {})
        for variable, value in environment.items():
            if re.search(r"PASSWORD|SECRET|KEY|CREDENTIAL|DATABASE_URL", variable):
                assert str(value).startswith("/secrets/"), variable
        read_only_secrets = {
            source: read_only for source, _, read_only in mounts(name) if source in _SECRETS
        }
        if name == "secrets":
            assert set(read_only_secrets) == _SECRETS
            continue
        assert all(read_only_secrets.values())
        exceptions = {
            "key": {"recalib-secrets", "prometheus-secrets"},
            "backup": {"recalib-secrets", "backup-secrets"},
        }
        default = {"recalib-secrets"} if name in OURS else {f"{name}-secrets"}
        default = set() if name == "edge" else default
        assert set(read_only_secrets) == exceptions.get(name, default)
    for source in ("postgres-data", "s3-data", "backups"):
        assert len([name for name in SERVICES if source in str(SERVICES[name].get("volumes"))]) == 1


def test_database_and_store_have_no_outside_network() -> None:
    assert STACK["networks"]["inside"]["internal"]
    for name in ("postgres", "s3", "prepare", "key", "worker", "worker-gpu", "backup"):
        assert SERVICES[name]["networks"] == ["inside"]
        assert "ports" not in SERVICES[name]
    # Monitoring does not reach them either; only the server is in both networks.
    for name in ("prometheus", "grafana"):
        assert SERVICES[name]["networks"] == ["outside"]
    assert set(SERVICES["server"]["networks"]) == {"inside", "outside", "edge"}
    assert set(SERVICES["edge"]["networks"]) == {"edge"}


def test_commands_exist_in_the_cli() -> None:
    """Subcommands and options exist."""
    commands = root_command().commands
    for name in OURS:
        if "entrypoint" in SERVICES[name]:  # another program
            continue
        assert SERVICES[name].get("command", ["serve"])[0] in commands, name
        probe = SERVICES[name].get("healthcheck", {}).get("test", [])
        assert not probe or (probe[:3] == ["CMD", "python", "-m"] and find_spec(probe[3]))
    subcommand = commands["keys"].commands["create"]
    options = [word for word in SERVICES["key"]["command"] if word.startswith("--")]
    assert set(options) <= {option for parameter in subcommand.params for option in parameter.opts}


@pytest.mark.parametrize("name", OURS)
def test_environment_variables_are_settings(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are known and values are accepted."""
    environment = SERVICES[name].get("environment", {})
    assert settings_in(environment) <= set(Settings.model_fields)
    for variable, value in environment.items():
        if not variable.endswith("_FILE"):
            monkeypatch.setenv(variable, str(value))
    Settings()


def test_ports_agree() -> None:
    """Settings, defaults, image, published ports and Prometheus use the same ports."""
    settings = Settings.model_fields
    environment = SERVICES["server"]["environment"]
    ports = [environment["RECALIB_PORT"], environment["RECALIB_GRPC_PORT"]]
    assert ports == [str(settings[name].default) for name in ("port", "grpc_port")]
    assert "ports" not in SERVICES["server"]  # clients reach the proxy
    proxy = SERVICES["edge"]
    text = (ROOT / mounts("edge")[0][0] / "nginx.conf").read_text()
    for port, published in zip(ports, proxy["ports"], strict=True):
        address, outer, inner = published.split(":")
        assert (address, outer) == ("127.0.0.1", port)
        assert f"listen {inner}" in text
        assert f"server server:{port};" in text
    assert f"\nEXPOSE {' '.join(ports)}\n" in (ROOT / "Dockerfile").read_text()
    config = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())
    assert [str(config["scrape_configs"][0]["dns_sd_configs"][0]["port"])] == ports[:1]


def test_server_trusts_the_fixed_address_of_the_proxy() -> None:
    (network,) = STACK["networks"]["edge"]["ipam"]["config"]
    addresses = {
        name: SERVICES[name]["networks"]["edge"]["ipv4_address"] for name in ("server", "edge")
    }
    assert SERVICES["server"]["environment"]["RECALIB_TRUSTED_PROXIES"] == addresses["edge"]
    hosts = list(ip_network(network["subnet"]).hosts())
    assert set(map(ip_address, addresses.values())) <= set(hosts[1:])  # the first is the gateway


def test_stop_grace_period_is_long_enough() -> None:
    """It exceeds the shutdown time of the server and its workers."""
    seconds = int(SERVICES["server"]["stop_grace_period"].removesuffix("s"))
    assert seconds > GRACE_SECONDS + _STOP_SECONDS


def test_backup_is_scheduled_encrypted_and_probed() -> None:
    """The probe allows two hours more than the schedule; old backups are removed."""
    service = SERVICES["backup"]
    folder, key, keep = service["command"]
    assert int(keep) >= 7
    *_, loop, _ = service["entrypoint"]
    *_, probe, probed_folder = service["healthcheck"]["test"]
    assert probed_folder == folder
    minutes = [int(re.findall(r"-mmin -(\d+)", text)[0]) for text in (loop, probe)]
    wait = int(re.findall(r"sleep (\d+)", loop)[0]) // 60
    assert minutes == [24 * 60 - wait, 26 * 60]
    targets = {target: (source, only) for source, target, only in mounts("backup")}
    assert targets[folder] == ("backups", False)
    assert targets[key.rpartition("/")[0]] == ("backup-secrets", True)
    assert f"--mode 0700 {folder}" in (ROOT / "Dockerfile").read_text()


def test_database_connections_are_encrypted() -> None:
    """PostgreSQL has a certificate, which `make_secrets.py` creates for its host name."""
    command = SERVICES["postgres"]["command"]
    files = [word.partition("=")[2] for word in command if word.startswith("ssl_")]
    assert "ssl=on" in command
    assert files == ["/secrets/server.crt", "/secrets/server.key"]
    user, group = SERVICES["postgres"]["user"].split(":")
    assert SERVICES["secrets"]["group_add"] == [group] == [SERVICES["secrets"]["entrypoint"][-1]]
    assert user == group


def test_grafana_provisioning_paths_exist() -> None:
    """Data source and dashboards are at the provisioned paths."""
    folder = ROOT / "deploy" / "grafana" / "provisioning"
    source = yaml.safe_load((folder / "datasources" / "prometheus.yml").read_text())["datasources"]
    assert [entry["type"] for entry in source] == ["prometheus"]
    assert source[0]["url"] == "http://prometheus:9090"
    provider = yaml.safe_load((folder / "dashboards" / "recalib.yml").read_text())["providers"][0]
    targets = {target: place for place, target, _ in mounts("grafana")}
    dashboards = ROOT / targets[provider["options"]["path"]]
    assert len(list(dashboards.glob("*.json"))) >= 3
    assert (ROOT / targets["/etc/grafana/provisioning"]).samefile(folder)
