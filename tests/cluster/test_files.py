"""The files of `cluster/` for AWS and Kubernetes are what Ray and KubeRay take. They are not run there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from alray.config.loading.load import load_spec

ROOT = Path(__file__).parents[2]
CRD = "KUBERAY_RAYJOB_CRD"
"""Names the file `ray.io_rayjobs.yaml` of KubeRay, which is too large to keep here."""


def cluster_file(name: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((ROOT / "cluster" / name).read_text(encoding="utf-8"))
    return document


def test_ray_takes_the_file_for_aws() -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = cluster_file("aws.yaml")
    prepared = prepare_config(config)
    validate_config(prepared)
    # Ray's choice of an image has Python 3.6.
    images = {kind["node_config"].get("ImageId") for kind in prepared["available_node_types"].values()}
    assert images == {"ami-of-ubuntu-24.04"}
    sent = [source for source in config["file_mounts"].values() if not source.startswith("~")]
    assert all((ROOT / source).exists() for source in sent)
    needed = re.findall(r"COPY (.+) \S+", (ROOT / "cluster" / "Dockerfile").read_text(encoding="utf-8"))
    assert sorted(sent) == sorted(" ".join(needed).split())


def test_the_ray_job_fits_together() -> None:
    job = cluster_file("kuberay-rayjob.yaml")
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    cluster = job["spec"]["rayClusterSpec"]
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert f"ray=={cluster['rayVersion']}\n" in lock
    (group,) = cluster["workerGroupSpecs"]
    # Without autoscaling KubeRay wants all three.
    assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    pods = [cluster["headGroupSpec"]["template"]["spec"], group["template"]["spec"]]
    submitter = job["spec"]["submitterPodTemplate"]["spec"]
    for name in ("securityContext", "automountServiceAccountToken"):
        assert submitter[name] == pods[0][name] == pods[1][name]
    for name in ("securityContext", "image"):
        assert len({str(pod["containers"][0][name]) for pod in (submitter, *pods)}) == 1
    for pod in pods:
        volumes = {volume["name"] for volume in pod["volumes"]}
        assert {mount["name"] for mount in pod["containers"][0]["volumeMounts"]} == volumes
    bash, option, script = shlex.split(job["spec"]["entrypoint"])
    assert (bash, option) == ("bash", "-c")
    place, command = script.split(" && ")
    assert place == f"cd {pods[1]['containers'][0]['volumeMounts'][0]['mountPath']}"  # run folders are made below it
    alray, run, spec, *overrides = command.split()
    assert (alray, run) == ("alray", "run")
    stages = load_spec(ROOT / Path(spec).relative_to("/opt/alray"), overrides).spec.pipeline.stages
    assert stages == group["replicas"] * int(pods[1]["containers"][0]["resources"]["limits"]["cpu"])
    assert set(yaml.safe_load(job["spec"]["runtimeEnvYAML"])) == {"env_vars"}


def test_the_whole_command_of_the_ray_job_reaches_ray(tmp_path: Path) -> None:
    """The submitter puts the entrypoint into a line of bash, behind `ray job submit --`. Ray runs it by a shell."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, code in {
        "ray": "import subprocess, sys; print(subprocess.list2cmdline(sys.argv[4:]))",
        "alray": "import os, sys; print(os.getcwd(), *sys.argv[1:])",
    }.items():
        (programs / name).write_text(f"#!{sys.executable}\n{code}\n")
        (programs / name).chmod(0o755)
    runs = tmp_path / "runs"
    runs.mkdir()
    entrypoint = cluster_file("kuberay-rayjob.yaml")["spec"]["entrypoint"].replace("/runs", str(runs))
    environment = {"PATH": f"{programs}:{os.environ['PATH']}"}

    def said(*command: str) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=environment, check=True, stdout=subprocess.PIPE, text=True)
        return done.stdout.strip()

    sent = said("bash", "-ce", "--", f"ray job submit -- {entrypoint} ;")
    assert said("sh", "-c", sent) == f"{runs} run /opt/alray/specs/quickstart.yaml pipeline.stages=4"


def strict(schema: Any) -> Any:
    """The schema without room for keys that it does not name."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: strict(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        found.setdefault("additionalProperties", False)
    return found


@pytest.mark.skipif(CRD not in os.environ, reason=f"{CRD} does not name KubeRay's ray.io_rayjobs.yaml")
def test_kuberay_takes_the_ray_job() -> None:
    crd = yaml.load(Path(os.environ[CRD]).read_text(encoding="utf-8"), yaml.CSafeLoader)
    (schema,) = (each["schema"]["openAPIV3Schema"] for each in crd["spec"]["versions"] if each["name"] == "v1")
    validator = jsonschema.Draft202012Validator(strict(schema))
    job = cluster_file("kuberay-rayjob.yaml")
    assert [(error.json_path, error.message) for error in validator.iter_errors(job)] == []
    for wrong in ("minreplicas", "rayStartParam"):
        changed = cluster_file("kuberay-rayjob.yaml")
        changed["spec"]["rayClusterSpec"]["workerGroupSpecs"][0][wrong] = 1
        assert [error.validator for error in validator.iter_errors(changed)] == ["additionalProperties"]
