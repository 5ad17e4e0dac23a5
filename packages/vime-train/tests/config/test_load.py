"""Loading: overlays, overrides, and errors that name file, key, value and remedy."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vime_train.config import ConfigError, RunConfig, load_config, shipped


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_no_file_is_the_defaults() -> None:
    assert load_config() == RunConfig()


@pytest.mark.parametrize("name", shipped())
def test_every_shipped_configuration_loads(name: str) -> None:
    assert load_config([name]).name == Path(name).stem


def test_there_are_shipped_configurations() -> None:
    assert "arithmetic.toml" in shipped()


def test_later_files_win_key_by_key(tmp_path: Path) -> None:
    first = write(tmp_path / "a.toml", "seed = 1\n[layout]\ndp = 4\ncp = 2\n")
    second = write(tmp_path / "b.toml", "[layout]\ndp = 8\n")
    config = load_config([first, second])
    assert (config.seed, config.layout.dp, config.layout.cp) == (1, 8, 2)


def test_overrides_win_over_files_and_are_toml(tmp_path: Path) -> None:
    file = write(tmp_path / "a.toml", "[layout]\ndp = 4\n")
    config = load_config([file], ["layout.dp=2", "name='x'", "rollout.drop_zero_variance=false", "run_dir=plain/text"])
    assert (config.layout.dp, config.name, config.rollout.drop_zero_variance) == (2, "x", False)
    assert config.run_dir == "plain/text"


def test_an_override_value_may_hold_an_equals_sign() -> None:
    assert load_config(overrides=["name='a=b'"]).name == "a=b"


@given(dp=st.integers(1, 1000), lr=st.floats(1e-9, 1.0), name=st.text(max_size=20))
def test_a_configuration_survives_json(dp: int, lr: float, name: str) -> None:
    config = RunConfig.model_validate(
        {"layout": {"dp": dp}, "optimizer": {"lr": lr, "sgd_momentum": 0.5}, "name": name}
    )
    assert RunConfig.model_validate_json(config.model_dump_json()) == config


def test_a_configuration_is_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        RunConfig().layout.dp = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("layuot.dp=1", r"--set layuot\.dp=1: unknown key layuot\. Did you mean layout\?"),
        ("layout.ddp=1", r"unknown key layout\.ddp\. Did you mean layout\.dp\?"),
        ("rollout.max_tokens=1", r"unknown key rollout\.max_tokens\. Did you mean rollout\.max_"),
        ("layout.qqq=1", r"unknown key layout\.qqq\. Known here: cp, dp, "),
        ("layout.dp=0", r"layout\.dp = 0: input should be greater than or equal to 1"),
        ("layout.dp=two", r"layout\.dp = 'two': input should be a valid integer"),
        ("batching.objective='fast'", r"batching\.objective = 'fast': input should be 'step', 'lockstep'"),
        ("optimizer.lr=nan", r"optimizer\.lr = nan"),
        ("layout=3", r"layout = 3: "),
    ],
)
def test_a_wrong_override_is_told(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(overrides=[override])


@pytest.mark.parametrize("override", ["layout.dp", "=3", "layout..dp=1", ".dp=1"])
def test_an_override_that_is_none_is_told(override: str) -> None:
    with pytest.raises(ConfigError, match=r"write `section\.key=value`"):
        load_config(overrides=[override])


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        load_config(overrides=["layout.dp=0", "seeed=1"])
    assert len(str(error.value).splitlines()) == 2


def test_an_error_names_the_file_that_set_the_value(tmp_path: Path) -> None:
    first = write(tmp_path / "a.toml", "[layout]\ndp = 0\n")
    second = write(tmp_path / "b.toml", "[layout]\ncp = 2\n")
    with pytest.raises(ConfigError, match=r"a\.toml: layout\.dp = 0"):
        load_config([first, second])
    with pytest.raises(ConfigError, match=r"--set layout\.dp=-1: layout\.dp = -1"):
        load_config([first, second], ["layout.dp=-1"])


def test_a_missing_file_is_told_with_the_shipped_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nope\.toml: there is no such file\. Shipped configurations: .*arithmetic"):
        load_config([tmp_path / "nope.toml"])


@pytest.mark.parametrize("text", ["[layout\n", "a = \n", "dp = 1\ndp = 2\n"])
def test_a_broken_file_is_told_with_its_place(tmp_path: Path, text: str) -> None:
    file = write(tmp_path / "broken.toml", text)
    with pytest.raises(ConfigError, match=r"broken\.toml: not valid TOML: .*line"):
        load_config([file])


def test_a_file_that_is_not_text_is_told(tmp_path: Path) -> None:
    file = tmp_path / "binary.toml"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"binary\.toml: cannot be read"):
        load_config([file])


def test_a_directory_as_configuration_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config([tmp_path])
