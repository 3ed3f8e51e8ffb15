"""`examples/ray-cluster.yaml` is a file that Ray's cluster launcher takes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

FILE = Path(__file__).parents[2] / "examples" / "ray-cluster.yaml"


def test_the_example_of_a_cluster_is_valid_by_rays_own_schema() -> None:
    pytest.importorskip("ray")
    from ray.autoscaler._private.util import prepare_config, validate_config

    validate_config(prepare_config(yaml.safe_load(FILE.read_text(encoding="utf-8"))))
