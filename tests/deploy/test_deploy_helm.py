"""The Helm chart as Helm renders it: valid for Kubernetes, and restricted by pod security."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from aggregator.settings import AggregatorSettings, load_settings
from silo_agent.settings import read_settings
from tests.deploy.validators import DEPLOY, ran, venv_tool, yaml_of

pytestmark = pytest.mark.slow
CHART = DEPLOY / "helm" / "sealsum"
ROLES = ("aggregator", "share-server", "silo")
BUCKET = {"url": "s3://federation/a", "access_key": "file:/data/access", "secret_key": "file:/data/secret"}
_RENDER = """
import json, sys
import helm_python as helm
chart = helm.Chart.load(sys.argv[1])
values = json.load(sys.stdin)
chart.validate_schema(values)
faults = helm.lint(sys.argv[1], values, strict=True)["errors"]
assert not faults, faults
json.dump(chart.render(values, name="party", namespace="clinic"), sys.stdout)
"""


def _values(role: str) -> dict[str, Any]:
    return {} if role == "aggregator" else dict(yaml_of(CHART / "ci" / f"{role}.yaml"))


def _render(values: dict[str, Any]) -> dict[str, str]:
    told = ran([venv_tool("python"), "-c", _RENDER, str(CHART)], given=json.dumps(values))
    rendered: dict[str, str] = json.loads(told[told.index("{") :])
    return {Path(name).name: text for name, text in rendered.items()}


@pytest.fixture(scope="module", params=ROLES)
def rendered(request: pytest.FixtureRequest) -> tuple[str, dict[str, str]]:
    """One role's files."""
    return request.param, _render(_values(request.param))


def test_kubernetes_knows_every_field(tmp_path: Path) -> None:
    documents = []
    for role in ROLES:
        # A PodMonitor is the Prometheus operator's own kind, of which Kubernetes has no schema.
        files = {name: text for name, text in _render(_values(role)).items() if name != "podmonitor.yaml"}
        documents += [text for text in files.values() if "kind:" in text]
    assert len(documents) == 5 * len(ROLES)
    placed = tmp_path / "all.yaml"
    placed.write_text("\n---\n".join(documents))
    ran([venv_tool("kubernetes-validate"), "--strict", str(placed)])


def test_every_container_keeps_the_restricted_standard(rendered: tuple[str, dict[str, str]]) -> None:
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/; and a read-only root."""
    _, files = rendered
    pod = yaml.safe_load(files["statefulset.yaml"])["spec"]["template"]["spec"]
    context = pod["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["runAsUser"] == context["runAsGroup"] == 65532
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert not any(pod.get(name) for name in ("hostNetwork", "hostPID", "hostIPC"))
    for container in [*pod.get("initContainers", ()), *pod["containers"]]:
        confined = container["securityContext"]
        assert confined["allowPrivilegeEscalation"] is False
        assert confined["capabilities"] == {"drop": ["ALL"]}
        assert confined["readOnlyRootFilesystem"] is True
        assert not any("hostPort" in port for port in container.get("ports", ()))
        assert "memory" in container["resources"]["limits"]
    allowed = {"name", "configMap", "emptyDir", "secret", "persistentVolumeClaim"}
    assert all(volume.keys() <= allowed for volume in pod["volumes"])


def test_keys_are_opened_to_no_group_and_one_pod_alone_writes(rendered: tuple[str, dict[str, str]]) -> None:
    """With fsGroup Kubernetes makes a volume's files readable to the group, which the programs refuse."""
    _, files = rendered
    spec = yaml.safe_load(files["statefulset.yaml"])["spec"]
    assert spec["replicas"] == 1
    assert spec["volumeClaimTemplates"][0]["spec"]["accessModes"] == ["ReadWriteOncePod"]
    assert spec["template"]["spec"]["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"
    settings = yaml.safe_load(files["configmap.yaml"])["data"]
    state = yaml.safe_load(next(text for name, text in settings.items() if name.endswith(".yaml")))[
        "state_dir"
    ]
    assert state.startswith("/var/lib/sealsum/")


def test_the_programs_read_the_settings_that_the_chart_writes(
    rendered: tuple[str, dict[str, str]], tmp_path: Path
) -> None:
    role, files = rendered
    for name, text in yaml.safe_load(files["configmap.yaml"])["data"].items():
        (tmp_path / name).write_text(text)
    if role == "silo":
        assert read_settings(tmp_path / "silo.yaml").health is not None
    else:
        assert load_settings(tmp_path / "server.yaml", AggregatorSettings).health is not None


def test_a_silo_is_served_to_nobody() -> None:
    files = _render(_values("silo"))
    assert yaml.safe_load(files["service.yaml"])["spec"].get("ports") is None
    doors = yaml.safe_load(files["networkpolicy.yaml"])["spec"]["ingress"]
    assert [port for door in doors for port in door["ports"]] == [{"port": "health"}]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"role": "silo"}, "aggregator_url"),
        ({"role": "registrar"}, "role"),
        ({"gpu": 1}, "gpu"),
        ({"settings": {"state_dir": "/srv"}}, "settings"),
        ({"image": {"repository": "x", "digest": "sha256:12"}}, "digest"),
        ({"replicas": 2}, "replicas"),
        ({"settings": {"blobs": {"url": "s3://federation/a"}}}, "access_key"),
        ({"settings": {"blobs": {**BUCKET, "secret_key": "the-key-itself"}}}, "secret_key"),
        ({"settings": {"silo_bytes_max": 1}}, "silo_bytes_max"),
        ({"settings": {"collect_after_s": 1}}, "collect_after_s"),
    ],
)
def test_values_that_fit_no_party_are_refused(values: dict[str, Any], told: str) -> None:
    with pytest.raises(AssertionError, match=f"HelmValuesError(.|\n)*{told}"):
        _render(values)


def test_the_schema_of_values_is_a_schema() -> None:
    ran([venv_tool("check-jsonschema"), "--check-metaschema", str(CHART / "values.schema.json")])


def test_enrolment_copies_the_token_where_nobody_else_reads_it(tmp_path: Path) -> None:
    """The script of the init container, run: with its two directories elsewhere and a program that looks."""
    pod = yaml.safe_load(_render(_values("silo"))["statefulset.yaml"])["spec"]["template"]["spec"]
    shell, flags, script = pod["initContainers"][0]["command"]
    for name in ("token", "tmp", "state", "bin"):
        (tmp_path / name).mkdir()
    (tmp_path / "token" / "token").write_text("secret")
    (tmp_path / "token" / "token").chmod(0o440)
    program = tmp_path / "bin" / "sealsum"
    program.write_text('#!/bin/sh\necho "$@"; stat -c %a "$4"; touch "$6/federation.json"\n')
    program.chmod(0o755)
    moved = re.sub(r"(?<![\w/])/(var/lib/sealsum/state|token/token|tmp/token)\b", f"{tmp_path}/\\1", script)
    moved = moved.replace("/var/lib/sealsum/state", "/state")
    environment = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}

    def start() -> str:
        done = subprocess.run(
            [shell, flags, moved], env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout

    said = start().splitlines()
    assert said[0].startswith("silo enroll --token-file")
    assert said[1] == "600"
    assert start() == ""  # enrolled already
