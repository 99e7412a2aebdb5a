"""Kubernetes resources are valid, consistent, and match the programs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from recalib.cli import root_command
from recalib.settings import Settings
from service.app import create_app
from service.run import _STOP_SECONDS
from service.shutdown import GRACE_SECONDS
from tests.deploy.composed import ROOT, settings_in
from tests.deploy.images import stage
from tests.deploy.kubectl import rendered

_FOLDER = ROOT / "deploy" / "kubernetes"
_OPERATOR = json.loads((Path(__file__).parent / "schemas/monitoring.coreos.com.json").read_text())
#: The oldest version with all used features, and the newest of the validator.
_VERSIONS = ("1.30", "1.37")


def load_resources() -> dict[str, dict[str, Any]]:
    """Return every resource of the files by folder, kind and name."""
    resources = {}
    for path in sorted(_FOLDER.rglob("*.yaml")):
        for resource in yaml.safe_load_all(path.read_text()):
            if resource["kind"] not in ("Kustomization", "Component"):
                name = resource["metadata"]["name"]
                resources[f"{path.parent.name}/{resource['kind']}/{name}"] = resource
    return resources


RESOURCES = load_resources()
PODS = {
    name: resource["spec"].get("jobTemplate", resource)["spec"]["template"]
    for name, resource in RESOURCES.items()
    if resource["kind"] in ("Deployment", "Job", "CronJob")
}
CONTAINERS = {
    f"{name}/{container['name']}": (pod["spec"], container)
    for name, pod in PODS.items()
    for container in [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
}
#: Containers of this repository's images.
OURS = [name for name, (_, each) in CONTAINERS.items() if each["image"].startswith("recalib-")]
SERVER = RESOURCES["base/Deployment/recalib-server"]
EDGE = SERVER["spec"]["template"]["spec"]["containers"][1]
CONFIG = RESOURCES["base/ConfigMap/recalib"]["data"]


def check(resource: dict[str, Any]) -> None:
    """Raise if Kubernetes or the Prometheus operator would reject a resource."""
    if resource["apiVersion"].startswith("monitoring.coreos.com/"):
        jsonschema.validate(resource, _OPERATOR)
        return
    for version in _VERSIONS:
        kubernetes_validate.validate(resource, version, strict=True)


@pytest.mark.parametrize("name", RESOURCES)
def test_resource_matches_the_kubernetes_schema(name: str) -> None:
    check(RESOURCES[name])


def test_schemas_reject_misspelt_fields() -> None:
    """Without this, the test above would pass for any resource."""
    for name, resource in RESOURCES.items():
        if "spec" in resource:
            wrong = {**resource, "spec": {**resource["spec"], "misspelt": 1}}
            with pytest.raises((kubernetes_validate.ValidationError, jsonschema.ValidationError)):
                check(wrong)
            assert "misspelt" not in RESOURCES[name]["spec"]


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["base", "gpu", "monitoring"])
def test_kustomize_renders_every_folder(folder: str) -> None:
    """The output has all resources, in the namespace, with pinned images."""
    text = rendered(_FOLDER / folder)
    resources = list(yaml.safe_load_all(text))
    names = {
        # The name of a generated ConfigMap ends with a hash.
        re.sub(r"(recalib-edge)-\w+", r"\1", f"{resource['kind']}/{resource['metadata']['name']}")
        for resource in resources
    }
    folders = ("base", "gpu") if folder == "gpu" else (folder,)
    expected = {name.partition("/")[2] for name in RESOURCES if name.startswith(folders)}
    expected |= {"ConfigMap/recalib-edge"} if "base" in folders else set()
    assert names == expected
    for resource in resources:
        check(resource)
        assert resource["kind"] == "Namespace" or resource["metadata"]["namespace"] == "recalib"
    images = re.findall(r"image: (\S+)", text)
    pinned = r"(recalib-[a-z-]+|nginx):\d+\.\d+\.\d+"
    assert all(re.fullmatch(pinned, image) for image in images)


def test_documented_overlay_renders(tmp_path: Path) -> None:
    """The overlay of docs/deployment.md, with other images and another bucket."""
    page = (ROOT / "docs" / "deployment.md").read_text()
    text = re.findall(r"```yaml\n(# kustomization.yaml\n.*?)```", page, re.DOTALL)[0]
    base = os.path.relpath(_FOLDER / "base", tmp_path.resolve())
    text = re.sub(r"resources: .*", f"resources: [{base}]", text)
    (tmp_path / "kustomization.yaml").write_text(text)
    text = rendered(tmp_path)
    config = next(
        resource
        for resource in yaml.safe_load_all(text)
        if f"{resource['kind']}/{resource['metadata']['name']}" == "ConfigMap/recalib"
    )
    assert config["data"]["RECALIB_BLOB_URL"] == "s3://your-bucket/recalib"
    assert config["data"].keys() == CONFIG.keys()
    images = set(re.findall(r"image: (\S+)", text)) - {EDGE["image"]}
    assert images == {f"registry.example.com/recalib-{name}:0.1.0" for name in ("serve", "worker")}


@pytest.mark.slow
def test_tls_component_enables_tls(tmp_path: Path) -> None:
    """It changes the files and the ports of the proxy, and nothing else."""
    folder = os.path.relpath(_FOLDER, tmp_path.resolve())
    overlay = {"resources": [f"{folder}/base"], "components": [f"{folder}/tls"]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    resources = list(yaml.safe_load_all(rendered(tmp_path)))
    for resource in resources:
        check(resource)
    server = next(
        resource for resource in resources if resource["metadata"]["name"] == "recalib-server"
    )
    pod, before = server["spec"]["template"]["spec"], SERVER["spec"]["template"]["spec"]
    containers = {container["name"]: container for container in pod["containers"]}
    image = containers["server"]["image"]  # its tag is set when the files are rendered
    assert containers["server"] == {**before["containers"][0], "image": image}
    edge = containers["edge"]
    assert {port["name"]: port["containerPort"] for port in edge["ports"]} == {
        "http": 8443,
        "grpc": 8444,
    }
    mounts = [mount["mountPath"] for mount in edge["volumeMounts"]]
    assert sorted(mounts) == ["/etc/recalib", "/etc/recalib-tls", "/tls", "/tmp"]  # noqa: S108
    maps = {
        volume["name"]: volume["configMap"] for volume in pod["volumes"] if "configMap" in volume
    }
    assert maps["edge"]["name"] == maps["tls-configuration"]["name"]
    assert maps["tls-configuration"]["items"] == [{"key": "tls.conf", "path": "tls.conf"}]


def test_every_file_is_in_a_kustomization() -> None:
    for folder in ("base", "gpu", "monitoring"):
        listed = yaml.safe_load((_FOLDER / folder / "kustomization.yaml").read_text())["resources"]
        files = {path.name for path in (_FOLDER / folder).glob("*.yaml")} - {"kustomization.yaml"}
        assert files == set(listed) - {"../base", "../../nginx"}


@pytest.mark.parametrize("name", PODS)
def test_every_pod_meets_the_restricted_profile(name: str) -> None:
    """An unprivileged user, no service account token, and a seccomp profile."""
    pod = PODS[name]["spec"]
    context = pod["securityContext"]
    assert context["runAsNonRoot"]
    assert (context["runAsUser"], context["fsGroup"]) == (10001, 10001)
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert f"base/ServiceAccount/{pod['serviceAccountName']}" in RESOURCES


@pytest.mark.parametrize("name", PODS)
def test_pods_get_no_variables_of_services(name: str) -> None:
    """Kubernetes would set RECALIB_PORT=tcp://... for the Service `recalib`."""
    assert PODS[name]["spec"]["enableServiceLinks"] is False


