"""Options and `-c key=value` make one configuration."""

from __future__ import annotations

import pytest

from agent.cli.settings import read_config
from agent.config import Config
from agent.errors import ConfigError


def test_nothing_given_is_the_defaults() -> None:
    assert read_config({"runner.budget_usd": None}, []) == Config()


def test_settings_go_over_options_and_the_last_one_counts() -> None:
    config = read_config(
        {"runner.concurrency": 3, "variant": "ps_fa"}, ["runner.concurrency=4", "runner.concurrency=5"]
    )
    assert (config.runner.concurrency, config.variant) == (5, "ps_fa")


def test_values_are_read_as_yaml() -> None:
    config = read_config({}, ["sandbox.network_for_builds=false", "sandbox.cpus=0.5", "pipeline.pair_timeout=null"])
    assert (config.sandbox.network_for_builds, config.sandbox.cpus) == (False, 0.5)
    assert config.pipeline.pair_timeout is None


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("sandbox.memory_mb", "settings look like sandbox.memory_mb=512"),
        ("=3", "settings look like"),
        ("sandbox.memory=512", "unknown setting 'sandbox.memory'; there are: .*sandbox.memory_mb"),
        ("speed=9", "unknown setting 'speed'"),
        ("sandbox.memory_mb=lots", "setting sandbox.memory_mb: .*integer"),
        ("sandbox.memory_mb=1", "setting sandbox.memory_mb: .*greater than or equal to 64"),
        ("sandbox.memory_mb.x=1", "'memory_mb' is a value, not a group"),
        ("sandbox.memory_mb=", "setting sandbox.memory_mb: .*not nothing"),
        ("sandbox.memory_mb=99999999999999999999", "setting sandbox.memory_mb: .*less than or equal to"),
        ("sandbox.cpus=.inf", "setting sandbox.cpus: .*number"),
        ("sandbox=5", "setting sandbox is a group: "),
        ("sandbox.memory_mb=[", "the value cannot be read"),
    ],
)
def test_a_wrong_setting_is_named(setting: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_config({"sandbox.memory_mb": 512}, [setting])


def test_versions_and_dates_stay_what_was_typed() -> None:
    settings = ["sandbox.python=3.10", "sandbox.exclude_newer=2016-12-31", "sandbox.images={3.10: mine:1}"]
    sandbox = read_config({}, settings).sandbox
    assert (sandbox.python, sandbox.exclude_newer, sandbox.images) == ("3.10", "2016-12-31", {"3.10": "mine:1"})
    with pytest.raises(ConfigError, match=r"setting sandbox\.python"):
        read_config({}, ["sandbox.python=2.7"])
