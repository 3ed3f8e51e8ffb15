"""`examples/ray-cluster.yaml` is valid for Ray's cluster launcher."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

FILE = Path(__file__).parents[2] / "examples" / "ray-cluster.yaml"


def test_the_example_matches_rays_own_schema() -> None:
    pytest.importorskip("ray")
    from ray.autoscaler._private.util import prepare_config, validate_config

    validate_config(prepare_config(yaml.safe_load(FILE.read_text(encoding="utf-8"))))