@pytest.mark.parametrize("name", CONTAINERS)
def test_every_container_has_a_read_only_root_and_limits(name: str) -> None:
    pod, container = CONTAINERS[name]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"cpu", "memory"} <= set(container["resources"]["requests"])
    assert "memory" in container["resources"]["limits"]
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert set(mounted) <= set(volumes)
    home = {"/var/lib/recalib"} if container["image"].startswith("recalib-") else set()
    assert {"/tmp"} | home <= set(mounted.values())  # noqa: S108
    for name, volume in volumes.items():
        if "emptyDir" in volume:
            assert volume["emptyDir"]["sizeLimit"]
        else:
            assert {"configMap", "secret", "projected", "persistentVolumeClaim"} & set(volume)
            read_only = [
                mount["readOnly"]
                for mount in container["volumeMounts"]
                if mount["name"] == name and "persistentVolumeClaim" not in volume
            ]
            assert all(read_only)


@pytest.mark.parametrize("name", OURS)
def test_container_commands_options_and_settings_exist(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Subcommands, options and settings exist, and referenced files are mounted."""
    pod, container = CONTAINERS[name]
    image = container["image"].removeprefix("recalib-")
    assert 'ENTRYPOINT ["recalib"]' in stage(image)
    subcommand: Any = root_command()
    words = [] if "command" in container else container["args"]
    for word in words:
        if hasattr(subcommand, "commands"):
            subcommand = subcommand.commands[word]
    options = {option for parameter in subcommand.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options

    assert container["envFrom"] == [{"configMapRef": {"name": "recalib"}}]
    environment = CONFIG | {
        variable["name"]: variable["value"] for variable in container.get("env", [])
    }
    assert settings_in(environment) <= set(Settings.model_fields)
    for variable, value in environment.items():
        if not variable.endswith("_FILE"):
            monkeypatch.setenv(variable, value)
    Settings()
    mounted = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    secrets = secrets_of(pod)
    paths = [
        value for value in [*environment.values(), *container["args"]] if value.startswith("/")
    ]
    documented = (_FOLDER / "base" / "settings.yaml").read_text()
    for path in paths:
        if path in mounted:
            assert mounted[path] == "backups"
            continue
        folder, _, key = path.rpartition("/")
        assert secrets[mounted[folder]]
        assert f" {key}: " in documented


def secrets_of(pod: dict[str, Any]) -> dict[str, set[str]]:
    """Return the names of the Secrets in each volume of a pod."""
    return {
        volume["name"]: {volume["secret"]["secretName"]}
        if "secret" in volume
        else {source["secret"]["name"] for source in volume["projected"]["sources"]}
        for volume in pod["volumes"]
        if {"secret", "projected"} & set(volume)
    }


def test_every_key_is_a_secret_that_only_its_container_mounts() -> None:
    """All read the database and the store; nothing else is shared."""
    shared = {"recalib-database", "recalib-store"}
    mounting: dict[str, set[str]] = {}
    for name, (pod, container) in CONTAINERS.items():
        secrets = secrets_of(pod)
        for mount in container["volumeMounts"]:
            for secret in secrets.get(mount["name"], set()):
                mounting.setdefault(secret, set()).add(name)
    assert {secret: mounting[secret] for secret in mounting.keys() - shared} == {
        "recalib-admin-key": {"base/Job/recalib-prepare/admin"},
        "recalib-prometheus-key": {"base/Job/recalib-prepare/prometheus"},
        "recalib-backup-key": {"base/CronJob/recalib-backup/backup"},
    }
    documented = (_FOLDER / "base" / "settings.yaml").read_text()
    page = (ROOT / "docs" / "deployment.md").read_text()
    for secret in mounting:
        assert f"#   {secret} " in documented
        assert f"secret generic {secret} " in page


def test_namespace_enforces_audits_and_warns_at_a_version() -> None:
    labels = RESOURCES["base/Namespace/recalib"]["metadata"]["labels"]
    expected = {}
    for mode in ("enforce", "audit", "warn"):
        expected[f"pod-security.kubernetes.io/{mode}"] = "restricted"
        expected[f"pod-security.kubernetes.io/{mode}-version"] = f"v{_VERSIONS[0]}"
    assert labels == expected


def test_traffic_is_denied_by_default_and_allowed_to_named_peers() -> None:
    """Every rule names namespaces by label, and ports; the policies cover every pod."""
    policies = {
        name.rpartition("/")[2]: resource["spec"]
        for name, resource in RESOURCES.items()
        if resource["kind"] == "NetworkPolicy"
    }
    assert policies.pop("default-deny") == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    ports = {}
    for name, spec in policies.items():
        ((direction, rules),) = [(key, spec[key]) for key in ("ingress", "egress") if key in spec]
        assert spec["policyTypes"] == [direction.capitalize()]
        for rule in rules:
            assert rule["ports"]
            assert all("port" in port for port in rule["ports"])
            peers = rule["to" if direction == "egress" else "from"]
            assert peers
            for peer in peers:
                assert peer["namespaceSelector"]["matchLabels"]
                assert "ipBlock" not in peer
        if direction == "egress":
            ports[name] = {port["port"] for rule in rules for port in rule["ports"]}
    assert ports == {
        "recalib-dns": {53},
        "recalib-database": {5432},
        "recalib-store": {443},
        "recalib-collector": {4318},
        "recalib-issuer": {443},
        "recalib-webhooks": {443},
    }


@pytest.mark.slow
def test_documented_addresses_outside_the_cluster_render(tmp_path: Path) -> None:
    """The patches of docs/deployment.md replace the peers of the database and of webhooks."""
    page = (ROOT / "docs" / "deployment.md").read_text()
    names = ("database.yaml", "webhooks.yaml")
    for name in names:
        patch = re.findall(rf"```yaml\n(# {name}\n.*?)```", page, re.DOTALL)[0]
        (tmp_path / name).write_text(patch)
    base = os.path.relpath(_FOLDER / "base", tmp_path.resolve())
    overlay = {"resources": [base], "patches": [{"path": name} for name in names]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    policies = {
        resource["metadata"]["name"]: resource
        for resource in yaml.safe_load_all(rendered(tmp_path))
        if resource["kind"] == "NetworkPolicy"
    }
    for name, port in (("recalib-database", 5432), ("recalib-webhooks", 443)):
        check(policies[name])
        (rule,) = policies[name]["spec"]["egress"]
        assert [set(peer) for peer in rule["to"]] == [{"ipBlock"}]
        assert [item["port"] for item in rule["ports"]] == [port]


def test_backup_runs_every_day_and_keeps_a_week() -> None:
    job = RESOURCES["base/CronJob/recalib-backup"]["spec"]
    minute, hour, *days = job["schedule"].split()
    assert (minute.isdigit(), hour.isdigit(), days) == (True, True, ["*", "*", "*"])
    assert (job["concurrencyPolicy"], job["timeZone"]) == ("Forbid", "Etc/UTC")
    pod, container = CONTAINERS["base/CronJob/recalib-backup/backup"]
    folder, _, keep = container["args"]
    assert container["command"] == ["recalib-backup"]
    assert int(keep) >= 7
    (mount,) = [mount for mount in container["volumeMounts"] if mount["mountPath"] == folder]
    (volume,) = [volume for volume in pod["volumes"] if volume["name"] == mount["name"]]
    claim = volume["persistentVolumeClaim"]["claimName"]
    assert f"base/PersistentVolumeClaim/{claim}" in RESOURCES


def test_ports_and_probes_match_the_server() -> None:
    container = SERVER["spec"]["template"]["spec"]["containers"][0]
    fields = Settings.model_fields
    public = {"http": fields["port"].default, "grpc": fields["grpc_port"].default}
    environment = {variable["name"]: variable["value"] for variable in container["env"]}
    assert environment["RECALIB_PORT"] == str(public["http"])
    assert environment["RECALIB_GRPC_PORT"] == str(public["grpc"])
    assert container["ports"] == [{"name": "probes", "containerPort": public["http"]}]
    open_paths = create_app(Settings()).state.recalib.access.open_paths
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        request = container[probe]["httpGet"]
        assert request["path"] in open_paths
        assert request["port"] == "probes"
    # Clients reach the proxy, which reaches the server by the name and the ports of its file.
    service = RESOURCES["base/Service/recalib"]["spec"]["ports"]
    assert {port["targetPort"]: port["port"] for port in service} == public
    ports = {port["name"]: port["containerPort"] for port in EDGE["ports"]}
    text = (ROOT / "deploy" / "nginx" / "nginx.conf").read_text()
    for name, port in public.items():
        assert f"server server:{port};" in text
        assert f"listen {ports[name]}" in text
    assert SERVER["spec"]["template"]["spec"]["hostAliases"] == [
        {"ip": environment["RECALIB_TRUSTED_PROXIES"], "hostnames": ["server"]}
    ]
    for rule in RESOURCES["base/NetworkPolicy/recalib-server"]["spec"]["ingress"]:
        assert {port["port"] for port in rule["ports"]} <= set(ports)
    monitor = RESOURCES["monitoring/ServiceMonitor/recalib"]["spec"]["endpoints"][0]
    assert monitor["port"] in ports
    pod, container = CONTAINERS["base/Job/recalib-prepare/prometheus"]
    folder, _, key = container["args"][-1].rpartition("/")
    volume = next(
        mount["name"] for mount in container["volumeMounts"] if mount["mountPath"] == folder
    )
    (secret,) = secrets_of(pod)[volume]
    assert monitor["authorization"]["credentials"] == {"name": secret, "key": key}


def test_stop_grace_period_is_long_enough() -> None:
    """It exceeds the pause before SIGTERM and the server's shutdown time."""
    pod = SERVER["spec"]["template"]["spec"]
    pause = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pause >= 5
    assert pod["terminationGracePeriodSeconds"] > pause + GRACE_SECONDS + _STOP_SECONDS
    # The readiness timeout exceeds the server's registry timeout.
    probe = pod["containers"][0]["readinessProbe"]
    assert probe["timeoutSeconds"] > Settings.model_fields["load_seconds"].default


def test_selectors_match_their_pods() -> None:
    """Each selector matches the pods of its own resource only."""
    labels = {name: pod["metadata"]["labels"] for name, pod in PODS.items()}

    def matching(selector: dict[str, str]) -> set[str]:
        return {name for name, pairs in labels.items() if selector.items() <= pairs.items()}

    def selected_by(selector: dict[str, Any]) -> set[str]:
        expressions = selector.get("matchExpressions", [])
        assert all(expression["operator"] == "In" for expression in expressions)
        return {
            name
            for name in matching(selector.get("matchLabels", {}))
            if all(labels[name].get(item["key"]) in item["values"] for item in expressions)
        }

    servers = {"base/Deployment/recalib-server"}
    workers = {"base/Deployment/recalib-worker", "gpu/Deployment/recalib-worker-gpu"}
    for name, resource in RESOURCES.items():
        if resource["kind"] == "Deployment":
            assert matching(resource["spec"]["selector"]["matchLabels"]) == {name}
    assert matching(RESOURCES["base/Service/recalib"]["spec"]["selector"]) == servers
    budget = RESOURCES["base/PodDisruptionBudget/recalib-server"]["spec"]["selector"]
    assert matching(budget["matchLabels"]) == servers
    policies = {
        name.rpartition("/")[2]: selected_by(resource["spec"]["podSelector"])
        for name, resource in RESOURCES.items()
        if resource["kind"] == "NetworkPolicy"
    }
    expected = {"recalib-server": servers, "recalib-issuer": servers, "recalib-webhooks": workers}
    for name, selected in policies.items():
        assert selected == expected.get(name, set(PODS)), name
    spread = SERVER["spec"]["template"]["spec"]["topologySpreadConstraints"][0]
    assert matching(spread["labelSelector"]["matchLabels"]) == servers
    scaled = RESOURCES["base/HorizontalPodAutoscaler/recalib-server"]["spec"]["scaleTargetRef"]
    assert f"base/{scaled['kind']}/{scaled['name']}" in RESOURCES
    assert "replicas" not in SERVER["spec"], "the autoscaler sets the number"
    service = RESOURCES["base/Service/recalib"]["metadata"]["labels"]
    monitor = RESOURCES["monitoring/ServiceMonitor/recalib"]["spec"]
    assert monitor["selector"]["matchLabels"].items() <= service.items()
    assert monitor["jobLabel"] in service


def test_every_exception_to_a_policy_has_a_reason() -> None:
    """In deploy/checkov.yaml, a comment above it; two checks may share one."""
    text = (ROOT / "deploy" / "checkov.yaml").read_text()
    skipped = yaml.safe_load(text)["skip-check"]
    lines = text.partition("skip-check:\n")[2].splitlines()
    for number, line in enumerate(lines):
        if line.startswith("  - "):
            assert lines[number - 1].startswith(("  # ", "  - CKV_K8S_8")), line
    assert len(skipped) == len(set(skipped)) <= 5


def test_rules_convert_to_a_prometheus_rule() -> None:
    """The resource has all rules of both files."""
    program = _FOLDER / "monitoring" / "rules.py"
    process = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True)
    resource = yaml.safe_load(process.stdout)
    check(resource)
    rules = [rule for group in resource["spec"]["groups"] for rule in group["rules"]]
    texts = [
        (ROOT / "deploy" / "prometheus" / name).read_text()
        for name in ("alerts.yml", "recording.yml")
    ]
    assert len(rules) == len(re.findall(r"^ +- (?:alert|record): ", "\n".join(texts), re.MULTILINE))
